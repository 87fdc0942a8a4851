"""Choices that mean something for one model only: where a rollout begins, and for which class."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from viewer.backends.model import Model
    from viewer.state.display import Display
    from viewer.state.documents import Documents, ImageDocument


class ModelChoices:
    """Lets another model begin with all of its layers and with its best class.

    The first layer of a rollout stays where the other model has as many layers, and the class where the
    other has classes of the same names: so two models can be compared.

    Made before whoever shows `DisplayValue`, or they would first show what is let go of.

    Parameters
    ----------
    documents, display
        What is open, and what holds the choices.
    """

    def __init__(self, documents: Documents, display: Display) -> None:
        self._documents, self._display = documents, display
        self._layers: int | None = None
        self._labels: Sequence[str] | None = None
        self._expected = False
        documents.model_changed.connect(self._take_model)
        documents.current_changed.connect(self._take_document)

    def expect(self) -> None:
        """Leave the choices to the next model: a figure that is opened again asks for both."""
        self._expected = True

    def _take_model(self, model: Model | None) -> None:
        if self._expected and model is not None:
            self._layers = self._labels = None
            self._expected = False

    def _take_document(self, document: ImageDocument | None) -> None:
        """Let go of what another model's record shows to be of the one before."""
        model = self._documents.model
        if document is None or document.record is None or model is None:
            return
        layers, labels = len(document.record.layers), list(model.labels)
        others = {}
        if self._layers not in (None, layers):
            others["start_layer"] = 0
        if self._labels not in (None, labels):
            others["map_class"] = -1
        self._layers, self._labels = layers, labels
        self._display.set(replace(self._display.value, **others))
