"""Coordinates through operations that set, order or share elements, and through products of activations."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.backends.test_positions import HEIGHT, MIX, WIDTH, embed, grid, places, same
from viewer.backends.positions import CHANNELS, Lost, PositionTrace
from viewer.backends.torch_tap import AttentionTap

ORDER = torch.randperm(24, generator=torch.Generator().manual_seed(3))


def into(x, write):
    """Return zeros that something was written to."""
    found = torch.zeros_like(embed(x))
    write(found, embed(x))
    return found


def set_by_index(found, source):
    found[:, ORDER] = source


def set_by_slice(found, source):
    found[:, 4:] = source[:, :20]
    found[:, :4] = source[:, 20:]


def set_through_views(found, source):
    found.view(1, 4, 6, 5).flip(1)  # another tensor, which is left alone
    found.view(24, 5)[:12].view(2, 6, 5).copy_(source[:, 12:].view(2, 6, 5))
    found.mT[..., 12:] = source[:, :12].mT


def copied(found, source):
    found.copy_(source)


def scattered(found, source):
    found.scatter_(1, ORDER.view(1, 24, 1).expand(1, 24, 5), source)


WRITES = {
    "index": (set_by_index, ORDER.argsort()),
    "slice": (set_by_slice, torch.arange(24).roll(4)),
    "views": (set_through_views, torch.arange(24).roll(12)),
    "copy": (copied, torch.arange(24)),
    "scatter": (scattered, ORDER.argsort()),
}


@pytest.mark.parametrize("way", WRITES)
def test_what_is_written_takes_its_place_along(way):
    write, order = WRITES[way]
    same(places(lambda x: into(x, write)), grid(8)[order])


def test_views_see_what_is_written_to_the_whole():
    def compute(x):
        whole = embed(x).clone()
        view = whole[:, 2:]
        whole.copy_(embed(x).flip(1))
        return view

    same(places(compute), grid(8).flip(0)[2:])


def test_what_is_overwritten_with_numbers_loses_its_place():
    def compute(x):
        whole = embed(x).clone()
        whole[:, :6] = 0.0
        whole[:, 6:8].fill_(1.0)
        return whole

    found = places(compute)
    assert bool(found[:, :8].real.isnan().all())
    same(found[:, 8:], grid(8)[8:])


def test_functional_writes_are_followed():
    def compute(x):
        found = torch.slice_scatter(torch.zeros(1, 24, 5), embed(x)[:, :23], 1, 1, 24)
        found = torch.select_scatter(found, embed(x)[:, 23], 1, 0)
        return found.index_copy(1, torch.tensor([0, 1]), found[:, [1, 0]])

    rolled = grid(8).roll(1)
    same(places(compute), rolled[torch.tensor([1, 0, *range(2, 24)])])


def test_added_up_indices_stop_the_trace_with_their_name():
    found = places(lambda x: embed(x)[0].index_put((ORDER,), embed(x)[0], accumulate=True))
    assert isinstance(found, Lost)
    assert found.reason == "the trace of positions stopped at the operation 'index_put'"


def test_running_sums_keep_channels_and_stop_over_tokens():
    same(places(lambda x: embed(x).cumsum(-1)), grid(8))
    found = places(lambda x: embed(x).cumsum(1))
    assert isinstance(found, Lost)
    assert "'cumsum'" in found.reason


def test_strides_are_followed():
    same(places(lambda x: embed(x).contiguous().as_strided((1, 12, 5), (120, 10, 1), 5)), grid(8)[1::2])


def test_gated_linear_units_keep_tokens():
    same(places(lambda x: functional.glu(embed(x)[..., :4], -1)), grid(8))


def test_complex_rotation_keeps_tokens():
    def rotated(x):
        pairs = torch.view_as_complex(embed(x)[..., :4].reshape(1, 24, 2, 2).contiguous())
        turned = pairs * torch.polar(torch.ones(24, 2), torch.randn(24, 2))
        return torch.view_as_real(turned).flatten(2)

    same(places(rotated), grid(8))


def test_mirrored_padding_has_no_place():
    found = places(lambda x: functional.pad(embed(x).mT, (2, 1), mode="reflect").mT)
    assert bool(found[:, [0, 1, -1]].real.isnan().all())
    same(found[:, 2:-1], grid(8))


def test_a_map_of_another_grid_that_is_broadcast_moves_nothing():
    def weighed(x):
        maps = embed(x).mT.view(1, 5, 4, 6)
        coarse = functional.adaptive_avg_pool2d(maps, (2, 3)).mean(1, keepdim=True)
        gate = functional.interpolate(coarse, (4, 6), mode="bilinear", align_corners=True)
        return (maps * gate).flatten(2).mT

    same(places(weighed), grid(8))


@pytest.mark.parametrize(
    "mix",
    [
        lambda q, k, v: ((q.mT @ k).softmax(-1) @ v.mT).mT,
        lambda q, k, v: v @ (q.mT @ k).softmax(-1),
        lambda q, k, v: functional.scaled_dot_product_attention(q.mT, k.mT, v.mT).mT,
    ],
    ids=["weights on the left", "weights on the right", "fused"],
)
def test_channels_that_attend_leave_tokens_in_place(mix):
    same(places(lambda x: mix(*[embed(x)] * 3)), grid(8))


def test_channels_are_told_from_tokens():
    assert places(lambda x: embed(x).mT) is CHANNELS


def test_a_query_of_many_windows_answers_for_each():
    """One set of queries for all windows (of GCViT) leaves as many outputs, at their own windows' places."""

    def windows(x):
        cut = embed(x).view(2, 2, 3, 2, 5).transpose(1, 2).reshape(6, 4, 5)
        query = embed(x)[:, :4].expand(6, 4, 5)
        return functional.scaled_dot_product_attention(query[:, None], cut[:, None], cut[:, None])[:, 0]

    whole = grid(8).view(4, 6)
    expected = [whole[y : y + 2, x : x + 2].flatten() for y in (0, 2) for x in (0, 2, 4)]
    same(places(windows), torch.stack(expected))


