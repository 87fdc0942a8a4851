from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.attention.builders import (
    layer_of,
    map_as_query_keys,
    map_as_weights,
    measures_of,
    naive_measures,
    naive_weights,
    random_scores,
    record_of,
)
from viewer.attention import sweep
from viewer.attention.layout import TokenLayout
from viewer.attention.scores import QueryKeyScores, WeightScores
from viewer.attention.sweep import measure_record
from viewer.errors import Cancelled

FIELDS = (
    "distance_sum",
    "distance_sum_patches",
    "hop_sum",
    "near_mass",
    "patch_mass",
    "prefix_mass",
    "entropy",
)
OF_MAPS = ("row_cosine", "nmi", "offset_share", "received", "fed")


def shuffled(layout: TokenLayout, seed: int) -> TokenLayout:
    order = np.random.default_rng(seed).permutation(layout.tokens)
    return TokenLayout.from_positions(layout.positions[order], layout.prefix_names)


LAYOUTS = {
    "plain": TokenLayout.regular((9, 9), (16, 16)),
    "class token": TokenLayout.regular((9, 9), (14, 14), ["cls"]),
    "registers": TokenLayout.regular((9, 9), (14, 14), ["cls", "reg1", "reg2", "reg3", "reg4"]),
    "wide": TokenLayout.regular((5, 17), (16, 16), ["cls"]),
    "tall patches": TokenLayout.regular((9, 12), (32, 8), ["cls", "dist"]),
    "shuffled": shuffled(TokenLayout.regular((9, 12), (16, 8), ["a", "b", "c"]), 1),
    "one row": TokenLayout.regular((1, 30), (16, 16), ["cls"]),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
def test_equals_the_definitions_in_float64(layout, spread):
    scores = random_scores(0, 3, layout.tokens, spread=spread)
    measured = measures_of(scores, layout)
    expected = naive_measures(naive_weights(scores), layout)
    for field in FIELDS:
        found = getattr(measured, field)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected[field], rtol=1e-5, atol=3e-7, err_msg=field)
    assert measured.keys == layout.tokens
    assert measured.log_normalizer.shape == (3, layout.tokens)
    means = measured.distance("renormalized")
    np.testing.assert_allclose(
        means, (expected["distance_sum"] / expected["patch_mass"]).mean(axis=1), rtol=1e-5
    )
    np.testing.assert_allclose(
        measured.distance("original"), expected["distance_sum"].mean(axis=1), rtol=1e-5
    )
    np.testing.assert_allclose(measured.mean_entropy(), expected["entropy"].mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(measured.mean_prefix_mass(), expected["prefix_mass"].mean(axis=1), rtol=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_weights_measure_the_same_as_queries_and_keys(layout):
    scores = random_scores(2, 3, layout.tokens, spread=2.0)
    from_scores = measures_of(scores, layout)
    from_weights = measures_of(WeightScores(scores.weights(slice(None))), layout)
    for field in (*FIELDS, *OF_MAPS):
        np.testing.assert_allclose(
            getattr(from_weights, field), getattr(from_scores, field), rtol=1e-5, atol=1e-6, err_msg=field
        )
    assert from_weights.log_normalizer is None


def test_a_head_lost_to_the_class_token_keeps_its_renormalized_digits():
    layout = LAYOUTS["class token"]
    scores = random_scores(4, 2, layout.tokens)
    towards_class = torch.zeros(layout.tokens)
    towards_class[0] = 17.0
    biased = QueryKeyScores(scores.query_vectors, scores.key_vectors, scores.scale, towards_class)
    measured = measures_of(biased, layout)
    assert (measured.prefix_mass > 0.999).all()
    expected = naive_measures(naive_weights(biased), layout)
    np.testing.assert_allclose(
        measured.query_distance("renormalized"), expected["distance_sum"] / expected["patch_mass"], rtol=1e-5
    )


@pytest.mark.parametrize("scores_of", [map_as_weights, map_as_query_keys])
def test_rows_without_attention_on_patches_are_left_out_and_counted(scores_of):
    layout = TokenLayout.regular((2, 2), (16, 16), ["cls"])
    attention = np.full((5, 5), 0.2)
    attention[1] = [1, 0, 0, 0, 0]
    attention[2] = [0.5, 0.5, 0, 0, 0]
    measured = measures_of(scores_of(attention), layout)
    assert measured.undefined_rows()[0] == 1
    uniform = (16 + 16 + 16 * 2**0.5) / 4
    np.testing.assert_allclose(
        measured.query_distance("renormalized")[0], [np.nan, 16, uniform, uniform], rtol=1e-6
    )
    assert measured.distance("renormalized")[0] == pytest.approx((16 + 2 * uniform) / 3)
    np.testing.assert_allclose(
        measured.query_distance("original")[0], [0, 8, 0.8 * uniform, 0.8 * uniform], rtol=1e-6
    )
    np.testing.assert_allclose(measured.prefix_mass[0], [1, 0.5, 0.2, 0.2], rtol=1e-6)


def test_a_head_with_no_defined_row_has_no_distance():
    layout = TokenLayout.regular((2, 2), (16, 16), ["cls"])
    attention = np.zeros((5, 5))
    attention[:, 0] = 1
    measured = measures_of(map_as_weights(attention), layout)
    assert np.isnan(measured.distance("renormalized")[0])
    assert measured.distance("original")[0] == 0
    assert measured.undefined_rows()[0] == 4


def test_chebyshev_counts_hops():
    layout = TokenLayout.regular((5, 5), (16, 16))
    attention = np.eye(25)
    attention[12] = 0
    attention[12, [0, 3, 13, 12]] = 0.25
    measured = measures_of(map_as_weights(attention), layout)
    assert measured.query_hops("renormalized")[0, 12] == (2 + 2 + 1 + 0) / 4
    near = [measured.query_near(hops, "renormalized")[0, 12] for hops in (1, 2, 3)]
    assert near == [0.5, 1.0, 1.0]


def test_a_pooling_layer_has_density_but_no_distance():
    keys = TokenLayout.regular((6, 6), (16, 16), ["cls"])
    pool = TokenLayout.from_positions(np.full((1, 2), np.nan, np.float32), ["pool"])
    queries, vectors = torch.randn(2, 1, 8), torch.randn(2, 37, 8)
    scores = QueryKeyScores(queries, vectors, 1.0)
    layer = layer_of(scores, pool, keys, kind="pool")
    self_layer = layer_of(random_scores(0, 3, 37), keys)
    measured = measure_record(record_of(self_layer, layer)).layers[1]
    weights = naive_weights(scores)
    assert measured.entropy.shape == (2, 1)
    np.testing.assert_allclose(measured.entropy, -(weights * np.log(weights)).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(measured.prefix_mass, weights[:, :, 0], rtol=1e-5)
    np.testing.assert_allclose(measured.patch_mass, weights[:, :, 1:].sum(-1), rtol=1e-5)
    for protocol in ("renormalized", "original"):
        for unit in ("px", "patches"):
            assert np.isnan(measured.distance(protocol, unit)).all()
            assert np.isnan(measured.query_distance(protocol, unit)).all()


def test_keys_on_another_grid_than_queries():
    queries = TokenLayout.regular((8, 8), (8, 8), ["cls"])
    keys = TokenLayout.regular((2, 2), (32, 32))
    vectors = torch.randn(2, 65, 8), torch.randn(2, 4, 8)
    scores = QueryKeyScores(*vectors, 0.5)
    measured = measure_record(record_of(layer_of(scores, queries, keys))).layers[0]
    expected = naive_measures(naive_weights(scores), queries, keys)
    for field in FIELDS:
        np.testing.assert_allclose(getattr(measured, field), expected[field], rtol=1e-5, atol=3e-7)


@pytest.mark.parametrize("rows", [1, 7, 128])
def test_chunk_size_makes_no_difference(rows, monkeypatch):
    layout = LAYOUTS["tall patches"]
    scores = random_scores(5, 4, layout.tokens, spread=2.0)
    whole = measures_of(scores, layout)
    monkeypatch.setattr(sweep, "_chunk_rows", lambda heads, keys: rows)
    chunked = measures_of(scores, layout)
    for field in (*FIELDS, *OF_MAPS, "log_normalizer"):
        np.testing.assert_allclose(getattr(chunked, field), getattr(whole, field), rtol=2e-6, atol=2e-7)


class Largest(TorchDispatchMode):
    """Notes the largest storage any operation returns."""

    bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(tensor, torch.Tensor):
                self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
        return out


@pytest.mark.parametrize(("side", "heads"), [(24, 4), (48, 4), (48, 12)])
def test_memory_stays_far_below_the_matrix(side, heads):
    layout = TokenLayout.regular((side, side), (4, 4), ["cls"])
    record = record_of(layer_of(random_scores(0, heads, layout.tokens), layout))
    with Largest() as largest:
        measure_record(record)
    # Two buffers of a chunk, or the sums by offset of each column of queries: never tokens x tokens.
    by_offset = 4 * heads * side * (2 * side - 1) * side
    assert largest.bytes <= max(2 * sweep._CHUNK_BYTES, record.nbytes, by_offset)
    if side == 48:
        assert largest.bytes < 4 * heads * layout.tokens**2 / 8


def test_chunks_of_about_128_queries_in_usual_models():
    assert 64 <= sweep._chunk_rows(6, 1370) <= 256
    assert 48 <= sweep._chunk_rows(12, 1370) <= 128
    assert sweep._chunk_rows(16, 4097) >= 16


def test_progress_rises_and_names_the_layer():
    layout = TokenLayout.regular((20, 20), (16, 16), ["cls"])
    layers = [layer_of(random_scores(i, 12, layout.tokens), layout, index=i) for i in range(2)]
    told = []
    measure_record(record_of(*layers), lambda doing, share: told.append((doing, share)))
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] < 1
    assert [doing for doing, _ in told] == sorted(doing for doing, _ in told)
    assert {doing for doing, _ in told} == {"Measuring layer 1 of 2", "Measuring layer 2 of 2"}


def test_the_listener_can_stop_it():
    layout = TokenLayout.regular((4, 4), (16, 16))
    layers = [layer_of(random_scores(i, 2, 16), layout, index=i) for i in range(3)]
    told = []

    def stop_at_the_second(doing: str, share: float | None) -> None:
        told.append(doing)
        if len(told) == 2:
            raise Cancelled

    with pytest.raises(Cancelled):
        measure_record(record_of(*layers), stop_at_the_second)
    assert len(told) == 2


def test_one_key_has_no_normalized_entropy():
    layout = TokenLayout.regular((1, 1), (224, 224))
    measured = measures_of(random_scores(0, 2, 1), layout)
    assert np.isnan(measured.normalized_entropy()).all()
    np.testing.assert_array_equal(measured.mean_entropy(), 0.0)
