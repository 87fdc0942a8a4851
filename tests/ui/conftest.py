"""A whole window with a real, small model: timm's own test architecture with random weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QWidget

from viewer.app import Session, Start
from viewer.state.requests import ModelRequest
from viewer.ui.garbage import pass_over_libraries

ARCHITECTURE = "test_vit"
GRID = (10, 10)
LAYERS, HEADS = 6, 2


@pytest.fixture(scope="session", autouse=True)
def libraries() -> None:
    """Load what is large and let searches for garbage pass over it: there are several after each window."""
    import matplotlib.pyplot  # noqa: F401
    import timm  # noqa: F401

    import viewer.backends.onnx_model  # noqa: F401

    pass_over_libraries()


@pytest.fixture(scope="session")
def weights(tmp_path_factory) -> Path:
    """A checkpoint of `ARCHITECTURE`."""
    import timm
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    torch.set_num_threads(2)
    path = tmp_path_factory.mktemp("weights") / "test_vit.safetensors"
    save_file(timm.create_model(ARCHITECTURE, pretrained=False).state_dict(), path)
    return path


@pytest.fixture(scope="session")
def model_request(weights) -> ModelRequest:
    """Opens the small model."""
    return ModelRequest(ARCHITECTURE, str(weights))


@pytest.fixture(scope="session")
def onnx_file(tmp_path_factory, weights) -> Path:
    """The same small model as an ONNX file."""
    import timm
    import torch
    from safetensors.torch import load_file

    model = timm.create_model(ARCHITECTURE, pretrained=False).eval()
    model.load_state_dict(load_file(weights))
    path = tmp_path_factory.mktemp("onnx") / "tiny.onnx"
    with warnings.catch_warnings(), timm.layers.set_exportable(True):
        # The exporter is deprecated; what it wrote is still in everyone's hands.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, torch.zeros(1, 3, 160, 160), path, opset_version=17, dynamo=False, input_names=["image"]
        )
    return path


@pytest.fixture
def pictures(tmp_path) -> Callable[..., list[Path]]:
    """Write picture files that differ, and return their paths."""

    def write(count: int, folder: str = "pictures") -> list[Path]:
        directory = tmp_path / folder
        directory.mkdir(exist_ok=True)
        paths = [directory / f"picture {number}.png" for number in range(count)]
        for number, path in enumerate(paths):
            image = Image.radial_gradient("L").resize((200 + 10 * number, 180)).convert("RGB")
            image.putpixel((number, 0), (255, 0, 0))
            image.save(path)
        return paths

    return write


@pytest.fixture
def sessions(qtbot) -> Iterator[Callable[..., Session]]:
    """Start whole windows as the program does, and take them apart at the end."""
    started = []

    def start(**options: object) -> Session:
        session = Session(QApplication.instance(), Start(**options))
        started.append(session)
        session.window.resize(1000, 760)
        session.window.show()
        qtbot.waitUntil(lambda: session.window.views is not None, timeout=30_000)
        return session

    yield start
    for session in started:
        assert session.tear_down(10.0)


@pytest.fixture
def opened(sessions, qtbot, model_request, pictures) -> Session:
    """A window in which the small model has looked at one picture."""
    session = sessions(model=model_request, files=tuple(map(str, pictures(1))))
    settle(qtbot, session)
    assert session.documents.current.status == "done"
    return session


def settle(qtbot, session: Session) -> None:
    """Wait until nothing is left to do."""
    qtbot.waitUntil(lambda: not session.jobs.busy, timeout=60_000)


def urls(*paths: Path | str) -> QMimeData:
    """What a file manager drops."""
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) if isinstance(path, Path) else QUrl(path) for path in paths])
    return data


def drop(session: Session, data: QMimeData, onto: QWidget | None = None) -> bool:
    """Drag onto the window or a part of it and drop there; return whether it was welcome."""
    part = onto or session.window
    where = QPointF(part.rect().center())
    copy, left, none = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    with warnings.catch_warnings():
        # The form that takes fractions of pixels is not in Qt before 6.12.
        warnings.simplefilter("ignore", DeprecationWarning)
        entering = QDragEnterEvent(where.toPoint(), copy, data, left, none)
    entering.ignore()
    QApplication.sendEvent(part, entering)
    if entering.isAccepted():
        QApplication.sendEvent(part, QDropEvent(where, copy, data, left, none))
    return entering.isAccepted()