@pytest.mark.parametrize(
    ("compute", "depends"),
    [
        (lambda x: embed(x)[:, ORDER], False),
        (lambda x: embed(x)[:, embed(x)[0, :, 0].argsort()], True),
        (lambda x: embed(x).sort(1).values, True),
        (lambda x: embed(x).gather(1, embed(x).topk(4, 1).indices), True),
        (lambda x: into(x, scattered), False),
    ],
)
def test_an_order_that_the_picture_gives_is_noticed(compute, depends):
    picture = torch.randn(1, 3, HEIGHT, WIDTH)
    trace = PositionTrace(picture, [])
    with torch.no_grad(), AttentionTap(trace=trace):
        compute(picture)
    assert trace.depends is depends


def test_places_go_where_sorting_sends_tokens():
    order = nn.Parameter(torch.randn(5))
    picture = torch.randn(1, 3, HEIGHT, WIDTH)
    trace = PositionTrace(picture, [("order", order)])
    with torch.no_grad(), AttentionTap(trace=trace):
        tokens = embed(picture)
        chosen = (tokens @ order).topk(6, dim=1).indices
        kept = tokens.gather(1, chosen[..., None].expand(-1, -1, 5))
    same(trace.tokens(kept), grid(8)[chosen[0]])
    assert trace.depends


def test_a_branch_that_lies_a_little_aside_moves_nothing():
    """A branch of half the grid, centred on every other token, is scaled up and added, in either order."""
    down = torch.randn(5, 5, 3, 3)

    def branch(maps):
        small = functional.conv2d(maps, down, stride=2, padding=1)
        return functional.interpolate(small, (4, 6), mode="bilinear")

    def maps(x):
        return embed(x).mT.view(1, 5, 4, 6)

    for add in (lambda stream, more: stream + more, lambda stream, more: more + stream):
        same(places(lambda x, add=add: add(stream := maps(x), branch(stream)).flatten(2).mT), grid(8))


@pytest.mark.parametrize(
    "project",
    [
        lambda x: (MIX @ embed(x).mT).mT,
        lambda x: torch.einsum("dc,bnc->bnd", MIX, embed(x)),
        lambda x: torch.einsum("bchw,dc->bdhw", embed(x).mT.view(1, 5, 4, 6), MIX).flatten(2).mT,
        lambda x: embed(x) * torch.sigmoid(MIX[:1] @ embed(x).mT).mT,
    ],
)
def test_projections_from_the_left_keep_tokens(project):
    same(places(project), grid(8))


def test_learned_queries_take_no_place_from_what_they_look_at():
    """Each answer is a mean over all tokens, which is no place, however many there are."""
    found = places(lambda x: (MIX @ embed(x).mT).softmax(-1) @ embed(x))
    assert bool(found.real.isnan().all())
