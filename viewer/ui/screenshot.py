"""The picture of the window that ``--screenshot`` asks for, taken once nothing is left to do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal

if TYPE_CHECKING:
    from viewer.state.documents import Documents
    from viewer.ui.jobs import Jobs
    from viewer.ui.study_actions import StudyActions
    from viewer.ui.window import Window

_DELAY_MS = 300  # what came last is painted by then


class Screenshot(QObject):
    """Saves the window as it is when all is open, and closes it; of studies alone, the latest one's window.

    Parameters
    ----------
    path
        Where to.
    window, documents, jobs, studies
        What is shown, and the work that is waited for, which opens studies too.

    Signals
    -------
    failed
        Something wanted is not on the picture; why is on stderr.
    """

    failed = Signal()

    def __init__(
        self, path: str, window: Window, documents: Documents, jobs: Jobs, studies: StudyActions
    ) -> None:
        super().__init__(window)
        self._path, self._window, self._documents = Path(path), window, documents
        self._jobs, self._studies = jobs, studies
        jobs.idle.connect(self._wait)

    def _wait(self) -> None:
        if not self._jobs.busy:
            QTimer.singleShot(_DELAY_MS, self, self._take)

    def _take(self) -> None:
        if self._jobs.busy:
            return
        document, texts = self._documents.current, self._window.messages.texts
        study = self._studies.latest if document is None else None
        if study is not None:
            study.resize(study.sizeHint())  # on a small screen Qt opens it smaller
        filled = document.status == "done" if document is not None else study is not None and not texts
        saved = (study or self._window).grab().save(str(self._path))
        if not saved:
            self._tell(f"{self._path} could not be written")
        elif not filled:
            self._tell(*texts or (f"no picture was opened, so {self._path} shows the window without one",))
        self._window.close()

    def _tell(self, *texts: str) -> None:
        for text in texts:
            print(f"patchreach: {text}", file=sys.stderr)
        self.failed.emit()
