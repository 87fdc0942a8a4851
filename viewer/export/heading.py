"""What stands above and below a figure: what it shows, of what, and what of it is not verified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from viewer.backends.what_if import note, parse
from viewer.export.plain import plain
from viewer.export.typesetting import shorten, text_width, wrap
from viewer.state import effective_map, network_map
from viewer.state.averaged import Averaged
from viewer.state.words import PROTOCOLS, head_words, model_words, query_words, size_words, titled

if TYPE_CHECKING:
    from viewer.attention.record import AttentionRecord
    from viewer.export.sheet import Sheet, Style
    from viewer.state.requests import View
    from viewer.state.scene import SceneValue

BIG = 1.15
"""Size of a title, of ordinary type."""
_LEAD = 1.4  # from line to line, in ems


def title(scene: SceneValue, view: View) -> str:
    """Return what the figure shows."""
    if view == "scatter":
        return "" if scene.scatter is None else scene.scatter.title
    if view == "likeness":
        return "" if scene.likeness is None else scene.likeness.title
    if view == "heads":
        return "" if scene.heads is None else scene.heads.title
    if scene.overlay is None:
        return ""
    if scene.overlay.values is None and not scene.overlay.blank:
        # The window's title says what to do next, which is no title for a figure.
        return titled(_record(scene), scene.overlay.subject)
    return scene.overlay.title


def facts(scene: SceneValue, view: View) -> list[str]:
    """Return model or network, picture, head, query and protocol, each as a few words."""
    record = _record(scene)
    provenance = record.provenance
    model = plain(model_words(provenance.model, provenance.weights))
    found = [model, plain(scene.document.image.name)]
    if view == "overlay":
        found = _of_map(scene, *found)
    if view == "likeness":
        found[-1] += f" at {size_words(record.input_size)}"
    if view in ("heads", "scatter"):
        found[-1] += f" at {size_words(record.input_size)}"
        words = head_words(record, scene.selection.shown, scene.selection.fusion)
        found.append(f"shown: {words[0].lower()}{words[1:]}")
    if view == "scatter" and scene.selection.query is not None:
        grid = None if record.one_grid else record.grid
        found.append(f"query: {query_words(scene.selection.query, brief=True, grid=grid)}")
    dots = scene.scatter if view == "scatter" else None
    # The others show no distance.
    if view == "all" or (dots is not None and (dots.x_axis.by_protocol or dots.y_axis.by_protocol)):
        found.append(f"distances: {PROTOCOLS[scene.display.protocol]}")
    return found


def _of_map(scene: SceneValue, model: str, picture: str) -> list[str]:
    """Return of what the map over the picture is: maybe of a network, and over more pictures than one."""
    display, document = scene.display, scene.document
    wanted = (
        display.map == "effective field" and scene.overlay is not None and scene.overlay.values is not None
    )
    fields = document.maps.get(effective_map.key(document.record, display)) if wanted else None
    if not isinstance(fields, Averaged):
        return [model, picture]
    if network_map.is_chosen(display):
        model = plain(network_map.network_words(display))
    if fields.images > 1:
        picture = f"mean of {fields.images} pictures, shown: {picture}"
    return [model, picture]


def warning(scene: SceneValue, view: View) -> str:
    """Return what was changed in the model, and which of the shown layers are not verified and why.

    Empty if the model is as it was opened, and all are verified.
    """
    record = _record(scene)
    changed = note(map(parse, record.what_if)) if record.what_if else ""
    layers = record.layers
    if view == "overlay" and scene.overlay is not None:
        layers = [record.layers[index] for index in scene.overlay.layers]
    doubted = [layer for layer in layers if not layer.verdict.verified]
    said = [
        f"layer {layer.index} ({plain(layer.verdict.reason) or 'no reason given'})" for layer in doubted[:3]
    ]
    if len(doubted) > 3:
        said.append(f"{len(doubted) - 3} more layers")
    if record.output_unchanged is False:
        said.append("the model's output changed while it was watched")
    doubts = f"Not verified: {', '.join(said)}." if said else ""
    return " ".join(filter(None, (changed, doubts)))


def _record(scene: SceneValue) -> AttentionRecord:
    return scene.document.record


@dataclass(frozen=True)
class Heading:
    """Title and facts, broken into lines that fit.

    Attributes
    ----------
    title
        Lines of the title.
    facts
        Lines below it.
    style
        Colours and type.
    """

    title: tuple[str, ...]
    facts: tuple[str, ...]
    style: Style

    @classmethod
    def fit(cls, scene: SceneValue, view: View, width: float, style: Style) -> Heading:
        """Break title and facts into lines of a width in pixels."""
        words = wrap(plain(title(scene, view)), width, BIG * style.points, bold=True)
        lines: list[str] = []
        for fact in facts(scene, view):
            longer = f"{lines[-1]}  ·  {fact}" if lines else fact
            if lines and text_width(longer, style.small) <= width:
                lines[-1] = longer
            else:
                lines.append(shorten(fact, width, style.small))
        return cls(tuple(words), tuple(lines), style)

    @property
    def height(self) -> int:
        """Height in pixels, with the gap below."""
        em = self.style.em
        return round(em * (_LEAD * BIG * len(self.title) + _LEAD * 0.9 * len(self.facts) + 0.8))

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        """Draw it with its upper left corner there."""
        em, y = self.style.em, top
        for line in self.title:
            sheet.text(left, y, line, BIG * self.style.points, bold=True)
            y += _LEAD * BIG * em
        for line in self.facts:
            sheet.text(left, y, line, self.style.small, self.style.palette.faint)
            y += _LEAD * 0.9 * em
