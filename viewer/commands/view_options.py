"""The options of ``render`` that say what scatter and likeness show; importing this costs nothing."""

from __future__ import annotations

from argparse import ArgumentParser

from viewer.commands import arguments


def add_view_options(parser: ArgumentParser) -> None:
    """Add the measures along the axes of the scatter, and what is compared."""
    parser.add_argument(
        "--x",
        type=arguments.x_measure,
        default="layer",
        metavar="NAME",
        help="what the scatter has across: layer (default), or a measure as for --y",
    )
    parser.add_argument(
        "--y",
        type=arguments.y_measure,
        default="mean_distance",
        metavar="NAME",
        help="what it has upwards: mean_distance (default), entropy_nats, nmi, ...; a wrong name lists all",
    )
    parser.add_argument(
        "--kinds", action="store_true", help="give each dot the colour and shape of its head's kind"
    )
    parser.add_argument(
        "--likeness",
        choices=("plain", "centred"),
        default="plain",
        help="cosines of maps as they are (default), or without the means of their columns",
    )
    parser.add_argument(
        "--between",
        choices=("layers", "heads"),
        default="layers",
        help="compare layers (of the head, or of all in the mean), or the heads of the layer",
    )
