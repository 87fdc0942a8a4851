"""One forward pass with changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor, nn

from viewer.backends.torch_tap import AttentionTap
from viewer.backends.what_if import SKIPPED
from viewer.backends.what_if_attention import AttentionChanges, Place, site_changes
from viewer.backends.what_if_blocks import block_of, blocks_changed
from viewer.errors import InputError

if TYPE_CHECKING:
    from viewer.attention.layer import AttentionLayer
    from viewer.backends.torch_streams import Streams
    from viewer.backends.what_if import Change


def run_changed(
    model: nn.Module,
    name: str,
    picture: Tensor,
    changes: Sequence[Change],
    places: Sequence[Place],
    on_layer: Callable[[int], None],
    streams: Streams,
) -> tuple[AttentionTap, object]:
    """Run a model with changes and tap it.

    Parameters
    ----------
    model, name
        The model, and what to call it in errors.
    picture
        On the model's device.
    changes
        Any number.
    places
        Where each layer was found when the model ran untouched.
    on_layer, streams
        As for `AttentionTap`.

    Returns
    -------
    tuple
        The tap, and the model's output.

    Raises
    ------
    InputError
        If a change can't be made, or makes the model attend in other places.
    """
    sites = site_changes(name, changes, places, picture.device)
    tap = AttentionTap(on_layer=on_layer, streams=streams)
    modules = [place.plan.module for place in places]
    # The changes are entered last, so that the tap sees what they make of the model.
    with blocks_changed(model, name, changes, modules), tap, AttentionChanges(tap, sites):
        output = model(picture)
    found = {tapped.site: tapped.scores.heads for tapped in tap.layers}
    if any(found.get(place.site) != place.stacked for place in places):
        raise InputError(
            f"What if: with this change {name} attends in other places, so nothing can be compared."
        )
    return tap, output


def noted(
    layers: Sequence[AttentionLayer], changes: Sequence[Change], model: nn.Module
) -> tuple[AttentionLayer, ...]:
    """Return the layers, those that a change is made to with a note that names it."""
    skipped = {
        block.name
        for change in changes
        if change.kind == "skip"
        for layer in layers
        if change.touches(layer.index)
        for block in [block_of(model, layer.name.partition(":")[0])]
        if block is not None
    }
    found = []
    for layer in layers:
        words = [
            replace(change, layers=(layer.index,)).words
            for change in changes
            if change.kind not in ("cb", "skip") and not change.idle and change.touches(layer.index)
        ]
        if any(layer.name.startswith(f"{block}.") for block in skipped):
            words.append(SKIPPED)
        note = "; ".join(filter(None, (layer.note, f"what if: {'; '.join(words)}" if words else "")))
        found.append(replace(layer, note=note))
    return tuple(found)
