"""The ring of stacked convolutions, and the share of a head's attention beyond it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.state.records import document_of, random_record, record_of
from viewer.state.attended import attended
from viewer.state.display import DisplayValue
from viewer.state.overlay import overlay
from viewer.state.readout import readout
from viewer.state.ring import outside_words, ring, share_outside
from viewer.state.selection import HeadRef, SelectionValue


def half_on_cls() -> torch.Tensor:
    """One head on 5 x 5 patches behind a class token: half on that, the rest even over all patches."""
    weights = torch.full((1, 26, 26), 0.5 / 25)
    weights[..., 0] = 0.5
    return weights


def look(query: object = (2, 2), head: int | None = 0, **more: object) -> SelectionValue:
    return replace(SelectionValue(), hovered=query, head=HeadRef(0, head), **more)


def share(weights: torch.Tensor, selection: SelectionValue, **display: object) -> float | None:
    record = record_of([weights], (5, 5))
    document = document_of(record)
    found = attended(document, selection.query, selection.direction)
    return share_outside(record, found, selection, DisplayValue(**display))


@pytest.mark.parametrize(("hops", "inside"), [(1, 9), (2, 25), (3, 25)])
def test_even_attention_counts_patches(hops: int, inside: int) -> None:
    assert share(half_on_cls(), look(), ring=hops) == pytest.approx((25 - inside) / 25, abs=1e-6)


def test_prefix_tokens_by_protocol() -> None:
    assert share(half_on_cls(), look(), ring=1) == pytest.approx(16 / 25)
    assert share(half_on_cls(), look(), ring=1, protocol="original") == pytest.approx(0.5 * 16 / 25)


def test_a_corner_reaches_fewer_patches() -> None:
    assert share(half_on_cls(), look((0, 0)), ring=1) == pytest.approx(21 / 25)


def test_several_heads_count_as_their_mean() -> None:
    stays = torch.zeros(1, 26, 26)
    stays[0] = torch.eye(26)
    both = torch.cat([half_on_cls(), stays])
    assert share(both, look(head=None), ring=1) == pytest.approx(16 / 25 / 2)


def test_rectangular_patches_and_grids() -> None:
    weights = torch.full((1, 12, 12), 1 / 12)
    record = record_of([weights], (3, 4), (), (8, 16))
    selection = look((1, 0))
    found = attended(document_of(record), (1, 0), "from")
    assert share_outside(record, found, selection, DisplayValue(ring=1)) == pytest.approx(6 / 12)


@pytest.mark.parametrize(
    ("selection", "hops"),
    [(look(), 0), (look("cls"), 2), (look(direction="to"), 2)],
    ids=["no ring", "a token without a place", "who attends"],
)
def test_nothing_where_there_is_nothing_to_share(selection: SelectionValue, hops: int) -> None:
    assert share(half_on_cls(), selection, ring=hops) is None


def test_the_read_out_and_the_caption_say_it() -> None:
    document = document_of(record_of([half_on_cls()], (5, 5)))
    selection = look()
    found = attended(document, (2, 2), "from")
    parts = (document, found, selection, DisplayValue(ring=1))
    assert readout(*parts).endswith(
        "64 % of the attention on patches lies outside what a 3x3 convolution reaches."
    )
    assert "; dashed: what a 3x3 convolution reaches; 64 % of the attention on patches lies outside" in (
        overlay(*parts).caption
    )
    original = (document, found, selection, DisplayValue(ring=2, protocol="original"))
    assert "0.0 % of the attention, prefix tokens counted in, lies outside" in overlay(*original).caption


def test_without_prefix_tokens_there_is_no_protocol_to_tell() -> None:
    assert outside_words(0.5, "original", prefix=False) == "50 % of the attention lies outside"
    assert outside_words(None, "original", prefix=True) == ""


def test_the_ring_is_cut_off_at_the_border() -> None:
    assert ring((0, 4), 2, (5, 6)) == (0, 2, 3, 6)
    assert ring((0, 4), 0, (5, 6)) is None
    assert ring("cls", 2, (5, 6)) is None


def test_random_heads_against_a_plain_sum() -> None:
    record = random_record(grid=(6, 7))
    found = attended(document_of(record), (3, 1), "from")
    selection = look((3, 1), 1)
    weights = record.layers[0].weights((3, 1))[1, 1:].reshape(6, 7)
    inside = np.zeros((6, 7), bool)
    inside[1:6, 0:4] = True
    expected = weights[~inside].sum() / weights.sum()
    assert share_outside(record, found, selection, DisplayValue(ring=2)) == pytest.approx(expected, rel=1e-5)
