"""Run Patchreach from a checkout: ``python main.py [FILE ...]``."""

import sys

from viewer.cli import main

if __name__ == "__main__":
    sys.exit(main())
