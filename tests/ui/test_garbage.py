"""Garbage that holds widgets is taken apart on the window's thread, whoever makes Python look for it."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
from PySide6.QtWidgets import QWidget

from viewer.ui.garbage import pass_over_libraries
from viewer.ui.jobs import Jobs, Request


class Ring(QWidget):
    """A widget that only a search for garbage can find."""

    def __init__(self):
        super().__init__()
        self.itself = self


@pytest.fixture
def jobs(qapp):
    gc.enable()  # off still, if a test before left work running that it could not stop
    found = Jobs()
    yield found
    assert found.close(5.0)
    assert gc.isenabled()


def test_work_that_makes_much_garbage_takes_no_widget_apart(qtbot, jobs):
    taken_apart_on, rings = [], []

    def work(job):
        for _ in range(50):
            rings.clear()
            # Far beyond what makes Python look for garbage.
            junk = [[] for _ in range(5_000)]
            for one in junk:
                one.append(one)
        return len(junk)

    for _ in range(20):
        ring = Ring()
        weakref.finalize(ring, lambda: taken_apart_on.append(threading.current_thread()))
        rings.append(ring)
    del ring
    done = []
    jobs.submit(Request("littering", work, done.append))
    qtbot.waitUntil(lambda: bool(done))
    # The window's thread does look, by and by: garbage does not pile up.
    qtbot.waitUntil(lambda: len(taken_apart_on) == 20, timeout=10_000)
    assert set(taken_apart_on) == {threading.main_thread()}


def test_garbage_is_looked_for_while_nothing_else_happens(qtbot, jobs):
    jobs.submit(Request("nothing", lambda job: None))
    qtbot.waitUntil(lambda: not jobs.busy)
    gone = []
    for _ in range(gc.get_threshold()[0] + 1):
        ring = []
        ring.append(ring)
    lost = Ring()
    weakref.finalize(lost, lambda: gone.append(True))
    del lost
    assert not gone
    qtbot.waitUntil(lambda: bool(gone), timeout=5_000)


@pytest.fixture
def thawed():
    """Nothing is passed over, as in a program that has just begun."""
    gc.unfreeze()
    yield
    gc.unfreeze()
    pass_over_libraries()


def test_what_libraries_brought_is_passed_over_once_a_model_is_open(thawed, request):
    request.getfixturevalue("opened")
    assert gc.get_freeze_count() > 100_000
