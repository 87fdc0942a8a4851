from __future__ import annotations

from dataclasses import replace

import pytest

from tests.state.records import random_record
from viewer.attention.record import Provenance
from viewer.state.words import (
    grid_words,
    model_words,
    prefix_words,
    query_words,
    size_words,
    source_words,
    weight_words,
)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ((4, 5), "patch (row 4, column 5)"),
        ("cls", "the class token"),
        ("dist", "the distillation token"),
        ("reg12", "register 12"),
        ("prefix0", "token prefix0"),
    ],
)
def test_queries(query, words):
    assert query_words(query) == words


def test_a_patch_in_brief():
    assert query_words((4, 5), brief=True) == "patch (4, 5)"
    assert query_words("cls", brief=True) == "the class token"


def test_sizes_say_height_first():
    assert size_words((224, 336)) == "224 × 336 px (height × width)"
    assert size_words((224, 224)) == "224 × 224 px"
    assert grid_words((14, 21)) == "14 rows × 21 columns"


@pytest.mark.parametrize(
    ("model", "weights", "words"),
    [
        ("sample", None, "DINOv2 ViT-S/14 (sample)"),
        ("/some/where/net.onnx", "", "net.onnx"),
        (
            "vit_small_patch14_reg4_dinov2",
            "/some/where/reg4.pth",
            "vit_small_patch14_reg4_dinov2 with reg4.pth",
        ),
    ],
)
def test_models(model, weights, words):
    assert model_words(model, weights) == words


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("cls",), "the class token"),
        (("cls", "dist"), "the class token and the distillation token"),
        (("cls", "reg1", "reg2"), "the class token and 2 registers"),
        (("reg1",), "the register"),
        (("cls", "dist", "reg1", "reg2"), "the class token, the distillation token and 2 registers"),
    ],
)
def test_prefix_tokens_together(names, words):
    assert prefix_words(names) == words


@pytest.mark.parametrize(("weight", "words"), [(0.1234, "0.12"), (1e-20, "< 0.0001"), (0.0, "0"), (1.0, "1")])
def test_weights(weight, words):
    assert weight_words(weight) == words


def test_words_that_leave_the_window_say_picture_model_and_what_was_changed():
    record = replace(
        random_record(),
        input_size=(224, 336),
        provenance=Provenance("vit_b", weights="/models/own.pth", image="/home/me/cat.jpg"),
    )
    plain = "Picture: cat.jpg, input 224 × 336 px (height × width). Model: vit_b with own.pth."
    assert source_words(record, "cat.jpg") == plain
    changed = replace(record, what_if=("cb:layers=all,strength=0.5", "head-removed:layers=3,heads=2"))
    assert source_words(changed, "cat.jpg") == (
        f"{plain} What if: Context Broadcasting (strength 0.5) after the MLP of every layer; "
        "head 2 of layer 3 removed."
    )
