"""Several pictures through a PyTorch model in one pass.

Most models keep the pictures of a batch apart along the leading dimension of all they compute, ahead of
windows and heads; then the attention of a batch, cut into as many parts, is that of its pictures. Whether a
model does is not taken for granted: noise goes through it as a batch and by itself, and has to agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from viewer.attention.grouped import GroupedScores
from viewer.attention.layer import AttentionLayer
from viewer.backends.torch_tap import AttentionTap
from viewer.backends.verdicts import spread_rows

if TYPE_CHECKING:
    from viewer.attention.layer import Scores, Verdict
    from viewer.attention.record import AttentionRecord
    from viewer.backends.layer_plans import LayerPlan, Planned
    from viewer.backends.model import Job
    from viewer.backends.torch_tap import Tapped

# Largest difference of a weight, and by what factor two pictures have to differ more than that.
_SAME_ON_CPU, _SAME, _APART = 1e-5, 1e-4, 8
_SQUARE = 8  # pixels of noise of one colour, so that patches differ from one another


@dataclass(frozen=True, eq=False)
class Together:
    """What several pictures left behind in one pass.

    Attributes
    ----------
    record
        Of all pictures side by side: the heads of a layer are those of the first picture, then those of the
        second, and so on. It is what all have in common, so it has no output, and no norms of tokens.
    pictures
        How many.
    verified
        For each picture, whether every layer was.
    """

    record: AttentionRecord
    pictures: int
    verified: tuple[bool, ...]


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """How a model takes so many pictures of one size at once, found out by `prove`.

    Attributes
    ----------
    planned
        What stays the same of each picture's layers.
    count
        Pictures in a batch.
    signature
        Of a pass, see `AttentionTap`.
    made
        For each attention, what is kept of its weights, and a clause on them.
    """

    planned: Planned
    count: int
    signature: int
    made: tuple[tuple[str, str], ...]

    def run(
        self, model: nn.Module, pictures: Tensor, job: Job
    ) -> tuple[tuple[AttentionLayer, ...], tuple[bool, ...]] | None:
        """Return the layers of all pictures as `Together.record` has them, and which were verified.

        None where the model does otherwise with these pictures.

        Parameters
        ----------
        model
            On its device.
        pictures
            (n, 3, H, W) in the model's precision; fewer than `count` are filled up.
        job
            Cancels.
        """
        wanted = len(pictures)
        filling = pictures[-1:].expand(self.count - wanted, -1, -1, -1)
        tap = _pass(model, torch.cat([pictures, filling]), job)
        if tap.signature != self.signature or _made(tap) != self.made:
            return None
        kept = [
            (plan, found, found.check.verdicts()[:wanted])
            for plan, found in zip(self.planned.layers, tap.layers, strict=True)
            if plan is not None
        ]
        layers = tuple(self._layer(index, *one) for index, one in enumerate(kept))
        by_picture = zip(*(verdicts for _, _, verdicts in kept), strict=True)
        return layers, tuple(all(verdict.verified for verdict in verdicts) for verdicts in by_picture)

    def _layer(self, index: int, plan: LayerPlan, tapped: Tapped, verdicts: list[Verdict]) -> AttentionLayer:
        each, wanted = tapped.scores.heads // self.count, len(verdicts)
        if plan.groups == 1 and plan.order is None:
            scores = tapped.scores.part(slice(0, wanted * each))
        else:
            order = torch.tensor(plan.order or range(each)).view(plan.groups, 1, -1)
            starts = torch.arange(wanted).mul(each).view(1, -1, 1)
            # Groups come first in what is grouped, and the pictures count as heads of each.
            scores = tapped.scores.picked((starts + order).flatten().tolist())
            scores = scores if plan.groups == 1 else GroupedScores(scores, plan.groups)
        verdict = next((one for one in verdicts if not one.verified), verdicts[0])
        return AttentionLayer(
            *(index, plan.module, plan.kind, scores, plan.query_layout, plan.key_layout, verdict, plan.note),
            no_norms="norms of tokens are not read in a batch",
        )


def prove(
    model: nn.Module, planned: Planned, signature: int, like: Tensor, count: int, job: Job
) -> BatchPlan | None:
    """Find out whether a model keeps the pictures of a batch apart, one after the other.

    Noise goes through it as a batch, and the first and the last of it alone: these must be what the first
    and the last part of the batch are, and not be what each other's are.

    Parameters
    ----------
    model
        On its device.
    planned, signature
        Of one picture of this size.
    like
        (..., 3, H, W), a picture on that device, in the model's precision.
    count
        Pictures in a batch, at least 2.
    job
        Cancels.
    """
    noise = _noise(count, like)
    tap = _pass(model, noise, job)
    ends = [_pass(model, noise[[at]], job, 0) for at in (0, count - 1)]
    if len(tap.layers) != len(planned.layers) or any(end.signature != signature for end in ends):
        return None
    allowed = _SAME_ON_CPU if like.device.type == "cpu" else _SAME
    allowed = max(allowed, 4 * torch.finfo(like.dtype).eps) if like.dtype != torch.float32 else allowed
    layers = zip(planned.layers, tap.layers, *(end.layers for end in ends), strict=True)
    if not all(_splits(*found, count, allowed) for plan, *found in layers if plan is not None):
        return None
    return BatchPlan(planned, count, tap.signature, _made(tap))


def _pass(model: nn.Module, pictures: Tensor, job: Job, apart: int | None = None) -> AttentionTap:
    count = len(pictures) if apart is None else apart
    with AttentionTap(on_layer=lambda found: job.check(), pictures=count) as tap:
        model(pictures)
    return tap


def _noise(count: int, like: Tensor) -> Tensor:
    """Return pictures of coloured squares, each another, (count, 3, H, W)."""
    height, width = like.shape[-2:]
    generator = torch.Generator().manual_seed(0)
    squares = torch.randn(
        (count, like.shape[-3], -(-height // _SQUARE), -(-width // _SQUARE)), generator=generator
    )
    noise = squares.repeat_interleave(_SQUARE, -2).repeat_interleave(_SQUARE, -1)
    return noise[..., :height, :width].to(like.device, like.dtype)


def _made(tap: AttentionTap) -> tuple[tuple[str, str], ...]:
    return tuple((found.scores.how, found.note) for found in tap.layers)


def _splits(whole: Tapped, first: Tapped, last: Tapped, count: int, allowed: float) -> bool:
    """Return whether the first and last part of a batch are what these two pictures leave alone."""
    ends, each = (first.scores, last.scores), first.scores.heads
    if any(
        (whole.scores.how, whole.note) != (end.scores.how, end.note)
        or (whole.scores.queries, whole.scores.keys) != (end.scores.queries, end.scores.keys)
        or whole.scores.heads != count * end.scores.heads
        for end in (first, last)
    ):
        return False
    parts = [whole.scores.part(slice(at * each, (at + 1) * each)) for at in (0, count - 1)]
    rows = spread_rows(first.scores.queries, each)
    found, alone = (torch.stack([scores.weights(rows) for scores in some]) for some in (parts, ends))
    error, apart = (found - alone).abs().amax(), (alone[0] - alone[1]).abs().amax()
    return bool((error <= allowed) & (_APART * error <= apart)) and all(
        _same_reach(part, end, rows) for part, end in zip(parts, ends, strict=True)
    )


def _same_reach(one: Scores, other: Scores, rows: list[int]) -> bool:
    reaches = [scores.reach(rows) for scores in (one, other)]
    if any(reach is None for reach in reaches):
        return all(reach is None for reach in reaches)
    return torch.equal(*reaches)
