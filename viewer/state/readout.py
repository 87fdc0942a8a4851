"""What the read-out line says about the selected head and query, in words a lecturer could say."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from viewer.state.attended import Attended
    from viewer.state.display import DisplayValue
    from viewer.state.documents import ImageDocument
    from viewer.state.selection import SelectionValue


def readout(
    document: ImageDocument, found: Attended | None, selection: SelectionValue, display: DisplayValue
) -> str:
    """Say distance (with protocol and unit), prefix mass and entropy of the shown head."""
    raise NotImplementedError
