"""Real pictures and a real, small, untrained model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from viewer.study.measuring import Opening

ARCHITECTURE = "test_vit"


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Run the small model on one thread: several wait for one another longer than it takes."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def opening(tmp_path_factory: pytest.TempPathFactory) -> Opening:
    """A model on pictures of 64 x 64 pixels: 6 layers of 2 heads, a grid of 4 x 4 patches."""
    import timm
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    save_file(timm.create_model(ARCHITECTURE, pretrained=False).state_dict(), path)
    return Opening(ARCHITECTURE, str(path), 64, "cpu")


def draw(path: Path, seed: int) -> Path:
    """Save a picture of coloured squares, of a shape of its own."""
    generator = np.random.default_rng(seed)
    squares = generator.integers(0, 255, (7, 6 + seed % 4, 3), np.uint8)
    Image.fromarray(np.kron(squares, np.ones((12, 12, 1), np.uint8))).save(path)
    return path


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder of ten pictures."""
    return draw_ten(tmp_path / "pictures")


def draw_ten(folder: Path) -> Path:
    """Make a folder of ten pictures, some in a folder below."""
    (folder / "more").mkdir(parents=True)
    for number in range(10):
        draw(folder / ("more" if number > 6 else ".") / f"{number}.png", number)
    return folder


def command(opening: Opening, source: Path, output: Path, *more: str) -> list[str]:
    """Return the arguments of the command line for a study."""
    model = ["--model", opening.model, "--weights", opening.weights, "--image-size", "64", "--device", "cpu"]
    copies = [] if "ray" in more else ["--models", "1"]
    return ["study", str(source), *model, "-o", str(output), "--workers", "1", *copies, *more]
