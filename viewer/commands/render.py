"""``patchreach render``: the figure that the window would make, without a window."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from viewer.attention.likeness import measure_likeness
from viewer.attention.sweep import measure_record
from viewer.backends.networks import network_fields
from viewer.backends.opening import open_model
from viewer.backends.what_if_model import with_changes
from viewer.commands.console import Notes, job
from viewer.errors import ExportError, InputError
from viewer.export.figure import format_of, save
from viewer.export.writing import check_target
from viewer.images.decode import open_image
from viewer.state import comparison
from viewer.state.display import DisplayValue
from viewer.state.documents import ImageDocument
from viewer.state.likeness import keep
from viewer.state.maps import mapped
from viewer.state.network_map import TRAINED, UNTRAINED
from viewer.state.requests import FigureRequest
from viewer.state.scene import compose
from viewer.state.selection import HeadRef, SelectionValue

if TYPE_CHECKING:
    from viewer.attention.record import AttentionRecord
    from viewer.state.selection import Query


def run(options: Namespace) -> int:
    """Draw one figure.

    Raises
    ------
    PatchreachError
        If model, picture, layer, head, query or output can't be had.
    """
    format_of(options.output)
    sources = (options.image, options.model, options.weights, options.compare, options.compare_weights)
    check_target(options.output, (*sources, *options.over))
    _check_comparison(options)
    notes = Notes()
    image = open_image(options.image)
    others = [ImageDocument(key, open_image(path)) for key, path in enumerate(options.over, 1)]
    with job() as work:
        model = open_model(options.model, options.weights, options.image_size, options.device, work)
        model = with_changes(model, options.what_if) if options.what_if else model
        record = model.attend(image, work)
        selection = _selection(options, record)
        # The other figures need no pass over the whole attention.
        measured = options.view in ("scatter", "likeness", "all") or options.direction == "to"
        measures = measure_record(record, work.step) if measured else None
        document = ImageDocument(0, image, "done" if measures else "measuring", record, measures)
        if options.what_if and measures is not None:
            plain = with_changes(model, ()).attend(image, work)
            document = replace(document, before=(plain, measure_record(plain, work.step)))
        display = _display(options)
        if options.compare:
            comparison.keep(network_fields(options.compare, None, work))
        document = mapped(replace(document, strip=(document, *others)), model, display, work)
        if options.view == "likeness":
            keep(measures, measure_likeness(record, measures, work.step))
    notes.say((*image.notes, *model.notes, *record.notes))
    save(compose(document, selection, display), _request(options))
    return 0


def _check_comparison(options: Namespace) -> None:
    """Refuse options that need others."""
    if options.compare_weights is not None and options.compare_untrained:
        raise InputError("Give a checkpoint with --compare-weights, or --compare-untrained, not both.")
    if not options.compare and (options.stage or options.compare_weights or options.compare_untrained):
        raise InputError("Name the network to compare with: --compare resnet50.")
    if options.stage and options.map != "effective-field":
        raise InputError("--stage chooses what --map effective-field shows; give both.")


def _compare_weights(options: Namespace) -> str:
    """Return what effective fields of the network are worked out with; empty for none."""
    if options.compare_weights is not None:
        return str(Path(options.compare_weights).absolute())
    if options.compare_untrained:
        return UNTRAINED
    return TRAINED if options.stage else ""


def _request(options: Namespace) -> FigureRequest:
    ground = options.ground or ("dark" if options.theme == "dark" else "light")
    return FigureRequest(options.view, options.output, options.scale, not options.no_title, ground)


def _display(options: Namespace) -> DisplayValue:
    return replace(
        DisplayValue(),
        protocol=options.protocol,
        unit=options.unit,
        scale="shared" if options.color_scale == "shared" else "per head",
        colormap=options.colormap,
        opacity=options.opacity,
        fade=not options.no_fade,
        grid=options.grid,
        ring=options.ring,
        theme=options.theme,
        map=options.map.replace("-", " "),
        rollout_fusion=options.fusion,
        start_layer=options.start_layer,
        map_class=-1 if options.map_class is None else options.map_class,
        compare=options.compare or "",
        compare_weights=_compare_weights(options),
        stage=options.stage or "",
        x_measure=options.x,
        y_measure=options.y,
        kinds=options.kinds,
        likeness=options.likeness,
        likeness_of=options.between,
        likeness_heads="fused" if isinstance(options.head, str) else "shown",
    )


def _selection(options: Namespace, record: AttentionRecord) -> SelectionValue:
    fused = isinstance(options.head, str)
    head = HeadRef(_layer(options.layer, record), None if fused else options.head)
    count = record.layers[head.layer].heads
    if head.head is not None and head.head >= count:
        raise ExportError(f"There is no head {head.head} in layer {head.layer}; it has {count}, from 0 on.")
    query = _query(options.query, record)
    return replace(
        SelectionValue(),
        pins=() if query is None else (query,),
        head=head,
        fusion=options.head if fused else "mean",
        direction=options.direction,
    )


def _layer(asked: int | None, record: AttentionRecord) -> int:
    """Return the asked layer, by default the last in which patches attend to patches."""
    if asked is None:
        own = [layer.index for layer in record.layers if layer.kind == "self"]
        return own[-1] if own else len(record.layers) - 1
    if asked >= len(record.layers):
        raise ExportError(f"There is no layer {asked}; the model has {len(record.layers)}, from 0 on.")
    return asked


def _query(asked: Query | None, record: AttentionRecord) -> Query | None:
    """Return the asked query, by default the patch in the middle; None for "none", and without patches."""
    if asked == "none":
        return None
    if asked is None:
        return (record.grid[0] // 2, record.grid[1] // 2) if record.layout.placed else None
    try:
        record.require(asked)
    except LookupError as error:
        raise ExportError(str(error)) from error
    return asked
