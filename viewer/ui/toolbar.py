"""The controls above the views: which head, which direction, and how it is painted."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject, QSignalBlocker, QSize, Qt
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QHBoxLayout,
    QLabel,
    QSizePolicy,
    QSlider,
    QStyleOptionSlider,
    QToolBar,
    QWidget,
)

from viewer.state.selection import HeadRef
from viewer.ui.choices import DISPLAY_CHOICES, MOST_RINGS, SELECTION_CHOICES, Choice, choose, chosen

if TYPE_CHECKING:
    from viewer.state.display import Display, DisplayValue
    from viewer.state.documents import Documents, ImageDocument
    from viewer.state.selection import Selection, SelectionValue

_ARROWS = (Qt.Key.Key_Left, Qt.Key.Key_Right, Qt.Key.Key_Up, Qt.Key.Key_Down)
_FUSIONS = ("mean", "max", "min")
# Labels of controls that speak for themselves, in the order in which they may go.
_SPARE = ("Show", "Colours", "Scale", "Opacity", "Convolutions")
_SPACING = 4
_SLIDER = 42  # width in pixels


class KeepsArrows(QObject):
    """Lets a control use the arrow keys while it has the focus; elsewhere they move the query."""

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Claim arrow keys before they become shortcuts."""
        if event.type() == QEvent.Type.ShortcutOverride and isinstance(event, QKeyEvent):
            plain = event.modifiers() in (Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.KeypadModifier)
            if plain and event.key() in _ARROWS:
                event.accept()
                return True
        return False


class ControlBar(QToolBar):
    """Leaves out labels where room is short, before any control has to go into the bar's menu."""

    def __init__(self) -> None:
        super().__init__("Controls")
        self._labels: dict[str, QLabel] = {}
        self._without: list[QLabel] = []

    def add(self, label: str, control: QWidget, tip: str = "") -> None:
        """Put a control at the end, with a label before it unless that is empty."""
        if tip:
            control.setToolTip(tip)
            control.setAccessibleName(label or tip)
        # Label and control in one piece: where even so room is short, both go into the menu together.
        piece = QWidget()
        piece.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Preferred)
        row = QHBoxLayout(piece)
        row.setContentsMargins(0, 0, _SPACING, 0)
        row.setSpacing(_SPACING)
        if label:
            words = self._labels[label] = QLabel(label)
            words.setProperty("kind", "faint")
            words.setBuddy(control)
            row.addWidget(words)
        row.addWidget(control)
        self.addWidget(piece)

    def event(self, event: QEvent) -> bool:
        """Choose the labels anew for another width, or another size of type."""
        done = super().event(event)
        if event.type() in (QEvent.Type.Resize, QEvent.Type.LayoutRequest):
            self._fit()
        return done

    def _fit(self) -> None:
        room = {label: label.sizeHint().width() + _SPACING for label in self._labels.values()}
        needed = self.sizeHint().width() + sum(room[label] for label in self._without)
        without = []
        for name in _SPARE:
            if needed > self.width():
                without.append(self._labels[name])
                needed -= room[self._labels[name]]
        if without != self._without:
            self._without = without
            for name in _SPARE:
                self._labels[name].setVisible(self._labels[name] not in without)


class HeadControls(QObject):
    """Layer and head, as two lists."""

    def __init__(self, bar: ControlBar, documents: Documents, selection: Selection) -> None:
        super().__init__(bar)
        self._documents, self._selection = documents, selection
        self._layers: tuple[int, ...] = ()
        self.layer = _combo(bar, "Layer", "Layer, numbered from 0 in forward order. Keys [ and ]", 2)
        self.head = _combo(bar, "Head", "One head, or all heads of the layer as one map. Keys , and .", 9)
        self.layer.activated.connect(self._choose_layer)
        self.head.activated.connect(self._choose_head)
        documents.current_changed.connect(self._tell_document)
        selection.changed.connect(self._tell)
        self._tell_document(documents.current)

    def _tell_document(self, document: ImageDocument | None) -> None:
        record = document.record if document else None
        layers = tuple(layer.heads for layer in record.layers) if record else ()
        if layers != self._layers:
            self._layers = layers
            _fill(self.layer, [str(index) for index in range(len(layers))])
        self.layer.setEnabled(bool(layers))
        self.head.setEnabled(bool(layers))
        self._tell(self._selection.value)

    def _tell(self, value: SelectionValue) -> None:
        if value.head.layer >= len(self._layers):
            return
        heads = self._layers[value.head.layer]
        if self.head.count() != len(_FUSIONS) + heads:
            _fill(self.head, [f"{name} of all {heads}" for name in _FUSIONS] + [str(i) for i in range(heads)])
        with QSignalBlocker(self.layer), QSignalBlocker(self.head):
            self.layer.setCurrentIndex(value.head.layer)
            head = value.head.head
            self.head.setCurrentIndex(_FUSIONS.index(value.fusion) if head is None else len(_FUSIONS) + head)

    def _choose_layer(self, layer: int) -> None:
        head = self._selection.value.head.head
        self._selection.select_head(
            HeadRef(layer, None if head is None else min(head, self._layers[layer] - 1))
        )

    def _choose_head(self, place: int) -> None:
        layer = self._selection.value.head.layer
        if place < len(_FUSIONS):
            self._selection.set_fusion(_FUSIONS[place])
            self._selection.select_head(HeadRef(layer, None))
        else:
            self._selection.select_head(HeadRef(layer, place - len(_FUSIONS)))


