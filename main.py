"""Run Patchreach from a checkout: ``python main.py [FILE ...]``."""

import sys

if __name__ == "__main__":
    try:
        from viewer.cli import main

        code = main()
    except KeyboardInterrupt:  # while the first modules are being loaded
        code = 130
    sys.exit(code)
