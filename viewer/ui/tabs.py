"""The lower left of the window: several views in one place, a tab each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QTabWidget, QWidget

from viewer.ui.marks import font

if TYPE_CHECKING:
    from viewer.state.palette import Palette


class Panel(Protocol):
    """A widget that can stand in a tab."""

    def least_height(self) -> int:
        """Return the height at which it can be read."""

    def set_theme(self, palette: Palette) -> None:
        """Take other colours and another type size."""


class Tabs(QTabWidget):
    """Views that share one place; `currentChanged` speaks when another is brought to the front.

    Any widget that is a `Panel` can be added; it dresses with the window, and the place is high enough for
    each of them.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setDocumentMode(True)
        self.setUsesScrollButtons(True)
        # Arrow keys move the query, whatever was clicked on last.
        self.tabBar().setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.tabBar().setDrawBase(False)
        self.tabBar().setExpanding(False)

    def add(self, panel: QWidget, title: str, tip: str) -> None:
        """Put a panel at the end."""
        self.setTabToolTip(self.addTab(panel, title), tip)

    @property
    def panels(self) -> list[Panel]:
        """All of them, in order."""
        return [self.widget(place) for place in range(self.count())]

    def least_height(self) -> int:
        """Return the height at which each of them can be read."""
        highest = max((panel.least_height() for panel in self.panels), default=0)
        return self.tabBar().sizeHint().height() + highest

    def set_theme(self, palette: Palette) -> None:
        """Take other colours and another type size."""
        self.tabBar().setFont(font(palette))
        for panel in self.panels:
            panel.set_theme(palette)
