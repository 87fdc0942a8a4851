"""Whatever the settings' file holds, the window opens and closes, and writes the file anew."""

from __future__ import annotations

import base64
import json

import pytest
from PySide6.QtCore import Qt

from viewer.state.preferences import load, settings_path
from viewer.ui.export_dialog import ExportDialog

LONG = "n" * 5000
CONTENTS = {
    "nested": "[" * 100_000,
    "half a letter": json.dumps({"geometry": "\ud800", "folder": "\ud800", "recent_images": ["\ud800"]}),
    "names": json.dumps(
        {
            "folder": LONG,
            "recent_images": [LONG, "\udce9.png", "", *map(str, range(1000))],
            "recent_models": [{"model": LONG}, {"model": ""}, {"model": "a", "weights": LONG}],
            "export": {"folder": LONG, "suffix": ".exe"},
        }
    ),
    "numbers": json.dumps(
        {
            "splitters": {name: [10**30, 10**30, 1] for name in ("film strip", "views", "views and scatter")},
            "display": {"opacity": 10**400, "ring": 10**400, "colormap": "jet"},
        }
    ),
    "geometry": json.dumps({"geometry": base64.b64encode(b"\x01\xd9\xd0\xcb\0\x03" + b"\xff" * 60).decode()}),
}


@pytest.mark.qt_log_ignore("propagateSizeHints")
@pytest.mark.parametrize("content", CONTENTS)
def test_the_window_opens(sessions, qtbot, own_settings, content, pictures, model_request):
    path = settings_path()
    path.parent.mkdir(parents=True)
    path.write_text(CONTENTS[content], encoding="utf-8")
    session = sessions(model=model_request, files=tuple(map(str, pictures(1))))
    qtbot.waitUntil(lambda: not session.jobs.busy, timeout=60_000)
    assert session.documents.current.status == "done"
    qtbot.keyClick(session.window, Qt.Key.Key_E, Qt.KeyboardModifier.ControlModifier)
    session.window.findChild(ExportDialog).reject()
    assert session.window.messages.texts == ()
    session.window.close()
    assert load(path).recent_images[0].endswith("picture 0.png")
    assert session.window.screen().availableGeometry().intersects(session.window.frameGeometry())
