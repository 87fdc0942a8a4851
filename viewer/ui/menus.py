"""The menus and their keys; everything a person can do is found here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QMenu, QMenuBar

from viewer.state.requests import ModelRequest
from viewer.state.words import query_words
from viewer.ui.choices import DISPLAY_CHOICES, MOST_RINGS, SELECTION_CHOICES, Choice, choose, chosen

if TYPE_CHECKING:
    from viewer.state.display import Display
    from viewer.state.documents import ImageDocument
    from viewer.state.preferences import Preferences
    from viewer.state.selection import Selection
    from viewer.ui.window import Window

Keys = str | QKeySequence.StandardKey


def add(
    menu: QMenu, text: str, keys: Keys | tuple[Keys, ...], done: Callable[[], None], tip: str = ""
) -> QAction:
    """Add one thing to do to a menu."""
    action = QAction(text, menu)
    several = keys if isinstance(keys, tuple) else (keys,)
    action.setShortcuts([QKeySequence(key) for key in several if key != ""])
    action.setStatusTip(tip)
    action.setToolTip(tip or text)
    action.triggered.connect(lambda _checked=False: done())
    menu.addAction(action)
    return action


class Menus:
    """The menu bar of a window.

    Parameters
    ----------
    window
        Whose signals and methods the menus call.
    selection, display
        The state they set.
    """

    def __init__(self, window: Window, selection: Selection, display: Display) -> None:
        self._window, self._selection, self._display = window, selection, display
        bar = window.menuBar()
        self._file_menu(bar)
        self._edit_menu(bar)
        self._query_menu(bar)
        self._view_menu(bar)
        help_menu = bar.addMenu("&Help")
        add(help_menu, "&How far can a patch see?", "", window.lesson_asked.emit, "A lesson in eight steps")
        add(help_menu, "&Keys and mouse", "F1", window.show_help)

    def _file_menu(self, bar: QMenuBar) -> None:
        window, menu = self._window, bar.addMenu("&File")
        add(menu, "Open &pictures…", "Ctrl+O", window.choose_images)
        add(menu, "Open &model…", ("Ctrl+M", "Ctrl+Shift+O"), window.choose_model)
        add(menu, "Open the &sample", "", window.sample_asked.emit)
        self._recent = menu.addMenu("Open &recent")
        self._recent.setToolTipsVisible(True)
        menu.addSeparator()
        add(menu, "S&tudy a folder…", "", window.study_asked.emit, "Measure every head over many pictures")
        add(menu, "Open st&udy…", "", window.open_study_asked.emit)
        menu.addSeparator()
        self._preprocessing = add(menu, "Pre&processing…", "", window.choose_preprocessing)
        add(menu, "&Close picture", ("Ctrl+W", "Delete"), window.film_strip.close_current)
        menu.addSeparator()
        self._export = add(menu, "&Export…", "Ctrl+E", window.choose_export)
        menu.addSeparator()
        add(menu, "&Quit", "Ctrl+Q", window.close)

    def _edit_menu(self, bar: QMenuBar) -> None:
        window, menu = self._window, bar.addMenu("&Edit")
        self._copies = [
            add(menu, "&Copy figure", "Ctrl+C", lambda: window.copy_asked.emit("overlay")),
            add(menu, "Copy all &heads", "", lambda: window.copy_asked.emit("heads")),
            add(menu, "Copy &scatter", "", lambda: window.copy_asked.emit("scatter")),
            add(menu, "Copy &likeness", "", lambda: window.copy_asked.emit("likeness")),
            add(menu, "Copy &everything together", "Ctrl+Shift+C", lambda: window.copy_asked.emit("all")),
        ]
        menu.addSeparator()
        add(menu, "&Paste picture", "Ctrl+V", window.paste)

    def _query_menu(self, bar: QMenuBar) -> None:
        steps, menu = self._window.steps, bar.addMenu("&Query")
        self._steps = [
            add(menu, "Up", "Up", lambda: steps.query(-1, 0)),
            add(menu, "Down", "Down", lambda: steps.query(1, 0)),
            add(menu, "Left", "Left", lambda: steps.query(0, -1)),
            add(menu, "Right", "Right", lambda: steps.query(0, 1)),
            add(menu, "&Pin or unpin", "Space", steps.pin),
            add(menu, "&Unpin", "Esc", steps.unpin),
        ]
        self._prefixes = menu.addMenu("Class and register &tokens")
        menu.addSeparator()
        self._steps += [
            add(menu, "Previous layer", "[", lambda: steps.layer(-1)),
            add(menu, "Next layer", "]", lambda: steps.layer(1)),
            add(menu, "Previous head", ",", lambda: steps.head(-1)),
            add(menu, "Next head", ".", lambda: steps.head(1)),
        ]
        menu.addSeparator()
        for choice in SELECTION_CHOICES:
            _add_choice(menu, choice, self._selection)

    def _view_menu(self, bar: QMenuBar) -> None:
        menu = bar.addMenu("&View")
        for choice in DISPLAY_CHOICES:
            _add_choice(menu, choice, self._display)
        menu.addSeparator()
        add(
            menu,
            "More opaque",
            "+",
            lambda: self._change(opacity=min(self._display.value.opacity + 0.1, 1.0)),
        )
        add(
            menu,
            "Less opaque",
            "-",
            lambda: self._change(opacity=max(self._display.value.opacity - 0.1, 0.0)),
        )
        add(menu, "&Fade weak patches", "F", lambda: self._change(fade=not self._display.value.fade))
        add(menu, "&Grid", "G", lambda: self._change(grid=not self._display.value.grid))
        add(
            menu,
            "One convolution &more",
            "R",
            lambda: self._change(ring=min(self._display.value.ring + 1, MOST_RINGS)),
        )
        add(
            menu,
            "One convolution less",
            "Shift+R",
            lambda: self._change(ring=max(self._display.value.ring - 1, 0)),
        )
        add(
            menu,
            "Compare with a convolutional &network…",
            "",
            self._window.network_asked.emit,
            "Draw the stages of a ResNet, or another network, on the scatter",
        )
        menu.addSeparator()
        add(
            menu, "&Larger lower views", "F8", self._window.enlarge_tabs, "Over the picture, or back below it"
        )
        add(menu, "&Film strip", "F9", self._window.toggle_film_strip, "Show or hide the film strip")

    def _change(self, **changes: object) -> None:
        self._display.set(replace(self._display.value, **changes))

    def tell(self, document: ImageDocument | None, has_model: bool) -> None:
        """Offer what can be done with what is shown."""
        record = document.record if document else None
        for action in (*self._steps, *self._copies, self._export):
            action.setEnabled(record is not None)
        self._preprocessing.setEnabled(has_model)
        names = record.prefix_names if record else ()
        if names != tuple(action.data() for action in self._prefixes.actions()):
            self._prefixes.clear()
            for name in names:
                words = query_words(name)
                action = add(
                    self._prefixes,
                    words[:1].upper() + words[1:],
                    "",
                    lambda name=name: self._window.steps.ask(name),
                )
                action.setData(name)
        self._prefixes.menuAction().setEnabled(bool(names))

    def tell_recent(self, preferences: Preferences) -> None:
        """List what was opened lately."""
        self._recent.clear()
        for request in preferences.recent_models:
            self._add_recent(request.title, request.model, request)
        if preferences.recent_models and preferences.recent_images:
            self._recent.addSeparator()
        for path in preferences.recent_images:
            self._add_recent(path.replace("\\", "/").rsplit("/", 1)[-1], path, path)
        self._recent.menuAction().setEnabled(bool(preferences.recent_models or preferences.recent_images))

    def _add_recent(self, text: str, tip: str, what: ModelRequest | str) -> None:
        add(self._recent, text.replace("&", "&&"), "", lambda: self._window.open_recent(what), tip)


def _add_choice(menu: QMenu, choice: Choice, holder: Selection | Display) -> None:
    """Add a submenu in which one thing is chosen, following state."""
    inside = menu.addMenu(choice.label)
    inside.setToolTip(choice.tip)
    group = QActionGroup(inside)
    for value, words in choice.options:
        action = add(inside, words, "", lambda value=value: choose(holder, choice, value))
        action.setCheckable(True)
        action.setData(value)
        group.addAction(action)

    def tell() -> None:
        for action in group.actions():
            action.setChecked(action.data() == chosen(holder, choice))

    inside.aboutToShow.connect(tell)
    tell()
