from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.state.records import document_of, mixed_record, random_record, record_of, weights_of
from viewer.attention.layout import TokenLayout
from viewer.images.decode import DecodedImage
from viewer.state.attended import attended
from viewer.state.display import DisplayValue
from viewer.state.heads import heads
from viewer.state.overlay import overlay
from viewer.state.selection import HeadRef, SelectionValue

AT = SelectionValue(hovered=(2, 3), head=HeadRef(1, 1))


def describe(record, selection=AT, display=None, **changes):
    document = replace(document_of(record), **changes)
    found = None
    if selection.query is not None:
        found = attended(document, selection.query, selection.direction)
    return overlay(document, found, selection, display or DisplayValue())


def test_nothing_before_the_model_looked():
    document = replace(document_of(random_record()), record=None)
    assert overlay(document, None, AT, DisplayValue()) is None


def test_shows_one_head_as_it_is():
    weights = [weights_of(2, 21, i) for i in range(2)]
    shown = describe(record_of(weights, (4, 5)))
    np.testing.assert_array_equal(shown.values.ravel(), weights[1][1, 1 + 2 * 5 + 3, 1:])
    assert shown.prefix == (("cls", pytest.approx(float(weights[1][1, 14, 0]))),)
    assert shown.title == "Layer 1, head 1: what patch (row 2, column 3) attends to"
    assert shown.label == "attention weight"


@pytest.mark.parametrize("fusion", ["mean", "max", "min"])
def test_fuses_the_heads_that_the_layer_has(fusion):
    weights = [weights_of(3, 21), weights_of(2, 21, 1)]
    selection = replace(AT, head=HeadRef(1, None), fusion=fusion)
    shown = describe(record_of(weights, (4, 5)), selection)
    row = weights[1][:, 14].numpy()
    np.testing.assert_allclose(shown.values.ravel(), getattr(row[:, 1:], fusion)(axis=0), rtol=1e-6)
    assert shown.prefix[0][1] == pytest.approx(float(getattr(row[:, 0], fusion)()), rel=1e-6)
    assert shown.title == f"Layer 1, {fusion} of 2 heads: what patch (row 2, column 3) attends to"


@pytest.mark.parametrize("scale", ["shared", "per head"])
def test_has_the_colour_scale_of_its_cell_in_the_heads_panel(scale):
    record, display = random_record(), DisplayValue(scale=scale)
    document = document_of(record)
    found = attended(document, (2, 3), "from")
    cell = heads(document, found, AT, display).vmax[1, 1]
    shown = overlay(document, found, AT, display)
    assert np.float32(shown.vmax) == cell
    assert len(repr(shown.vmax)) < 12 or scale == "per head"


def test_a_fused_map_of_its_own_scale_ends_at_its_own_peak():
    selection = replace(AT, head=HeadRef(1, None))
    shown = describe(random_record(), selection, DisplayValue(scale="per head"))
    assert shown.vmax == float(shown.values.max())


def test_without_a_query_there_is_the_picture_and_no_map():
    shown = describe(random_record(), SelectionValue())
    assert shown.values is None
    assert np.isnan(shown.prefix[0][1])
    assert "point at a patch" in shown.title
    assert shown.seen.shape == (64, 80, 3)


@pytest.mark.parametrize(
    ("query", "hops", "ring"),
    [((2, 3), 0, None), ((2, 3), 1, (1, 2, 4, 5)), ((0, 0), 2, (0, 0, 3, 3)), ("cls", 2, None)],
)
def test_the_ring_is_what_convolutions_reach_inside_the_grid(query, hops, ring):
    selection = SelectionValue(hovered=query)
    assert describe(random_record(), selection, DisplayValue(ring=hops)).ring == ring


def test_columns_are_labelled_as_such():
    shown = describe(random_record(), replace(AT, direction="to"))
    assert shown.title == "Layer 1, head 1: which patches attend to patch (row 2, column 3)"
    assert shown.label == "attention weight on patch (2, 3)"


def test_columns_not_known_yet_are_said_to_be_waited_for():
    shown = describe(random_record(), replace(AT, direction="to"), measures=None)
    assert shown.values is None
    assert "once all heads are measured" in shown.title


def test_pooling_names_its_own_query():
    pooling = torch.full((1, 1, 20), 0.05)
    record = record_of([weights_of(2, 20)], (4, 5), (), pooling=pooling)
    shown = describe(record, replace(AT, head=HeadRef(1, 0)))
    assert shown.title == "Layer 1 (attention pooling), head 0: what the pooling query attends to"


def test_class_attention_is_asked_by_the_class_token():
    pooling = torch.full((1, 1, 20), 0.05)
    record = record_of([weights_of(2, 20)], (4, 5), (), pooling=pooling)
    query = TokenLayout.from_positions(np.full((1, 2), np.nan, np.float32), ("cls",))
    record = replace(record, layers=(record.layers[0], replace(record.layers[1], query_layout=query)))
    shown = describe(record, replace(AT, head=HeadRef(1, 0)))
    assert shown.title.endswith(": what the class token attends to")


def test_the_caption_tells_the_crop():
    record = replace(random_record(), box=(10.0, 0.0, 90.0, 64.0))
    whole = DecodedImage(np.zeros((64, 100, 3), np.uint8), "x", None, "")
    shown = describe(record, display=DisplayValue(ring=2), image=whole)
    assert shown.caption == (
        "Model input 64 × 80 px, from 64 × 80 px of the 64 × 100 px picture (height × width); "
        "4 rows × 5 columns of patches, counted from 0; dashed: what 2 stacked 3x3 convolutions reach; "
        "21 % of the attention on patches lies outside"
    )


