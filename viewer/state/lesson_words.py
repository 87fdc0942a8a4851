"""What the lesson says at each step: plain sentences whose numbers are read from the record on the screen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from viewer.state.lesson_looks import (
    EYE,
    EYE_HEAD,
    alike_but_spread,
    most_local,
    most_mixed,
    most_on_prefix,
    patch_distances,
)

if TYPE_CHECKING:
    from viewer.attention.record import AttentionRecord
    from viewer.attention.worked_example import Key, Sum
    from viewer.state.documents import ImageDocument
    from viewer.state.scene import SceneValue
    from viewer.state.selection import HeadRef

Paragraphs = tuple[str, ...]

_NEAR = 1e-3  # shares that differ by less are called equal


def sum_of(scene: SceneValue) -> Sum:
    """Return the softmax of the query on the screen, of a scene that shows the nine patches."""
    from viewer.attention.worked_example import explain

    query = scene.selection.query
    return explain(scene.document.record.layers[0], query if isinstance(query, tuple) else (0, 0))


def question(scene: SceneValue) -> Paragraphs:
    """Say what tokens, query and keys are."""
    found = sum_of(scene)
    first, second = found.token
    return (
        "A picture of nine patches, numbered 0 to 8 row by row. The diagonal is bright.",
        "Each patch becomes a token of two numbers: twice its brightness, and a tenth of its number. "
        f"Patch {found.query} is ({first:.1f}, {second:.1f}).",
        f"Now patch {found.query} asks: which patches are like me? It is the query, and all nine are keys.",
    )


def shares(scene: SceneValue) -> Paragraphs:
    """Take one softmax apart."""
    found = sum_of(scene)
    best, least = _strongest_other(found), min(found.keys, key=lambda key: key.share)
    return (
        "Score: multiply the numbers of query and key, add them up, divide by √2. "
        f"Patch {found.query} scores {best.score:.3f} with patch {best.number}, "
        f"{least.score:.3f} with patch {least.number}.",
        f"Softmax: take e to each score, such as e^{best.score:.4f} = {best.exponential:.2f}, "
        f"and divide by the sum of all nine, {found.total:.2f}.",
        f"So patch {best.number} gets a share of {best.share:.3f}, patch {least.number} one of "
        f"{least.share:.3f}. All nine shares add up to {sum(key.share for key in found.keys):.3f}.",
    )


def hop_by_hop(scene: SceneValue) -> Paragraphs:
    """Compare a stack of convolutions with one layer of attention."""
    found, hops = sum_of(scene), scene.display.ring
    reached = found.reached(hops)
    beyond = 1.0 - sum(key.share for key in reached)
    farthest = max(found.keys, key=lambda key: (key.hops, key.share))
    if hops == 0:
        now = f"No convolution yet: patch {found.query} knows only itself."
    else:
        who = "One 3x3 convolution" if hops == 1 else f"{hops} of them, stacked,"
        verb = "reaches" if hops == 1 else "reach"
        now = f"{who} {verb} {len(reached)} of the 9 patches (dashed)."
    rest = (
        "None of this query's attention lies outside."
        if len(reached) == len(found.keys)
        else f"{beyond:.3f} of this query's attention lies outside."
    )
    return (
        "A 3x3 convolution joins direct neighbours only. Each further one goes one hop on.",
        f"{now} {rest}",
        f"Patch {farthest.number} is {_hops(farthest.hops)} away: that takes "
        f"{_convolutions(farthest.hops)}. One attention layer gives it a share of {farthest.share:.3f} "
        "at once.",
    )


def content(scene: SceneValue) -> Paragraphs:
    """Compare a far patch with a near one, whatever their brightness is now."""
    found = sum_of(scene)
    far = max(found.keys, key=lambda key: (key.hops, key.number))
    near = next(key for key in found.keys if key.hops == 1 and key is not far)
    pair = (
        f"Patch {far.number} is {_hops(far.hops)} from patch {found.query} and gets a share of "
        f"{far.share:.3f}. Patch {near.number} is next to it and gets {near.share:.3f}."
    )
    if far.share > near.share + _NEAR:
        moral = "What a patch holds counts, not where it is: content beats proximity."
    elif abs(far.share - near.share) <= _NEAR:
        moral = "They are equally bright, so they get nearly the same: distance takes nothing away."
    else:
        moral = "Now the near one holds more of what the query asks for. Nearness itself adds nothing."
    return pair, moral


def trained(scene: SceneValue) -> Paragraphs:
    """Show one far look in a trained model."""
    record = scene.document.record
    weights = record.layers[EYE_HEAD.layer].weights(EYE)[EYE_HEAD.head]
    on_patches = weights[record.layout.patch_tokens].reshape(record.grid)
    (row, column), _ = _strongest_patch(record, EYE_HEAD, EYE)
    around = on_patches[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2].sum()
    down, across = row - EYE[0], column - EYE[1]
    px = math.hypot(down * record.patch_px[0], across * record.patch_px[1])
    hops = max(abs(down), abs(across))
    rows, columns = record.grid
    return (
        f"DINOv2 ViT-S/14 cuts the photograph into {rows} × {columns} patches of "
        f"{record.patch_px[0]:.0f} px. Each of its {len(record.layers)} layers has "
        f"{record.layers[0].heads} heads, and each head asks in its own way.",
        f"From the cat's one eye, patch {EYE}, head {EYE_HEAD.head} of layer {EYE_HEAD.layer} looks at the "
        f"other: {100 * around:.0f} % of its attention lies on patch ({row}, {column}) and its neighbours.",
        f"That is {_hops(hops)}, or {px:.0f} px: it would take {_convolutions(hops)}. The dashed "
        "square is what one reaches.",
    )


def early(scene: SceneValue) -> Paragraphs:
    """Show the head that looks nearest in the first layers."""
    document = scene.document
    record, head = document.record, most_local(document)
    here = patch_distances(document)[head.layer]
    inside, alike, spread = (
        _measured(document, head, name) for name in ("local_1", "offset_share", "effective_tokens")
    )
    patch, share = _strongest_patch(record, head, EYE)
    return (
        f"{_named(head).capitalize()} looks {_far(float(here[head.head]), record.patch_px)} away, on average "
        f"over all {len(record.layout.patch_tokens)} patches (renormalized), and spreads over "
        f"{spread:.1f} tokens.",
        f"{100 * inside:.0f} % of its attention on patches stays within one hop: what one 3x3 convolution "
        f"reaches (dashed). From here, {100 * share:.0f} % goes to patch {patch}.",
        f"All patches look in nearly the same way, as under a convolution: {100 * alike:.0f} % of how the "
        "map varies follows from the offset between query and key alone.",
        f"Other heads of this layer look up to {float(here.max()):.1f} patches away.",
    )


def mixed(scene: SceneValue) -> Paragraphs:
    """Read the scatter."""
    from viewer.attention.distance import convolution_distances, uniform_query_distance

    document = scene.document
    distances = patch_distances(document)
    layer = most_mixed(document)
    here = distances[layer]
    last = len(distances) - 1
    nearest_late = min(float(found.min()) for found in distances[-3:])
    uniform = float(uniform_query_distance(document.record.layout, unit="patches").mean())
    once = float(convolution_distances(document.record.layout, 1, "patches")[0])
    return (
        "Each dot is a head: how far it looks on average. Layers go from left to right.",
        f"Layer {layer} has both: head {int(here.argmin())} looks {float(here.min()):.1f} patches away, "
        f"head {int(here.argmax())} looks {float(here.max()):.1f}. In layers {last - 2} to {last} no head "
        f"looks less than {nearest_late:.1f} patches away.",
        f"The lines are for comparison: uniform attention looks {uniform:.1f} patches away, one 3x3 "
        f"convolution {once:.1f}, and each further one a little more.",
    )


def limits(scene: SceneValue) -> Paragraphs:
    """Say what the distance leaves out."""
    document = scene.document
    measures, distances = document.measures, patch_distances(document)
    few, many = alike_but_spread(document)
    spread = [_measured(document, head, "effective_tokens") for head in (few, many)]
    head = most_on_prefix(document)
    measured = measures.layers[head.layer]
    mass = _measured(document, head, "prefix_mass")
    original = float(measured.distance("original", "patches")[head.head])
    renormalized = float(distances[head.layer][head.head])
    return (
        f"Not how many: {_named(few)} and {_named(many)} look "
        f"{distances[few.layer][few.head]:.1f} and {distances[many.layer][many.head]:.1f} patches away, but "
        f"one spreads over {spread[0]:.0f} tokens, the other over {spread[1]:.0f} (exponential of the "
        "entropy).",
        f"Not what has no place: {_named(head)} spends {100 * mass:.0f} % on the class token. Left out and "
        f"renormalized, it looks {renormalized:.1f} patches away; counted as 0 (original protocol), "
        f"{original:.1f}. Always name the protocol.",
        "And uniform attention is a reference, not a goal: it looks far and sees nothing in particular.",
    )


def _strongest_other(found: Sum) -> Key:
    others = [key for key in found.keys if key.number != found.query]
    return max(others, key=lambda key: (key.share, key.hops))


def _measured(document: ImageDocument, head: HeadRef, name: str) -> float:
    from viewer.attention.measures import measure_named

    found = document.measures.layers[head.layer]
    return float(measure_named(name).of_heads(found, "renormalized")[head.head])


def _strongest_patch(
    record: AttentionRecord, head: HeadRef, query: tuple[int, int]
) -> tuple[tuple[int, int], float]:
    """Return the patch that a query attends to most, and with how much."""
    weights = record.layers[head.layer].weights(query)[head.head][record.layout.patch_tokens]
    row, column = divmod(int(weights.argmax()), record.grid[1])
    return (row, column), float(weights.max())


def _named(head: HeadRef) -> str:
    return f"head {head.head} of layer {head.layer}"


def _far(patches: float, patch_px: tuple[float, float]) -> str:
    return f"{patches:.1f} patches ({patches * patch_px[0]:.0f} px)"


def _hops(count: int) -> str:
    return "1 hop" if count == 1 else f"{count} hops"


def _convolutions(count: int) -> str:
    return "one 3x3 convolution" if count == 1 else f"{count} stacked 3x3 convolutions"
