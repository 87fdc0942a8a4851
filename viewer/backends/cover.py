"""What is asked of token layouts: a grid all over the picture."""

from __future__ import annotations

from viewer.attention.layout import TokenLayout


def require_cover(layout: TokenLayout, size: tuple[int, int]) -> None:
    """Refuse a grid that does not span the picture: its places were averaged with others on the way.

    Parameters
    ----------
    layout
        Of queries or keys; without places it asks for nothing.
    size
        Height and width of the input in pixels.

    Raises
    ------
    ValueError
        If the patches leave out, or stand out over, more than one patch along an axis; a clause.
    """
    for count, step, side in zip(layout.grid, layout.patch_px, size, strict=True):
        if layout.placed and abs(count * step - side) > step:
            raise ValueError(
                f"{_words(layout)} of {layout.patch_px[0]:g} x {layout.patch_px[1]:g} px do not cover "
                f"a picture of {size[0]} x {size[1]} px"
            )


def _words(layout: TokenLayout) -> str:
    return f"{layout.grid[0]} x {layout.grid[1]} patches"
