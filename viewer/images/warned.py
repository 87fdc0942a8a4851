"""What decoders warn of, kept for the notes of a picture instead of going to the terminal."""

from __future__ import annotations

import ctypes
import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache

from PIL import Image

# A regular expression for names of modules; other libraries' warnings stay as they are.
_DECODERS = r"PIL\b|pillow_heif\b|viewer\.images\b"


class _Listener:
    """Hears the warnings of the threads that listen; filters belong to the whole program, so it is told once.

    Filters that each thread put aside and back by itself would stay changed for good where two overlap.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heard: dict[int, list[str]] = {}
        self._before = ExitStack()
        self._show = warnings.showwarning

    @contextmanager
    def listen(self) -> Iterator[list[str]]:
        """Give the list of the warnings that this thread causes until the end."""
        heard: list[str] = []
        _hush()
        with self._lock:
            if not self._heard:
                self._before.enter_context(warnings.catch_warnings())
                self._show = warnings.showwarning
                warnings.filterwarnings("always", module=_DECODERS)
                warnings.showwarning = self._hear
            self._heard[threading.get_ident()] = heard
        try:
            yield heard
        finally:
            with self._lock:
                del self._heard[threading.get_ident()]
                if not self._heard:
                    self._before.close()

    def _hear(self, message: Warning | str, kind: type[Warning], *where: object) -> None:
        heard = self._heard.get(threading.get_ident())
        if heard is None:
            self._show(message, kind, *where)
        elif not issubclass(kind, Image.DecompressionBombWarning):  # `open_image` has a limit of its own
            heard.append(" ".join(str(message).split()))


@cache
def _hush() -> None:
    """Keep what decoders log, and what the TIFF library writes by itself, from the terminal.

    Both come before an exception that says as much.
    """
    logging.getLogger("PIL").addHandler(logging.NullHandler())
    try:
        ctypes.CDLL(Image.core.__file__).TIFFSetErrorHandler(None)
    except (OSError, AttributeError):
        return  # a Pillow that holds the library in another way


heard = _Listener().listen
