"""The report of a study, in Markdown: what was studied, the finding in words, and the numbers by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from viewer.attention.measures import measure_named
from viewer.state.words import PROTOCOLS, model_words
from viewer.study.finding import reach, sentences
from viewer.study.heads import kinds_in
from viewer.study.names import FAILED, FIGURES, HEADS, SUMMARY, VALUES
from viewer.study.plot import BARS, pictures
from viewer.version import __version__

if TYPE_CHECKING:
    from viewer.study.heads import Head
    from viewer.study.summary import Summary

_KINDS = (
    "Kinds of heads are decided by the means of their numbers over the pictures, by rules with limits that "
    f"[{HEADS}]({HEADS}) shows for each head. Position's share: how much of the variance of a head's "
    "attention, over pictures, queries and keys, is explained by where query and key are, whatever a picture "
    "shows (smallest and largest of the layer's heads; 1: the same map for every picture). Of a few pictures "
    "it says little: of maps that have nothing in common it would be 1 over the number of pictures."
)
_NAMED = 20  # failed pictures named in the report


def told(summary: Summary) -> list[str]:
    """Return model, number of pictures and protocol, each as a few words, for a figure."""
    facts = summary.settings.facts
    model = model_words(facts["model"]["name"], facts["model"]["weights"])
    size = facts["input_size"]
    at = f" at {size[0]} × {size[1]} px" if size else ", each whole"
    protocol = f"distances: {PROTOCOLS[summary.settings.protocol]}"
    return [model, f"{pictures(summary.images)}{at}", protocol, BARS]


def report(
    summary: Summary, found: list[Head], source: str, failed: list[tuple[str, str]], unverified: int
) -> str:
    """Return the report.

    Parameters
    ----------
    summary
        Of the finished study.
    found
        Its heads.
    source
        What the pictures' folder or archive is called.
    failed
        Name and reason of some pictures that failed; the first of them are named.
    unverified
        Number of pictures of which not every layer was verified.
    """
    parts = [
        "# Study of attention heads over many pictures",
        _finding(summary),
        f"![mean attention distance of every head, {BARS}]({FIGURES[0]})",
        "## What was studied",
        _facts(summary, source, len(failed), unverified),
        "## By layer",
        _layers(summary, found),
        _KINDS,
        "## Measures",
        _measures(summary),
        "## Files",
        _files(bool(failed)),
    ]
    if failed:
        lines = [f"- {_cell(name)}: {_cell(reason)}" for name, reason in failed[:_NAMED]]
        if len(failed) > _NAMED:
            lines.append(f"- and {len(failed) - _NAMED} more, see [{FAILED}]({FAILED})")
        parts += ["## Pictures that could not be studied", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _finding(summary: Summary) -> str:
    return " ".join(sentences(summary))


def _facts(summary: Summary, source: str, failed: int, unverified: int) -> str:
    facts = summary.settings.facts
    model = facts["model"]
    verified = "every layer of every picture verified"
    if unverified:
        verified = f"in {pictures(unverified)} not every layer was verified"
    rows = {
        "pictures": f"{summary.images} of `{source}`" + (f"; {failed} failed" if failed else ""),
        "model": f"{model_words(model['name'], model['weights'])} ({model['backend']})",
        "SHA-256": f"`{model['sha256']}`" if model["sha256"] else "none: the weights have no file",
        "preprocessing": facts["preprocessing"],
        "pictures in a pass of the model": _passes(facts.get("batch", 1)),
        "protocol of distances": PROTOCOLS[summary.settings.protocol],
        "verification": verified,
        "made by": f"Patchreach {__version__}",
    }
    lines = [f"| {name} | {_cell(value)} |" for name, value in rows.items()]
    return "\n".join(["| | |", "|---|---|", *lines, *(f"\n{note}" for note in facts["notes"])])


def _passes(batch: int) -> str:
    return "one" if batch == 1 else f"up to {batch} when it was begun"


def _layers(summary: Summary, found: list[Head]) -> str:
    settings = summary.settings
    column = summary.column("mean_distance_px")
    layers = np.array(settings.layer_of)
    by_layer = {one.layer: one for one in reach(summary)}
    lines = [
        "| layer | heads | mean distance of its heads, px | nearest head, px (sd) | farthest head, px (sd) "
        "| of uniform | near heads | far heads | kinds | position's share |",
        f"|{'---|' * 10}",
    ]
    for index, heads in enumerate(settings.heads):
        mean, sd = summary.mean[layers == index, column], summary.sd[layers == index, column]
        if not np.isfinite(mean).any():
            lines.append(f"| {index} | {heads} | no distance{' |' * 8}")
            continue
        near, far = int(np.nanargmin(mean)), int(np.nanargmax(mean))
        cells = [
            f"{np.nanmean(mean):.1f}",
            *(f"{mean[at]:.1f} ({_number(sd[at])})" for at in (near, far)),
        ]
        one = by_layer.get(index)
        more = [f"{one.nearest:.2f} to {one.farthest:.2f}", one.near, one.far] if one else ["", "", ""]
        position = np.array([head.position for head in found if head.layer == index])
        position = position[np.isfinite(position)]
        share = f"{position.min():.2f} to {position.max():.2f}" if len(position) else ""
        cells += [*map(str, more), kinds_in(found, index), share]
        lines.append(f"| {index} | {heads} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _measures(summary: Summary) -> str:
    lines = ["| measure | what it is | unit | source |", "|---|---|---|---|"]
    for name in summary.settings.measures:
        measure = measure_named(name)
        lines.append(f"| `{name}` | {measure.words} | {measure.unit} | {_cell(measure.source)} |")
    return "\n".join(lines)


def _files(failed: bool) -> str:
    lines = [
        f"- [{SUMMARY}]({SUMMARY}): mean, standard deviation (n - 1), standard error and quartiles of every "
        "measure of every head.",
        f"- [{HEADS}]({HEADS}): kind of every head, the numbers that decided it, position's share, means.",
        f"- [{VALUES}/]({VALUES}/): the values of every picture, layer and head, as one table in several "
        "Parquet files.",
        *(f"- [{name}]({name})" for name in FIGURES),
    ]
    return "\n".join([*lines, *([f"- [{FAILED}]({FAILED})"] if failed else [])])


def _number(value: float) -> str:
    return f"{value:.1f}" if np.isfinite(value) else "one picture"


def _cell(text: str) -> str:
    return " ".join(str(text).replace("|", "/").split())
