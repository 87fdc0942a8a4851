"""ONNX Runtime sessions over a graph with extra outputs, and runs that can be cancelled."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import onnx
import torch

from viewer.backends.model import Job
from viewer.backends.onnx_file import OnnxFile
from viewer.backends.onnx_found import weights_output
from viewer.backends.quiet_runtime import onnxruntime as ort
from viewer.errors import Cancelled, ModelFileError

ort_errors = ort.capi.onnxruntime_pybind11_state
RuntimeErrors = tuple(
    getattr(ort_errors, name)
    for name in (
        "EPFail", "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NoSuchFile",
        "NotImplemented", "RuntimeException", "EngineError", "NoModel", "ModelLoaded",
    )
    if hasattr(ort_errors, name)
)  # fmt: skip
"""What ONNX Runtime raises; its classes share no base but Exception."""

_POLL_SECONDS = 0.03


# Value of the Attention operator's qk_matmul_output_mode that hands out the softmax's result.
_AFTER_SOFTMAX = 3


@contextmanager
def _extended(
    proto: onnx.ModelProto, outputs: Sequence[str], nodes: Sequence[onnx.NodeProto]
) -> Iterator[onnx.ModelProto]:
    """Lend a graph extra nodes and outputs; copying it would double the memory of embedded weights."""
    graph = proto.graph
    before = len(graph.node), len(graph.output)
    present = {output.name for output in graph.output}
    original = [
        (node, _hand_out_weights(node, outputs)) for node in graph.node if node.op_type == "Attention"
    ]
    graph.node.extend(nodes)
    # An intermediate as output needs no type and no shape: ONNX Runtime infers both.
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs if name not in present)
    try:
        yield proto
    finally:
        del graph.node[before[0] :]
        del graph.output[before[1] :]
        for node, saved in original:
            node.CopyFrom(saved)


def _hand_out_weights(node: onnx.NodeProto, outputs: Sequence[str]) -> onnx.NodeProto:
    """Let an Attention operator hand out its weights if that output is asked for; return it as it was."""
    saved = onnx.NodeProto()
    saved.CopyFrom(node)
    name = weights_output(node)
    if name in outputs and name not in node.output:
        node.output.extend([""] * (3 - len(node.output)))
        del node.output[3:]
        node.output.append(name)
        kept = [entry for entry in node.attribute if entry.name != "qk_matmul_output_mode"]
        del node.attribute[:]
        node.attribute.extend([*kept, onnx.helper.make_attribute("qk_matmul_output_mode", _AFTER_SOFTMAX)])
    return saved


def open_session(
    file: OnnxFile,
    providers: Sequence[object] = ("CPUExecutionProvider",),
    outputs: Sequence[str] = (),
    nodes: Sequence[onnx.NodeProto] = (),
    optimized: bool = True,
) -> ort.InferenceSession:
    """Create a session with extra outputs; external weights are read by ONNX Runtime from where they lie.

    Parameters
    ----------
    file
        The model.
    providers
        ONNX Runtime execution providers.
    outputs
        Names of tensors that become outputs besides the model's own.
    nodes
        Nodes to add.
    optimized
        Whether ONNX Runtime may rewrite the graph.

    Raises
    ------
    ModelFileError
        If ONNX Runtime can't run the model.
    """
    options = ort.SessionOptions()
    options.log_severity_level = 4
    # As many as PyTorch takes here: several models side by side have a share of the processors each.
    options.intra_op_num_threads = torch.get_num_threads()
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    # Idle threads would spin on after a run, while checks, measures and the window need the processor.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    # Products of rounded floats stay what the file says: which of them become products of integers depends on
    # what is tapped, and rounds in other places.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(file.folder))
    file.check_unchanged()
    # From memory: the file may have been replaced since.
    with _extended(file.proto, outputs, nodes) as proto:
        model = proto.SerializeToString()
    try:
        return ort.InferenceSession(model, options, providers=list(providers))
    except RuntimeErrors as error:
        raise ModelFileError(
            file.path, f"can't be run by ONNX Runtime {ort.__version__}: {plain_reason(error)}"
        ) from error


# Rewriting takes longer than what only the shapes are wanted for; names a version lacks are ignored.
_REWRITES = (
    *("CommonSubexpressionElimination", "ConstantSharing", "Level1_RuleBasedTransformer", "ReshapeFusion"),
    *("MatMulAddFusion", "GeluFusionL1", "LayerNormFusionL1", "TransposeOptimizer", "PropagateCastOps"),
    *("EnsureUniqueDQForNodeUnit", "QDQPropagationTransformer", "DoubleQDQPairsRemover", "WhereDummyDq"),
    *("GemmTransposeFusion", "ConcatSliceElimination", "UnsqueezeElimination", "PreShapeNodeElimination"),
)


def bare_session(proto: onnx.ModelProto, file: OnnxFile) -> ort.InferenceSession:
    """Create a session on part of a model, which infers shapes and folds constants but rewrites nothing.

    Parameters
    ----------
    proto
        The part.
    file
        The model it is of, next to whose file its external tensors lie.

    Raises
    ------
    Exception
        One of `RuntimeErrors`, if ONNX Runtime does not take it.
    """
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # starting threads would take longer than what they could help with
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(file.folder))
    return ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"], disabled_optimizers=_REWRITES
    )


def run_session(
    session: ort.InferenceSession,
    feeds: Mapping[str, npt.NDArray[np.generic]],
    outputs: Sequence[str],
    job: Job,
    doing: str,
) -> dict[str, npt.NDArray[np.generic]]:
    """Run a session; the run ends early when the job is cancelled.

    Raises
    ------
    Cancelled
        If the job was cancelled.
    """
    job.step(doing)
    options = ort.RunOptions()
    done = threading.Event()
    box: list[object] = []

    def work() -> None:
        try:
            box.append(session.run(list(outputs), dict(feeds), options))
        except BaseException as error:
            box.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=work, name="onnxruntime run", daemon=True)
    thread.start()
    try:
        while not done.wait(_POLL_SECONDS):
            job.step(doing)
    except Cancelled:
        options.terminate = True
        raise
    finally:
        thread.join()
    if isinstance(box[0], BaseException):
        raise box[0]
    return dict(zip(outputs, box[0], strict=True))


def ran_out_of_memory(error: Exception) -> bool:
    """Whether ONNX Runtime failed for lack of memory."""
    text = str(error).lower()
    return any(word in text for word in ("allocate memory", "out of memory", "bad allocation", "bad_alloc"))


def plain_reason(error: Exception) -> str:
    """Return the readable part of an ONNX Runtime message, without its source files and failed conditions."""
    text = str(error).strip().splitlines()[0]
    for mark in (" : ", "Status Message: ", " was false. "):
        text = text.rpartition(mark)[2] or text
    return text.rstrip(".")[:300]
