"""Ctrl+C is neither lost nor does it strike where it must not."""

from __future__ import annotations

import os
import signal

import pytest

from viewer import interrupts
from viewer.commands.console import job, long_job
from viewer.errors import Cancelled

pytestmark = pytest.mark.skipif(os.name == "nt", reason="a terminal's interrupt")


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


class Swallows:
    """Python drops what is raised while something is taken apart."""

    def __del__(self):
        interrupt()


def test_an_interrupt_that_was_put_off_is_raised_at_the_end():
    reached = []
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interrupts.put_off():
        interrupt()
        reached.append(signal.getsignal(signal.SIGINT))
    # A second one would have ended the program.
    assert reached == [signal.SIG_DFL]
    assert signal.getsignal(signal.SIGINT) is before


def test_nothing_is_raised_where_nothing_came_and_errors_go_through():
    before = signal.getsignal(signal.SIGINT)
    with interrupts.put_off():
        pass
    with pytest.raises(ZeroDivisionError), interrupts.put_off():
        interrupt()
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_is_lost_still_ends_the_work():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Cancelled), job() as work:
        work.step("begins")
        Swallows()
        work.step("goes on")
    assert signal.getsignal(signal.SIGINT) is before


def test_long_work_ends_in_good_order_at_the_first_interrupt_and_at_once_at_the_second():
    before = signal.getsignal(signal.SIGINT)
    reached = []
    with pytest.raises(Cancelled), long_job() as work:
        interrupt()
        reached.append("not broken into")
        work.step("goes on")
    with pytest.raises(KeyboardInterrupt), long_job():
        interrupt()
        reached.append("not broken into")
        interrupt()
        reached.append("broken into")
    assert reached == ["not broken into"] * 2
    assert signal.getsignal(signal.SIGINT) is before


def test_long_work_ends_in_good_order_when_a_scheduler_says_so():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Cancelled), long_job() as work:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # a second one would end the program
        work.step("goes on")
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_interrupt_is_raised_at_once_where_it_can_be():
    with pytest.raises(KeyboardInterrupt), job():
        interrupt()
