"""Slow work: order, staleness, cancelling, errors, closing. No model is needed for any of it."""

from __future__ import annotations

import threading
import time

import pytest
from PySide6.QtCore import QThread

from viewer.errors import Cancelled, FileError
from viewer.ui.jobs import Bug, Jobs, Request


@pytest.fixture
def jobs(qapp):
    found = Jobs()
    yield found
    assert found.close(5.0)


class Gate:
    """Work that runs until it is let go, and then returns its name."""

    def __init__(self, name="gate"):
        self.name, self.entered, self.open = name, threading.Event(), threading.Event()

    def __call__(self, job):
        self.entered.set()
        while not self.open.wait(0.005):
            job.step("waiting at the gate", 0.5)
        return self.name


def stubborn(gate):
    """Work deep in foreign code: it does not look at its job."""

    def work(job):
        gate.entered.set()
        gate.open.wait()
        return gate.name

    return work


def test_results_come_on_the_windows_thread_in_the_order_of_handing_in(qtbot, jobs):
    results, worked = [], []

    def work(number):
        def run(job):
            worked.append(threading.current_thread().name)
            return number

        return run

    for number in range(5):
        jobs.submit(
            Request(f"number {number}", work(number), lambda r: results.append((r, QThread.isMainThread())))
        )
    qtbot.waitUntil(lambda: not jobs.busy)
    assert results == [(number, True) for number in range(5)]
    assert set(worked) == {"patchreach-jobs"}


def test_the_window_thread_stays_free_while_work_runs(qtbot, jobs):
    gate, ticks = Gate(), []
    jobs.submit(Request("long", gate))
    qtbot.waitUntil(gate.entered.is_set)
    for _ in range(3):
        qtbot.wait(5)
        ticks.append(time.monotonic())
    assert jobs.busy
    assert len(ticks) == 3
    gate.open.set()
    qtbot.waitUntil(lambda: not jobs.busy)


def test_what_is_handed_in_meanwhile_waits_and_is_not_lost(qtbot, jobs):
    gate, results = Gate("first"), []
    jobs.submit(Request("first", gate, results.append))
    qtbot.waitUntil(gate.entered.is_set)
    jobs.submit(Request("second", lambda job: "second", results.append))
    jobs.submit(Request("third", lambda job: "third", results.append))
    assert results == []
    gate.open.set()
    qtbot.waitUntil(lambda: not jobs.busy)
    assert results == ["first", "second", "third"]


def test_a_stale_result_is_dropped_even_when_the_work_could_not_be_stopped(qtbot, jobs):
    gate, results, failures = Gate("old"), [], []
    jobs.submit(Request("old", stubborn(gate), results.append, failures.append, ("model", ("document", 1))))
    jobs.submit(
        Request("old, waiting", lambda job: "never runs", results.append, failures.append, ("model",))
    )
    jobs.submit(Request("other", lambda job: "other", results.append, failures.append, (("document", 2),)))
    qtbot.waitUntil(gate.entered.is_set)
    jobs.invalidate("model")
    jobs.submit(Request("new", lambda job: "new", results.append, failures.append, ("model",)))
    gate.open.set()
    qtbot.waitUntil(lambda: not jobs.busy)
    assert results == ["other", "new"]
    assert failures == []


def test_invalidating_stops_running_work_that_listens(qtbot, jobs):
    gate, results = Gate(), []
    jobs.submit(Request("old", gate, results.append, scopes=("model",)))
    qtbot.waitUntil(gate.entered.is_set)
    jobs.invalidate("model")
    qtbot.waitUntil(lambda: not jobs.busy)
    assert not gate.open.is_set()
    assert results == []


@pytest.mark.parametrize("listens", [True, False])
def test_cancelled_work_fails_with_cancelled(qtbot, jobs, listens):
    gate, results, failures = Gate(), [], []
    jobs.submit(Request("long", gate if listens else stubborn(gate), results.append, failures.append))
    qtbot.waitUntil(gate.entered.is_set)
    jobs.cancel()
    if not listens:
        gate.open.set()
    qtbot.waitUntil(lambda: not jobs.busy)
    assert results == []
    assert [type(error) for error in failures] == [Cancelled]