class ChoiceBox(QComboBox):
    """A choice as a list."""

    def __init__(self, choice: Choice, holder: Selection | Display) -> None:
        super().__init__()
        self._choice, self._holder = choice, holder
        for value, words in choice.options:
            self.addItem(words, value)
        self.setToolTip(f"{choice.label}. {choice.tip}")
        self.setAccessibleName(choice.label)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.activated.connect(self._choose)
        holder.changed.connect(self._tell)
        self._tell(holder.value)

    def _choose(self, place: int) -> None:
        choose(self._holder, self._choice, self.itemData(place))

    def _tell(self, _: object) -> None:
        with QSignalBlocker(self):
            self.setCurrentIndex(max(self.findData(chosen(self._holder, self._choice)), 0))


class CountSlider(QSlider):
    """A slider for a small number, which stands behind it."""

    def __init__(self, most: int) -> None:
        super().__init__(Qt.Orientation.Horizontal)
        self.setRange(0, most)
        self.setPageStep(1)
        self.valueChanged.connect(self.update)

    @property
    def _room(self) -> int:
        """Pixels that the largest number takes."""
        return self.fontMetrics().horizontalAdvance(str(self.maximum())) + _SPACING

    def sizeHint(self) -> QSize:
        """Return the size of slider and number."""
        return QSize(_SLIDER + self._room, max(super().sizeHint().height(), self.fontMetrics().height()))

    def minimumSizeHint(self) -> QSize:
        """Return the same: it gives nothing away."""
        return self.sizeHint()

    def initStyleOption(self, option: QStyleOptionSlider) -> None:
        """Leave room for the number, for painting and for the mouse alike."""
        super().initStyleOption(option)
        option.rect = option.rect.adjusted(0, 0, -self._room, 0)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint slider and number."""
        super().paintEvent(event)
        painter = QPainter(self)
        painter.setPen(self.palette().windowText().color())
        way = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        painter.drawText(self.rect(), way, str(self.value()))


class OverlayControls(QObject):
    """Opacity, fading, patch borders and the ring of convolutions."""

    def __init__(self, bar: ControlBar, display: Display) -> None:
        super().__init__(bar)
        self._display = display
        self.opacity = QSlider(Qt.Orientation.Horizontal)
        self.opacity.setRange(0, 100)
        self.opacity.setFixedWidth(70)
        self.fade = QCheckBox("Fade")
        self.grid = QCheckBox("Grid")
        self.ring = CountSlider(MOST_RINGS)
        self.ring.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        bar.add("Opacity", self.opacity, "Opacity of the overlay")
        bar.add("", self.fade, "Let the picture show through where attention is weak")
        bar.add("", self.grid, "Draw the borders of the patches")
        bar.add(
            "Convolutions",
            self.ring,
            "Outline what this many stacked 3x3 convolutions could reach from the query",
        )
        self.opacity.valueChanged.connect(lambda percent: self._set(opacity=percent / 100))
        self.fade.toggled.connect(lambda on: self._set(fade=on))
        self.grid.toggled.connect(lambda on: self._set(grid=on))
        self.ring.valueChanged.connect(lambda count: self._set(ring=count))
        display.changed.connect(self._tell)
        self._tell(display.value)

    def _set(self, **changes: object) -> None:
        self._display.set(replace(self._display.value, **changes))

    def _tell(self, value: DisplayValue) -> None:
        with ExitStack() as blocked:
            for control in (self.opacity, self.fade, self.grid, self.ring):
                blocked.enter_context(QSignalBlocker(control))
            self.opacity.setValue(round(value.opacity * 100))
            self.fade.setChecked(value.fade)
            self.grid.setChecked(value.grid)
            self.ring.setValue(value.ring)


def build_toolbar(documents: Documents, selection: Selection, display: Display) -> ControlBar:
    """Return the bar of controls, each following state and setting it."""
    bar = ControlBar()
    bar.setObjectName("controls")
    bar.setMovable(False)
    bar.toggleViewAction().setEnabled(False)
    bar.heads = HeadControls(bar, documents, selection)
    direction = next(choice for choice in SELECTION_CHOICES if choice.field == "direction")
    bar.add("Show", ChoiceBox(direction, selection))
    bar.addSeparator()
    bar.overlay = OverlayControls(bar, display)
    for field in ("colormap", "scale"):
        _add_choice(bar, field, display)
    keeps = KeepsArrows(bar)
    for control in bar.findChildren(QWidget):
        if isinstance(control, QComboBox | QSlider):
            control.setFocusPolicy(Qt.FocusPolicy.TabFocus)
            control.installEventFilter(keeps)
    return bar


def _add_choice(bar: ControlBar, field: str, display: Display) -> None:
    choice = next(choice for choice in DISPLAY_CHOICES if choice.field == field)
    bar.add(choice.label.removeprefix("Colour ").capitalize(), ChoiceBox(choice, display))


def _combo(bar: ControlBar, label: str, tip: str, letters: int) -> QComboBox:
    combo = QComboBox()
    combo.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
    combo.setMinimumContentsLength(letters)
    bar.add(label, combo, tip)
    return combo


def _fill(combo: QComboBox, words: list[str]) -> None:
    with QSignalBlocker(combo):
        combo.clear()
        combo.addItems(words)
