"""The command line. Only the command that is run imports what it needs: help and version cost nothing."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from viewer import interrupts, streams
from viewer.errors import Cancelled, PatchreachError
from viewer.version import __version__

if TYPE_CHECKING:
    from viewer.state.requests import ImageSize
    from viewer.state.selection import Query

_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_BROKEN_PIPE = 141  # 128 + SIGPIPE
_NOTHING_DONE = 2

_MODEL_HELP = (
    "sample, a timm or torchvision/ name, hf:ORG/NAME, a transformers folder, or a file "
    "(.onnx, .pt2, .pt, .pth, .safetensors)"
)
_EPILOG = """\
commands (each explains itself with --help):
  measure IMAGE ... --model MODEL    distance, entropy and prefix mass of every head
  render IMAGE --model MODEL -o FIG  the figure the window would make
  models [PATTERN]                   what can be opened by name

A file that is called like a command is opened as ./measure.
"""


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
        return _NOTHING_DONE
    finally:
        streams.settle_errors()


def _run(arguments: list[str]) -> int:
    command = arguments[0] if arguments else ""
    if command in _COMMANDS:
        options = _COMMANDS[command]().parse_intermixed_args(arguments[1:])
        with interrupts.put_off():
            module = import_module(f"viewer.commands.{command}")
        return module.run(options)
    return _launch(_window_parser().parse_intermixed_args(arguments))


def _launch(options: Namespace) -> int:
    with interrupts.put_off():
        from viewer.ui.screen import why_no_window

        problem = why_no_window()
    if problem:
        from viewer.commands.console import say

        say(problem)
        return _NOTHING_DONE
    if options.screenshot is not None:
        from viewer.export.writing import check_target

        check_target(Path(options.screenshot), (*options.files, options.model, options.weights))
    with interrupts.put_off():
        from viewer.app import launch

    return launch(**vars(options))


class _Parser(ArgumentParser):
    """A parser that ends with its exit code also where nobody can be told what is wrong."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the command line, and end."""
        try:
            super().error(message)
        except OSError:  # standard error is full, which Python 3.10's parser does not expect
            sys.exit(_NOTHING_DONE)


def _parser(name: str, description: str, epilog: str | None = None) -> ArgumentParser:
    return _Parser(
        prog=f"patchreach {name}".strip(),
        description=description,
        epilog=epilog,
        formatter_class=RawDescriptionHelpFormatter,
        # A shortened option would change its meaning when a longer one comes to stand beside it.
        allow_abbrev=False,
    )


def _window_parser() -> ArgumentParser:
    parser = _parser("", "See how far every attention head of a Vision Transformer reaches.", _EPILOG)
    parser.add_argument(
        "files", type=_name, nargs="*", metavar="FILE", help="pictures, model files or exported figures"
    )
    parser.add_argument(
        "--sample", action="store_true", help="open the sample model and a shipped photograph"
    )
    _add_model(parser, required=False)
    parser.add_argument("--theme", choices=("light", "dark", "talk"), help="by default the one chosen last")
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="start as on the first day, without touching the settings that are kept",
    )
    parser.add_argument(
        "--screenshot", metavar="PNG", help="save a picture of the window when filled, and end"
    )
    parser.add_argument("--version", action="version", version=f"patchreach {__version__}")
    return parser


def _measure_parser() -> ArgumentParser:
    parser = _parser("measure", "Measure distance, entropy and prefix mass of every head of every layer.")
    parser.add_argument("images", type=_name, nargs="+", metavar="IMAGE", help="a picture file")
    _add_model(parser, required=True)
    _add_protocol(parser)
    parser.add_argument(
        "--format",
        choices=("table", "csv", "json", "parquet"),
        help="by default the suffix of -o, else table",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to; by default the terminal")
    return parser


def _render_parser() -> ArgumentParser:
    parser = _parser("render", "Draw one figure, as the window would.")
    parser.add_argument("image", type=_name, metavar="IMAGE", help="a picture file")
    _add_model(parser, required=True)
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FIG", help="the figure: .png, .svg or .pdf"
    )
    parser.add_argument(
        "--view",
        choices=("overlay", "heads", "scatter", "all"),
        default="overlay",
        help="what to draw, default %(default)s",
    )
    parser.add_argument("--layer", type=_count, metavar="L", help="from 0; by default the last")
    parser.add_argument(
        "--head",
        type=_head,
        default="mean",
        metavar="H",
        help="from 0, or all fused: mean (default), max, min",
    )
    parser.add_argument(
        "--query",
        type=_query,
        metavar="R,C",
        help="a patch, by default the middle one, on the finest grid of any layer; or cls, reg1, ...",
    )
    parser.add_argument(
        "--direction", choices=("from", "to"), default="from", help="what the query attends to, or who to it"
    )
    _add_protocol(parser)
    parser.add_argument("--unit", choices=("px", "patches"), default="px", help="of distances")
    _add_looks(parser)
    return parser


