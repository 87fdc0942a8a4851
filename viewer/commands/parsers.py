"""The command lines of the headless commands; importing this costs nothing."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from viewer.commands import arguments
from viewer.commands.view_options import add_compare_options, add_looks, add_map, add_view_options
from viewer.version import __version__

USAGE = 2  # exit code

_MODEL_HELP = (
    "sample, a timm or torchvision/ name, hf:ORG/NAME, a transformers folder, or a file "
    "(.onnx, .pt2, .pt, .pth, .safetensors)"
)


_EPILOG = """\
commands (each explains itself with --help):
  measure IMAGE ... --model MODEL    distance, entropy and prefix mass of every head
  render IMAGE --model MODEL -o FIG  the figure the window would make
  study FOLDER --model M -o DIR      every head over many pictures: mean, spread, quartiles
  field --model NETWORK              what each layer of a convolutional network sees
  models [PATTERN]                   what can be opened by name
  lesson -o FOLDER                   the steps of the lesson as slides

A file that is called like a command is opened as ./measure.
"""


class Parser(ArgumentParser):
    """A parser that ends with its exit code also where nobody can be told what is wrong."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the command line, and end."""
        try:
            super().error(message)
        except OSError:  # standard error is full, which Python 3.10's parser does not expect
            sys.exit(USAGE)


def new(name: str, description: str, epilog: str | None = None) -> ArgumentParser:
    """Return a parser of one command, or of the window where `name` is empty."""
    return Parser(
        prog=f"patchreach {name}".strip(),
        description=description,
        epilog=epilog,
        formatter_class=RawDescriptionHelpFormatter,
        # A shortened option would change its meaning when a longer one comes to stand beside it.
        allow_abbrev=False,
    )


def window_parser() -> ArgumentParser:
    """Return the parser of a command line without a command."""
    parser = new("", "See how far every attention head of a Vision Transformer reaches.", _EPILOG)
    parser.add_argument(
        "files",
        type=arguments.name,
        nargs="*",
        metavar="FILE",
        help="pictures, model files, exported figures or the folders of studies",
    )
    parser.add_argument(
        "--sample", action="store_true", help="open the sample model and a shipped photograph"
    )
    parser.add_argument("--lesson", action="store_true", help="begin the lesson: how far can a patch see?")
    add_model(parser, required=False)
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
    parser = new("measure", "Measure distance, entropy and prefix mass of every head of every layer.")
    parser.add_argument("images", type=arguments.name, nargs="+", metavar="IMAGE", help="a picture file")
    add_model(parser, required=True)
    _add_protocol(parser)
    _add_what_if(parser)
    parser.add_argument(
        "--format",
        choices=("table", "csv", "json", "parquet"),
        help="by default the suffix of -o, else table",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to; by default the terminal")
    return parser


def _render_parser() -> ArgumentParser:
    parser = new("render", "Draw one figure, as the window would.")
    parser.add_argument("image", type=arguments.name, metavar="IMAGE", help="a picture file")
    add_model(parser, required=True)
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FIG", help="the figure: .png, .svg or .pdf"
    )
    parser.add_argument(
        "--view",
        choices=("overlay", "heads", "scatter", "likeness", "all"),
        default="overlay",
        help="what to draw, default %(default)s",
    )
    parser.add_argument("--layer", type=arguments.count, metavar="L", help="from 0; by default the last")
    parser.add_argument(
        "--head",
        type=arguments.head,
        default="mean",
        metavar="H",
        help="from 0, or all fused: mean (default), max, min",
    )
    parser.add_argument(
        "--query",
        type=arguments.query,
        metavar="R,C",
        help="a patch, by default the middle one, on the finest grid of any layer; or cls, reg1, ...; "
        "none leaves the query's own dots out of the scatter",
    )
    parser.add_argument(
        "--direction", choices=("from", "to"), default="from", help="what the query attends to, or who to it"
    )
    _add_protocol(parser)
    _add_what_if(parser)
    parser.add_argument("--unit", choices=("px", "patches"), default="px", help="of distances")
    add_view_options(parser)
    add_map(parser)
    add_compare_options(parser)
    add_looks(parser)
    return parser


