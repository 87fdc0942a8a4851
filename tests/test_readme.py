"""The Python interface as the README shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import viewer

ROOT = Path(__file__).parents[1]


def test_the_python_example_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import timm
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    save_file(timm.create_model("test_vit", pretrained=False).state_dict(), tmp_path / "it.safetensors")
    (example,) = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S
    )
    # Another model in place of the sample, which is fetched; everything else as it stands there.
    assert example.count('open_model("sample")') == 1
    example = example.replace('open_model("sample")', 'open_model("test_vit", "it.safetensors")')
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cat.jpg").write_bytes((ROOT / "resources" / "images" / "cat.jpg").read_bytes())
    found: dict[str, object] = {}
    exec(example, found)

    layer, measured = found["layer"], found["measured"]
    distance = viewer.measure_named("mean_distance_px")
    assert distance.of_heads(measured, "renormalized").shape == (layer.heads,)
    assert len(viewer.head_kinds(layer, measured)) == layer.heads
    assert distance in viewer.MEASURES


def test_all_that_is_public_is_listed_and_there() -> None:
    assert set(viewer.__all__) <= set(dir(viewer))
    for name in viewer.__all__:
        assert getattr(viewer, name) is not None
