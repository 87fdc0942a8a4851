"""Operators move, keep, average or lose the places of tensor elements, to exact pixel coordinates."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from onnx import helper

from viewer.backends.onnx_moves import move
from viewer.backends.onnx_places import UnknownPlace, first_picture, has_place, picture
from viewer.backends.onnx_rules import Setting, unplaced


def moved(op: str, places, shape, controls=(), **attributes) -> torch.Tensor:
    """Apply one operator; controls are its integer inputs by position."""
    controls = dict(controls)
    inputs = [
        f"i{n}" for n in range(max(len(places), *(n + 1 for n in controls)) if controls else len(places))
    ]
    node = helper.make_node(op, inputs, ["o"], **attributes)
    padded = [*places, *[None] * (len(inputs) - len(places))]
    return move(Setting(node, padded, [shape], lambda n: controls.get(n), (8, 12)))[0]


def tokens(*spots: complex, width: int = 4) -> torch.Tensor:
    """Return (1, tokens, width) with each token in one place."""
    return torch.tensor(spots, dtype=torch.complex64)[None, :, None].expand(1, len(spots), width)


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
    np.testing.assert_allclose(out[0, 0], [[0.5 + 0.5j, 0.5 + 4.5j], [4.5 + 0.5j, 4.5 + 4.5j]], atol=1e-5)
    shape = (1, 3, 4, 4)
    same = moved("MaxPool", [picture((1, 3, 8, 8), "NCHW")], shape, kernel_shape=[3, 3], strides=[2, 2],
                 auto_pad="SAME_UPPER")  # fmt: skip
    np.testing.assert_allclose(same[0, 0, :, 0].real, [1.5, 3.5, 5.5, 7.5])


def test_patches_cut_by_reshaping_and_a_matrix():
    pixels = picture((1, 3, 8, 12), "NCHW").reshape(1, 3, 2, 4, 3, 4).permute(0, 2, 4, 3, 5, 1)
    patches = moved("Reshape", [pixels, None], (1, 6, 48))
    out = moved("MatMul", [patches, unplaced((48, 7))], (1, 6, 7))
    np.testing.assert_allclose(out[0, :, 0], [2 + 2j, 2 + 6j, 2 + 10j, 6 + 2j, 6 + 6j, 6 + 10j])


def test_movements():
    row = tokens(1 + 1j, 1 + 3j, 1 + 5j)
    turned = moved("Slice", [row], (1, 3, 4), {1: [-1], 2: [-(2**63)], 3: [1], 4: [-1]})
    np.testing.assert_array_equal(turned[0, :, 0], [1 + 5j, 1 + 3j, 1 + 1j])
    np.testing.assert_array_equal(moved("Gather", [row], (1, 4), {1: np.array(2)}, axis=1)[0], [1 + 5j] * 4)
    padded = moved("Pad", [row], (1, 5, 4), {1: [0, 1, 0, 0, 1, 0]})
    np.testing.assert_array_equal(padded[0, :, 0].real.isnan(), [True, False, False, False, True])
    doubled = moved("Tile", [row], (1, 6, 4), {1: [1, 2, 1]})
    np.testing.assert_array_equal(doubled[0, :, 0], [*row[0, :, 0], *row[0, :, 0]])


def test_prefix_keeps_its_label_and_channels_stay_cheap():
    joined = moved(
        "Concat", [unplaced((1, 1, 384), 2.0), tokens(1 + 1j, 1 + 3j, width=384)], (1, 3, 384), axis=1
    )
    assert joined[0, 0, 0].real.isnan()
    assert joined[0, 0, 0].imag == 2.0
    assert joined.stride(2) == 0
    summed = moved("Add", [joined, unplaced((1, 3, 384), 7.0)], (1, 3, 384))
    assert summed[0, 0, 5].imag == 2.0  # the class token's own label, not the position embedding's
    assert summed[0, 2, 5] == 1 + 3j


def test_means():
    row = tokens(1 + 1j, 1 + 3j)
    np.testing.assert_array_equal(moved("ReduceMean", [row], (1, 2, 1), axes=[-1])[0, :, 0], [1 + 1j, 1 + 3j])
    assert moved("ReduceMean", [row], (1, 1, 4), axes=[1])[0, 0, 0] == 1 + 2j
    middle = moved("GlobalAveragePool", [picture((1, 3, 4, 4), "NCHW")], (1, 3, 1, 1))
    assert middle[0, 0, 0, 0] == 2 + 2j


def test_a_gate_or_a_branch_moves_no_token():
    row, gate = tokens(1 + 1j, 1 + 3j, 1 + 5j), tokens(9 + 9j)
    np.testing.assert_array_equal(moved("Mul", [gate, row], (1, 3, 4))[0, :, 0], row[0, :, 0])
    stream = picture((1, 3, 4, 4), "NCHW")
    branch = (stream[:, :1] + 0.5).expand(stream.shape)
    np.testing.assert_array_equal(moved("Add", [stream, branch], (1, 3, 4, 4)), stream)


def test_pictures_of_a_batch_are_told_apart():
    pair = picture((2, 3, 2, 2), "NCHW")
    stacked = pair[:, 0].reshape(2, 4)
    assert first_picture(stacked).tolist() == [0]
    assert first_picture(stacked.flip(0)).tolist() == [1]


def test_windows_that_are_padded_and_rolled():
    row = tokens(1 + 1j, 1 + 3j, 1 + 5j)
    padded = moved("Pad", [row], (1, 4, 4), {1: [0, 0, 0, 0, 1, 0]})
    assert padded[0, 3, 0].imag == -1  # what windows are filled up with is named so
    rolled = moved("Concat", [padded[:, 1:], padded[:, :1]], (1, 4, 4), axis=1)
    np.testing.assert_array_equal(rolled[0, [0, 1, 3], 0], [1 + 3j, 1 + 5j, 1 + 1j])


def test_elements_taken_and_put_by_index():
    row = tokens(1 + 1j, 1 + 3j, 1 + 5j)
    index = np.array([2, 0, 1])[None, :, None].repeat(4, 2)
    np.testing.assert_array_equal(
        moved("GatherElements", [row], (1, 3, 4), {1: index}, axis=1)[0, :, 0], [1 + 5j, 1 + 1j, 1 + 3j]
    )
    np.testing.assert_array_equal(
        moved("GatherND", [row], (2, 4), {1: np.array([[0, 2], [0, 1]])})[:, 0], [1 + 5j, 1 + 3j]
    )
    put = moved(
        "ScatterND", [unplaced((1, 3, 4)), None, row[0, 1:]], (1, 3, 4), {1: np.array([[0, 0], [0, 2]])}
    )
    np.testing.assert_array_equal(put[0, [0, 2], 0], [1 + 3j, 1 + 5j])
    assert put[0, 1, 0].real.isnan()


def test_resampling():
    fine = moved("Resize", [picture((1, 3, 4, 4), "NCHW")], (1, 3, 8, 8), mode="linear")
    np.testing.assert_allclose(fine[0, 0, :, 0].real, np.arange(8) / 2 + 0.25)
    wide = moved("DepthToSpace", [picture((1, 4, 2, 2), "NCHW")], (1, 1, 4, 4), blocksize=2)
    np.testing.assert_allclose(wide[0, 0, 0].imag, [0.25, 0.75, 1.25, 1.75])


def test_products_keep_the_rows():
    rows, columns = tokens(1 + 1j, 9 + 9j), tokens(5 + 5j, 7 + 7j).mT
    scores = moved("MatMul", [rows, columns], (1, 2, 2))
    np.testing.assert_array_equal(scores[0], [[1 + 1j] * 2, [9 + 9j] * 2])
    first = moved("MatMul", [unplaced((6, 4)), tokens(5 + 5j, 7 + 7j).mT], (1, 6, 2))
    np.testing.assert_array_equal(first[0, 3], [5 + 5j, 7 + 7j])
    mixed = moved("MatMul", [unplaced((3, 2)), tokens(5 + 5j, 7 + 7j)], (1, 3, 4))
    assert not has_place(mixed)  # tokens mixed by parameters are nowhere


def test_what_can_not_be_followed():
    with pytest.raises(UnknownPlace, match="is a SpaceToDepth, which no rule covers"):
        moved("SpaceToDepth", [picture((1, 3, 4, 4), "NCHW")], (1, 12, 2, 2))
    assert not has_place(moved("SpaceToDepth", [unplaced((1, 3, 4, 4))], (1, 12, 2, 2)))
    with pytest.raises(UnknownPlace, match="could not be followed"):
        moved("Gather", [picture((1, 3, 4, 4), "NCHW")], (1, 3, 4, 4), axis=1)
