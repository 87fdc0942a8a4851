from __future__ import annotations

import pytest
from matplotlib.backends.backend_agg import RendererAgg

from viewer.export.typesetting import DPI, font, shorten, text_width, wrap, wrap_clauses


def test_lines_fit_and_hold_every_word() -> None:
    text = "Layer 10, head 5: which patches attend to patch (5, 8) of the picture"
    for width in (150, 200, 300, 1000):
        lines = wrap(text, width, 10)
        assert " ".join(lines) == text
        assert all(text_width(line, 10) <= width for line in lines)
        assert any("(5, 8)" in line for line in lines)
    assert wrap("  ", 100, 10) == []


def test_a_word_that_is_too_long_keeps_both_ends() -> None:
    name = "vit_so400m_patch14_siglip_gap_378.webli_ft_in1k"
    short = shorten(name, 150, 10)
    assert text_width(short, 10) <= 150 < text_width(short + "mm", 10)
    front, back = short.split("…")
    assert name.startswith(front) and name.endswith(back)
    assert abs(len(front) - len(back)) <= 1
    assert wrap(f"a {name}", 150, 10) == ["a", short]


def test_width_grows_with_the_type() -> None:
    assert text_width("attention weight", 20) == pytest.approx(
        2 * text_width("attention weight", 10), rel=0.06
    )
    assert text_width("attention weight", 10, bold=True) > text_width("attention weight", 10)


def test_a_label_breaks_after_its_first_clause() -> None:
    label = "attention weight, one scale for all heads"
    assert wrap_clauses(label, 1000, 10) == [label]
    width = text_width(label, 10) - 1
    assert wrap_clauses(label, width, 10) == ["attention weight", "one scale for all heads"]
    place = f"attention weight on patch (1, 1), {label.partition(', ')[2]}"
    assert wrap_clauses(place, 1.2 * width, 10) == [
        "attention weight on patch (1, 1)",
        "one scale for all heads",
    ]
    assert wrap_clauses("nothing to part", 40, 10) == wrap("nothing to part", 40, 10)


@pytest.mark.parametrize("scale", [1, 2, 3, 4])
def test_no_scale_of_a_picture_has_wider_type_than_was_measured(scale) -> None:
    words = "its attention is spread as over 7.8 tokens (entropy 2.06 nats), most on patch (0, 3 of 4 × 4)"
    ruler = RendererAgg(1, 1, DPI * scale)
    for points in (8.5, 10.0, 16.0):
        width = ruler.get_text_width_height_descent(words, font(points), False)[0] / scale
        assert width <= text_width(words, points)


def test_a_patch_stays_with_its_grid() -> None:
    words = "most on patch (13, 6 of 14 × 14) with 51 % of what (row 3, column 5 of 8 × 8) has"
    for width in range(220, 500, 20):
        for line in wrap(words, width, 10.0):
            assert line.count("(") == line.count(")")


def test_places_in_words_stay_together() -> None:
    lines = wrap("what patch (row 6, column 5) attends to", 160, 10)
    assert "(row 6, column 5)" in " | ".join(lines)


def test_numbers_stay_with_their_unit_and_sizes_whole() -> None:
    text = (
        "seen of the 300 × 451 px picture; 16 rows × 16 columns of patches, 88 % of 71 tokens, 4 patches away"
    )
    for width in range(170, 400, 10):
        lines = wrap(text, width, 10)
        assert " ".join(lines) == text
        for whole in ("300 × 451 px", "16 rows × 16 columns", "88 %", "71 tokens", "4 patches"):
            assert any(whole in line for line in lines), (width, whole)


def test_a_last_preposition_does_not_stand_alone() -> None:
    words = "what patch (row 8, column 8) draws on"
    lines = wrap(words, text_width(words, 12) - 2, 12)
    assert lines == ["what patch (row 8, column 8)", "draws on"]
