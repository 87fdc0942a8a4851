"""Studies as people run them: killed and interrupted in real processes, and taken up again."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet
import pytest

from tests.study.conftest import command, draw_ten
from viewer.cli import main
from viewer.study.names import FAILED, FIGURES, HEADS, REPORT, SUMMARY, VALUES

ROOT = Path(__file__).parents[2]
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals")


@pytest.fixture(scope="module")
def ten(tmp_path_factory):
    return draw_ten(tmp_path_factory.mktemp("ten") / "pictures")


@pytest.fixture(scope="module")
def whole(opening, ten, tmp_path_factory):
    """The folder of a study that nothing stopped."""
    folder = tmp_path_factory.mktemp("whole") / "study"
    assert main(command(opening, ten, folder, "--part", "2")) == 0
    return folder


def begun(opening, source, folder):
    """Start a study in a process of its own, and wait until some of it is committed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    arguments = [sys.executable, "main.py", *command(opening, source, folder, "--part", "2")]
    process = subprocess.Popen(
        arguments, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 120
    while not list(folder.glob(f"{VALUES}/*.parquet")):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < until
        time.sleep(0.01)
    return process


def summary(folder):
    return pyarrow.parquet.read_table(folder / SUMMARY).to_pylist()


def values(folder):
    return pyarrow.parquet.read_table(folder / VALUES).to_pylist()


@posix
def test_a_killed_study_ends_equal_to_one_that_was_not(opening, ten, whole, tmp_path, capsys):
    folder = tmp_path / "study"
    process = begun(opening, ten, folder)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    done = {row["image"] for row in values(folder)}
    assert 2 <= len(done) < 10
    assert not (folder / REPORT).exists()
    # Without --resume nothing is touched.
    assert main(command(opening, ten, folder)) == 2
    assert "holds a study already. Go on with it by --resume" in capsys.readouterr().err
    assert main(command(opening, ten, folder, "--resume", "--part", "2")) == 0
    assert values(folder) == values(whole)
    assert summary(folder) == summary(whole)
    # Sums over pictures too: no picture was added twice, and none left out.
    assert (folder / HEADS).read_text() == (whole / HEADS).read_text()
    assert (folder / REPORT).read_text() == (whole / REPORT).read_text()


@posix
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_ctrl_c_and_schedulers_keep_what_was_measured(name, opening, ten, whole, tmp_path):
    folder = tmp_path / "study"
    process = begun(opening, ten, folder)
    process.send_signal(getattr(signal, name))
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    done = len({row["image"] for row in values(folder)})
    assert f"stopped after {done} pictures; the same command with --resume goes on from there" in said
    assert "Traceback" not in said
    assert main(command(opening, ten, folder, "--resume")) == 0
    assert values(folder) == values(whole)
    assert summary(folder) == summary(whole)


def test_a_study_writes_tables_figures_and_a_report(whole, opening):
    table = pyarrow.parquet.read_table(whole / SUMMARY)
    facts = json.loads(table.schema.metadata[b"patchreach"])
    assert facts["images"] == 10
    assert facts["protocol"] == "renormalized"
    assert len(facts["model"]["sha256"]) == 64
    row = next(row for row in table.to_pylist() if row["measure"] == "mean_distance_px")
    assert (row["layer"], row["head"], row["unit"], row["images"]) == (0, 0, "px", 10)
    assert row["q1"] <= row["median"] <= row["q3"]
    assert row["se"] == pytest.approx(row["sd"] / 10**0.5)
    assert 0 < row["mean"] < 64
    assert row["uniform"] == pytest.approx(16 * 1.9, rel=0.1)
    text = (whole / REPORT).read_text()
    assert facts["model"]["sha256"] in text
    assert "10 of `pictures`" in text
    assert "renormalized over patches" in text
    assert "A head counts as near if" in text
    assert str(ROOT) not in text
    for name in FIGURES:
        assert f"({name})" in text
        assert (whole / name).stat().st_size > 5000
    assert "± 1 standard deviation over the pictures" in (whole / "figure.svg").read_text()
    assert not (whole / FAILED).exists()


def test_every_head_has_its_kind_and_what_position_explains(whole):
    with (whole / HEADS).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(int(row["layer"]), int(row["head"])) for row in rows] == [divmod(at, 2) for at in range(12)]
    found = {(row["layer"], row["head"], row["measure"]): row["mean"] for row in summary(whole)}
    for row in rows:
        assert row["kind"] in {"sink", "local", "positional", "global", "content"}
        assert row["why"].endswith(".")
        assert 0 <= float(row["position_share"]) <= 1
        mean = found[int(row["layer"]), int(row["head"]), "entropy_nats"]
        assert float(row["entropy_nats"]) == pytest.approx(mean, rel=1e-6)


def test_bad_pictures_end_in_1_and_are_listed(opening, tmp_path, capsys):
    source = draw_ten(tmp_path / "pictures")
    (source / "3.png").write_bytes(b"")
    assert main(command(opening, source, tmp_path / "study")) == 1
    found = capsys.readouterr()
    assert found.out.strip() == str(tmp_path / "study" / REPORT)
    assert "3.png is empty (0 bytes)" in found.err
    assert "3.png" in (tmp_path / "study" / FAILED).read_text()
    assert "9 of `pictures`; 1 failed" in (tmp_path / "study" / REPORT).read_text()
    # Going on tries none of them again, and names them again.
    assert main(command(opening, source, tmp_path / "study", "--resume")) == 1
    assert capsys.readouterr().err == found.err.replace("patchreach: ", "patchreach: left out before: ")


def test_nothing_but_bad_pictures_is_2(opening, tmp_path, capsys):
    source = tmp_path / "bad"
    source.mkdir()
    (source / "3.png").write_bytes(b"")
    assert main(command(opening, source, tmp_path / "study")) == 2
    assert "not one of 1 picture could be studied" in capsys.readouterr().err
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["study", "there", "-o", "x"], "--model"),
        (["study", "there", "--model", "sample"], "-o"),
        (["study", "there", "--model", "sample", "-o", "x", "--workers", "0"], "1 at least"),
        (["study", "there", "--model", "sample", "-o", "x", "--engine", "spark"], "'local', 'ray'"),
    ],
)
def test_wrong_usage_is_explained(arguments, said, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert said in capsys.readouterr().err.replace("local, ray", "'local', 'ray'")
