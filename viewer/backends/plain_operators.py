"""Which operators a program may use that came as a file: those that compute with tensors, and nothing else.

TorchScript and exported programs name the operators they run. Of PyTorch's own (``aten``), all that are
public compute with tensors, numbers, lists and texts, but for the few in `_HARMFUL`; of the private ones,
whose names begin with an underscore and which check their arguments less, only those are allowed that models
are made of. Operators of other libraries could do anything.
"""

from __future__ import annotations

import re

# These read or write files, speak to the person or to other computers, or change the process.
_HARMFUL = frozenset(
    [
        *("save", "from_file", "load", "manual_seed", "seed", "initial_seed", "set_grad_enabled"),
        *("to_here", "owner", "owner_name", "local_value", "confirmed_by_owner", "is_owner", "wait", "fork"),
        *("set_", "set_data", "resize_", "resize_as_", "record_stream", "rename", "rename_", "warn_once"),
    ]
)
_PRIVATE = frozenset(
    [
        *("_adaptive_avg_pool2d", "_assert_async", "_assert_scalar", "_assert_tensor_metadata"),
        *(
            "_convolution",
            "_convolution_mode",
            "_fused_rms_norm",
            "_log_softmax",
            "_pad_enum",
            "_pad_circular",
        ),
        *("_native_batch_norm_legit_no_training", "_native_batch_norm_legit_functional"),
        *("_native_multi_head_attention", "_reshape_alias", "_safe_softmax", "_shape_as_tensor", "_softmax"),
        *("_scaled_dot_product_attention_math", "_scaled_dot_product_flash_attention_for_cpu"),
        *("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"),
        *("_scaled_dot_product_cudnn_attention", "_set_item", "_size_if_not_equal", "_to_copy"),
        *("_transformer_encoder_layer_fwd", "_unsafe_view", "_unwrap_optional", "_upsample_bicubic2d_aa"),
        *("_upsample_bilinear2d_aa", "_weight_norm", "_weight_norm_interface"),
    ]
)
# What TorchScript needs to handle values; no calls to Python, processes, files or screens among them.
_LANGUAGE = frozenset(
    f"prim::{name}"
    for name in [
        "AwaitableNowait",
        "Constant",
        "ConstantChunk",
        "CreateObject",
        "DictConstruct",
        "EnumName",
        "EnumValue",
        "GetAttr",
        "If",
        "ListConstruct",
        "ListUnpack",
        "Loop",
        "NumToTensor",
        "RaiseException",
        "SetAttr",
        "StringIndex",
        "TupleConstruct",
        "TupleIndex",
        "TupleSlice",
        "TupleUnpack",
        "Uninitialized",
        "abs",
        "data",
        "device",
        "dtype",
        "is_cpu",
        "is_cuda",
        "is_meta",
        "is_mkldnn",
        "is_mps",
        "is_nested",
        "is_quantized",
        "is_sparse",
        "is_xla",
        "is_xpu",
        "isinstance",
        "itemsize",
        "layout",
        "max",
        "min",
        "nbytes",
        "rangelist",
        "requires_grad",
        "tolist",
        "type",
        "unchecked_cast",
        "unchecked_unwrap_optional",
    ]
)


def is_plain(operator: str) -> bool:
    """Return whether an operator may run.

    Parameters
    ----------
    operator
        With its namespace and without overload: ``"aten::linear"``, ``"prim::If"``.
    """
    if operator in _LANGUAGE:
        return True
    namespace, _, name = operator.partition("::")
    if namespace != "aten" or name in _HARMFUL:
        return False
    return name in _PRIVATE or re.fullmatch(r"__[a-z]\w*__|[A-Za-z]\w*", name) is not None
