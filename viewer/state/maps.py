"""The kinds of maps that the picture can show, each a row of `MAPS`.

A new kind is a name in `viewer.state.display.MapKind`, a file of its own such as `viewer.state.rollout_map`,
and a row here: menus, image panel, figures, `render` and the window's slow work all go by the table.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from viewer.errors import MapError
from viewer.state import attention_map, class_map, effective_map, network_map, norm_map, rollout_map
from viewer.state.averaged import is_stale
from viewer.state.comparison import known

if TYPE_CHECKING:
    from viewer.attention.record import AttentionRecord
    from viewer.backends.model import Job, Model
    from viewer.state.attended import Attended
    from viewer.state.display import DisplayValue, MapKind
    from viewer.state.documents import ImageDocument
    from viewer.state.picture_map import PictureMap
    from viewer.state.selection import SelectionValue

MapKey = tuple[Hashable, ...]
"""What has to be worked out for a map: its kind and its options. The result lies in `ImageDocument.maps`."""

_MOST_KEPT = 3  # results a picture; a rollout of 4,096 tokens takes 64 MB

Show = Callable[
    ["ImageDocument", "Attended | None", "SelectionValue", "DisplayValue"],
    "PictureMap",
]


@dataclass(frozen=True)
class Work:
    """What a map needs that a hover can't wait for.

    Attributes
    ----------
    key
        What it depends on beside the document: the map's kind, and its options as they are set.
    run
        Works it out; of a document with a record, with the model that made it. Raises `MapError` where it
        can't be had.
    doing
        What is being done, as a person reads it.
    """

    key: Callable[[AttentionRecord, DisplayValue], MapKey]
    run: Callable[[ImageDocument, Model, MapKey, Job], Any]
    doing: str


@dataclass(frozen=True)
class MapRow:
    """A kind of map.

    Attributes
    ----------
    kind
        Its name in settings, options and figures.
    words, tip
        In a list; and what it shows, in a sentence.
    refusal
        Why a record has no such map, as a clause; empty where it has one.
    show
        Describes it; also what is missing or being worked out.
    work
        What must be worked out first; None where nothing is slow.
    """

    kind: MapKind
    words: str
    tip: str
    refusal: Callable[[AttentionRecord, DisplayValue], str]
    show: Show
    work: Work | None = None


MAPS: tuple[MapRow, ...] = (
    MapRow(
        "attention",
        "attention",
        "What the query attends to in the selected head, or in all heads of a layer together.",
        lambda record, display: "",
        attention_map.attention_map,
    ),
    MapRow(
        "rollout",
        "rollout",
        "What the query draws on by way of all layers, residual connections included "
        "(Abnar and Zuidema 2020).",
        rollout_map.refusal,
        rollout_map.rollout_map,
        Work(rollout_map.key, rollout_map.work, "Rolling attention out"),
    ),
    MapRow(
        "class rollout",
        "class rollout",
        "Which patches speak for a class: attention weighted by its gradient, by way of all layers "
        "(Chefer et al. 2021). Models in PyTorch only.",
        class_map.refusal,
        class_map.class_map,
        Work(class_map.key, class_map.work, "Following a class back"),
    ),
    MapRow(
        "norms",
        "norms",
        "How long each patch's vector is in the residual stream that enters the layer. A few far longer than "
        "the others hold what the model notes about the whole picture (Darcet et al. 2023).",
        norm_map.refusal,
        norm_map.norm_map,
    ),
    MapRow(
        "effective field",
        "effective field",
        "Which pixels the middle patch really depends on behind the layer's block, by the gradient of its "
        "vector, averaged over the open pictures (Luo et al. 2016); or the middle unit of a stage of the "
        "network that is compared with. In PyTorch only.",
        effective_map.refusal,
        effective_map.effective_map,
        Work(effective_map.key, effective_map.work, "Following gradients back"),
    ),
)


_NETWORK = Work(
    lambda record, display: network_map.key(display), network_map.work, "Following a network's gradients back"
)


def work_of(key: MapKey) -> Work:
    """Return the work that a key is of."""
    return _NETWORK if key[0] == network_map.KIND else map_row(key[0]).work


def map_row(kind: MapKind) -> MapRow:
    """Return the row of a kind; that of attention for one there is not."""
    return next((row for row in MAPS if row.kind == kind), MAPS[0])


def picture_map(
    document: ImageDocument, found: Attended | None, selection: SelectionValue, display: DisplayValue
) -> PictureMap:
    """Describe the map that is chosen, for a document with a record."""
    return map_row(display.map).show(document, found, selection, display)


def wanted(document: ImageDocument | None, display: DisplayValue) -> MapKey | None:
    """Return what is still to be worked out before the chosen map can be shown; None if nothing is."""
    if document is None or document.record is None:
        return None
    for key in _keys(document.record, display):
        if key not in document.maps or is_stale(document.maps[key], document):
            return key
    return None


def _keys(record: AttentionRecord, display: DisplayValue) -> Iterator[MapKey]:
    """Yield what has to be worked out for the chosen map, and of a network for the scatter."""
    row = map_row(display.map)
    if row.work is not None and not row.refusal(record, display):
        yield row.work.key(record, display)
    if network_map.is_wanted(record, display) and known(display.compare) is not None:
        yield network_map.key(display)


def work_out(document: ImageDocument, model: Model, key: MapKey, job: Job) -> object:
    """Work out what `wanted` named.

    Raises
    ------
    MapError
        If it can't be had of this model; the text says why.
    Cancelled
        If `job` was cancelled.
    """
    return work_of(key).run(document, model, key, job)


def kept(maps: dict[MapKey, object], key: MapKey, result: object) -> dict[MapKey, object]:
    """Return the results of a document with one more, and the oldest given up where they are too many."""
    others = [item for item in maps.items() if item[0] != key]
    if len(others) >= _MOST_KEPT:
        # The scatter shows a network's fields whatever the map is.
        others.remove(next((item for item in others if item[0][0] != network_map.KIND), others[0]))
    return dict([*others, (key, result)])


def mapped(document: ImageDocument, model: Model, display: DisplayValue, job: Job) -> ImageDocument:
    """Return a document with a record and all that the chosen map needs, for a figure without a window.

    Raises
    ------
    MapError
        If the model has no such map, with the reason.
    Cancelled
        If `job` was cancelled.
    """
    row = map_row(display.map)
    why = row.refusal(document.record, display)
    if why:
        raise MapError(row.kind, why)
    while (key := wanted(document, display)) is not None:
        document = replace(document, maps={**document.maps, key: work_out(document, model, key, job)})
    return document
