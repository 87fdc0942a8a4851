"""Which heads of the sample model the lesson points at: found by their numbers, not by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from viewer.state.selection import HeadRef, SelectionValue

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.state.documents import ImageDocument
    from viewer.state.selection import Query

# From the cat's one eye, this head of the sample model looks at the other.
EYE, EYE_HEAD = (6, 5), HeadRef(6, 5)

_EARLY = 3  # layers from the first on in which a convolution-like head is looked for
_ALIKE = 0.05  # distances that differ by no larger share are called alike


def at_the_corner(document: ImageDocument) -> SelectionValue:
    """Look from the top left patch of the nine."""
    return _look((0, 0), HeadRef(0, 0))


def at_the_eye(document: ImageDocument) -> SelectionValue:
    """Look from the cat's one eye."""
    return _look(EYE, EYE_HEAD)


def at_most_local(document: ImageDocument) -> SelectionValue:
    """Look from the same patch with the head that looks nearest in the first layers."""
    return _look(EYE, most_local(document))


def at_most_mixed(document: ImageDocument) -> SelectionValue:
    """Look with the farthest head of the layer whose heads differ most."""
    return _look(EYE, nearest_and_farthest(document)[1])


def at_most_on_prefix(document: ImageDocument) -> SelectionValue:
    """Look with the head that spends most on the class token."""
    return _look(EYE, most_on_prefix(document))


def no_heads(document: ImageDocument) -> tuple[HeadRef, ...]:
    """Name no head on the scatter."""
    return ()


def nearest_and_farthest(document: ImageDocument) -> tuple[HeadRef, HeadRef]:
    """Return the two ends of the layer whose heads differ most."""
    layer = most_mixed(document)
    found = patch_distances(document)[layer]
    return HeadRef(layer, int(found.argmin())), HeadRef(layer, int(found.argmax()))


def misjudged(document: ImageDocument) -> tuple[HeadRef, ...]:
    """Return the heads of which the distance does not tell all."""
    return tuple(dict.fromkeys((*alike_but_spread(document), most_on_prefix(document))))


def patch_distances(document: ImageDocument) -> list[npt.NDArray[np.float64]]:
    """Return the mean attention distance of every head in patches, renormalized, one array a layer."""
    return [layer.distance("renormalized", "patches") for layer in document.measures.layers]


def most_local(document: ImageDocument) -> HeadRef:
    """Return the head that looks nearest in the first layers."""
    return _least(patch_distances(document)[:_EARLY])


def most_mixed(document: ImageDocument) -> int:
    """Return the layer whose nearest and farthest head differ most."""
    return int(np.argmax([np.ptp(layer) for layer in patch_distances(document)]))


def most_on_prefix(document: ImageDocument) -> HeadRef:
    """Return the head that spends most of its attention on prefix tokens."""
    return _least([-layer.mean_prefix_mass() for layer in document.measures.layers])


def alike_but_spread(document: ImageDocument) -> tuple[HeadRef, HeadRef]:
    """Return the pair of heads of about the same distance that differ most in tokens, few before many."""
    heads = [
        (HeadRef(layer, head), distance, entropy)
        for layer, (distances, measured) in enumerate(
            zip(patch_distances(document), document.measures.layers, strict=True)
        )
        for head, (distance, entropy) in enumerate(zip(distances, measured.mean_entropy(), strict=True))
    ]
    pairs = (
        (few, many)
        for few in heads
        for many in heads
        if abs(few[1] - many[1]) <= _ALIKE * max(few[1], many[1])
    )
    few, many = max(pairs, key=lambda pair: pair[1][2] - pair[0][2])
    return few[0], many[0]


def _least(layers: list[npt.NDArray[np.float64]]) -> HeadRef:
    layer = int(np.argmin([found.min() for found in layers]))
    return HeadRef(layer, int(layers[layer].argmin()))


def _look(query: Query, head: HeadRef) -> SelectionValue:
    return SelectionValue(hovered=query, head=head)
