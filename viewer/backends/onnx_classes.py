"""Class names for the output of an ONNX classifier."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx

from viewer.attention.record import Prediction
from viewer.backends.onnx_graph import Graph, module_name, walk_back

_BEST = 5
_IMAGENET = {1000: "imagenet-1k", 21841: "imagenet-22k", 21843: "imagenet-21k-goog", 11821: "imagenet-12k"}
_CLASSIFIER = re.compile(
    r"(^|[./_])(heads?|head_dist|classifier|fc|logits|probs?|probabilities|classes)($|[./_])", re.I
)
_LINEAR = frozenset({"Gemm", "MatMul"})
_AFTER_HEAD = frozenset({"Softmax", "Add", "Div", "Mul", "Identity", "Cast", "Reshape", "Flatten", "Sigmoid"})
# The projections that end CLIP's towers are called heads as well; their widths are multiples of this.
_PROJECTION_STEP = 64


def class_labels(graph: Graph, proto: onnx.ModelProto) -> Sequence[str]:
    """Return the names of a classifier's classes; nothing for a model that is no classifier.

    Names the file holds come first, then ImageNet's by number of classes, then "class 0", "class 1", ...
    """
    count = _class_count(graph, proto)
    if count is None:
        return ()
    told = _told({entry.key: entry.value for entry in proto.metadata_props})
    if len(told) == count:
        return told
    if count in _IMAGENET:
        from timm.data import ImageNetInfo

        info = ImageNetInfo(_IMAGENET[count])
        return [info.index_to_description(index) for index in range(count)]
    if count % _PROJECTION_STEP == 0:
        return ()
    return [f"class {index}" for index in range(count)]


def predict(output: npt.NDArray[np.float32] | None, labels: Sequence[str]) -> Prediction | None:
    """Return the best classes of one picture's output, float32 (classes,); None without classes."""
    if output is None or not labels or output.shape != (len(labels),):
        return None
    if output.min() >= 0 and abs(float(output.sum()) - 1) < 1e-3:
        shares = output.astype(np.float64)  # the model ends in a softmax of its own
    else:
        shares = np.exp(output.astype(np.float64) - output.max())
        shares /= shares.sum()
    best = np.argsort(-shares, kind="stable")[:_BEST]
    return Prediction(tuple(labels[index] for index in best), tuple(float(shares[index]) for index in best))


def _class_count(graph: Graph, proto: onnx.ModelProto) -> int | None:
    """Return the number of classes if the first output is logits from a classifier's last layer."""
    output = proto.graph.output[0]
    for node in walk_back(graph, output.name, _AFTER_HEAD):
        if node.op_type not in _LINEAR:
            continue
        named = [module_name(node), output.name, *node.input[1:]]
        weight = graph.initializers.get(node.input[1])
        if weight is None or not any(_CLASSIFIER.search(name) for name in named):
            return None
        dims = output.type.tensor_type.shape.dim
        return dims[1].dim_value or None if len(dims) == 2 else None
    return None


def _told(metadata: Mapping[str, str]) -> list[str]:
    """Read class names from a file's metadata: a list, or a dictionary from index to name."""
    for key in ("names", "classes", "labels", "class_names", "id2label"):
        try:
            value = ast.literal_eval(metadata.get(key, ""))
        except (ValueError, SyntaxError):
            continue
        if isinstance(value, dict):
            value = [value[index] for index in sorted(value, key=lambda index: int(index))]
        if isinstance(value, (list, tuple)):
            return [str(name) for name in value]
    return []
