"""`patchreach study`: options that do not go together."""

from __future__ import annotations

from pathlib import Path

import pytest

from viewer.cli import main


def test_a_cluster_without_its_engine_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "study"
    command = ["study", "sample", "--model", "sample", "-o", str(output), "--ray-address", "auto"]
    assert main(command) == 2
    assert "give --engine ray with it" in capsys.readouterr().err
    assert not output.exists()
