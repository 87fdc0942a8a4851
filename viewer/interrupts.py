"""Ctrl+C where it must not strike: libraries that are being loaded lose it, or take the program down."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def put_off() -> Iterator[None]:
    """Let one Ctrl+C wait until the end, where it is raised; a second one ends the program at once.

    Raises
    ------
    KeyboardInterrupt
        At the end, if Ctrl+C was pressed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is interrupted
        return
    came = []

    def note(*_: object) -> None:
        came.append(True)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


@contextmanager
def told(to: Callable[[], None]) -> Iterator[None]:
    """Call something on Ctrl+C besides raising it.

    What is raised inside a destructor or a callback is lost there; who was told can end the work even so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        to()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def asked(to: Callable[[], None]) -> Iterator[None]:
    """Call something on the first Ctrl+C instead of raising it, so that work can end in good order.

    So with SIGTERM, by which schedulers say that time is up. A second one of that ends the program.

    Raises
    ------
    KeyboardInterrupt
        On the second Ctrl+C.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        to()

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
