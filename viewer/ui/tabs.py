"""The lower left of the window: several views in one place, a tab each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QTabWidget, QWidget

from viewer.ui.marks import control_font

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

    Any widget that is a `Panel` can be added; it dresses with the window.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setDocumentMode(True)
        self.setUsesScrollButtons(True)
        # Arrow keys move the query, whatever was clicked on last.
        self.tabBar().setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.tabBar().setDrawBase(False)
        self.tabBar().setExpanding(False)
        self.currentChanged.connect(lambda _: self.updateGeometry())

    def add(self, panel: QWidget, title: str, tip: str) -> None:
        """Put a panel at the end."""
        self.setTabToolTip(self.addTab(panel, title), tip)

    @property
    def panels(self) -> list[Panel]:
        """All of them, in order."""
        return [self.widget(place) for place in range(self.count())]

    def least_height(self) -> int:
        """Return the height at which the panel in front can be read."""
        front = self.currentWidget()
        return self.tabBar().sizeHint().height() + (0 if front is None else front.least_height())

    def minimumSizeHint(self) -> QSize:
        """Return what the panel in front needs: the others may be larger than there is room for beside it."""
        front = self.currentWidget()
        width = 0 if front is None else front.minimumSizeHint().width()
        return QSize(width, self.least_height())

    def set_theme(self, palette: Palette) -> None:
        """Take other colours and another type size."""
        self.tabBar().setFont(control_font(palette))
        for panel in self.panels:
            panel.set_theme(palette)
