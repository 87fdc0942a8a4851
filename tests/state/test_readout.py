from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.state.records import VERIFIED, document_of, mixed_record, random_record, record_of, weights_of
from viewer.attention.layer import AttentionLayer, Verdict
from viewer.attention.layout import TokenLayout
from viewer.attention.record import AttentionRecord, Provenance
from viewer.attention.scores import QueryKeyScores
from viewer.state.attended import attended
from viewer.state.display import DisplayValue
from viewer.state.readout import readout
from viewer.state.selection import HeadRef, SelectionValue

FIRST = HeadRef(0, 0)


def say(record, query=None, head=FIRST, direction="from", measured=True, **display):
    document = document_of(record, measured)
    found = None if query is None else attended(document, query, direction)
    selection = SelectionValue(hovered=query, head=head, direction=direction)
    return readout(document, found, selection, DisplayValue(**display))


def uniform(prefix=("cls",), heads=1, **more):
    tokens = 196 + len(prefix)
    return record_of([torch.full((heads, tokens, tokens), 1 / tokens)], (14, 14), prefix, **more)


def test_uniform_attention_in_words():
    assert say(uniform()) == (
        "Layer 0, head 0: on average this head looks 116 px (7.3 patches) away, 100 % of what uniform "
        "attention would (renormalized over patches); 0.5 % goes to the class token; its attention is "
        "spread as over 197 tokens (entropy 5.28 nats)."
    )


def test_the_original_protocol_is_named_and_measured():
    words = say(uniform(("cls", "reg1", "reg2", "reg3", "reg4")), protocol="original", unit="patches")
    assert "7.1 patches (114 px) away, 100 % of what uniform attention would (original protocol" in words
    assert "2.5 % goes to the class token and 4 registers" in words


def test_the_query_adds_its_own_numbers():
    first, second = say(uniform(), query=(0, 0)).split("\n")
    assert first == say(uniform())
    assert second == (
        "Patch (row 0, column 0): 161 px (10.1 patches) away, 100 % of what uniform attention would; "
        "0.5 % goes to the class token; spread as over 197 tokens, most on patch (0, 0) with 0.5 %."
    )


def test_a_prefix_token_has_no_distance_of_its_own():
    second = say(uniform(), query="cls").split("\n")[1]
    assert second.startswith("The class token: 0.5 % goes to itself; spread as over 197 tokens")
    second = say(uniform(("cls", "reg1", "reg2")), query="reg1").split("\n")[1]
    assert "1.5 % goes to the class token and 2 registers, itself included; spread" in second


def test_fused_heads_are_said_to_be_a_mean():
    weights = weights_of(3, 21)
    words = say(record_of([weights], (4, 5)), head=HeadRef(0, None))
    measured = document_of(record_of([weights], (4, 5))).measures.layers[0]
    mean = measured.distance("renormalized").mean()
    assert words.startswith(f"Layer 0, mean of 3 heads: on average these heads look {mean:.0f} px")


def test_the_strongest_patch_is_named():
    weights = torch.full((1, 20, 20), 0.05)
    weights[0, 13] = 0.5 / 19
    weights[0, 13, 7] = 0.5
    words = say(record_of([weights], (4, 5), ()), query=(2, 3))
    assert words.endswith("most on patch (1, 2) with 50 %.")
    to = say(record_of([weights], (4, 5), ()), query=(1, 2), direction="to")
    assert to.endswith("Of all patches, patch (2, 3) with 50 % attends most to patch (row 1, column 2).")


def test_says_that_it_is_still_measured():
    words = say(random_record(), measured=False, query=(0, 0))
    assert words.startswith("Layer 0, head 0: still being measured.\nPatch (row 0, column 0): ")


def test_what_is_not_verified_is_said_to_be_so():
    doubt = Verdict(False, 0.3, None, "weights times V miss the output")
    words = say(uniform(verdict=doubt))
    assert words.endswith("Layer 0 is not verified: weights times V miss the output.")
    changed = replace(uniform(), output_unchanged=False)
    assert "changed the model's output" in say(changed)


def test_queries_without_attention_on_patches_are_counted():
    weights = weights_of(1, 21)
    weights[0, 5] = torch.eye(21)[0]
    record = record_of([weights], (4, 5))
    assert say(record).endswith("One query attends to no patch at all, left out of the mean.")
    assert "no patch" not in say(record, protocol="original")


