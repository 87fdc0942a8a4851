from __future__ import annotations

import pytest

from tests.export.scenes import make_document, make_record, make_scene
from viewer.state.documents import ImageDocument
from viewer.state.scene import SceneValue


@pytest.fixture(scope="session")
def document() -> ImageDocument:
    return make_document(make_record())


@pytest.fixture(scope="session")
def scene(document: ImageDocument) -> SceneValue:
    return make_scene(document)
