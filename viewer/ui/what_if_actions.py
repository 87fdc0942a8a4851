"""How the what-if is joined to the window: its tab, the line above the views, and figures opened again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QWidget

from viewer.state.palette import palette
from viewer.ui.elided import ElidedLabel
from viewer.ui.what_if_panel import WhatIfPanel
from viewer.ui.what_if_work import WhatIfWork

if TYPE_CHECKING:
    from collections.abc import Iterable

    from viewer.backends.what_if import Change
    from viewer.state.display import Display
    from viewer.state.documents import Documents
    from viewer.state.selection import Selection
    from viewer.state.what_if import WhatIf
    from viewer.ui.jobs import Jobs
    from viewer.ui.views import Views


class WhatIfLine(QWidget):
    """Says above all views what is changed and which side they show, and switches between the two."""

    def __init__(self, what_if: WhatIf, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._what_if = what_if
        self.words, self.switch = ElidedLabel(), QPushButton()
        self.words.setProperty("kind", "unverified")
        self.switch.setToolTip("Show all views of the model as it is, or of the changed one")
        row = QHBoxLayout(self)
        row.setContentsMargins(8, 1, 8, 1)
        row.addWidget(self.words, 1)
        row.addWidget(self.switch)
        self.switch.clicked.connect(self._turn)
        what_if.changed.connect(self._tell)
        self._tell()

    def _turn(self) -> None:
        self._what_if.show("before" if self._what_if.value.shown == "after" else "after")

    def _tell(self, _: object = None) -> None:
        value = self._what_if.value
        self.setVisible(value.result is not None)
        if value.result is not None:
            after = value.shown == "after"
            words = f"{value.sentence[0].upper()}{value.sentence[1:]}"
            self.words.say(words if after else f"Before the change. {words}")
            self.words.setToolTip(self.words.whole)
            self.switch.setText("Show before" if after else "Show after")


class WhatIfActions(QObject):
    """Connects the what-if with the window.

    Parameters
    ----------
    what_if
        What is changed.
    documents, selection, display
        What is shown.
    jobs
        What runs slow work.
    """

    def __init__(
        self,
        what_if: WhatIf,
        documents: Documents,
        selection: Selection,
        display: Display,
        jobs: Jobs,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._state = (documents, selection, display)
        self._what_if = what_if
        self.work = WhatIfWork(documents, what_if, jobs, self)
        self.panel: WhatIfPanel | None = None
        self.line: WhatIfLine | None = None

    def attach(self, views: Views) -> None:
        """Add the tab, and the line above the views."""
        self.panel = WhatIfPanel(*self._state, self._what_if)
        self.line = WhatIfLine(self._what_if, views)
        self.panel.set_theme(palette(self._state[2].value.theme))
        views.tabs.add(self.panel, "What if", "Change the model while it runs: before, after, difference")
        views.layout().insertWidget(0, self.line)

    def restore(self, changes: Iterable[Change]) -> None:
        """Take the changes of a figure that is opened again, whose model is open."""
        self._what_if.set_changes(changes)

    def expect(self, changes: Iterable[Change]) -> None:
        """Take the changes of a figure that is opened again with the model that comes now."""
        self._what_if.expect(changes)
