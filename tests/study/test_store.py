"""The log of parts: what is committed stays, what is not never was."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from viewer.errors import FileError
from viewer.study.decoding import Failed
from viewer.study.measuring import Measured
from viewer.study.names import SETTINGS, VALUES
from viewer.study.settings import FORMAT, Settings
from viewer.study.store import Store
from viewer.study.summary import summarize

MEASURES = ["mean_distance_px", "prefix_mass"]
ROOT = Path(__file__).parents[2]


def facts(**changes):
    found = {
        "format": FORMAT,
        "source": "here",
        "protocol": "renormalized",
        "measures": MEASURES,
        "model": {"name": "net", "sha256": "1", "weights": "", "backend": "torch"},
        "preprocessing": "as it is",
        "layers": [
            {"name": f"l{at}", "kind": "self", "heads": heads, "uniform": {}}
            for at, heads in ((0, 2), (1, 3))
        ],
        "convolution": {},
        "input_size": [64, 64],
        "notes": [],
    }
    return {**found, **changes}


def measured(number):
    values = np.random.default_rng(number).random((5, 2), np.float32)
    return Measured(f"{number}.png", -1, "ab", number != 3, values)


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "study", Settings(facts())) as found:
        yield found


def test_values_come_back_with_layer_and_head(store):
    store.commit([measured(0), measured(1)], [Failed("bad.png", -1, "it is bad")])
    table = pyarrow.parquet.read_table(store.folder / VALUES)
    assert table.column("image").to_pylist() == ["0.png"] * 5 + ["1.png"] * 5
    assert table.column("layer").to_pylist() == [0, 0, 1, 1, 1] * 2
    assert table.column("head").to_pylist() == [0, 1, 0, 1, 2] * 2
    np.testing.assert_array_equal(table.column("prefix_mass").to_numpy()[5:], measured(1).values[:, 1])
    np.testing.assert_array_equal(next(store.blocks())[1], measured(1).values)
    assert list(store.failed()) == [Failed("bad.png", -1, "it is bad")]
    assert store.counts() == (2, 1)


def test_statistics_do_not_depend_on_where_parts_end(tmp_path):
    found = []
    for name, cuts in (("one", [300]), ("many", [1, 2, 130, 131, 290, 300]), ("none", [0, 128, 300])):
        with Store.create(tmp_path / name, Settings(facts())) as store:
            start = 0
            for end in cuts:
                store.commit([measured(number) for number in range(start, end)], [])
                start = end
            found.append(summarize(store))
    for other in found[1:]:
        for key in ("mean", "sd", "se", "quartiles", "count"):
            np.testing.assert_array_equal(getattr(other, key), getattr(found[0], key))


def test_done_knows_measured_and_failed_by_name_and_place(store):
    store.commit([measured(0)], [Failed("bad\udcff.png", 7, "it is bad")])
    store.commit([measured(1)], [])
    done = store.done()
    assert len(done) == 3
    assert done.has("0.png", -1)
    assert done.has("1.png", -1)
    assert done.has("bad\udcff.png", 7)
    assert not done.has("bad\udcff.png", 8)
    assert not done.has("2.png", -1)


def test_what_was_not_renamed_is_cleared_away(store):
    store.commit([measured(0)], [])
    draft = store.folder / VALUES / "part-000001.draft"
    draft.write_bytes(b"half")
    store.__exit__(None, None, None)
    with Store.at(store.folder) as again:
        assert not draft.exists()
        assert again.parts == 1
        again.commit([measured(1)], [])
        assert again.counts() == (2, 0)
    store.__enter__()


def test_many_parts_are_counted(store):
    for count in range(1, 12):
        store.commit([measured(count)], [])
        assert store.parts == count


def test_verification_is_counted(store):
    store.commit([measured(number) for number in range(6)], [])
    assert store.unverified() == 1


def test_one_process_at_a_time(store):
    program = (
        "import sys; from pathlib import Path; from viewer.study.store import Store\n"
        "with Store.at(Path(sys.argv[1])): pass"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(store.folder)], cwd=ROOT, capture_output=True, text=True
    )
    assert "is being worked on by another process" in done.stderr


def test_a_taken_folder_is_refused(store, tmp_path):
    with pytest.raises(FileError, match=r"holds a study already\. Go on with it by --resume"):
        Store.create(store.folder, Settings(facts()))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("years of work")
    with pytest.raises(FileError, match="is not empty"):
        Store.create(tmp_path / "full", Settings(facts()))
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="since it is a file"):
        Store.create(tmp_path / "file", Settings(facts()))
    with pytest.raises(FileError, match="holds no study"):
        Store.at(tmp_path / "full")


def test_of_a_study_of_nothing_only_its_own_files_go(store):
    store.commit([], [Failed("bad.png", -1, "it is bad")])
    (store.folder / "notes.txt").write_text("mine")
    store.discard()
    assert [path.name for path in store.folder.iterdir()] == ["notes.txt"]
    (store.folder / "notes.txt").unlink()
    with Store.create(store.folder, store.settings) as again:
        again.discard()
    assert not store.folder.exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "can't be read"),
        (b"[]", "was written by another version"),
        (b'{"format": 99}', "was written by another version"),
        (b'{"format": 1}', "is damaged: 'source' is missing"),
    ],
)
def test_damaged_settings_are_named(content, said, store):
    (store.folder / SETTINGS).write_bytes(content)
    with pytest.raises(FileError, match=said):
        Store.at(store.folder)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("source", 5),
        ("source", None),
        ("protocol", "some"),
        ("protocol", ["renormalized"]),
        ("measures", 5),
        ("measures", []),
        ("measures", [*MEASURES, "loudness"]),
        ("measures", [*MEASURES, MEASURES[0]]),
        ("measures", [[]]),
        ("model", "net"),
        ("model", {"name": "net", "sha256": "1", "backend": "torch"}),
        ("preprocessing", 5),
        ("layers", []),
        ("layers", "two"),
        ("layers", [{"name": "l0", "kind": "self", "heads": 10**12, "uniform": {}}]),
        ("layers", [{"name": "l0", "kind": "self", "heads": "2", "uniform": {}}]),
        ("layers", [{"name": "l0", "kind": "self", "heads": 2}]),
        ("layers", [{"name": "l0", "kind": "self", "heads": 2, "uniform": {"nmi": "0"}}]),
        ("convolution", {"mean_distance_px": 1}),
        ("convolution", None),
        ("notes", [5]),
    ],
)
def test_each_damaged_setting_is_named(name, value, store):
    (store.folder / SETTINGS).write_text(json.dumps(facts(**{name: value})))
    with pytest.raises(FileError, match=rf"{SETTINGS} is damaged: '{name}' is missing, or not as"):
        Store.at(store.folder)


def test_a_damaged_part_is_named(store):
    store.commit([measured(0)], [])
    (store.folder / VALUES / "part-000000.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(FileError, match=r"part-000000\.parquet is damaged"):
        store.counts()
    with pytest.raises(FileError, match=r"part-000000\.parquet is damaged"):
        summarize(store)


def test_differences_name_what_differs():
    one = Settings(facts())
    assert not one.differences(Settings(facts(notes=["other"])))
    other = facts(protocol="original", model={**facts()["model"], "sha256": "2"})
    assert one.differences(Settings(other)) == [
        "the model's SHA-256 was 1 and is 2 now",
        "the protocol was renormalized and is original now",
    ]