@pytest.mark.parametrize(
    ("whole", "box", "words"),
    [
        ((64, 80), (0, 0, 80, 64), "from the whole of the 64 × 80 px picture (height × width); 4 rows"),
        ((60, 80), (0, -2, 80, 62), "from the whole of the 60 × 80 px picture (height × width), padded; 4"),
        ((60, 90), (0, -2, 80, 62), "from 60 × 80 px of the 60 × 90 px picture (height × width), padded; 4"),
    ],
)
def test_the_caption_tells_whole_and_padding(whole, box, words):
    image = DecodedImage(np.zeros((*whole, 3), np.uint8), "x", None, "")
    shown = describe(replace(random_record(), box=tuple(map(float, box))), image=image)
    assert f"Model input 64 × 80 px, {words}" in shown.caption


def test_a_square_input_around_a_flat_picture_is_padded_to_a_square():
    record = record_of([weights_of(2, 17)] * 2, (4, 4))
    image = DecodedImage(np.zeros((30, 60, 3), np.uint8), "x", None, "")
    shown = describe(replace(record, box=(0.0, -15.0, 60.0, 45.0)), image=image)
    assert "from the whole of the 30 × 60 px picture (height × width), padded to a square;" in shown.caption


def test_the_scale_says_whose_it_is():
    record = random_record()
    own = DisplayValue(scale="per head")
    fused = replace(AT, head=HeadRef(1, None))
    assert describe(record, AT, own).scale_label == "this head's own scale"
    assert describe(record, fused, own).scale_label == "this map's own scale"
    assert describe(record, fused).scale_label == "one scale for all heads"
    # The mark beyond the bar's end goes by patches of all heads where one scale is for all.
    found = attended(document_of(record), AT.query, "from")
    assert describe(record, AT).largest == found.peaks.max()
    assert describe(record, AT, own).largest == found.peaks[1, 1]


def test_a_record_of_a_bare_tensor_has_a_grey_picture():
    shown = describe(replace(random_record(), seen=None))
    assert shown.seen.shape == (64, 80, 3)
    assert (shown.seen == 128).all()


def test_a_layer_of_another_grid_is_shown_on_its_own():
    selection = SelectionValue(hovered=(2, 5), head=HeadRef(3, 1))
    shown = describe(mixed_record(), selection, DisplayValue(ring=1))
    assert shown.title == "Layer 3, head 1: what patch (row 1, column 2 of 4 × 4) attends to"
    assert (shown.grid, shown.values.shape, shown.patch((2, 5))) == ((4, 4), (4, 4), (1, 2))
    assert shown.ring == (0, 1, 3, 4)
    assert "4 rows × 4 columns of patches, each around the centre of what it sees, counted" in shown.caption
    # Its centres are 8, 40, 72 and 104 px: 24 px belong to the first or second, 104 and beyond to the last.
    assert [shown.patch(shown.query_at(y, 127)) for y in (0, 23, 25, 127)] == [(0, 3), (0, 3), (1, 3), (3, 3)]


def test_pooled_keys_name_both_grids():
    selection = SelectionValue(hovered=(2, 5), head=HeadRef(2, 1))
    shown = describe(mixed_record(), selection)
    assert (shown.grid, shown.values.shape) == ((8, 8), (2, 2))
    assert "queries 8 rows × 8 columns, keys 2 rows × 2 columns, counted from 0" in shown.caption
    to = describe(mixed_record(), replace(selection, direction="to"))
    assert (to.grid, to.values.shape) == ((2, 2), (8, 8))
    assert to.title == "Layer 2, head 1: which patches attend to patch (row 0, column 1 of 2 × 2)"
    assert to.label == "attention weight on patch (0, 1 of 2 × 2)"
    assert "queries 8 rows × 8 columns, keys 2 rows × 2 columns" in to.caption


@pytest.mark.parametrize("head", [HeadRef(0, 1), HeadRef(0, None)])
def test_what_is_out_of_reach_is_known_as_such(head):
    shown = describe(mixed_record(), SelectionValue(hovered=(2, 5), head=head))
    assert shown.unreachable.sum() == 48
    assert not shown.unreachable[:4, 4:].any()
    assert shown.caption.startswith("Hatched: not reachable (other window or masked). Model input 128")
    assert np.isfinite(shown.vmax)
    pooled = describe(mixed_record(), SelectionValue(hovered=(2, 5), head=HeadRef(2, 1)))
    assert pooled.unreachable is None
    assert pooled.caption.startswith("Model input")


@pytest.mark.parametrize(
    ("query", "head", "words"),
    [
        ((2, 5), HeadRef(4, 0), "no map, channels attend to channels here"),
        ("cls", HeadRef(0, None), "no map, this layer does not have the class token"),
    ],
)
def test_a_layer_without_a_map_says_why(query, head, words):
    shown = describe(mixed_record(), SelectionValue(hovered=query, head=head))
    assert shown.values is None
    assert shown.blank
    assert words in shown.title
    ringed = describe(mixed_record(), SelectionValue(hovered=query, head=head), DisplayValue(ring=2))
    assert ringed.ring is None
    assert "convolution" not in ringed.caption


def test_patches_that_tile_the_picture_need_no_word_about_their_centres():
    for layer in (0, 2, 5):
        shown = describe(mixed_record(), SelectionValue(hovered=(2, 5), head=HeadRef(layer, 0)))
        assert "around the centre" not in shown.caption
