"""Is there a screen? Qt aborts the whole program where there is none, so this is asked before Qt starts."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

HEADLESS = (
    "Use the headless commands instead: `patchreach measure`, `patchreach render`, `patchreach models`; "
    "each explains itself with --help."
)
_NEEDS_SERVER = ("", "xcb", "wayland", "wayland-egl")
_NEEDS_NOTHING = ("offscreen", "minimal")
_TRIAL = """
from PySide6.QtGui import QGuiApplication
application = QGuiApplication([])
raise SystemExit(0 if application.primaryScreen() else 1)
"""
_TRIAL_SECONDS = 20


def why_no_window(environment: Mapping[str, str] = os.environ) -> str:
    """Return why no window can open, as one sentence that names the headless commands; empty if one can.

    Only Linux and its like need asking: elsewhere Qt brings a window system that is always there.
    """
    if not sys.platform.startswith(("linux", "freebsd")):
        return ""
    asked = environment.get("QT_QPA_PLATFORM", "").partition(":")[0]
    if asked in _NEEDS_SERVER:
        problem = _missing_library() or _no_server(environment, asked)
    else:
        problem = "" if asked in _NEEDS_NOTHING else _try(asked, environment)
    return f"No window can open: {problem}. {HEADLESS}" if problem else ""


def _try(asked: str, environment: Mapping[str, str]) -> str:
    """Open a platform that is seldom asked for in a process of its own, since Qt aborts where it can't."""
    try:
        trial = subprocess.run(
            [sys.executable, "-c", _TRIAL], env=environment, capture_output=True, timeout=_TRIAL_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        works = False
    else:
        works = trial.returncode == 0
    return "" if works else f"Qt finds no screen on the platform {asked!r}, which QT_QPA_PLATFORM asks for"


def _no_server(environment: Mapping[str, str], asked: str) -> str:
    display, wayland = environment.get("DISPLAY", ""), environment.get("WAYLAND_DISPLAY", "")
    if not asked.startswith("wayland") and display and _x11_answers(display):
        return ""
    if asked != "xcb" and wayland and _wayland_answers(wayland, environment.get("XDG_RUNTIME_DIR", "")):
        return ""
    if display or wayland:
        return f"the display {display or wayland} does not answer"
    return "there is no display (neither DISPLAY nor WAYLAND_DISPLAY is set)"


def _x11_answers(display: str) -> bool:
    """Connect as Qt will, authority file included, and hang up."""
    try:
        xcb = ctypes.CDLL("libxcb.so.1")
    except OSError:
        return False
    xcb.xcb_connect.restype = ctypes.c_void_p
    xcb.xcb_connection_has_error.argtypes = xcb.xcb_disconnect.argtypes = [ctypes.c_void_p]
    connection = xcb.xcb_connect(display.encode(), None)
    error = xcb.xcb_connection_has_error(connection)
    xcb.xcb_disconnect(connection)
    return error == 0


def _wayland_answers(wayland: str, runtime: str) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.settimeout(1.0)
            server.connect(str(Path(runtime, wayland)))
    except OSError:
        return False
    return True


def _missing_library() -> str:
    """Load Qt and its X11 plugin as Qt will; a bare system lacks some of the libraries they need."""
    try:
        from PySide6 import QtGui  # noqa: F401
        from PySide6.QtCore import QLibraryInfo
    except ImportError as error:
        return f"Qt can't be loaded ({error})"
    plugins = Path(QLibraryInfo.path(QLibraryInfo.LibraryPath.PluginsPath))
    plugin = plugins / "platforms" / "libqxcb.so"
    try:
        if plugin.exists():
            ctypes.CDLL(str(plugin))
    except OSError as error:
        return f"a library is missing ({error}); README lists the packages to install"
    return ""