def test_an_error_for_a_person_is_handed_over_as_it_is(qtbot, jobs):
    failures, crashes = [], []
    jobs.crashed.connect(lambda *what: crashes.append(what))

    def work(job):
        raise FileError("x.png", "is empty")

    jobs.submit(Request("opening", work, failed=failures.append))
    qtbot.waitUntil(lambda: not jobs.busy)
    assert [str(error) for error in failures] == ["x.png is empty."]
    assert crashes == []


def test_a_bug_is_told_with_its_traceback_and_the_next_work_runs(qtbot, jobs):
    failures, crashes, results = [], [], []
    jobs.crashed.connect(lambda *what: crashes.append(what))

    def work(job):
        return [][3]

    jobs.submit(Request("counting", work, failed=failures.append))
    jobs.submit(Request("next", lambda job: 7, results.append))
    qtbot.waitUntil(lambda: not jobs.busy)
    assert [type(error) for error in failures] == [Bug]
    [(title, details)] = crashes
    assert title == "counting"
    assert "return [][3]" in details and "IndexError" in details
    assert results == [7]


def test_progress_is_told_and_thinned_out(qtbot, jobs):
    told = []
    jobs.progressed.connect(lambda doing, share: told.append((doing, share)))

    def work(job):
        for step in range(20_000):
            job.step("counting", step / 20_000)
        time.sleep(0.05)
        job.step("without a share")

    started = time.monotonic()
    jobs.submit(Request("counting", work))
    qtbot.waitUntil(lambda: not jobs.busy)
    seconds = time.monotonic() - started
    assert ("without a share", -1.0) in told
    assert 2 <= len(told) <= seconds / 0.03 + 2
    shares = [share for doing, share in told if doing == "counting"]
    assert shares == sorted(shares)


def test_free_asks_for_more_before_idle_is_told(qtbot, jobs):
    said, left = [], [1, 2]

    def more():
        said.append("free")
        if left:
            number = left.pop()
            jobs.submit(Request("more", lambda job: 3 - number, said.append))

    jobs.free.connect(more)
    jobs.idle.connect(lambda: said.append("idle"))
    jobs.submit(Request("first", lambda job: 0, said.append))
    qtbot.waitUntil(lambda: "idle" in said)
    assert said == [0, "free", 1, "free", 2, "free", "idle"]


def test_synchronous_work_is_done_when_submit_returns(qapp):
    jobs, results = Jobs(synchronous=True), []

    def more(result):
        results.append(result)
        if result < 3000:
            jobs.submit(Request("more", lambda job: result + 1, more))

    jobs.submit(Request("first", lambda job: 0, more))
    assert results == list(range(3001))
    assert not jobs.busy
    assert jobs.close()


def test_closing_stops_what_listens_and_forgets_what_waits(qtbot):
    jobs, gate, results = Jobs(), Gate(), []
    jobs.submit(Request("long", gate, results.append))
    jobs.submit(Request("waiting", lambda job: 1, results.append))
    qtbot.waitUntil(gate.entered.is_set)
    assert jobs.close(5.0)
    qtbot.wait(20)
    assert results == []


def test_closing_does_not_wait_for_ever_and_nothing_arrives_afterwards(qtbot):
    jobs, gate, results = Jobs(), Gate(), []
    jobs.submit(Request("foreign code", stubborn(gate), results.append))
    qtbot.waitUntil(gate.entered.is_set)
    started = time.monotonic()
    assert not jobs.close(0.05)
    assert time.monotonic() - started < 2
    thread = next(thread for thread in threading.enumerate() if thread.name == "patchreach-jobs")
    assert thread.daemon
    gate.open.set()
    thread.join(5)
    qtbot.wait(20)
    assert results == []
