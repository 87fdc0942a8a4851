"""Five hundred random events, the same every time: no exception, no memory that grows, no thread left."""

from __future__ import annotations

import gc
import random
from dataclasses import replace

import psutil
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from .conftest import drop, settle, urls

pytestmark = [
    # A click may open a list, which asks for more than there is without a screen.
    pytest.mark.qt_log_ignore("does not support (propagateSizeHints|raise|grabbing)", extend=True),
    pytest.mark.timeout(280),
]
EVENTS = 500
KEYS = [
    Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_Left, Qt.Key.Key_Right,
    Qt.Key.Key_BracketLeft, Qt.Key.Key_BracketRight, Qt.Key.Key_Comma, Qt.Key.Key_Period,
    Qt.Key.Key_Space, Qt.Key.Key_Escape, Qt.Key.Key_F9, Qt.Key.Key_G, Qt.Key.Key_R, Qt.Key.Key_Plus,
]  # fmt: skip


class Person:
    """Does one random thing after the other."""

    def __init__(self, session, paths, seed):
        self.session, self.window = session, session.window
        self.paths, self.dice = paths, random.Random(seed)

    def panel(self):
        views = self.window.views
        return self.dice.choice([views.image, views.heads, views.scatter, views.readout])

    def somewhere(self, widget):
        return QPoint(
            self.dice.randrange(max(widget.width(), 1)), self.dice.randrange(max(widget.height(), 1))
        )

    def move(self):
        panel = self.panel()
        QTest.mouseMove(panel, self.somewhere(panel))

    def click(self):
        panel = self.panel()
        modifier = self.dice.choice([Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.ControlModifier])
        QTest.mouseClick(panel, Qt.MouseButton.LeftButton, modifier, self.somewhere(panel))

    def wheel(self):
        panel = self.panel()
        where = QPointF(self.somewhere(panel))
        event = QWheelEvent(
            where, panel.mapToGlobal(where), QPoint(), QPoint(0, self.dice.choice([-120, 120])),
            Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
        )  # fmt: skip
        QApplication.sendEvent(panel, event)

    def key(self):
        QTest.keyClick(QApplication.focusWidget() or self.window, self.dice.choice(KEYS))

    def resize(self):
        self.window.resize(self.dice.randrange(640, 1400), self.dice.randrange(480, 1000))

    def choose(self):
        display = self.session.display
        changes = {
            "theme": self.dice.choice(["light", "dark", "talk"]),
            "unit": self.dice.choice(["px", "patches"]),
            "protocol": self.dice.choice(["renormalized", "original"]),
            "scale": self.dice.choice(["shared", "per head"]),
            "ring": self.dice.randrange(5),
            "grid": self.dice.random() < 0.5,
        }
        name = self.dice.choice(list(changes))
        display.set(replace(display.value, **{name: changes[name]}))

    def open_one(self):
        if len(self.session.documents.all) < 4:
            drop(self.session, urls(self.dice.choice(self.paths)))

    def close_one(self):
        if len(self.session.documents.all) > 1:
            self.window.film_strip.close_current()

    def show_one(self):
        documents = self.session.documents
        if documents.all:
            documents.show(self.dice.choice(documents.all).key)

    def do_something(self):
        actions = [self.move] * 8 + [self.click, self.key, self.key] * 2
        actions += [self.wheel, self.choose, self.open_one, self.close_one, self.show_one, self.resize]
        self.dice.choice(actions)()
        QApplication.processEvents()


def megabytes():
    gc.collect()
    return psutil.Process().memory_info().rss / 2**20


def test_five_hundred_random_events(opened, qtbot, pictures, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\nnot really")
    person = Person(opened, [*pictures(3, "soak"), broken], seed=20)
    for _ in range(EVENTS // 2):
        person.do_something()
    settle(qtbot, opened)
    opened.window.messages.clear()
    warm = megabytes()
    for _ in range(EVENTS):
        person.do_something()
    settle(qtbot, opened)
    opened.window.messages.clear()
    assert all(document.status == "done" for document in opened.documents.all)
    # Three more records and their pictures are about 10 MB; a leak at each drop would be far more.
    assert megabytes() - warm < 40
