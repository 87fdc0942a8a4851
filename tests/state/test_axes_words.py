from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.state.records import channel_record, document_of, random_record, record_of, weights_of
from viewer.state.display import DisplayValue
from viewer.state.readout import readout
from viewer.state.scatter import scatter
from viewer.state.selection import HeadRef, SelectionValue


def said(record, head=HeadRef(1, 0), **display):  # noqa: B008 - a tuple
    return readout(document_of(record), None, SelectionValue(head=head), DisplayValue(**display))


def test_what_is_along_the_axes_is_said_with_uniform_beside_it():
    record = random_record(sharp=3.0)
    nmi = document_of(record).measures.layers[1].nmi[0]
    words = said(record, y_measure="nmi")
    assert f"Mutual information of query and key: {nmi:.3f} (uniform attention: 0.000)." in words
    both = said(record, HeadRef(1, None), x_measure="mean_hops", y_measure="row_cosine")
    assert "Mean Chebyshev distance: " in both and " hops (uniform attention: " in both
    assert "Cosine between rows: " in both


@pytest.mark.parametrize("name", ["mean_distance", "entropy_nats", "effective_tokens", "prefix_mass"])
def test_what_the_read_out_says_anyway_is_not_said_twice(name):
    record = random_record()
    assert said(record, y_measure=name) == said(record)


def test_the_kind_is_said_with_what_decided_it():
    near = torch.eye(196).expand(2, 196, 196)
    words = said(record_of([near, near], (14, 14), ()), kinds=True)
    assert "Kind: local. Does what a convolution could: attention within 1 hop 1.00 ≥ 0.5" in words


def test_of_all_heads_kinds_and_density_are_counted():
    heads = torch.stack([torch.eye(196), torch.full((196, 196), 1 / 196)])
    record = record_of([heads], (14, 14), ())
    words = said(record, HeadRef(0, None), kinds=True)
    assert "Kinds: 1 local, 1 " in words
    assert words.split("; ")[-1].startswith("1 of 2 heads nearer to uniform attention than to a 3x3 window.")
    shown = scatter(document_of(record), None, SelectionValue(), DisplayValue(y_measure="entropy_nats"))
    assert shown.reference("uniform").told.endswith("by layer: 0: 1/2")


def test_of_pooling_and_channels_nothing_is_said_that_is_not_there():
    pooling = record_of([weights_of(2, 20)], (4, 5), (), pooling=torch.full((1, 1, 20), 0.05))
    words = said(pooling, HeadRef(1, 0), y_measure="normalized_entropy")
    assert "Normalized entropy: 1.000" in words
    assert "nan" not in said(pooling, HeadRef(1, 0), y_measure="mean_hops", kinds=True)
    assert said(channel_record(), HeadRef(0, 0), y_measure="nmi", kinds=True) == said(
        channel_record(), HeadRef(0, 0)
    )


def test_a_new_record_has_its_own_words():
    one, other = random_record(sharp=1.0), random_record(sharp=5.0)
    assert said(one, y_measure="local_1") != said(other, y_measure="local_1")
    # The same words again for the same measures, of which one layer is exchanged.
    document = document_of(one)
    exchanged = (document.measures.layers[0], document_of(other).measures.layers[1])
    changed = replace(document, measures=replace(document.measures, layers=(*exchanged, exchanged[1])))
    shown = SelectionValue(head=HeadRef(1, 0))
    first = readout(document, None, shown, DisplayValue(y_measure="local_1"))
    second = readout(changed, None, shown, DisplayValue(y_measure="local_1"))
    assert first != second
    assert np.isfinite(document.measures.layers[1].nmi).all()
