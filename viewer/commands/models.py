"""``patchreach models``: what can be opened by name."""

from __future__ import annotations

import sys
from argparse import Namespace

from viewer.backends.catalogue import model_names
from viewer.commands.console import say


def run(options: Namespace) -> int:
    """List the names that a pattern fits, one a line.

    Returns
    -------
    int
        0, or 2 if there are none.
    """
    names = model_names(options.pattern)
    if not names:
        say(f"No model's name fits {options.pattern!r}.")
        return 2
    sys.stdout.write("\n".join(names) + "\n")
    return 0
