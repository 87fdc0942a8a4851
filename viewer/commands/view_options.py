"""The options of ``render`` that say what is drawn, and how; importing this costs nothing."""

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


def add_map(parser: ArgumentParser) -> None:
    """Add which map lies over the picture, with what belongs to some of them."""
    parser.add_argument(
        "--map",
        choices=("attention", "rollout", "class-rollout", "norms", "effective-field"),
        default="attention",
        help="what the picture shows over its patches, default %(default)s",
    )
    parser.add_argument(
        "--fusion", choices=("mean", "max", "min"), default="mean", help="of the heads in a rollout"
    )
    parser.add_argument(
        "--start-layer",
        type=arguments.count,
        default=0,
        metavar="L",
        help="first layer that is in a rollout, default %(default)s",
    )
    parser.add_argument(
        "--class",
        type=arguments.count,
        dest="map_class",
        metavar="C",
        help="number of the class of a class rollout, from 0; by default the model's best",
    )


def add_looks(parser: ArgumentParser) -> None:
    """Add how a figure looks: scale, theme, colours, and what lies over the patches."""
    parser.add_argument(
        "--scale", type=arguments.count, choices=(1, 2, 3, 4), default=2, help="of a PNG, default %(default)s"
    )
    parser.add_argument(
        "--theme",
        choices=("light", "dark", "talk"),
        default="light",
        help="talk: type large beside the figure, for slides",
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
        type=arguments.colormap,
        default="viridis",
        metavar="NAME",
        help="viridis (default), cividis, inferno, magma, plasma, batlow",
    )
    parser.add_argument(
        "--opacity",
        type=arguments.share,
        default=0.8,
        metavar="0..1",
        help="of the overlay, default %(default)s",
    )
    parser.add_argument("--no-fade", action="store_true", help="paint weak patches as opaque as strong ones")
    parser.add_argument("--grid", action="store_true", help="draw the patch grid")
    parser.add_argument(
        "--ring",
        type=arguments.count,
        default=0,
        metavar="K",
        help="outline what K stacked 3x3 convolutions reach",
    )


def add_compare_options(parser: ArgumentParser) -> None:
    """Add the convolutional network to compare with, and what effective fields are worked out of."""
    parser.add_argument(
        "--compare",
        type=arguments.name,
        metavar="NETWORK",
        help="draw the stages of a convolutional network on the scatter: resnet50, or what `field` takes",
    )
    parser.add_argument(
        "--compare-weights",
        type=arguments.name,
        metavar="FILE",
        help="a checkpoint for that network: also draw its effective fields",
    )
    parser.add_argument(
        "--compare-untrained", action="store_true", help="draw those with random weights instead"
    )
    parser.add_argument(
        "--stage",
        metavar="NAME",
        help="with --map effective-field: of this stage of the network; trained weights are the default",
    )
    parser.add_argument(
        "--over",
        type=arguments.name,
        nargs="+",
        default=[],
        metavar="IMAGE",
        help="further pictures that effective fields are averaged over",
    )
