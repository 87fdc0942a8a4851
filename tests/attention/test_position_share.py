"""Content against position, over pictures that are given as weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.attention.builders import layer_of, random_scores, record_of
from tests.attention.test_grouped import windowed_layer
from viewer.attention.layout import TokenLayout
from viewer.attention.position_share import PositionShare
from viewer.attention.scores import WeightScores

LAYOUT = TokenLayout.regular((4, 5), (16, 16), ["cls"])


def record(weights: np.ndarray, layout: TokenLayout = LAYOUT):
    return record_of(layer_of(WeightScores(torch.from_numpy(weights.astype(np.float32))), layout))


def soft(seed: int, heads: int = 2, sharp: float = 2.0) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(0, sharp, (heads, LAYOUT.tokens, LAYOUT.tokens))
    exponential = np.exp(logits)
    return exponential / exponential.sum(axis=-1, keepdims=True)


def sums_of(maps) -> PositionShare:
    found = PositionShare()
    for one in maps:
        found.add(record(one))
    return found


def test_the_same_map_in_every_picture_is_all_position():
    np.testing.assert_allclose(sums_of([soft(0)] * 5).share()[0], 1.0, rtol=1e-9)


def test_maps_with_nothing_in_common_fall_to_one_part_in_as_many_as_there_are():
    share = sums_of([soft(seed) for seed in range(200)]).share()[0]
    np.testing.assert_allclose(share, 1 / 200, rtol=0.1)


def test_it_is_the_variance_of_the_mean_map_over_all_variance():
    maps = np.stack([0.6 * soft(100) + 0.4 * soft(seed) for seed in range(12)])
    on_patches = maps[:, :, LAYOUT.patch_tokens][..., LAYOUT.patch_tokens]
    expected = on_patches.mean(axis=0).var(axis=(1, 2)) / on_patches.transpose(1, 0, 2, 3).reshape(2, -1).var(
        axis=1
    )
    # 20 patches are all looked at; single precision is all that weights have.
    np.testing.assert_allclose(sums_of(maps).share()[0], expected, rtol=1e-5)
    assert 0.2 < expected.min() < expected.max() < 0.9


def test_order_and_parts_make_no_difference():
    maps = [0.5 * soft(100) + 0.5 * soft(seed) for seed in range(9)]
    whole = sums_of(maps).share()[0]
    np.testing.assert_allclose(sums_of(maps[::-1]).share()[0], whole, rtol=1e-9)
    joined = PositionShare()
    for part in (maps[6:], maps[:1], [], maps[1:6]):
        joined.merge(sums_of(part))
    assert joined.pictures == 9
    np.testing.assert_allclose(joined.share()[0], whole, rtol=1e-9)


def test_sums_come_back_from_a_file(tmp_path):
    sums = sums_of([soft(0), soft(1), soft(2)])
    np.savez(tmp_path / "sums.npz", **sums.to_arrays())
    with np.load(tmp_path / "sums.npz") as file:
        back = PositionShare.from_arrays(file)
    np.testing.assert_array_equal(back.share()[0], sums.share()[0])
    back.add(record(soft(3)))
    sums.add(record(soft(3)))
    np.testing.assert_array_equal(back.share()[0], sums.share()[0])


def test_one_picture_and_maps_without_variance_have_no_share():
    assert np.isnan(sums_of([soft(0)]).share()[0]).all()
    even = np.full((1, LAYOUT.tokens, LAYOUT.tokens), 1 / LAYOUT.tokens)
    assert np.isnan(sums_of([even] * 3).share()[0]).all()
    assert PositionShare().share() == ()


def test_other_layers_heads_and_patches_are_refused():
    sums = sums_of([soft(0)])
    with pytest.raises(ValueError, match="2 and 3 heads have no mean"):
        sums.add(record(soft(0, heads=3)))
    with pytest.raises(ValueError, match="patches differ"):
        sums.add(record(soft(0), TokenLayout.regular((7, 3), (16, 16))))
    with pytest.raises(ValueError, match="1 and 2 layers have no mean"):
        sums.add(record_of(*record(soft(0)).layers, *record(soft(0)).layers))
    assert sums.pictures == 1


def test_windows_count_their_own_keys():
    sums = PositionShare()
    for seed in range(4):
        sums.add(record_of(windowed_layer((4, 6), 2, 8.0, heads=3, seed=seed)))
    (share,) = sums.share()
    assert share.shape == (3,)
    assert ((share > 0.1) & (share < 0.9)).all()


def test_memory_is_small_and_does_not_grow_with_pictures():
    layout = TokenLayout.regular((37, 37), (14, 14), ["cls"])
    sums = PositionShare()
    sizes = []
    for seed in range(3):
        sums.add(record_of(layer_of(random_scores(seed, 12, layout.tokens), layout)))
        sizes.append(sum(array.nbytes for array in sums.to_arrays().values()))
    assert sizes[0] == sizes[2] < 3 << 20
    weights = sums.to_arrays()["weights_0"]
    assert 8 <= weights.shape[1] <= 64
