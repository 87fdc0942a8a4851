from __future__ import annotations

import pytest

from viewer.state.words import prefix_words, query_words, weight_words


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ((4, 5), "patch (4, 5)"),
        ("cls", "the class token"),
        ("dist", "the distillation token"),
        ("reg12", "register 12"),
        ("prefix0", "token prefix0"),
    ],
)
def test_queries(query, words):
    assert query_words(query) == words


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
