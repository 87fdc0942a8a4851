"""Effective fields averaged over the open pictures, as maps and scatter take them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.layout import TokenLayout
    from viewer.backends.effective_field import EffectiveField
    from viewer.backends.model import Model
    from viewer.images.decode import DecodedImage
    from viewer.state.documents import ImageDocument

MOST = 16
"""Open pictures that are averaged over, the first of the film strip; each takes passes of its own."""

_Name = TypeVar("_Name", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Averaged(Generic[_Name]):
    """Effective fields of several layers.

    Attributes
    ----------
    fields
        By the layer's number, or by the name of a network's stage.
    over
        Keys of the documents that were open then, those included that the model sees at another size.
    weights
        What a network's weights are, in words; empty for the model itself.
    """

    fields: Mapping[_Name, EffectiveField]
    over: tuple[int, ...]
    weights: str = ""

    @property
    def images(self) -> int:
        """Number of pictures that were averaged."""
        return next((field.images for field in self.fields.values()), 0)

    @property
    def pictures(self) -> str:
        """Over what they are the mean, in words: "this picture", "mean over 3 pictures"."""
        return "this picture" if self.images == 1 else f"mean over {self.images} pictures"

    @property
    def aside(self) -> str:
        """The same for a title, which says nothing of a picture that is seen."""
        return "" if self.images == 1 else f", mean of {self.images} pictures"


def field_size_words(field: EffectiveField) -> str:
    """Return how large a field is, as a sentence: on the map one patch may outshine all others."""
    down, across = field.deviation
    return (
        f"The field: side {field.size:.0f} px (over 4.55 % of the largest gradient), sigma "
        f"{down:.0f} × {across:.0f} px, mean distance {field.mean_distance:.0f} px"
    )


def keys_of(document: ImageDocument) -> tuple[int, ...]:
    """Return the keys of the documents that a document's fields are to be averaged over."""
    return tuple(one.key for one in document.strip or (document,))


def is_stale(result: object, document: ImageDocument) -> bool:
    """Return whether a result is an average over other pictures than those that are open now."""
    return isinstance(result, Averaged) and bool(document.strip) and result.over != keys_of(document)


def alike(document: ImageDocument, model: Model) -> list[DecodedImage]:
    """Return the pictures to average over: all, or where each has an input size of its own, those of one."""
    images = [one.image for one in document.strip] or [document.image]
    if model.preprocessing.crop_mode != "whole":
        return images
    size = document.image.pixels.shape
    return [image for image in images if image.pixels.shape == size] or [document.image]


def shares(map_: npt.NDArray[np.float64], layout: TokenLayout) -> npt.NDArray[np.float32]:
    """Sum a map of pixels over patches, as shares of the whole, float32 (rows, columns)."""
    sums = map_
    for axis in (0, 1):
        count, step, first = layout.grid[axis], layout.patch_px[axis], layout.origin[axis]
        starts = np.rint(first - step / 2 + step * np.arange(count)).astype(np.int64)
        sums = np.add.reduceat(sums, np.clip(starts, 0, map_.shape[axis] - 1), axis=axis)
    total = map_.sum()
    return (sums / total if total > 0 else np.zeros(layout.grid)).astype(np.float32)