def _add_looks(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--scale", type=_count, choices=(1, 2, 3, 4), default=2, help="of a PNG, default %(default)s"
    )
    parser.add_argument(
        "--theme", choices=("light", "dark", "talk"), default="light", help="talk: large type"
    )
    parser.add_argument(
        "--ground", choices=("light", "dark", "transparent"), help="by default the theme's own"
    )
    parser.add_argument("--no-title", action="store_true", help="leave title and facts out")
    parser.add_argument(
        "--color-scale",
        choices=("shared", "per-head"),
        default="shared",
        help="one for all heads, or each its own",
    )
    parser.add_argument(
        "--colormap",
        type=_colormap,
        default="viridis",
        metavar="NAME",
        help="viridis (default), cividis, inferno, magma, plasma, batlow",
    )
    parser.add_argument(
        "--opacity", type=_share, default=0.8, metavar="0..1", help="of the overlay, default %(default)s"
    )
    parser.add_argument("--no-fade", action="store_true", help="paint weak patches as opaque as strong ones")
    parser.add_argument("--grid", action="store_true", help="draw the patch grid")
    parser.add_argument(
        "--ring", type=_count, default=0, metavar="K", help="outline what K stacked 3x3 convolutions reach"
    )


def _models_parser() -> ArgumentParser:
    parser = _parser("models", "List the models that can be opened by name.")
    parser.add_argument(
        "pattern", nargs="?", default="", metavar="PATTERN", help="part of a name, or with * and ?"
    )
    parser.add_argument(
        "--coverage",
        action="store_true",
        help="run a small model of each timm module (whose name fits), tell what is found; takes minutes",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="where the coverage goes; by default the terminal"
    )
    return parser


_COMMANDS: dict[str, Callable[[], ArgumentParser]] = {
    "measure": _measure_parser,
    "render": _render_parser,
    "models": _models_parser,
}


def _add_model(parser: ArgumentParser, required: bool) -> None:
    parser.add_argument("--model", type=_name, required=required, metavar="MODEL", help=_MODEL_HELP)
    parser.add_argument(
        "--weights", type=_name, metavar="FILE", help="a checkpoint for the architecture MODEL names"
    )
    parser.add_argument(
        "--image-size",
        type=_size,
        metavar="HxW",
        help="input in pixels, height first: 224x320, 518 (square), or whole; default: the model's",
    )
    parser.add_argument(
        "--device", default="auto", metavar="DEVICE", help="auto (default), cpu, cuda, cuda:1, mps"
    )


def _add_protocol(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--protocol",
        choices=("renormalized", "original"),
        default="renormalized",
        help="of distances: over patches alone (default), or prefix tokens count as 0",
    )


def _name(text: str) -> str:
    if not text:
        raise ArgumentTypeError("it is empty, and names nothing")
    return text


def _size(text: str) -> ImageSize:
    from viewer.state.requests import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def _colormap(text: str) -> str:
    from viewer.state.colormaps import COLORMAPS

    if text not in COLORMAPS:
        raise ArgumentTypeError(f"{_short(text)} is not one of {', '.join(COLORMAPS)}")
    return text


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,6}", text):
        raise ArgumentTypeError(f"{_short(text)} is no number from 0 to 999999")
    return int(text)


def _short(text: str) -> str:
    """Quote what was typed, not all of it if it is endless."""
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


def _head(text: str) -> int | str:
    return text if text in ("mean", "max", "min") else _count(text)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ArgumentTypeError(f"{_short(text)} is no number from 0 to 1")
    return value


def _query(text: str) -> Query:
    found = re.fullmatch(r"\s*\(?\s*([0-9]{1,6})\s*,\s*([0-9]{1,6})\s*\)?\s*", text)
    if found:
        return int(found[1]), int(found[2])
    if re.fullmatch(r"[A-Za-z]\w*", text):
        return text
    raise ArgumentTypeError(
        f"{_short(text)} is no query; write ROW,COLUMN, or a prefix token's name such as cls"
    )
