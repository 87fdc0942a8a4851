"""The lower left of the window: several views in one place, a tab each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QStackedWidget, QTabBar, QWidget

if TYPE_CHECKING:
    from PySide6.QtGui import QResizeEvent

    from viewer.state.palette import Palette

_GAP = 8  # pixels between the tabs and the controls beside them


class Panel(Protocol):
    """A widget that can stand in a tab.

    It may have a `header`, a widget with its controls: that stands beside the tabs where there is room, else
    below them.
    """

    def least_height(self) -> int:
        """Return the height at which it can be read, without its header."""

    def set_theme(self, palette: Palette) -> None:
        """Take other colours and another type size."""


class Tabs(QWidget):
    """Views that share one place. Any widget that is a `Panel` can be added; it dresses with the window.

    Signals
    -------
    currentChanged
        Another view came to the front; carries its place.
    enlarge_asked
        A tab was double-clicked.
    """

    currentChanged = Signal(int)
    enlarge_asked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._bar, self._stack, self._controls = QTabBar(), QStackedWidget(), QWidget()
        self._headers: list[QWidget | None] = []
        self._beside: bool | None = None
        self._bar.setObjectName("views")
        self._bar.setDocumentMode(True)
        self._bar.setUsesScrollButtons(True)
        # Arrow keys move the query, whatever was clicked on last.
        self._bar.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._bar.setDrawBase(False)
        self._bar.setExpanding(False)
        row = QHBoxLayout(self._controls)
        row.setContentsMargins(0, 0, 0, 0)
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(0)
        self._grid.setColumnStretch(1, 1)
        self._grid.setRowStretch(2, 1)
        self._grid.addWidget(self._bar, 0, 0)
        self._grid.addWidget(self._stack, 2, 0, 1, 2)
        self._bar.currentChanged.connect(self._bring)
        self._bar.tabBarDoubleClicked.connect(lambda _: self.enlarge_asked.emit())

    def add(self, panel: QWidget, title: str, tip: str) -> None:
        """Put a panel at the end, and take over its header."""
        header = getattr(panel, "header", None)
        self._headers.append(header)
        if header is not None:
            self._controls.layout().addWidget(header)
            header.setVisible(False)
        self._stack.addWidget(panel)
        self._bar.setTabToolTip(self._bar.addTab(title), f"{tip}. Double-click: larger, and back")
        self._arrange()

    def tabBar(self) -> QTabBar:
        """Return the tabs alone."""
        return self._bar

    def currentWidget(self) -> QWidget | None:
        """Return the panel in front."""
        return self._stack.currentWidget()

    def setCurrentWidget(self, panel: QWidget) -> None:
        """Bring a panel to the front."""
        self._bar.setCurrentIndex(self._stack.indexOf(panel))

    def setCurrentIndex(self, place: int) -> None:
        """Bring the panel at a place to the front."""
        self._bar.setCurrentIndex(place)

    @property
    def panels(self) -> list[Panel]:
        """All of them, in order."""
        return [self._stack.widget(place) for place in range(self._stack.count())]

    def least_height(self) -> int:
        """Return the height at which the panel in front can be read, with tabs and controls."""
        tabs, controls = self._bar.sizeHint().height(), self._controls.sizeHint().height()
        above = max(tabs, controls) if self._beside else tabs + controls
        front = self.currentWidget()
        return above + (0 if front is None else front.least_height())

    def minimumSizeHint(self) -> QSize:
        """Return what the panel in front needs: the others may be larger than there is room for beside it."""
        front = self.currentWidget()
        width = 0 if front is None else front.minimumSizeHint().width()
        return QSize(width, self.least_height())

    def set_theme(self, palette: Palette) -> None:
        """Take other colours and another type size."""
        for panel in self.panels:
            panel.set_theme(palette)
        self._arrange()

    def event(self, event: QEvent) -> bool:
        """Find the place of the controls anew where their words became longer or shorter."""
        done = super().event(event)
        if event.type() == QEvent.Type.LayoutRequest:
            self._arrange()
        return done

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Find the place of the controls anew."""
        super().resizeEvent(event)
        self._arrange()

    def _bring(self, place: int) -> None:
        if 0 <= place < self._stack.count():
            self._stack.setCurrentIndex(place)
            self._arrange()
            self.currentChanged.emit(place)

    def _arrange(self) -> None:
        """Put the controls of the panel in front beside the tabs, or below them where room is short."""
        place = self._stack.currentIndex()
        for other, header in enumerate(self._headers):
            if header is not None:
                header.setVisible(other == place)
        needed = self._bar.sizeHint().width() + _GAP + self._controls.minimumSizeHint().width()
        beside = needed <= self.width()
        if beside != self._beside:
            self._beside = beside
            for part, place in ((self._bar, (0, 0)), (self._controls, (0, 1) if beside else (1, 0, 1, 2))):
                self._grid.removeWidget(part)
                # Tabs alone have the whole width, or they would be scrolled.
                self._grid.addWidget(part, *(place if beside else (*place[:2], 1, 2)))
            self._controls.layout().setContentsMargins(_GAP if beside else 0, 0, 0, 0)
            self.updateGeometry()
