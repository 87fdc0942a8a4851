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
        float (4,), or (pictures, 4) of a batch: of the output, relative to the largest real output; of the
        row sums; and the smallest and the largest real output, one of which is NaN or infinite where any of
        it is.
    tolerance
        What the output's error may be in the model's precision.
    """

    errors: Tensor
    tolerance: float

    def verdict(self, reason: str = "") -> Verdict:
        """Judge, and copy the numbers to the CPU; `reason` is a doubt that no number can lift."""
        return self._judged(self.errors.tolist(), reason)

    def verdicts(self) -> list[Verdict]:
        """Judge each picture of a batch."""
        return [self._judged(errors, "") for errors in self.errors.tolist()]

    def _judged(self, errors: list[float], reason: str) -> Verdict:
        output_error, row_error, *ends = errors
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


def check(
    scores: Scores, values: Tensor, output: Tensor, weights: Tensor | None = None, pictures: int = 0
) -> Check:
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
    pictures
        Of a batch, which are checked apart, each as it would be alone; 0 for one picture.
    """
    rows = spread_rows(scores.queries, scores.heads // max(pictures, 1))
    if weights is None:
        weights = scores.weights(rows)
    groups = weights.reshape(len(values), -1, weights.shape[-1])
    rebuilt = torch.bmm(groups, values.to(torch.float32)).view(len(weights), len(rows), -1)
    real = output[:, rows].to(torch.float32)
    largest = _amax(real.abs(), pictures).clamp_min(torch.finfo(torch.float32).tiny)
    difference = _amax((rebuilt - real).abs(), pictures) / largest
    # A query that may look at no key has weights 0 and outputs 0: nothing there to sum to 1.
    sums = weights.sum(dim=-1)
    row_error = _amax(torch.where(sums == 0, 0.0, (sums - 1).abs()), pictures)
    return Check(torch.stack([difference, row_error, *_ends(output, pictures)], -1), tolerance(output.dtype))


def check_rows(scores: Scores, output: Tensor, pictures: int = 0) -> Check:
    """Check that rows of weights sum to 1, where the model's output is not made of them alone.

    Parameters
    ----------
    scores
        What was tapped.
    output
        What the model computed of it and more, (stacked, queries, d).
    pictures
        As in `check`.
    """
    sums = scores.weights(spread_rows(scores.queries, scores.heads // max(pictures, 1))).sum(dim=-1)
    row_error = _amax((sums - 1).abs(), pictures)
    errors = torch.zeros_like(row_error), row_error, *_ends(output, pictures)
    return Check(torch.stack(errors, -1), tolerance(output.dtype))


def _amax(stacked: Tensor, pictures: int) -> Tensor:
    """Return the largest of all, (), or of each picture of a batch, (pictures,)."""
    return stacked.amax() if not pictures else stacked.reshape(pictures, -1).amax(dim=1)


def _ends(output: Tensor, pictures: int) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest output."""
    # NaN becomes both ends, and finding these is ten times as fast as asking every element.
    if not pictures:
        return output.amin(), output.amax()
    of_each = output.unflatten(0, (pictures, -1))
    return of_each.amin(dim=(1, 2, 3)), of_each.amax(dim=(1, 2, 3))


def same_output(plain: Tensor, tapped: Tensor, allowed: float) -> bool:
    """Return whether two outputs are equal to within a share of the largest; NaN equals NaN."""
    if plain.shape != tapped.shape:
        return False
    alike = (plain == tapped) | (plain.isnan() & tapped.isnan())
    difference = torch.where(alike, 0.0, (tapped - plain).abs()).amax()
    largest = torch.where(plain.isfinite(), plain.abs(), 0.0).amax()
    return bool(difference <= allowed * largest)


def weights_error(rebuilt: Tensor, weights: Tensor, pictures: int = 0) -> Tensor:
    """Return the largest difference between rebuilt weights and the real (heads, queries, keys).

    Parameters
    ----------
    rebuilt
        The rows that `spread_rows` names.
    weights
        All rows.
    pictures
        As in `check`.
    """
    rows = spread_rows(weights.shape[1], len(weights) // max(pictures, 1))
    return (rebuilt - weights[:, rows].to(torch.float32)).abs().amax()
