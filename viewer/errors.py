"""The errors a person can meet.

Each carries facts (path, what was found, what could be done) and says them as one readable text; whoever
catches one may show ``str(error)`` as it is. Anything else that is raised is a bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Sequence


class PatchreachError(Exception):
    """Base of every error meant for a person."""


class Cancelled(PatchreachError):
    """The person cancelled the work; nothing is wrong."""

    def __init__(self) -> None:
        super().__init__("cancelled")


class FileError(PatchreachError):
    """A file can't be used.

    Parameters
    ----------
    path
        The file as the person named it.
    problem
        What is wrong, as a clause: "is empty", "holds a WebP picture cut off after 3 of 9 kB".
    advice
        What to do about it, as a sentence; may be empty.
    """

    def __init__(self, path: object, problem: str, advice: str = "") -> None:
        self.path = str(path)
        self.problem = problem
        self.advice = advice
        super().__init__(f"{self.path} {problem}.{' ' + advice if advice else ''}")


class StudyError(FileError):
    """A study can't be begun, gone on with or read, and what helps is done otherwise in the window.

    Parameters
    ----------
    path, problem, advice
        As in `FileError`, for the command line.
    in_window
        The advice for somebody who sits before the window.
    """

    def __init__(self, path: object, problem: str, advice: str, in_window: str) -> None:
        super().__init__(path, problem, advice)
        self.in_window = f"{self.path} {problem}. {in_window}"


class ImageError(FileError):
    """A picture can't be decoded."""


class ModelFileError(FileError):
    """A model file can't be opened."""


class CheckpointError(ModelFileError):
    """A checkpoint does not fit the architecture it was joined with.

    Parameters
    ----------
    path, problem, advice
        As in `FileError`.
    missing, unexpected
        Parameter names that the architecture lacks in the file, and those the file has too many.
    """

    def __init__(
        self,
        path: object,
        problem: str,
        advice: str = "",
        missing: Sequence[str] = (),
        unexpected: Sequence[str] = (),
    ) -> None:
        self.missing = tuple(missing)
        self.unexpected = tuple(unexpected)
        super().__init__(path, problem, advice)


class UnnamedWeightsError(ModelFileError):
    """Weights do not say what architecture they belong to, and more than one or none fits.

    Parameters
    ----------
    path, problem, advice
        As in `FileError`.
    candidates
        Names of architectures that they fit, the best first.
    """

    def __init__(self, path: object, problem: str, advice: str = "", candidates: Sequence[str] = ()) -> None:
        self.candidates = tuple(candidates)
        super().__init__(path, problem, advice)


class UnknownModelError(PatchreachError):
    """No model has this name; `candidates` come near."""

    def __init__(self, name: str, candidates: Sequence[str] = ()) -> None:
        self.name = name
        self.candidates = tuple(candidates)
        hint = f" Did you mean {', '.join(self.candidates)}?" if candidates else ""
        super().__init__(f"No model is called {name!r}, and no such file exists.{hint}")


class NoAttentionError(PatchreachError):
    """A model has no softmax attention that could be shown.

    Parameters
    ----------
    model
        Name or path of the model.
    census
        Operator name to count, what the model holds instead; empty where it was not even run.
    convolutional
        Whether it is known to be a convolutional network.
    instead
        Sentences on what it does that may look like attention: softmaxes of other kinds, linear attention.
    """

    def __init__(
        self, model: str, census: dict[str, int], convolutional: bool = False, instead: Sequence[str] = ()
    ) -> None:
        self.model = model
        self.census = dict(census)
        kinds = _kinds(census)
        listing = ", ".join(f"{count} {name if count == 1 else names}" for (name, names), count in kinds)
        counted = {names: count for (_, names), count in kinds}
        convolutions = counted.get("convolutions", 0)
        if convolutional or convolutions > max(1, counted.get("matrix products", 0)):
            text = f"It is a convolutional network{': ' if listing else ''}{listing}."
        else:
            others = ", ".join(f"{count} {name}" for name, count in list(census.items())[:8])
            text = f"It holds {listing or others or 'no operators'}."
        sentences = [f"{model} has no attention that Patchreach can find.", text, *instead]
        super().__init__(" ".join(sentences))


_KINDS = {
    ("convolution", "convolutions"): (
        *("convolution", "_convolution", "Conv", "ConvTranspose", "QLinearConv", "ConvInteger"),
    ),
    ("matrix product", "matrix products"): (
        "mm",
        "addmm",
        "bmm",
        "baddbmm",
        "MatMul",
        "Gemm",
        "QLinearMatMul",
    ),
    ("normalization", "normalizations"): (
        *("native_batch_norm", "native_layer_norm", "native_group_norm", "cudnn_batch_norm"),
        *("BatchNormalization", "LayerNormalization", "GroupNormalization", "InstanceNormalization"),
    ),
    ("pooling", "poolings"): (
        *("max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d", "adaptive_max_pool2d"),
        *("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"),
    ),
    ("softmax", "softmaxes"): ("_softmax", "_safe_softmax", "Softmax"),
}
"""What operators are called in singular and plural; those of no kind (views, sums, copies) tell little."""


def _kinds(census: dict[str, int]) -> list[tuple[tuple[str, str], int]]:
    """Return how many operators of each kind there are, most first."""
    found = [(words, sum(census.get(name, 0) for name in names)) for words, names in _KINDS.items()]
    return sorted((item for item in found if item[1]), key=lambda item: -item[1])


class LayoutError(PatchreachError):
    """Where a model's tokens sit could not be found, so spatial views are refused rather than guessed."""

    def __init__(self, model: str, reason: str) -> None:
        self.model = model
        self.reason = reason
        super().__init__(f"Where the tokens of {model} sit on the picture could not be found: {reason}.")


class MapError(PatchreachError):
    """A map over the picture can't be had of this model.

    Parameters
    ----------
    kind
        Of map, as it is chosen: "rollout".
    reason
        Why, as a clause.
    """

    def __init__(self, kind: str, reason: str) -> None:
        self.kind = kind
        self.reason = reason
        super().__init__(f"The {kind} map can't be had: {reason}.")


class InputError(PatchreachError):
    """A model can't take this input (size, shape, type); the text says what it takes."""


class OfflineError(PatchreachError):
    """Something had to be downloaded and could not be; the text names the ways out.

    Parameters
    ----------
    problem
        A sentence.
    ways_out
        What can be done instead, where whoever catches it knows other ways.
    """

    def __init__(self, problem: str, ways_out: str = "") -> None:
        self.problem = problem
        super().__init__(f"{problem} {ways_out}".rstrip())


class DeviceError(PatchreachError):
    """A device was asked for that is not there; the text lists those that are."""


class ExportError(PatchreachError):
    """A figure or table can't be made or written; the text says why."""


def quoted(text: str) -> str:
    """Quote what a person typed, not all of it if it is endless."""
    return repr(text if len(text) <= 40 else f"{text[:40]}…")
