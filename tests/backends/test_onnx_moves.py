"""Operators move, keep, average or lose the places of tensor elements, to exact pixel coordinates."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from viewer.backends.onnx_moves import Setting, move
from viewer.backends.onnx_places import UnknownPlace, has_place, picture, unplaced

NOWHERE = complex(np.nan, np.nan)


def moved(op: str, places, shape, controls=(), **attributes) -> np.ndarray:
    """Apply one operator; controls are its integer inputs by position."""
    controls = dict(controls)
    inputs = [
        f"i{n}" for n in range(max(len(places), *(n + 1 for n in controls)) if controls else len(places))
    ]
    node = helper.make_node(op, inputs, ["o"], **attributes)
    padded = [*places, *[None] * (len(inputs) - len(places))]
    return move(Setting(node, padded, [shape], lambda n: controls.get(n)))[0]


def tokens(*spots: complex, width: int = 4) -> np.ndarray:
    """Return (1, tokens, width) with each token in one place."""
    return np.broadcast_to(np.array(spots, np.complex128)[None, :, None], (1, len(spots), width))


def test_picture_in_both_layouts():
    first, last = picture((1, 3, 2, 4), "NCHW"), picture((1, 2, 4, 3), "NHWC")
    assert first[0, 0, 1, 3] == last[0, 1, 3, 0] == 1.5 + 3.5j
    np.testing.assert_array_equal(first[0, 2], last[0, :, :, 2])


def test_patch_convolution_takes_the_centre():
    out = moved("Conv", [picture((1, 3, 8, 12), "NCHW"), unplaced((5, 3, 4, 4))], (1, 5, 2, 3),
                kernel_shape=[4, 4], strides=[4, 4])  # fmt: skip
    np.testing.assert_allclose(out[0, 4], [[2 + 2j, 2 + 6j, 2 + 10j], [6 + 2j, 6 + 6j, 6 + 10j]])


def test_padded_convolution_runs_on_past_the_border():
    out = moved("Conv", [picture((1, 3, 8, 8), "NCHW"), unplaced((5, 3, 7, 7))], (1, 5, 2, 2),
                kernel_shape=[7, 7], strides=[4, 4], pads=[3, 3, 3, 3])  # fmt: skip
    np.testing.assert_allclose(out[0, 0], [[0.5 + 0.5j, 0.5 + 4.5j], [4.5 + 0.5j, 4.5 + 4.5j]])
    shape = (1, 3, 4, 4)
    same = moved("MaxPool", [picture((1, 3, 8, 8), "NCHW")], shape, kernel_shape=[3, 3], strides=[2, 2],
                 auto_pad="SAME_UPPER")  # fmt: skip
    np.testing.assert_allclose(same[0, 0, :, 0].real, [1.5, 3.5, 5.5, 7.5])


def test_patches_cut_by_reshaping_and_a_matrix():
    pixels = picture((1, 3, 8, 12), "NCHW").reshape(1, 3, 2, 4, 3, 4).transpose(0, 2, 4, 3, 5, 1)
    patches = moved("Reshape", [pixels, None], (1, 6, 48))
    out = moved("MatMul", [patches, unplaced((48, 7))], (1, 6, 7))
    np.testing.assert_allclose(out[0, :, 0], [2 + 2j, 2 + 6j, 2 + 10j, 6 + 2j, 6 + 6j, 6 + 10j])


def test_movements():
    row = tokens(1 + 1j, 1 + 3j, 1 + 5j)
    turned = moved("Slice", [row], (1, 3, 4), {1: [-1], 2: [-(2**63)], 3: [1], 4: [-1]})
    np.testing.assert_array_equal(turned[0, :, 0], [1 + 5j, 1 + 3j, 1 + 1j])
    np.testing.assert_array_equal(moved("Gather", [row], (1, 4), {1: np.array(2)}, axis=1)[0], [1 + 5j] * 4)
    padded = moved("Pad", [row], (1, 5, 4), {1: [0, 1, 0, 0, 1, 0]})
    np.testing.assert_array_equal(np.isnan(padded[0, :, 0].real), [True, False, False, False, True])
    doubled = moved("Tile", [row], (1, 6, 4), {1: [1, 2, 1]})
    np.testing.assert_array_equal(doubled[0, :, 0], [*row[0, :, 0], *row[0, :, 0]])


def test_prefix_keeps_its_label_and_channels_stay_cheap():
    joined = moved(
        "Concat", [unplaced((1, 1, 384), 2.0), tokens(1 + 1j, 1 + 3j, width=384)], (1, 3, 384), axis=1
    )
    assert np.isnan(joined[0, 0, 0].real)
    assert joined[0, 0, 0].imag == 2.0
    assert joined.strides[2] == 0
    summed = moved("Add", [joined, unplaced((1, 3, 384), 7.0)], (1, 3, 384))
    assert summed[0, 0, 5].imag == 2.0  # the class token's own label, not the position embedding's
    assert summed[0, 2, 5] == 1 + 3j


def test_means():
    row = tokens(1 + 1j, 1 + 3j)
    np.testing.assert_array_equal(moved("ReduceMean", [row], (1, 2, 1), axes=[-1])[0, :, 0], [1 + 1j, 1 + 3j])
    assert not has_place(moved("ReduceMean", [row], (1, 1, 4), axes=[1]))
    assert not has_place(moved("GlobalAveragePool", [picture((1, 3, 4, 4), "NCHW")], (1, 3, 1, 1)))


def test_products_keep_the_rows():
    rows, columns = tokens(1 + 1j, 9 + 9j), tokens(5 + 5j, 7 + 7j).swapaxes(1, 2)
    scores = moved("MatMul", [rows, columns], (1, 2, 2))
    np.testing.assert_array_equal(scores[0], [[1 + 1j] * 2, [9 + 9j] * 2])
    first = moved("MatMul", [unplaced((6, 4)), tokens(5 + 5j, 7 + 7j).swapaxes(1, 2)], (1, 6, 2))
    np.testing.assert_array_equal(first[0, 3], [5 + 5j, 7 + 7j])
    mixed = moved("MatMul", [unplaced((3, 2)), tokens(5 + 5j, 7 + 7j)], (1, 3, 4))
    assert not has_place(mixed)  # tokens mixed by parameters are nowhere


def test_what_can_not_be_followed():
    with pytest.raises(UnknownPlace, match="combines tokens from different places"):
        moved("Add", [tokens(1 + 1j, 1 + 3j), tokens(1 + 3j, 1 + 1j)], (1, 2, 4))
    with pytest.raises(UnknownPlace, match="is a Resize, which no rule covers"):
        moved("Resize", [picture((1, 3, 4, 4), "NCHW")], (1, 3, 8, 8))
    assert not has_place(moved("Resize", [unplaced((1, 3, 4, 4))], (1, 3, 8, 8)))  # resampled positions
