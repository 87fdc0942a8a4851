"""``patchreach models``: what can be opened by name."""

from __future__ import annotations

from argparse import Namespace

from viewer import streams
from viewer.backends.catalogue import model_names, names_not_shown, near_names
from viewer.commands.console import say


def run(options: Namespace) -> int:
    """List the names that a pattern fits, one a line, or what becomes of each family (``--coverage``).

    Returns
    -------
    int
        0; 1 if some families could not be run; 2 if no name fits or options do not fit together.
    """
    if options.coverage:
        from viewer.commands import coverage

        return coverage.run(options)
    if options.output is not None:
        say("-o goes with --coverage; names go to the terminal.")
        return 2
    names = model_names(options.pattern)
    if not names:
        say(_nothing(options.pattern))
        return 2
    streams.write("\n".join(names) + "\n")
    return 0


def _nothing(pattern: str) -> str:
    """Say why the list is empty: other models may well be called so."""
    others = names_not_shown(pattern)
    if not others:
        near = ", ".join(near_names(pattern.strip("*?")))
        return f"No model's name fits {pattern!r}.{f' Did you mean {near}?' if near else ''}"
    listing = ", ".join(others[:3])
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    return (
        f"timm has models whose names fit {pattern!r} ({listing}{more}), but none of those "
        "attends with a softmax, which is what Patchreach shows."
    )