def _study_parser() -> ArgumentParser:
    parser = new(
        "study",
        "Measure every head over many pictures: mean, standard deviation, standard error and quartiles.",
        "Ctrl+C stops it in good order; what was measured is kept, and --resume goes on from there.",
    )
    parser.add_argument(
        "source",
        type=arguments.name,
        metavar="FOLDER",
        help="a folder, a zip, a (webdataset) tar or a Parquet file of pictures; or sample",
    )
    add_model(parser, required=True)
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="DIR", help="a new folder for the results"
    )
    _add_protocol(parser)
    parser.add_argument("--resume", action="store_true", help="go on with the study that lies in DIR")
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="where the model runs: here (default), or as actors of ray, on one machine or many",
    )
    parser.add_argument(
        "--ray-address",
        type=arguments.name,
        metavar="ADDRESS",
        help="of a ray cluster, HOST:PORT or auto; default: RAY_ADDRESS, else this machine",
    )
    parser.add_argument(
        "--workers",
        type=arguments.positive,
        metavar="N",
        help="processes that decode pictures; with ray, actors; default: by the number of processors",
    )
    parser.add_argument(
        "--models",
        type=arguments.positive,
        metavar="N",
        help="copies of the model, each in a process of its own; default: 2 on the CPU, 1 on a GPU",
    )
    parser.add_argument(
        "--batch",
        type=arguments.positive,
        metavar="N",
        help="pictures that a PyTorch model runs on at once, if it can; default: 4 on the CPU, 16 on a GPU",
    )
    parser.add_argument(
        "--part",
        type=arguments.positive,
        default=32,
        metavar="N",
        help="pictures committed, and sent to an actor, together; a batch at least; default %(default)s",
    )
    return parser


def _lesson_parser() -> ArgumentParser:
    parser = new("lesson", "Draw every step of the lesson as a slide, 16:9; `patchreach --lesson` shows it.")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="where the slides go"
    )
    parser.add_argument("--format", choices=("png", "svg", "pdf"), default="png", help="default %(default)s")
    parser.add_argument(
        "--scale",
        type=arguments.count,
        choices=(1, 2, 3, 4),
        default=2,
        help="of a PNG, times 1280 x 720 pixels, default %(default)s",
    )
    parser.add_argument("--theme", choices=("light", "dark", "talk"), default="talk", help="of colours")
    parser.add_argument(
        "--ground", choices=("light", "dark", "transparent"), help="by default the theme's own"
    )
    return parser


def _field_parser() -> ArgumentParser:
    parser = new(
        "field", "List each layer of a convolutional network with its receptive field, stride and stage."
    )
    parser.add_argument(
        "--model",
        type=arguments.name,
        required=True,
        metavar="NETWORK",
        help="any timm or torchvision/ name, or a file that holds the network (.onnx, .pt2, TorchScript)",
    )
    parser.add_argument(
        "--image-size",
        type=arguments.size,
        metavar="HxW",
        help="input in pixels, height first; theoretical fields do not depend on it",
    )
    parser.add_argument(
        "--effective",
        type=arguments.name,
        nargs="+",
        default=[],
        metavar="IMAGE",
        help="also what each stage really depends on: by gradient, averaged over these pictures",
    )
    parser.add_argument(
        "--weights", type=arguments.name, metavar="FILE", help="a checkpoint to find effective fields with"
    )
    parser.add_argument(
        "--untrained", action="store_true", help="find effective fields with random weights instead"
    )
    parser.add_argument(
        "--beside",
        type=arguments.name,
        metavar="MODEL",
        help="also which heads of this model reach less far than each stage, on the picture --image",
    )
    parser.add_argument("--image", type=arguments.name, metavar="IMAGE", help="a picture for --beside")
    parser.add_argument(
        "--beside-weights", type=arguments.name, metavar="FILE", help="a checkpoint for the model of --beside"
    )
    _add_protocol(parser)
    parser.add_argument("--device", default="auto", metavar="DEVICE", help="of passes, by default the best")
    parser.add_argument(
        "--format", choices=("table", "csv", "json"), help="by default the suffix of -o, else table"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to; by default the terminal")
    return parser


def _models_parser() -> ArgumentParser:
    parser = new("models", "List the models that can be opened by name.")
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


def add_model(parser: ArgumentParser, required: bool) -> None:
    """Add the options that say which model, and how and where it runs."""
    parser.add_argument("--model", type=arguments.name, required=required, metavar="MODEL", help=_MODEL_HELP)
    parser.add_argument(
        "--weights", type=arguments.name, metavar="FILE", help="a checkpoint for the architecture MODEL names"
    )
    parser.add_argument(
        "--image-size",
        type=arguments.size,
        metavar="HxW",
        help="input in pixels, height first: 224x320, 518 (square), or whole; default: the model's",
    )
    parser.add_argument(
        "--device", default="auto", metavar="DEVICE", help="auto (default), cpu, cuda, cuda:1, mps"
    )


def _add_what_if(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--what-if",
        type=arguments.what_if,
        action="append",
        default=[],
        metavar="CHANGE",
        help="change the model while it runs (PyTorch), several times if need be: cb:strength=0.5, uniform, "
        "local:hops=2, skip:layer=3, head-removed:layer=3,head=2, temperature:t=2; with layers=0-3+7 or all, "
        "heads=... where heads can be told apart",
    )


def _add_protocol(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--protocol",
        choices=("renormalized", "original"),
        default="renormalized",
        help="of distances: over patches alone (default), or prefix tokens count as 0",
    )


COMMANDS: dict[str, Callable[[], ArgumentParser]] = {
    "measure": _measure_parser,
    "render": _render_parser,
    "study": _study_parser,
    "field": _field_parser,
    "models": _models_parser,
    "lesson": _lesson_parser,
}
