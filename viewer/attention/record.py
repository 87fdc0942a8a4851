"""What one forward pass of one image left behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from viewer.attention.scores import storage_bytes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from viewer.attention.layer import AttentionLayer
    from viewer.attention.layout import Query, TokenLayout


@dataclass(frozen=True)
class Prediction:
    """The model's best classes, best first.

    Attributes
    ----------
    labels
        Class names, or "class 207" where the model has no names.
    probabilities
        Softmax of the output over all classes, 0 to 1, one for each label.
    """

    labels: tuple[str, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class Provenance:
    """Where a record comes from.

    Attributes
    ----------
    model
        Name or path as it was asked for.
    model_sha256
        SHA-256 of the model or checkpoint file; empty for weights that have no file of their own.
    weights
        Path of the checkpoint joined with a named architecture; empty where there is none.
    backend, device
        "torch" or "onnx", and where it ran ("cpu", "cuda:0", ...).
    image
        Path or name of the picture; empty for an array.
    image_sha256
        SHA-256 of the picture's bytes; empty for an array.
    preprocessing
        One readable line: size, crop, mean, std, interpolation.
    """

    model: str
    model_sha256: str = ""
    weights: str = ""
    backend: str = ""
    device: str = ""
    image: str = ""
    image_sha256: str = ""
    preprocessing: str = ""


@dataclass(frozen=True, eq=False)
class AttentionRecord:
    """All attention of one forward pass of one image.

    Attributes
    ----------
    layers
        In forward order.
    input_size
        Height and width of the model's input in pixels.
    provenance
        Model, image, versions.
    seen
        uint8 (H, W, 3), the picture exactly as the model saw it (after crop and resize); None when a
        preprocessed tensor was given.
    box
        (left, top, right, bottom) of `seen` in pixels of the original picture, which may reach outside it;
        None when a preprocessed tensor was given.
    output
        float32, the model's own output for this image.
    prediction
        The best classes, for a classifier.
    notes
        Sentences a person should read: assumptions made, fallbacks taken.
    output_unchanged
        Whether the tapped model's output equals the untapped one's; None if it was not compared.
    features
        float32 (width,), the final features: what the classifier, or another last projection, sees; the mean
        over tokens where it sees several. None where the model ends with no projection, so that `output`
        holds the final features itself.
    what_if
        The changes that were made to the model while it ran (`viewer.backends.what_if.Change.text`); empty
        for the model as it is.
    """

    layers: tuple[AttentionLayer, ...]
    input_size: tuple[int, int]
    provenance: Provenance
    seen: npt.NDArray[np.uint8] | None = None
    box: tuple[float, float, float, float] | None = None
    output: npt.NDArray[np.float32] | None = None
    prediction: Prediction | None = None
    notes: tuple[str, ...] = field(default=())
    output_unchanged: bool | None = None
    features: npt.NDArray[np.float32] | None = None
    what_if: tuple[str, ...] = ()

    def __repr__(self) -> str:
        (height, width), (rows, columns) = self.input_size, self.grid
        prefix = "1 prefix token" if self.prefix_tokens == 1 else f"{self.prefix_tokens} prefix tokens"
        return (
            f"<AttentionRecord: {self.provenance.image or 'an array'} in {self.provenance.model}, "
            f"{len(self.layers)} layers, input {height} x {width} px, {rows} rows x {columns} columns, "
            f"{prefix}, {'verified' if self.verified else 'not verified'}>"
        )

    @cached_property
    def layout(self) -> TokenLayout:
        """The finest token layout of any layer in which patches attend to patches.

        Its grid is the record's: the queries of all layers are named by it.
        """
        layers = [layer for layer in self.layers if layer.kind == "self"] or self.layers
        layouts = [layout for layer in layers for layout in (layer.key_layout, layer.query_layout)]
        return max(layouts, key=lambda layout: len(layout.patch_tokens))

    @cached_property
    def prefix_names(self) -> tuple[str, ...]:
        """Names of the prefix tokens of any layer in which patches attend to patches, padding left out."""
        layers = [layer for layer in self.layers if layer.key_layout.placed]
        names = [name for layer in layers for name in layer.key_layout.prefix_names]
        return tuple(dict.fromkeys(name for name in names if name != "padding"))

    @cached_property
    def one_grid(self) -> bool:
        """Whether the patches of every layer are those of the record's grid, on either side."""
        return all(
            layout.same_patches(self.layout)
            for layer in self.layers
            for layout in (layer.query_layout, layer.key_layout)
            if layout.placed
        )

    def require(self, query: Query) -> None:
        """Check that there is such a patch on the record's grid, prefix token or token.

        Raises
        ------
        LookupError
            If there is not; the message lists what there is.
        """
        if not (isinstance(query, str) and query in self.prefix_names):
            self.layout.token(query)

    def token_in(self, layout: TokenLayout, query: Query) -> int | None:
        """Return the token of a layer that stands for a query of the record, None where it has none.

        Parameters
        ----------
        layout
            Of the layer's queries or keys.
        query
            A patch of the record's grid, a prefix token, or a token index, which is taken as it is.
        """
        if isinstance(query, str):
            return layout.token(query) if query in layout.prefix_names else None
        if not isinstance(query, tuple):
            return int(query) if 0 <= query < layout.tokens else None
        if not layout.placed:
            return None
        return layout.token(layout.patch_at(*self.layout.centre(query)))

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the patch grid; of the finest, where layers differ (see `layout`)."""
        return self.layout.grid

    @property
    def patch_px(self) -> tuple[float, float]:
        """Height and width of a patch in input pixels."""
        return self.layout.patch_px

    @property
    def prefix_tokens(self) -> int:
        """Number of prefix tokens (class, distillation, registers)."""
        return len(self.prefix_names)

    @property
    def verified(self) -> bool:
        """Whether every layer is verified and the tap left the model's output as it was."""
        return self.output_unchanged is not False and all(layer.verdict.verified for layer in self.layers)

    @property
    def nbytes(self) -> int:
        """Memory that queries, keys, biases and weights keep alive, in bytes; shared memory counts once."""
        return storage_bytes(tensor for layer in self.layers for tensor in layer.scores.tensors)
