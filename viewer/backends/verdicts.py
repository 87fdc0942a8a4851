"""Checking a tapped layer against what the model really computed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from viewer.attention.layer import Verdict

if TYPE_CHECKING:
    from viewer.attention.layer import Scores

NOT_FINITE = "the model's numbers are not finite for this picture"

_CHECKED_ROWS = 8
# Of each of many small windows fewer are enough.
_STACKED, _CHECKED_STACKED_ROWS = 64, 3
_ROW_TOLERANCE = 1e-4


@dataclass(frozen=True, eq=False)
class Check:
    """Errors of one layer, still on the model's device so that the model need not wait for them.

    Attributes
    ----------
    errors
        float (4,): of the output, relative to the largest real output; of the row sums; and the smallest and
        the largest real output, one of which is NaN or infinite where any of it is.
    tolerance
        What the output's error may be in the model's precision.
    """

    errors: Tensor
    tolerance: float

    def verdict(self, reason: str = "") -> Verdict:
        """Judge, and copy the numbers to the CPU; `reason` is a doubt that no number can lift."""
        output_error, row_error, *ends = self.errors.tolist()
        if not all(map(math.isfinite, ends)):
            return Verdict(False, None, None, NOT_FINITE)
        if not output_error <= self.tolerance:  # also NaN
            found = (
                f"weights times values differ from the model's output by {output_error:.2g} of its largest"
            )
            reason = reason or found
        elif not row_error <= _ROW_TOLERANCE:
            reason = reason or f"a row of weights misses 1 by {row_error:.2g}"
        return Verdict(not reason, output_error, row_error, reason)


@lru_cache(maxsize=256)
def spread_rows(count: int, stacked: int = 1) -> list[int]:
    """Return up to eight row numbers from first to last, evenly spread; of very many stacked, up to three."""
    steps = min(count, _CHECKED_ROWS if stacked <= _STACKED else _CHECKED_STACKED_ROWS)
    return sorted({round(step * (count - 1) / max(steps - 1, 1)) for step in range(steps)})


def tolerance(dtype: torch.dtype) -> float:
    """Return how far a rebuilt output may be off in a model of that precision, relative to its largest."""
    return max(1e-4, 4 * torch.finfo(dtype).eps)


def check(scores: Scores, values: Tensor, output: Tensor, weights: Tensor | None = None) -> Check:
    """Rebuild some rows of an attention's output and compare.

    Parameters
    ----------
    scores
        What was tapped.
    values
        (heads, keys, d), or fewer heads that divide the scores' heads.
    output
        (heads, queries, d), what the model computed.
    weights
        What the scores give for `spread_rows`, where that is known already.
    """
    rows = spread_rows(scores.queries, scores.heads)
    if weights is None:
        weights = scores.weights(rows)
    groups = weights.reshape(len(values), -1, weights.shape[-1])
    rebuilt = torch.bmm(groups, values.to(torch.float32)).view(len(weights), len(rows), -1)
    real = output[:, rows].to(torch.float32)
    difference = (rebuilt - real).abs().amax() / real.abs().amax().clamp_min(torch.finfo(torch.float32).tiny)
    # A query that may look at no key has weights 0 and outputs 0: nothing there to sum to 1.
    sums = weights.sum(dim=-1)
    row_error = torch.where(sums == 0, 0.0, (sums - 1).abs()).amax()
    # NaN becomes both ends, and finding these is ten times as fast as asking every element.
    ends = output.amin(), output.amax()
    return Check(torch.stack([difference, row_error, *ends]), tolerance(output.dtype))


def check_rows(scores: Scores, output: Tensor) -> Check:
    """Check that rows of weights sum to 1, where the model's output is not made of them alone.

    Parameters
    ----------
    scores
        What was tapped.
    output
        What the model computed of it and more, (stacked, queries, d).
    """
    sums = scores.weights(spread_rows(scores.queries, scores.heads)).sum(dim=-1)
    ends = output.amin(), output.amax()
    errors = torch.zeros_like(sums.amax()), (sums - 1).abs().amax()
    return Check(torch.stack([*errors, *ends]), tolerance(output.dtype))


def same_output(plain: Tensor, tapped: Tensor, allowed: float) -> bool:
    """Return whether two outputs are equal to within a share of the largest; NaN equals NaN."""
    if plain.shape != tapped.shape:
        return False
    alike = (plain == tapped) | (plain.isnan() & tapped.isnan())
    difference = torch.where(alike, 0.0, (tapped - plain).abs()).amax()
    largest = torch.where(plain.isfinite(), plain.abs(), 0.0).amax()
    return bool(difference <= allowed * largest)


def weights_error(rebuilt: Tensor, weights: Tensor) -> Tensor:
    """Return the largest difference between rebuilt weights and the real (heads, queries, keys).

    Parameters
    ----------
    rebuilt
        The rows that `spread_rows` names.
    weights
        All rows.
    """
    rows = spread_rows(weights.shape[1], len(weights))
    return (rebuilt - weights[:, rows].to(torch.float32)).abs().amax()
