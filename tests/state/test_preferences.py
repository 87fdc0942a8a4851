"""What is remembered: written and read back whole, and never a reason not to start."""

from __future__ import annotations

import json
import os
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from viewer.state.colormaps import COLORMAPS
from viewer.state.display import DisplayValue
from viewer.state.preferences import VERSION, ExportChoices, Preferences, load, save, settings_path
from viewer.state.requests import ModelRequest

FULL = Preferences(
    display=DisplayValue("original", "patches", "per head", "cividis", 0.25, False, True, 3, "talk"),
    fusion="max",
    direction="to",
    geometry="AdnQywADAAA=",
    splitters={"film strip": (180, 900), "views": (1, 2)},
    recent_models=(ModelRequest("sample"), ModelRequest("vit", "w.pth", (224, 320), "cuda:1")),
    recent_images=("/a/b.png", "/a/c.png"),
    folder="/a",
    export=ExportChoices("all", ".svg", 4, False, "transparent"),
)


@pytest.mark.parametrize("preferences", [Preferences(), FULL])
def test_written_and_read_back_are_equal(tmp_path, preferences):
    path = tmp_path / "new folder" / "settings.json"
    save(preferences, path)
    assert load(path) == preferences
    assert [entry.name for entry in path.parent.iterdir()] == ["settings.json"]


def test_a_missing_file_gives_the_defaults(tmp_path):
    assert load(tmp_path / "settings.json") == Preferences()


def test_tests_have_settings_of_their_own(own_settings):
    assert settings_path() == own_settings / "patchreach" / "settings.json"


@pytest.mark.parametrize(
    "text", ["", "{", "[1, 2]", "null", '"text"', "\x00\xff", "{" * 10_000, "[" * 100_000, '{"a": ' * 5000]
)
def test_a_damaged_file_gives_the_defaults_and_is_put_aside(tmp_path, text):
    path = tmp_path / "settings.json"
    path.write_text(text, encoding="latin-1")
    assert load(path) == Preferences()
    assert not path.exists()
    assert (tmp_path / "settings.damaged.json").read_text(encoding="latin-1") == text


def test_each_wrong_value_falls_back_alone(tmp_path):
    path = tmp_path / "settings.json"
    save(FULL, path)
    raw = json.loads(path.read_text())
    raw["display"]["theme"] = "pink"
    raw["display"]["opacity"] = 7
    raw["display"]["ring"] = True
    raw["fusion"] = 3
    raw["splitters"]["views"] = [1, "wide"]
    raw["recent_images"] = ["/x.png", 5]
    raw["recent_models"] = [{"model": "a", "image_size": "huge"}, {"weights": "x"}, "text"]
    raw["export"] = "all"
    raw["from the future"] = {"a": 1}
    path.write_text(json.dumps(raw))
    expected = replace(
        FULL,
        display=replace(FULL.display, theme="light", opacity=0.8, ring=0),
        fusion="mean",
        splitters={"film strip": (180, 900)},
        recent_images=("/x.png",),
        recent_models=(ModelRequest("a"),),
        export=ExportChoices(),
    )
    assert load(path) == expected


def test_a_whole_number_will_do_for_opacity(tmp_path):
    path = tmp_path / "settings.json"
    path.write_text('{"display": {"opacity": 1}}')
    assert load(path).display.opacity == 1.0


def test_settings_of_a_newer_version_are_read_but_not_overwritten(tmp_path):
    path = tmp_path / "settings.json"
    text = json.dumps({"version": VERSION + 1, "display": {"theme": "dark"}, "new": [1]})
    path.write_text(text)
    assert load(path).display.theme == "dark"
    save(FULL, path)
    assert path.read_text() == text


HALF = "\ud800"
TEXTS = st.text(st.characters(), max_size=8) | st.sampled_from(
    ["", "vit", "0x0", "9" * 400, "light", "jet", HALF, "caf\udce9", "a\0b", "n" * 5000]
)
NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -(10**400), 1 << 31, 1e308])
NAMES = sorted(
    {item.name for kind in (Preferences, DisplayValue, ExportChoices, ModelRequest) for item in fields(kind)}
)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inside: (
        st.lists(inside, max_size=3) | st.dictionaries(st.sampled_from(NAMES) | TEXTS, inside, max_size=6)
    ),
    max_leaves=12,
)


# A machine that is busy otherwise makes drawing and writing slow; that is no finding.
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(raw=JSON | st.dictionaries(st.sampled_from(["version", *NAMES]), JSON))
def test_no_content_keeps_the_program_from_starting(tmp_path_factory, raw):
    path = tmp_path_factory.mktemp("any") / "settings.json"
    path.write_text(json.dumps(raw))
    found = load(path)
    again = path.with_name("again.json")
    save(found, again)
    assert load(again) == found
    assert found.display.colormap in COLORMAPS
    assert found.geometry.isascii()
    assert all(0 <= size < 1 << 31 for sizes in found.splitters.values() for size in sizes)
    for text in (found.folder, found.export.folder, *found.recent_images, *found.splitters):
        os.fsencode(text)
    # Whatever it held, the next session writes its own.
    save(found, path)
    assert path.exists()


@pytest.mark.timeout(20)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names there")
def test_a_pipe_or_folder_in_the_place_of_the_file_gives_the_defaults(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    for name in ("pipe.json", "folder.json"):
        assert load(tmp_path / name) == Preferences()
    with pytest.raises(OSError, match="directory"):
        save(Preferences(), tmp_path / "folder.json")


def test_recent_files_are_latest_first_once_each_and_not_endless():
    preferences = Preferences()
    for number in range(20):
        preferences = preferences.with_image(Path(f"/pictures/{number}.png"))
    preferences = preferences.with_image(Path("/pictures/15.png"))
    assert preferences.recent_images[:3] == ("/pictures/15.png", "/pictures/19.png", "/pictures/18.png")
    assert len(preferences.recent_images) == len(set(preferences.recent_images)) == 12
    assert preferences.folder == "/pictures"
    for name in ("a", "b", "a"):
        preferences = preferences.with_model(ModelRequest(name))
    assert [request.model for request in preferences.recent_models] == ["a", "b"]
