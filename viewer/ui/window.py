"""The window: film strip, picture, heads, scatter and read-out, and what a person can ask for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QByteArray, QMimeData, QSize, Qt, Signal
from PySide6.QtGui import (
    QCloseEvent,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDropEvent,
    QGuiApplication,
    QPaintEvent,
)
from PySide6.QtWidgets import QFileDialog, QMainWindow, QStackedWidget, QVBoxLayout, QWidget

from viewer.state.palette import palette
from viewer.state.requests import ModelRequest
from viewer.ui import drops
from viewer.ui.activity import Activity
from viewer.ui.film_strip import FilmStrip
from viewer.ui.menus import Menus
from viewer.ui.messages import Messages
from viewer.ui.model_bar import ModelBar
from viewer.ui.splitter import Splitter
from viewer.ui.steps import Steps
from viewer.ui.toolbar import build_toolbar
from viewer.ui.welcome import Pending, Welcome

if TYPE_CHECKING:
    from viewer.state.display import Display, DisplayValue
    from viewer.state.documents import Documents, ImageDocument
    from viewer.state.preferences import Preferences
    from viewer.state.scene import Scene, SceneValue
    from viewer.state.selection import Selection
    from viewer.ui.jobs import Jobs
    from viewer.ui.model_picker import ModelPicker
    from viewer.ui.views import Views

_SIZE = QSize(1280, 860)
# Smaller, and a picture, its heads and the scatter can't all be read.
_LEAST, _LEAST_TALK = QSize(900, 600), QSize(1024, 700)


class Window(QMainWindow):
    """The main window. It shows state and says what a person asks for; others do the work.

    Parameters
    ----------
    documents, selection, display, scene
        The state it shows.
    jobs
        Whose progress it shows.
    preferences
        What was remembered; see `remembered` for what is to be remembered now.

    Signals
    -------
    painted
        The window is on the screen for the first time.
    paths_dropped, pictures_dropped
        Files and folders; pictures as data, with what to call them.
    model_asked, preprocessing_asked, export_asked
        A `ModelRequest`, a `Preprocessing`, an export request.
    sample_asked
        The sample model and picture.
    network_asked
        A convolutional network is to be chosen to compare with.
    lesson_asked
        The lesson is to begin.
    study_asked, open_study_asked
        Many pictures are to be studied; a study is to be opened.
    copy_asked
        A view is to be put on the clipboard.
    closed
        The window is about to close; everything in it still lives.
    """

    painted = Signal()
    paths_dropped = Signal(list)
    pictures_dropped = Signal(list, str)
    model_asked = Signal(object)
    preprocessing_asked = Signal(object)
    export_asked = Signal(object)
    sample_asked = Signal()
    network_asked = Signal()
    lesson_asked = Signal()
    study_asked = Signal()
    open_study_asked = Signal()
    copy_asked = Signal(str)
    closed = Signal()

    def __init__(
        self,
        documents: Documents,
        selection: Selection,
        display: Display,
        scene: Scene,
        jobs: Jobs,
        preferences: Preferences,
    ) -> None:
        super().__init__()
        self._documents, self._jobs, self._preferences = documents, jobs, preferences
        self._scene, self._views, self._was_painted = scene, None, False
        self.setWindowTitle("Patchreach")
        self.setAcceptDrops(True)
        self.steps = Steps(documents, selection)
        self.film_strip = FilmStrip(documents)
        self.model_bar = ModelBar(documents)
        self.activity = Activity(jobs)
        self.welcome, self.pending, self.stack = Welcome(), Pending(), QStackedWidget()
        self.split = Splitter("film strip", Qt.Orientation.Horizontal, self.film_strip, self.stack)
        whole = self._lay_out()
        self.messages = Messages(whole)
        self.toolbar = build_toolbar(documents, selection, display)
        self.addToolBar(self.toolbar)
        self._menus = Menus(self, selection, display)
        self._connect()
        self._restore()
        self._dress(display.value)
        display.changed.connect(self._dress)
        self._tell()

    def _lay_out(self) -> QWidget:
        self.stack.addWidget(self.welcome)
        self.stack.addWidget(self.pending)
        self.split.setStretchFactor(1, 1)
        self.split.setCollapsible(0, True)
        self.model_bar.add(self.activity)
        whole = QWidget()
        column = QVBoxLayout(whole)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        column.addWidget(self.model_bar)
        column.addWidget(self.split, 1)
        self.setCentralWidget(whole)
        return whole

    def _dress(self, display: DisplayValue) -> None:
        """Be no smaller than the theme's type allows, with a strip no wider than it needs."""
        self.setMinimumSize(_LEAST_TALK if display.theme == "talk" else _LEAST)
        strip = self.film_strip.width_for(palette(display.theme).points)
        self.split.propose([strip, max(self.width(), self.minimumWidth()) - strip])

    def _connect(self) -> None:
        self._documents.current_changed.connect(self._tell)
        self._documents.changed.connect(self._tell)
        self._documents.model_changed.connect(self._tell)
        self._scene.changed.connect(self._paint)
        self._jobs.crashed.connect(self.report_bug)
        self._jobs.started.connect(self._tell)
        self._jobs.idle.connect(self._tell)
        self.welcome.images_asked.connect(self.choose_images)
        self.welcome.model_asked.connect(self.choose_model)
        self.welcome.sample_asked.connect(self.sample_asked)
        self.model_bar.model_asked.connect(self.choose_model)
        self.model_bar.preprocessing_asked.connect(self.choose_preprocessing)

    @property
    def views(self) -> Views | None:
        """The panels; None until they are built."""
        return self._views

    def set_views(self, views: Views) -> None:
        """Take the panels, which are built after the window is on the screen."""
        self._views = views
        self.stack.addWidget(views)
        for splitter in views.splitters:
            splitter.restore(self._preferences.splitters.get(splitter.objectName(), ()))
        # Plots and text fields would take a drag for themselves, and lose what is dropped.
        for part in self.findChildren(QWidget):
            part.setAcceptDrops(False)
        self._paint(self._scene.value)

    # What is shown

    def _tell(self) -> None:
        document = self._documents.current
        model = self._documents.model
        self.welcome.tell_model(Path(model.name).name if model else "")
        # Qt adds the program's name in the way of the platform, here as in dialogs.
        self.setWindowTitle(document.image.name if document else "Patchreach")
        self._menus.tell(document, model is not None)
        self._show_page(document)

    def _show_page(self, document: ImageDocument | None) -> None:
        if document is None:
            self.pending.forget()
            self.stack.setCurrentWidget(self.welcome)
        elif self._views is not None and document.record is not None:
            self.stack.setCurrentWidget(self._views)
        else:
            self.pending.tell(document, self._waits_for(document))
            self.stack.setCurrentWidget(self.pending)

    def _waits_for(self, document: ImageDocument) -> str:
        if document.status == "running" or self._documents.model is not None:
            return "The model is looking at the picture…"
        return "The picture waits for a model." if not self._jobs.busy else "The model is being opened…"

    def _paint(self, value: SceneValue) -> None:
        if self._views is not None:
            self._views.paint(value)

    def say(self, text: str, passing: bool = False) -> None:
        """Show a sentence in the window; a `passing` one goes by itself."""
        if self._views is not None and self.stack.currentWidget() is self._views:
            self.messages.cover(self._views.readout.height())
        self.messages.say(text, passing=passing)

    def report_bug(self, title: str, details: str) -> None:
        """Show that something unforeseen went wrong, with its details in reach."""
        self.messages.say(
            f"{title} failed because of an error in Patchreach; nothing that is open was lost.", details
        )

    def show_help(self) -> None:
        """List keys and mouse."""
        from viewer.ui.help_dialog import HelpDialog

        HelpDialog(self).open()

    def enlarge_tabs(self) -> None:
        """Give the lower left the picture's room too, or give it back."""
        if self._views is not None:
            self._views.enlarge()

    def toggle_film_strip(self) -> None:
        """Show or hide the film strip."""
        self.film_strip.setVisible(self.film_strip.isHidden())

    # What a person asks for

    def choose_images(self) -> None:
        """Ask for picture files."""
        from viewer.images.sources import IMAGE_SUFFIXES

        kinds = " ".join(f"*{suffix}" for suffix in sorted(IMAGE_SUFFIXES))
        paths, _ = QFileDialog.getOpenFileNames(
            self, "Open pictures", self._preferences.folder, f"Pictures ({kinds});;All files (*)"
        )
        if paths:
            self.paths_dropped.emit([Path(path) for path in paths])

    def choose_model(self, weights: Path | None = None) -> ModelPicker:
        """Ask for a model: a name, a file, or a name with a file of weights; return what asks."""
        from viewer.ui.model_picker import ModelPicker

        picker = ModelPicker(self._jobs, self._preferences, weights, self)
        picker.chosen.connect(self.model_asked)
        picker.open()
        return picker

    def choose_preprocessing(self) -> None:
        """Ask how pictures are prepared for the model."""
        from viewer.ui.preprocessing_dialog import PreprocessingDialog

        model = self._documents.model
        if model is not None:
            dialog = PreprocessingDialog(model.preprocessing, model.why_not_whole, self)
            dialog.chosen.connect(self.preprocessing_asked)
            dialog.open()

    def choose_export(self) -> None:
        """Ask what to export and where to."""
        from viewer.ui.export_dialog import ExportDialog

        document = self._documents.current
        if document is not None and document.record is not None:
            dialog = ExportDialog(document, self._preferences, self)
            dialog.chosen.connect(self.export_asked)
            dialog.choices_made.connect(self._remember_export)
            dialog.open()

    def open_recent(self, what: ModelRequest | str) -> None:
        """Open something from the list of recent ones."""
        if isinstance(what, ModelRequest):
            self.model_asked.emit(what)
        else:
            self.paths_dropped.emit([Path(what)])

    def paste(self) -> None:
        """Open what the clipboard holds."""
        # There is none where the clipboard is empty on some systems, or its owner does not answer.
        found = drops.read(QGuiApplication.clipboard().mimeData() or QMimeData())
        if not found:
            self.say("The clipboard holds no picture and no file.")
        self._take(found, "pasted picture")

    # Drops

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """Welcome what could be opened."""
        if drops.welcome(event.mimeData()):
            event.acceptProposedAction()
            self.welcome.set_over(True)

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        """Stop inviting."""
        self.welcome.set_over(False)
        super().dragLeaveEvent(event)

    def dropEvent(self, event: QDropEvent) -> None:
        """Open what is dropped; each thing that can't be opened gets its own sentence."""
        self.welcome.set_over(False)
        found = drops.read(event.mimeData())
        if not found:
            self.say("What was dropped holds no picture and no file.")
        event.acceptProposedAction()
        self._take(found, "dropped picture")

    def _take(self, found: drops.Dropped, name: str) -> None:
        for problem in found.problems:
            self.say(problem)
        if found.pictures:
            self.pictures_dropped.emit(list(found.pictures), name)
        if found.paths:
            self.paths_dropped.emit(list(found.paths))

    # What is remembered

    @property
    def remembered(self) -> Preferences:
        """What is to be remembered of the window: place, size, how a person divided it, recent files."""
        parts = [self.split, *(self._views.splitters if self._views else ())]
        splitters = {part.objectName(): part.division for part in parts if part.by_hand}
        return replace(
            self._preferences,
            geometry=self.saveGeometry().toBase64().data().decode(),
            splitters={**self._preferences.splitters, **splitters},
        )

    def remember(self, preferences: Preferences) -> None:
        """Take what is remembered now."""
        self._preferences = preferences
        self._menus.tell_recent(preferences)

    def _remember_export(self, choices: object) -> None:
        self._preferences = replace(self._preferences, export=choices)

    def _restore(self) -> None:
        self._menus.tell_recent(self._preferences)
        geometry = QByteArray.fromBase64(self._preferences.geometry.encode())
        if geometry.isEmpty() or not self.restoreGeometry(geometry):
            screen = QGuiApplication.primaryScreen().availableSize()
            self.resize(_SIZE.boundedTo(screen))
        self.split.restore(self._preferences.splitters.get(self.split.objectName(), ()))

    # On and off the screen

    def paintEvent(self, event: QPaintEvent) -> None:
        """Say once that the window is on the screen."""
        super().paintEvent(event)
        if not self._was_painted:
            self._was_painted = True
            self.painted.emit()

    def closeEvent(self, event: QCloseEvent) -> None:
        """Say that the window closes, while everything in it still lives."""
        self.closed.emit()
        super().closeEvent(event)
