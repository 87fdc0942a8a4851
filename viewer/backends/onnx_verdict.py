"""Checking an attention of an ONNX run against what the model really computed."""

from __future__ import annotations

import numpy as np
import torch

from viewer.attention.layer import Verdict
from viewer.attention.scores import QueryKeyScores, WeightScores
from viewer.backends.onnx_arrangement import Arrangement
from viewer.backends.onnx_found import Found
from viewer.backends.onnx_scores import Array, Look, operand_values, used_weights
from viewer.backends.verdicts import Check, check, check_rows, spread_rows

# Weights in 8 bits are off by half a step of 1/255, and by a step where their scale is rounded as well.
_ROUNDED = 1 / 100
_EXACT = 1e-4


def verdict(
    found: Found, scores: QueryKeyScores | WeightScores, arrangement: Arrangement, look: Look
) -> Verdict:
    """Compare rebuilt weights times values with the operation's real output."""
    try:
        if found.used and not found.mixed:
            return _check_rounded(scores, *map(_tensor, used_weights(found, arrangement, look)))
        context = _tensor(operand_values(found.context, arrangement, arrangement.end, look))
        if found.mixed:
            return check_rows(scores, context).verdict()
        values = _tensor(operand_values(found.values, arrangement, arrangement.end, look))
        return check(scores, values, context).verdict()
    except RuntimeError as error:
        return Verdict(False, None, None, f"weights and values do not fit together ({error})")


def _check_rounded(
    scores: QueryKeyScores | WeightScores, used: torch.Tensor, values: torch.Tensor, context: torch.Tensor
) -> Verdict:
    """Check that rounded weights make the output, and that they are the weights shown but for rounding."""
    rows = spread_rows(scores.queries)
    weights = scores.weights(rows)
    rounded, real = used[:, rows].float(), context[:, rows].float()
    rebuilt = torch.bmm(rounded, values.float())
    off = float((_fitted(rounded, weights) - weights).abs().amax())
    largest = real.abs().amax().clamp_min(torch.finfo(torch.float32).tiny)
    # Products that are rounded to whole numbers again may be off by one.
    whole = bool((real == real.round()).all())
    allowed = max(_EXACT, 1 / float(largest)) if whole else _EXACT
    sums = (weights.sum(dim=-1) - 1).abs().amax()
    error = (_fitted(rebuilt, real) - real).abs().amax() / largest
    doubt = "" if off <= _ROUNDED else f"the model rounds its weights by as much as {off:.2g}"
    return Check(torch.stack([error, sums, real.amin(), real.amax()]), allowed).verdict(doubt)


def _fitted(integers: torch.Tensor, floats: torch.Tensor) -> torch.Tensor:
    """Multiply what comes without its scale by the one that brings it nearest to something."""
    least = torch.finfo(torch.float32).tiny
    return integers * ((integers * floats).sum() / (integers * integers).sum().clamp_min(least))


def _tensor(array: Array) -> torch.Tensor:
    # Not made contiguous: most of it is only looked through once, and that costs less than a copy.
    if not np.issubdtype(array.dtype, np.floating):
        array = array.astype(np.float32)
    return torch.from_numpy(array if array.flags.writeable else array.copy())
