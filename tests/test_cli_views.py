"""``render`` with other measures along the axes of the scatter, and the likeness of layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from viewer.cli import main
from viewer.export.restore import restore

ARCHITECTURE = "vit_tiny_patch16_224"


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A picture, and arguments that open a small model with a grid of 4 x 4 patches."""
    import timm
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("given")
    model, picture = folder / "tiny.safetensors", folder / "one.png"
    save_file(timm.create_model(ARCHITECTURE, pretrained=False).state_dict(), model)
    Image.fromarray(np.random.default_rng(1).integers(0, 255, (80, 100, 3), np.uint8)).save(picture)
    return [str(picture), "--model", ARCHITECTURE, "--weights", str(model), "--image-size", "64"]


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        (
            ["--view", "scatter", "--x", "mean_distance", "--y", "entropy_nats"],
            {"x_measure": "mean_distance"},
        ),
        (["--view", "scatter", "--y", "nmi", "--kinds"], {"y_measure": "nmi", "kinds": True}),
        (["--view", "likeness"], {"likeness_of": "layers", "likeness_heads": "fused"}),
        (
            ["--view", "likeness", "--likeness", "centred", "--head", "1"],
            {"likeness": "centred", "likeness_heads": "shown"},
        ),
        (["--view", "likeness", "--between", "heads", "--layer", "3"], {"likeness_of": "heads"}),
    ],
)
def test_every_choice_makes_its_figure(given: list[str], tmp_path: Path, options, chosen) -> None:
    path = tmp_path / "fig.png"
    assert main(["render", *given, "--device", "cpu", "-o", str(path), *options]) == 0
    found = restore(path)
    assert found.view == options[1]
    assert {name: getattr(found.display, name) for name in chosen} == chosen
    assert np.asarray(Image.open(path).convert("RGB")).std() > 10


def test_a_wrong_measure_lists_all(given: list[str], tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["render", *given, "-o", str(tmp_path / "fig.png"), "--view", "scatter", "--y", "entropie"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "'entropie' is no measure; there are mean_distance, " in said and "entropy_nats" in said