def test_pooling_has_no_distance():
    record = record_of([weights_of(2, 20)], (4, 5), (), pooling=torch.full((1, 1, 20), 0.05))
    words = say(record, head=HeadRef(1, 0), query=(0, 0))
    assert "no distance to measure" in words
    assert "What the pooling query attends to most: patch (0, 0) with 5.0 %." in words


def test_nothing_to_say_before_the_model_looked():
    document = replace(document_of(random_record()), record=None)
    assert readout(document, None, SelectionValue(), DisplayValue()) == ""


@pytest.mark.parametrize("head", [HeadRef(0, 0), HeadRef(2, 1), HeadRef(1, None)])
def test_entropy_and_share_agree_with_the_measures(head):
    record = random_record()
    measured = document_of(record).measures.layers[head.layer]
    pick = slice(None) if head.head is None else head.head
    entropy = np.atleast_1d(measured.mean_entropy()[pick]).mean()
    assert f"(entropy {entropy:.2f} nats)" in say(record, head=head)


def test_windows_are_compared_with_uniform_windows():
    words = say(mixed_record(), query=(2, 5), head=HeadRef(0, 0)).split("\n")
    assert "97 % of what uniform attention would" in words[0]
    assert words[1].startswith("Patch (row 2, column 5 of 8 × 8): 16 of 64 patches in reach; ")
    assert words[1].endswith("most on patch (3, 6 of 8 × 8) with 51 %.")
    to = say(mixed_record(), query=(2, 5), head=HeadRef(0, 0), direction="to")
    assert "Of all patches that can reach it, patch (" in to


def test_a_layers_own_patch_is_named():
    words = say(mixed_record(), query=(2, 5), head=HeadRef(3, 0))
    assert "Patch (row 1, column 2 of 4 × 4): " in words
    assert "patches in reach" not in words


def test_padding_is_called_padding():
    words = say(mixed_record(), query="cls", head=HeadRef(5, 0))
    assert words.count("goes to the class token and padding") == 2
    record = mixed_record()
    weights = record.layers[5].weights("cls")[0, :3]
    assert f"{100 * weights.sum():.1f} % goes to the class token and padding, itself included" in words


def test_channels_have_no_distance_and_notes_are_told():
    record = mixed_record()
    assert say(record, query=(2, 5), head=HeadRef(4, 0)) == (
        "Layer 4 (channel attention), head 0: channels attend to channels, so there is no distance to "
        "measure."
    )
    noted = replace(record.layers[0], note="weights are shown before the heads were mixed")
    record = replace(record, layers=(noted, *record.layers[1:]))
    assert say(record).endswith("Layer 0: weights are shown before the heads were mixed.")
    assert "No map here: this layer does not have the class token." in say(record, query="cls")


def test_a_key_that_nobody_reaches_is_told():
    fine, coarse = TokenLayout.regular((2, 2), (8.0, 8.0)), TokenLayout.regular((1, 2), (16.0, 8.0))
    bias = torch.tensor([0.0, -np.inf]).expand(1, 4, 2)
    scores = QueryKeyScores(torch.randn(1, 4, 4), torch.randn(1, 2, 4), 0.5, bias)
    layer = AttentionLayer(0, "a", "self", scores, fine, coarse, VERIFIED)
    record = AttentionRecord((layer,), (16, 16), Provenance("given"))
    assert say(record, query=(0, 1), direction="to").endswith(
        "No patch reaches patch (row 0, column 1 of 1 × 2)."
    )
    assert "1 of 2 patches in reach" in say(record, query=(0, 1))


def test_a_removed_head_is_first_said_to_be_unused():
    record = replace(uniform(heads=2), what_if=("head-removed:layers=0,heads=1",))
    words = say(record, head=HeadRef(0, 1))
    assert words.startswith(
        "Layer 0, head 1 (output removed, not used): on average its unused attention looks 116 px"
    )
    assert say(record, head=HeadRef(0, 0)).startswith("Layer 0, head 0: on average this head looks")
    assert "removed" not in say(uniform(heads=2), head=HeadRef(0, 1))
