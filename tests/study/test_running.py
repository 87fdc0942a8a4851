"""Whole studies with a real model: stopped, resumed, in any order, on any number of workers."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pyarrow.parquet
import pytest

from tests.study.conftest import draw, draw_ten
from viewer.backends.model import Job
from viewer.errors import Cancelled, FileError, InputError, NoAttentionError
from viewer.study.engines import LocalEngine
from viewer.study.measuring import Opening
from viewer.study.models_engine import ModelsEngine
from viewer.study.names import VALUES
from viewer.study.running import Plan, begin, run
from viewer.study.sources import Source
from viewer.study.store import Store
from viewer.study.summary import summarize


def study(opening, source, output, *, workers=1, stop_after=None, **options):
    """Run a study; returns how far it came, its store, and what was said."""
    plan = Plan(Source(str(source)), opening, options.pop("protocol", "renormalized"), output, **options)
    said, engine = [], LocalEngine(opening, plan.protocol, workers)
    job = Job(lambda doing, share: (said.append((doing, share)), maybe_stop()))

    def maybe_stop():
        # Told before the first picture, and after each.
        if stop_after is not None and sum("Studying" in doing for doing, _ in said) > stop_after:
            job.cancel()

    with begin(plan, engine, job) as store:
        try:
            return run(store, plan, engine, job), store, said
        except Cancelled:
            return None, store, said


def same(first, second, tolerance=0.0):
    one, other = summarize(first), summarize(second)
    for key in ("count", "mean", "sd", "se", "quartiles"):
        np.testing.assert_allclose(getattr(one, key), getattr(other, key), rtol=tolerance, atol=tolerance)


def rows(store):
    return pyarrow.parquet.read_table(store.folder / VALUES).to_pylist()


@pytest.fixture(scope="module")
def whole(opening, tmp_path_factory):
    """The study of the pictures, run through."""
    folder = tmp_path_factory.mktemp("whole")
    return study(opening, draw_ten(folder / "pictures"), folder / "study")[1]


def test_values_are_those_of_one_picture_by_itself(opening, pictures, whole):
    from viewer import open_image
    from viewer.attention.measures import MEASURES
    from viewer.attention.sweep import measure_record

    record = opening.open().attend(open_image(pictures / "3.png"))
    measures = measure_record(record)
    table = [row for row in rows(whole) if row["image"] == "3.png"]
    assert len(table) == 6 * 2
    for row in table:
        for measure in MEASURES:
            expected = measure.of_heads(measures.layers[row["layer"]], "renormalized")[row["head"]]
            assert row[measure.name] == pytest.approx(expected, rel=1e-6, nan_ok=True)
    assert table[0]["image_sha256"] == record.provenance.image_sha256
    assert table[0]["verified"]


def test_the_number_of_workers_and_the_size_of_parts_change_nothing(opening, pictures, whole, tmp_path):
    _, other, _ = study(opening, pictures, tmp_path / "other", workers=3, part=3)
    assert other.parts == 4
    same(whole, other)
    assert rows(whole) == rows(other)


def test_the_order_of_pictures_changes_nothing(opening, pictures, whole, tmp_path):
    turned = tmp_path / "turned"
    turned.mkdir()
    for number, path in enumerate(sorted(pictures.rglob("*.png"), reverse=True)):
        shutil.copy(path, turned / f"{number}.png")
    same(whole, study(opening, turned, tmp_path / "other")[1], 1e-6)


def test_a_stopped_study_goes_on_where_it_was(opening, pictures, whole, tmp_path):
    stopped, store, _ = study(opening, pictures, tmp_path / "other", part=4, stop_after=6)
    assert stopped is None
    assert store.counts() == (6, 0)
    advance, store, said = study(opening, pictures, tmp_path / "other", part=4, resume=True)
    assert advance.done == 10
    assert len([doing for doing, _ in said if "Studying" in doing]) == 1 + 4
    same(whole, store)
    assert sorted(map(str, rows(whole))) == sorted(map(str, rows(store)))


def test_bad_pictures_are_listed_and_not_tried_again(opening, pictures, tmp_path):
    (pictures / "5.png").write_bytes(b"")
    (pictures / "text.jpg").write_text("no picture")
    advance, store, said = study(opening, pictures, tmp_path / "study", part=4)
    assert (advance.done, advance.failed, advance.total) == (9, 2, 11)
    assert [one.name for one in store.failed()] == ["5.png", "text.jpg"]
    assert said[-1][0].startswith("Studying: 11 of 11 pictures, 2 failed, ")
    assert said[-1][1] == 1
    draw(pictures / "5.png", 5)
    advance, store, _ = study(opening, pictures, tmp_path / "study", resume=True)
    assert (advance.done, advance.failed) == (9, 2)


def test_new_pictures_are_taken_up_and_none_twice(opening, pictures, whole, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    shutil.move(pictures / "0.png", kept / "0.png")
    _, store, _ = study(opening, pictures, tmp_path / "later")
    assert store.counts() == (9, 0)
    shutil.move(kept / "0.png", pictures / "0.png")
    _, store, _ = study(opening, pictures, tmp_path / "later", resume=True)
    assert store.counts() == (10, 0)
    same(whole, store, 1e-6)


def test_progress_tells_rate_and_time_left(opening, pictures, tmp_path):
    _, _, said = study(opening, pictures, tmp_path / "study")
    shares = [share for doing, share in said if "Studying" in doing]
    assert shares == [number / 10 for number in range(11)]
    assert "4 of 10 pictures, " in said[-7][0]
    assert " a second, " in said[-7][0]
    assert said[-7][0].endswith(" left")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"protocol": "original"}, "the protocol was renormalized and is original now"),
        ({"image_size": 96}, "the preprocessing was 64x64, .* and is 96x96"),
    ],
)
def test_other_settings_are_refused_by_name(changes, said, opening, whole):
    other = replace(opening, image_size=changes.get("image_size", 64))
    protocol = changes.get("protocol", "renormalized")
    with pytest.raises(FileError, match=said):
        study(other, whole.settings.facts["source"], whole.folder, resume=True, protocol=protocol)


def test_other_pictures_are_refused(opening, pictures, whole):
    with pytest.raises(FileError, match=r"the source was .* and is .* now\. Give the same settings again"):
        study(opening, pictures, whole.folder, resume=True)


def test_nothing_is_written_where_nothing_can_be_studied(opening, pictures, tmp_path):
    output = tmp_path / "study"
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match="holds no pictures"):
        study(opening, tmp_path / "empty", output)
    with pytest.raises(FileError, match="holds no study"):
        study(opening, pictures, output, resume=True)
    (tmp_path / "conv.onnx").write_bytes(convolution())
    with pytest.raises(NoAttentionError):
        study(Opening(str(tmp_path / "conv.onnx")), pictures, output)
    assert not output.exists()


def convolution():
    """Return an ONNX model without attention."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "conv",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 30, 30])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def test_whole_pictures_have_sizes_of_their_own(opening, pictures, tmp_path):
    _, store, _ = study(replace(opening, image_size="whole"), pictures, tmp_path / "study")
    assert store.counts() == (10, 0)
    assert Store.at(store.folder).settings.facts["input_size"] is None
    assert np.isfinite(summarize(store).mean[:, 0]).all()


def test_copies_of_the_model_give_what_one_gives(opening, pictures, whole, tmp_path):
    (pictures / "text.jpg").write_text("no picture")
    plan = Plan(Source(str(pictures)), opening, "renormalized", tmp_path / "copies", part=3)
    with ModelsEngine(opening, "renormalized", 2, 1, 3) as engine, begin(plan, engine, Job()) as store:
        advance = run(store, plan, engine, Job())
    assert (advance.done, advance.failed) == (10, 1)
    same(whole, store, 1e-6)
    assert store.position().pictures == 10
    for one, other in zip(whole.position().share(), store.position().share(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_copies_that_can_not_be_opened_say_so_in_a_sentence(pictures, tmp_path):
    opening = Opening("no_such_model")
    plan = Plan(Source(str(pictures)), opening, "renormalized", tmp_path / "copies")
    said = "No model is called 'no_such_model'"
    with ModelsEngine(opening, "renormalized", 2, 1, 3) as engine, pytest.raises(InputError, match=said):
        begin(plan, engine, Job())
    assert not (tmp_path / "copies").exists()
