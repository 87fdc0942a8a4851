"""What the scatter shows: mean attention distance of every head against its layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from viewer.state.attended import Attended
    from viewer.state.display import DisplayValue
    from viewer.state.documents import ImageDocument
    from viewer.state.selection import HeadRef, SelectionValue


@dataclass(frozen=True, eq=False)
class Scatter:
    """The scatter, ready to paint: one dot a head.

    Attributes
    ----------
    layer, head
        int64 (dots,).
    distance
        float64 (dots,), mean over all patch queries, in the chosen unit and protocol.
    query_distance
        float64 (dots,), of the selected query alone; None while none is selected.
    prefix_mass
        float64 (dots,), mean attention on prefix tokens, 0 to 1.
    uniform
        Distance under uniform attention, in the same unit and protocol.
    convolution
        float64 (layers,), distance of a uniform square as wide as 1, 2, 3, ... stacked 3x3 convolutions reach.
    shown
        The head to emphasize.
    title, x_label, y_label, uniform_label, convolution_label
        With unit and protocol.
    """

    layer: npt.NDArray[np.int64]
    head: npt.NDArray[np.int64]
    distance: npt.NDArray[np.float64]
    query_distance: npt.NDArray[np.float64] | None
    prefix_mass: npt.NDArray[np.float64]
    uniform: float
    convolution: npt.NDArray[np.float64]
    shown: HeadRef
    title: str
    x_label: str
    y_label: str
    uniform_label: str
    convolution_label: str


def scatter(
    document: ImageDocument, found: Attended | None, selection: SelectionValue, display: DisplayValue
) -> Scatter | None:
    """Describe the scatter; None until the document is measured."""
    raise NotImplementedError
