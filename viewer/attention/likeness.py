"""How much alike attention maps are: of one head in two layers, and of two heads in one layer.

DeepViT (Zhou et al. 2021) compares two layers by the cosine between their maps' columns: how the queries'
attention to one key is spread over the queries, averaged over keys. All-positive columns have a high cosine
by themselves, so the same is given `centred` also: after each column's mean over queries was taken off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy.typing as npt
    from torch import Tensor

    from viewer.attention.layer import AttentionLayer
    from viewer.attention.record import AttentionRecord
    from viewer.attention.sweep import LayerMeasures, RecordMeasures

# The columns of all layers for some keys, which are gone through several times.
_CHUNK_BYTES = 24 << 20
# Weights are float32 and off by some millionths: what varies less than this share of its mean does not vary.
_CONSTANT = 1e-5


@dataclass(frozen=True, eq=False)
class LikenessMatrices:
    """Mean cosines between columns of attention, all token keys counted alike; float64, -1 to 1.

    Attributes
    ----------
    heads
        (most heads, layers, layers), one head's map in two layers; NaN where either layer lacks the head, or
        their tokens differ.
    fused
        (layers, layers), of the mean over heads.
    within
        For each layer (heads, heads), two heads of that layer; all NaN where queries and keys are no patches.
    """

    heads: npt.NDArray[np.float64]
    fused: npt.NDArray[np.float64]
    within: tuple[npt.NDArray[np.float64], ...]

    def __repr__(self) -> str:
        heads, layers, _ = self.heads.shape
        return f"<LikenessMatrices: {layers} layers, up to {heads} heads>"


@dataclass(frozen=True, eq=False)
class RecordLikeness:
    """Likeness of every pair of layers and of heads.

    Attributes
    ----------
    plain
        Cosines of columns as they are.
    centred
        Cosines of columns without their means over queries, which is their correlation.
    alike
        int64 (layers,), the first layer of the same tokens, heads and windows, with which this one can be
        compared; -1 for a layer that can't be compared with any.
    """

    plain: LikenessMatrices
    centred: LikenessMatrices
    alike: npt.NDArray[np.int64]

    def __repr__(self) -> str:
        return f"<RecordLikeness: {len(self.alike)} layers, {len(set(self.alike[self.alike >= 0]))} alike>"


def measure_likeness(
    record: AttentionRecord,
    measures: RecordMeasures,
    step: Callable[[str, float | None], None] | None = None,
) -> RecordLikeness:
    """Compare the maps of all layers and heads in one pass over chunks of keys.

    Every token counts, prefix tokens included, as query and as key. Keys whose column is constant (under
    `centred`) or zero in one of the two maps have no cosine and are left out of the mean.

    Parameters
    ----------
    record
        Of any backend.
    measures
        Of that record; columns are made with the normalizers that it holds.
    step
        Told of progress between chunks; may raise to stop (see `viewer.backends.model.Job.step`).
    """
    count, most = len(record.layers), max(layer.heads for layer in record.layers)
    alike = _alike(record.layers)
    found = [
        LikenessMatrices(
            np.full((most, count, count), np.nan),
            np.full((count, count), np.nan),
            tuple(np.full((layer.heads, layer.heads), np.nan) for layer in record.layers),
        )
        for _ in range(2)
    ]
    done = 0
    for first in sorted(set(alike[alike >= 0].tolist())):
        indices = np.flatnonzero(alike == first)

        def report(share: float, before: int = done, size: int = len(indices)) -> None:
            if step is not None:
                step("Comparing layers and heads", (before + share * size) / count)

        sums = _sums_of([record.layers[i] for i in indices], [measures.layers[i] for i in indices], report)
        for matrices, of_chunks in zip(found, sums, strict=True):
            _put(matrices, indices, of_chunks)
        done += len(indices)
    return RecordLikeness(*found, alike)


def _alike(layers: Sequence[AttentionLayer]) -> npt.NDArray[np.int64]:
    """Return for each layer the first with the same tokens on either side, heads and groups, as `alike`."""
    firsts: dict[tuple[object, ...], int] = {}
    found = np.full(len(layers), -1, np.int64)
    for place, layer in enumerate(layers):
        if layer.kind == "self" and layer.query_layout.placed and layer.key_layout.placed:
            sides = (layer.query_layout, layer.key_layout)
            tokens = tuple((side.positions.tobytes(), side.prefix_names) for side in sides)
            found[place] = firsts.setdefault((*tokens, layer.heads, layer.scores.groups), place)
    return found


class _Mean:
    """Sums and counts of cosines of several chunks, float64 (..., n, n) on the host."""

    def __init__(self) -> None:
        self._total: npt.NDArray[np.float64] | float = 0.0
        self._count: npt.NDArray[np.float64] | float = 0.0

    def add(self, gram: Tensor, size: Tensor) -> None:
        """Take inner products of columns.

        Parameters
        ----------
        gram
            (keys, ..., n, n).
        size
            (keys, ..., n), sum of squares of each column; 0 where it has no direction.
        """
        there = (size > 0).to(gram.dtype)
        inverse = torch.where(size > 0, size, 1.0).rsqrt_().mul_(there)
        cosine = (gram * inverse[..., None]).mul_(inverse[..., None, :])
        self._total = self._total + cosine.sum(dim=0).cpu().numpy().astype(np.float64)
        both = torch.full(gram.shape[1:], len(gram), dtype=gram.dtype, device=gram.device)
        if not bool(there.all()):
            both = (there[..., None] * there[..., None, :]).sum(dim=0)
        self._count = self._count + both.cpu().numpy().astype(np.float64)

    def matrix(self) -> npt.NDArray[np.float64]:
        """Return the mean cosines, symmetric and 1 on the diagonal; NaN where no key has one."""
        total = self._total + np.swapaxes(self._total, -1, -2)
        found = np.divide(total, 2 * self._count, out=np.full_like(total, np.nan), where=self._count > 0)
        diagonal = np.arange(found.shape[-1])
        own = found[..., diagonal, diagonal]
        found[..., diagonal, diagonal] = np.where(np.isfinite(own), 1.0, np.nan)
        return np.clip(found, -1.0, 1.0)


@dataclass
class _Sums:
    """What one kind of likeness of like layers adds up: of heads, of their mean, and within each layer."""

    heads: _Mean
    fused: _Mean
    within: _Mean


def _sums_of(
    layers: Sequence[AttentionLayer], measures: Iterable[LayerMeasures], report: Callable[[float], None]
) -> tuple[_Sums, _Sums]:
    """Sweep over the keys of layers with the same tokens; returns plain and centred sums."""
    groups, stacked = layers[0].scores.groups, layers[0].scores.stacked
    normalizers = [_stacked(layer, measured) for layer, measured in zip(layers, measures, strict=True)]
    size = len(layers) * stacked.heads * stacked.queries
    chunk = max(1, min(stacked.keys, _CHUNK_BYTES // (4 * size)))
    buffer = torch.empty(size * chunk, dtype=torch.float32, device=layers[0].scores.device)
    share = buffer.new_full((stacked.queries,), 1 / stacked.queries)
    sums = tuple(_Sums(_Mean(), _Mean(), _Mean()) for _ in range(2))
    for start in range(0, stacked.keys, chunk):
        report(start / stacked.keys)
        keys = slice(start, min(start + chunk, stacked.keys))
        count = keys.stop - start
        block = buffer[: size * count].view(len(layers), stacked.heads, count, stacked.queries)
        means = block.new_empty(block.shape[:-1])
        for place, (layer, normalizer) in enumerate(zip(layers, normalizers, strict=True)):
            columns = layer.scores.columns(keys, normalizer, block[place])
            # As a product with a vector: a sum along so many short rows takes four times as long.
            torch.mv(columns.view(-1, stacked.queries), share, out=means[place].view(-1))
            # Taken off at once, while the layer's columns are in the processor's cache. The inner products of
            # columns as they are follow without loss; the other way round, digits would cancel.
            columns.sub_(means[place][..., None])
        _add_chunk(block, means, groups, sums)
    return sums


def _add_chunk(block: Tensor, means: Tensor, groups: int, sums: tuple[_Sums, _Sums]) -> None:
    """Take centred columns (layers, groups * heads, keys, queries) and what was taken off."""
    layers, stacked, keys, queries = block.shape
    heads = stacked // groups
    whole = block.view(layers, groups, heads, keys, queries)
    whole_means = means.view(layers, groups, heads, keys)
    # Batches of (n, queries) matrices that lie apart in the block: bmm takes them as they lie.
    across = block.view(layers, -1, queries).transpose(0, 1)
    shape = (groups, heads, keys, layers)
    _add(across, means.view(layers, -1).T, shape, [kind.heads for kind in sums])
    fused, fused_means = whole.mean(dim=2), whole_means.mean(dim=2)
    across = fused.view(layers, -1, queries).transpose(0, 1)
    _add(across, fused_means.view(layers, -1).T, (groups, 1, keys, layers), [kind.fused for kind in sums])
    grams = [_add_within(whole[i], whole_means[i]) for i in range(layers)]
    shape = (layers, groups, keys, heads)
    gram = torch.stack([gram for gram, _ in grams])
    _share(gram, torch.stack([mean for _, mean in grams]), queries, shape, [kind.within for kind in sums])


def _add_within(columns: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
    """Return inner products of the heads of one layer (groups * keys, heads, heads), and their means."""
    grams = []
    for group in columns:
        among = group.transpose(0, 1)
        grams.append(torch.bmm(among, among.mT))
    return torch.cat(grams), means.transpose(1, 2).flatten(0, 1)


def _add(columns: Tensor, means: Tensor, shape: tuple[int, int, int, int], to: Sequence[_Mean]) -> None:
    gram = torch.bmm(columns, columns.mT)
    groups, heads, keys, _ = shape
    # As (heads, groups, keys, ...): the heads stay apart, groups and keys are summed over.
    order = (groups, heads, keys)
    gram = gram.view(*order, *gram.shape[1:]).transpose(0, 1)
    means = means.reshape(*order, -1).transpose(0, 1)
    _share(gram, means, columns.shape[-1], (heads, groups, keys, shape[-1]), to)


def _share(
    gram: Tensor, means: Tensor, queries: int, shape: tuple[int, int, int, int], to: Sequence[_Mean]
) -> None:
    """Give plain and centred inner products to their sums.

    Parameters
    ----------
    gram
        Centred, of `shape` and as many again.
    means
        Of each column over queries.
    shape
        (what stays apart, groups, keys, n).
    to
        Plain and centred sums.
    """
    apart, groups, keys, n = shape
    gram = gram.reshape(apart, groups * keys, n, n).transpose(0, 1)
    means = means.reshape(apart, groups * keys, n).transpose(0, 1)
    size = gram.diagonal(dim1=-2, dim2=-1)
    off = queries * means.square()
    plain, centred = to
    plain.add(gram + queries * means[..., None] * means[..., None, :], size + off)
    centred.add(gram, torch.where(size > _CONSTANT**2 * off, size, 0.0))


def _stacked(layer: AttentionLayer, measured: LayerMeasures) -> Tensor | None:
    """Return the normalizers of a layer as its stacked scores have their heads."""
    if measured.log_normalizer is None:
        return None
    scores = layer.scores
    whole = torch.tensor(measured.log_normalizer, device=scores.device)
    return whole.view(scores.heads, scores.groups, -1).transpose(0, 1).reshape(scores.stacked.heads, -1)


def _put(matrices: LikenessMatrices, indices: npt.NDArray[np.int64], sums: _Sums) -> None:
    """Write what was found of like layers where they stand among all."""
    among = np.ix_(indices, indices)
    of_heads = sums.heads.matrix()
    for head, found in enumerate(of_heads):
        matrices.heads[head][among] = found
    matrices.fused[among] = sums.fused.matrix()[0]
    for index, found in zip(indices, sums.within.matrix(), strict=True):
        matrices.within[index][:] = found
