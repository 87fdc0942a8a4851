"""Options that would have nothing to act on are refused in a sentence, and never ignored in silence.

A rule is an option, when it does something, and what to say where it would not. The sentence may name the
other options as ``{map}``; the first rule that is broken speaks.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from viewer.errors import InputError

_PICTURE = ("overlay", "all")
_OF_QUERY = ("attention", "rollout")  # maps that ask a query and differ with heads' scales


class Rule(NamedTuple):
    """When an option does something, and the sentence for where it would not."""

    option: str
    acts: Callable[[Namespace], bool]
    sentence: str


def refuse_idle(command: str, options: Namespace, arguments: Sequence[str]) -> None:
    """Refuse the first option that was given and does nothing together with the others.

    Parameters
    ----------
    command
        "render", "field", ...; empty for the window.
    options
        What `arguments` mean.
    arguments
        As typed, without the command. Options can't be shortened, so each stands there by its whole name.

    Raises
    ------
    InputError
        With the sentence.
    """
    given = {word.partition("=")[0] for word in arguments if word.startswith("--")}
    for option, acts, sentence in RULES.get(command, ()):
        if option in given and not acts(options):
            raise InputError(sentence.format(**{**vars(options), "option": option}))


# The window


def _has_model(options: Namespace) -> bool:
    return options.model is not None


_WINDOW = tuple(
    Rule(option, _has_model, "{option} says how --model is opened; name the model with --model.")
    for option in ("--weights", "--image-size", "--device")
)


# render


def _shows_map(*kinds: str) -> Callable[[Namespace], bool]:
    return lambda options: options.view in _PICTURE and options.map in kinds


def _draws_levels(options: Namespace) -> bool:
    """Return whether the scatter has the mean distance upwards and layers across: there fields compare."""
    return options.view in ("scatter", "all") and (options.x, options.y) == ("layer", "mean_distance")


def _shows_stage(options: Namespace) -> bool:
    return _shows_map("effective-field")(options) and bool(options.stage)


def _takes_map(options: Namespace) -> bool:
    return options.view in _PICTURE or (options.map == "effective-field" and _draws_levels(options))


def _takes_layer(options: Namespace) -> bool:
    across_all = options.map in ("rollout", "class-rollout") or bool(options.stage)
    return options.view != "overlay" or not across_all


def _takes_head(options: Namespace) -> bool:
    return options.view != "overlay" or options.map == "attention"


def _fuses_heads(options: Namespace) -> bool:
    return options.view != "all" or options.map == "attention" or options.head not in ("max", "min")


def _takes_fused(options: Namespace) -> bool:
    return options.view != "likeness" or options.head not in ("max", "min")


def _takes_query(options: Namespace) -> bool:
    return options.view != "likeness"


def _takes_no_query(options: Namespace) -> bool:
    overlay = options.view == "overlay" and options.map not in _OF_QUERY
    return options.query != "none" or options.view == "scatter" or overlay


def _takes_direction(options: Namespace) -> bool:
    # On a scatter it decides whether the query has dots of its own.
    dots = options.view == "scatter" and options.query != "none"
    return options.view in ("heads", "all") or dots or _shows_map(*_OF_QUERY)(options)


def _takes_protocol(options: Namespace) -> bool:
    if options.view == "scatter":
        from viewer.state.axes import axis_of

        return any(axis_of(name, "original", "px").by_protocol for name in (options.x, options.y))
    return options.view == "all" or (_shows_map("attention")(options) and options.ring > 0)


def _takes_unit(options: Namespace) -> bool:
    distance = "mean_distance" in (options.x, options.y)
    return options.view == "all" or (options.view == "scatter" and distance)


def _takes_network(options: Namespace) -> bool:
    placed_in_words = options.view == "all" and not isinstance(options.head, str)
    # A stage without its map is refused with what it needs, once all options are known to be of use.
    on_map = options.view in _PICTURE and bool(options.stage)
    return placed_in_words or on_map or _draws_levels(options)


def _takes_network_weights(options: Namespace) -> bool:
    return _draws_levels(options) or _shows_stage(options)


def _averages_fields(options: Namespace) -> bool:
    of_network = options.compare_weights is not None or options.compare_untrained
    return (options.map == "effective-field" and _takes_map(options)) or (
        bool(options.compare) and of_network and _draws_levels(options)
    )


def _takes_scale(options: Namespace) -> bool:
    return options.view in ("heads", "all") or _shows_map(*_OF_QUERY)(options)


def _draws_picture(options: Namespace) -> bool:
    return options.view in _PICTURE


def _draws_ring(options: Namespace) -> bool:
    return options.view in _PICTURE and not isinstance(options.query, str)


def _draws_scatter(options: Namespace) -> bool:
    return options.view in ("scatter", "all")


def _draws_likeness(options: Namespace) -> bool:
    return options.view == "likeness"


def _has_pixels(options: Namespace) -> bool:
    return Path(options.output).suffix.lower() not in (".svg", ".pdf")


_NO_SCATTER = "{option} is about the scatter, which --view {view} does not draw; give --view scatter or all."
_NO_PICTURE = "{option} is about the picture, which --view {view} does not draw; give --view overlay or all."
_NO_LIKENESS = "{option} says how --view likeness compares; give both."
_PNG_ONLY = "--scale multiplies the pixels of a PNG; an SVG or PDF has none, and prints sharp at any size."

_RENDER = (
    Rule(
        "--map",
        _takes_map,
        "--map {map} lies over the picture, which --view {view} does not draw; give --view overlay or all.",
    ),
    Rule("--fusion", _shows_map("rollout"), "--fusion joins the heads of a rollout; give --map rollout."),
    Rule(
        "--start-layer",
        _shows_map("rollout", "class-rollout"),
        "--start-layer is where a rollout begins; give --map rollout or class-rollout.",
    ),
    Rule("--class", _shows_map("class-rollout"), "--class is for a class rollout; give --map class-rollout."),
    Rule("--stage", _draws_picture, _NO_PICTURE),
    Rule(
        "--compare",
        _takes_network,
        "--compare draws levels on a scatter of mean distance by layer (--view scatter or all), or with "
        "--map effective-field and --stage a map; --view {view} as it is asked for shows neither.",
    ),
    *(
        Rule(
            option,
            _takes_network_weights,
            "{option} is for effective fields of a network: on a scatter of mean distance by layer, or with "
            "--map effective-field and --stage.",
        )
        for option in ("--compare-weights", "--compare-untrained")
    ),
    Rule(
        "--over",
        _averages_fields,
        "--over adds pictures to effective fields, and none are worked out; give --map effective-field.",
    ),
    Rule(
        "--layer",
        _takes_layer,
        "--layer has no part in this map: a rollout joins all layers (--start-layer is the first), and a "
        "stage of a network stands in place of a layer.",
    ),
    Rule(
        "--head",
        _takes_head,
        "--head has no part in --map {map}, which shows no single head (--fusion joins those of a rollout).",
    ),
    Rule(
        "--head",
        _fuses_heads,
        "--head {head} has no part beside --map {map}, which shows no single head; give mean or a number.",
    ),
    Rule("--head", _takes_fused, "--head {head} has no part in likeness; give mean or a head's number."),
    Rule("--query", _takes_query, "--query has no part in likeness, which is over all queries."),
    Rule(
        "--query",
        _takes_no_query,
        "--query none leaves nothing to show here; it is for --view scatter, and for maps that ask no query.",
    ),
    Rule(
        "--direction",
        _takes_direction,
        "--direction turns the attention of one query around, and this figure does not show that.",
    ),
    Rule("--ring", _draws_picture, _NO_PICTURE),
    Rule("--ring", _draws_ring, "--ring goes around a patch, and --query {query} is none."),
    Rule("--protocol", _takes_protocol, "--protocol is of distances, and this figure shows none."),
    Rule("--unit", _takes_unit, "--unit is of distances, and this figure shows none."),
    *(Rule(option, _draws_scatter, _NO_SCATTER) for option in ("--x", "--y", "--kinds")),
    *(Rule(option, _draws_likeness, _NO_LIKENESS) for option in ("--likeness", "--between")),
    *(Rule(option, _draws_picture, _NO_PICTURE) for option in ("--opacity", "--no-fade", "--grid")),
    Rule(
        "--color-scale",
        _takes_scale,
        "--color-scale is of heads side by side; what this figure shows has a scale of its own.",
    ),
    Rule(
        "--colormap",
        lambda options: options.view != "scatter",
        "--colormap colours maps; a scatter has none.",
    ),
    Rule("--scale", _has_pixels, _PNG_ONLY),
)


# field, study, lesson


def _runs_network(options: Namespace) -> bool:
    return bool(options.effective)


def _has_beside(options: Namespace) -> bool:
    return options.beside is not None


def _reads_size(options: Namespace) -> bool:
    return options.model != "sample" and Path(options.model).suffix.lower() != ".onnx"


_NO_EFFECTIVE = (
    "{option} is for effective fields, worked out on the pictures of --effective IMAGE ...; give both."
)
_NO_BESIDE = "{option} is about the model of --beside MODEL; give both."

_FIELD = (
    *(Rule(option, _runs_network, _NO_EFFECTIVE) for option in ("--weights", "--untrained")),
    *(Rule(option, _has_beside, _NO_BESIDE) for option in ("--beside-weights", "--protocol")),
    Rule(
        "--device",
        lambda options: _runs_network(options) or _has_beside(options),
        "--device is where --effective and --beside run; theoretical fields are read without a run.",
    ),
    Rule(
        "--image-size",
        _reads_size,
        "--image-size does nothing here: the fields of an ONNX graph are read without a picture's size.",
    ),
)

RULES: dict[str, tuple[Rule, ...]] = {
    "": _WINDOW,
    "render": _RENDER,
    "field": _FIELD,
    "study": (
        Rule(
            "--models",
            lambda options: options.engine == "local",
            "--models is of the local engine; with ray, --workers says how many actors have a model each.",
        ),
    ),
    "lesson": (Rule("--scale", lambda options: options.format == "png", _PNG_ONLY),),
}
