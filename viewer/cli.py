"""The command line. Only the command that is run imports what it needs: help and version cost nothing."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from viewer import interrupts, streams
from viewer.commands.idle import refuse_idle
from viewer.commands.parsers import COMMANDS, USAGE, window_parser
from viewer.errors import Cancelled, PatchreachError

_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_BROKEN_PIPE = 141  # 128 + SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program.

    Parameters
    ----------
    arguments
        Without the program's name; by default those of the process.

    Returns
    -------
    int
        0 done; 1 some inputs failed; 2 usage or nothing could be done; 130 interrupted.
    """
    streams.prepare()
    try:
        try:
            return _run(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            streams.flush()
    except (KeyboardInterrupt, Cancelled):
        return _INTERRUPTED
    except BrokenPipeError:
        return _BROKEN_PIPE  # whoever read the output has seen enough
    except PatchreachError as error:
        from viewer.commands.console import say

        say(error)
        return USAGE
    finally:
        streams.settle_errors()


def _run(arguments: list[str]) -> int:
    command = arguments[0] if arguments else ""
    if command in COMMANDS:
        options = COMMANDS[command]().parse_intermixed_args(arguments[1:])
        refuse_idle(command, options, arguments[1:])
        with interrupts.put_off():
            module = import_module(f"viewer.commands.{command}")
        return module.run(options)
    options = window_parser().parse_intermixed_args(arguments)
    refuse_idle("", options, arguments)
    return _launch(options)


def _launch(options: Namespace) -> int:
    with interrupts.put_off():
        from viewer.ui.screen import why_no_window

        problem = why_no_window()
    if problem:
        from viewer.commands.console import say

        say(problem)
        return USAGE
    if options.screenshot is not None:
        from viewer.export.writing import check_target

        check_target(Path(options.screenshot), (*options.files, options.model, options.weights))
    with interrupts.put_off():
        from viewer.app import launch

    return launch(**vars(options))
