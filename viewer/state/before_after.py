"""Before, after and difference of a what-if: measures, classes, final features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from viewer.attention.measured import mean_of_numbers
from viewer.attention.measures import MEASURES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from viewer.attention.record import AttentionRecord
    from viewer.attention.sweep import RecordMeasures
    from viewer.state.display import Protocol
    from viewer.state.selection import HeadRef
    from viewer.state.what_if import WhatIfResult

CLASSIFIER_INPUT = "what the last projection (the classifier) sees"
OWN_OUTPUT = "the model's own output"


@dataclass(frozen=True)
class MeasureRow:
    """One measure of a head, or its mean over several.

    Attributes
    ----------
    name, words, unit
        As in `viewer.attention.measures.Measure`.
    before, after
        NaN where it is not defined.
    """

    name: str
    words: str
    unit: str
    before: float
    after: float

    @property
    def difference(self) -> float:
        """After minus before."""
        return self.after - self.before


@dataclass(frozen=True)
class ClassRow:
    """The probability of one class, 0 to 1, before and after."""

    label: str
    before: float
    after: float

    @property
    def difference(self) -> float:
        """After minus before."""
        return self.after - self.before


@dataclass(frozen=True)
class Features:
    """How alike the final features are before and after.

    Attributes
    ----------
    cosine
        -1 to 1; NaN where either has no length.
    of
        Which features those are.
    """

    cosine: float
    of: str


def measure_rows(result: WhatIfResult, head: HeadRef | None, protocol: Protocol) -> list[MeasureRow]:
    """Return every measure of a head.

    Parameters
    ----------
    result
        Of any changes.
    head
        With head None the mean over the layer's heads; None the mean over all heads of all layers.
    protocol
        Of the distances.
    """
    rows = []
    for measure in MEASURES:
        before, after = (
            mean_of_numbers(_values(measures, measure.of_heads, head, protocol))
            for measures in (result.measures_before, result.measures_after)
        )
        rows.append(MeasureRow(measure.name, measure.words, measure.unit, before, after))
    return rows


def _values(
    measures: RecordMeasures, of_heads: object, head: HeadRef | None, protocol: Protocol
) -> np.ndarray:
    layers = measures.layers if head is None else [measures.layers[head.layer]]
    found = [np.asarray(of_heads(layer, protocol), np.float64) for layer in layers]
    if head is not None and head.head is not None:
        return found[0][head.head : head.head + 1]
    return np.concatenate(found)


def class_rows(before: AttentionRecord, after: AttentionRecord) -> list[ClassRow]:
    """Return the best classes of either side, the most probable before first; none without a classifier."""
    if before.prediction is None or after.prediction is None:
        return []
    shares = [_softmax(one.output) for one in (before, after)]
    labels = {index: label for one in (before, after) for index, label in _named(one)}
    order = sorted(labels, key=lambda index: -shares[0][index])
    return [ClassRow(labels[i], float(shares[0][i]), float(shares[1][i])) for i in order]


def _named(record: AttentionRecord) -> Iterator[tuple[int, str]]:
    """Yield the best classes by number, with their names."""
    best = np.argsort(-record.output.ravel(), kind="stable")[: len(record.prediction.labels)]
    yield from zip(best.tolist(), record.prediction.labels, strict=True)


def _softmax(output: np.ndarray) -> np.ndarray:
    powers = np.exp(output.ravel().astype(np.float64) - float(output.max()))
    return powers / powers.sum()


def features(before: AttentionRecord, after: AttentionRecord) -> Features:
    """Compare the final features: the input of the classifier, or the output of a model that has none."""
    if before.features is not None and after.features is not None:
        return Features(_cosine(before.features, after.features), CLASSIFIER_INPUT)
    return Features(_cosine(before.output, after.output), OWN_OUTPUT)


def _cosine(left: np.ndarray, right: np.ndarray) -> float:
    a, b = (side.ravel().astype(np.float64) for side in (left, right))
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / length if length else math.nan
