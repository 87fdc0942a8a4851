"""Where shipped files (sample pictures, icons) lie, in a wheel as in a checkout."""

from __future__ import annotations

from pathlib import Path


def resource(*parts: str) -> Path:
    """Return the path of a shipped file.

    Parameters
    ----------
    *parts
        Path below ``resources/``, such as ``"images", "cat.jpg"``.

    Raises
    ------
    FileNotFoundError
        If the installation is incomplete.
    """
    here = Path(__file__).parent
    for root in (here / "resources", here.parent / "resources"):
        path = root.joinpath(*parts)
        if path.exists():
            return path
    raise FileNotFoundError(
        f"{'/'.join(parts)} is missing from the installed resources; reinstall patchreach"
    )
