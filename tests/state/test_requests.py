"""Input sizes as a person writes them."""

from __future__ import annotations

import pytest

from viewer.state.requests import ModelRequest, parse_size, size_text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("", None),
        ("  ", None),
        ("518", 518),
        ("224x320", (224, 320)),
        ("224 X 320", (224, 320)),
        ("224×320", (224, 320)),
        ("whole", "whole"),
        ("Whole ", "whole"),
    ],
)
def test_sizes_are_read(text, size):
    assert parse_size(text) == size
    assert parse_size(size_text(size)) == size


@pytest.mark.parametrize(
    "text", ["0", "0x224", "224x0", "-5", "12.5", "big", "224x", "x224", "1x2x3", "x" * 5000]
)
def test_no_sizes_are_refused_with_what_is_taken(text):
    with pytest.raises(ValueError, match="write 518, 224x320 \\(height first\\) or whole"):
        parse_size(text)
    with pytest.raises(ValueError) as caught:
        parse_size(text)
    assert len(str(caught.value)) < 140


@pytest.mark.parametrize("text", ["100000", "224x100000", "9" * 5000])
def test_sizes_that_nothing_can_hold_are_called_too_large(text):
    with pytest.raises(ValueError, match="is too large an input; its sides can have 99999 pixels") as caught:
        parse_size(text)
    assert len(str(caught.value)) < 140


def test_a_request_is_called_by_file_name():
    assert ModelRequest("sample").title == "sample"
    assert ModelRequest("/models/vit.onnx").title == "vit.onnx"
    assert ModelRequest("vit_small", "/w/dino.pth").title == "vit_small with dino.pth"
