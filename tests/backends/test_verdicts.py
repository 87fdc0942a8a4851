"""What a check of a layer notices."""

from __future__ import annotations

import pytest
import torch

from viewer.attention.scores import QueryKeyScores
from viewer.backends.verdicts import NOT_FINITE, check, spread_rows

HEADS, QUERIES, KEYS, CHANNELS = 3, 40, 30, 8


def attention(dtype=torch.float32) -> tuple[torch.Tensor, ...]:
    """Return queries, keys, values and the exact output."""
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(HEADS, QUERIES, CHANNELS, generator=generator)
    keys, values = torch.randn(2, HEADS, KEYS, CHANNELS, generator=generator)
    output = torch.softmax(0.3 * queries @ keys.mT, dim=-1) @ values
    return queries, keys, values.to(dtype), output.to(dtype)


def judged(queries, keys, values, output):
    return check(QueryKeyScores(queries, keys, 0.3), values, output).verdict()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_one_number_that_is_not_finite_anywhere(bad, dtype):
    queries, keys, values, output = attention(dtype)
    assert judged(queries, keys, values, output).verified
    row = next(row for row in range(QUERIES) if row not in spread_rows(QUERIES))
    output[1, row, 5] = bad
    for laid_out in (output, output.mT.contiguous().mT, output.transpose(0, 1).contiguous().transpose(0, 1)):
        verdict = judged(queries, keys, values, laid_out)
        assert not verdict.verified
        assert verdict.reason == NOT_FINITE


def test_numbers_as_large_as_the_type_holds_are_finite():
    for dtype in (torch.float16, torch.float64):
        queries, keys, values, output = attention(dtype)
        output[0, 1, 0], output[0, 1, 1] = torch.finfo(dtype).max, torch.finfo(dtype).min
        assert judged(queries, keys, values, output).verified


@pytest.mark.parametrize("row", spread_rows(QUERIES))
def test_one_wrong_query_among_the_checked(row):
    queries, keys, values, output = attention()
    queries[2, row] += 0.05
    assert "differ from the model's output" in judged(queries, keys, values, output).reason


def test_one_wrong_key_or_value():
    queries, keys, values, output = attention()
    wrong = keys.clone()
    wrong[0, 17] += 0.05
    assert not judged(queries, wrong, values, output).verified
    wrong = values.clone()
    wrong[0, 17] += 0.05
    assert not judged(queries, keys, wrong, output).verified
