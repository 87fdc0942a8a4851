"""What is remembered: written and read back whole, and never a reason not to start."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "null", '"text"', "\x00\xff", "{" * 10_000])
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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(0.5) | st.sampled_from(["", "vit", "0x0", "light"]),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(st.sampled_from(["model", "image_size", "theme"]), inside)
    ),
    max_leaves=6,
)
FIELDS = [
    "version",
    "display",
    "fusion",
    "direction",
    "geometry",
    "splitters",
    "recent_models",
    "recent_images",
    "export",
]


# A machine that is busy otherwise makes drawing and writing slow; that is no finding.
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(raw=st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_no_content_keeps_the_program_from_starting(tmp_path_factory, raw):
    path = tmp_path_factory.mktemp("any") / "settings.json"
    path.write_text(json.dumps(raw))
    found = load(path)
    save(found, path.with_name("again.json"))
    assert load(path.with_name("again.json")) == found


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
