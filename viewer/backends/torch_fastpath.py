"""PyTorch's fused transformer layers (the "fast path"), kept out of the way or taken apart.

`nn.TransformerEncoderLayer` and `nn.MultiheadAttention` in evaluation mode may run as one operation each,
with no softmax or fused attention to be seen inside. Where their Python code runs, `fast_path_off` makes it
take the plain way. Scripted and exported programs may have the fast path written down in them; there, the
operations are computed by `UNPACKED` from plain ones, none of them made of others (those would not be taken
apart any more where these arrive).

The order of steps is that of the eager `nn.TransformerEncoderLayer.forward` and of
`torch.nn.functional.multi_head_attention_forward`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

# Kinds of mask as the operations number them.
_SOURCE_MASK, _PADDING_MASK = 0, 1


def _encoder_layer(given: dict[str, Any]) -> Tensor:
    """Compute ``_transformer_encoder_layer_fwd``."""
    source, width = given["src"], [given["embed_dim"]]
    norms = [
        lambda value, weight=given[f"norm_weight_{which}"], bias=given[f"norm_bias_{which}"]: (
            functional.layer_norm(value, width, weight, bias, given["eps"])
        )
        for which in (1, 2)
    ]
    if given["norm_first"]:
        attended = source + _attention(norms[0](source), given)
        return attended + _feed_forward(norms[1](attended), given)
    attended = norms[0](source + _attention(source, given))
    return norms[1](attended + _feed_forward(attended, given))


def _attention(source: Tensor, given: dict[str, Any]) -> Tensor:
    return _attend(source, source, source, {**given, "num_head": given["num_heads"]})


def _feed_forward(value: Tensor, given: dict[str, Any]) -> Tensor:
    hidden = functional.linear(value, given["ffn_weight_1"], given["ffn_bias_1"])
    hidden = functional.gelu(hidden) if given["use_gelu"] else functional.relu(hidden)
    return functional.linear(hidden, given["ffn_weight_2"], given["ffn_bias_2"])


def _multi_head_attention(given: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Compute ``_native_multi_head_attention``: the output, and the weights where they were asked for."""
    query, key, value = given["query"], given["key"], given["value"]
    if not given["need_weights"]:
        return _attend(query, key, value, given), query.new_empty(0)
    queries, keys, values = (
        tokens.reshape(-1, *tokens.shape[2:]) for tokens in _heads(query, key, value, given)
    )
    logits = torch.bmm(queries, keys.transpose(1, 2)) * queries.shape[-1] ** -0.5
    shown = _mask(given)
    if shown is not None:
        split = logits.view(len(query), -1, *logits.shape[1:])
        logits = split.masked_fill(~shown, -torch.inf).view(logits.shape)
    weights = torch._softmax(logits, -1, False)
    output = _joined(torch.bmm(weights, values).view(len(query), -1, *queries.shape[1:]), given)
    weights = weights.view(len(query), -1, *weights.shape[1:])
    return output, weights.mean(1) if given["average_attn_weights"] else weights


def _attend(query: Tensor, key: Tensor, value: Tensor, given: dict[str, Any]) -> Tensor:
    queries, keys, values = _heads(query, key, value, given)
    return _joined(functional.scaled_dot_product_attention(queries, keys, values, _mask(given)), given)


def _joined(output: Tensor, given: dict[str, Any]) -> Tensor:
    """Project (batch, heads, tokens, width / heads) to (batch, tokens, width)."""
    joined = output.transpose(1, 2).reshape(len(output), output.shape[2], -1)
    return functional.linear(joined, given["proj_weight"], given["proj_bias"])


def _heads(query: Tensor, key: Tensor, value: Tensor, given: dict[str, Any]) -> list[Tensor]:
    """Project (batch, tokens, width) to queries, keys and values, (batch, heads, tokens, width / heads)."""
    width, heads = given["embed_dim"], given["num_head"]
    projected = [
        functional.linear(tokens, weight, bias)
        for tokens, weight, bias in zip(
            (query, key, value), given["qkv_weight"].split(width), given["qkv_bias"].split(width), strict=True
        )
    ]
    return [tokens.view(*tokens.shape[:2], heads, width // heads).transpose(1, 2) for tokens in projected]


def _mask(given: dict[str, Any]) -> Tensor | None:
    """Return which keys each query may look at, broadcastable to (batch, heads, queries, keys)."""
    mask = given["mask"]
    if mask is None:
        return None
    hidden = mask if mask.dtype == torch.bool else mask != 0
    if given["mask_type"] == _PADDING_MASK:
        hidden = hidden[:, None, None, :]
    elif given["mask_type"] == _SOURCE_MASK and hidden.ndim == 3:
        hidden = hidden[:, None]
    return ~hidden


UNPACKED: dict[str, Callable[[dict[str, Any]], object]] = {
    "_transformer_encoder_layer_fwd": _encoder_layer,
    "_native_multi_head_attention": _multi_head_attention,
}
"""By operation: computes the same from plain operations, given the arguments by name."""

_lock = threading.Lock()
_users: list[bool] = []  # what the switch said when each came


@contextlib.contextmanager
def fast_path_off() -> Iterator[None]:
    """Keep the fast path off within.

    The switch is the process's, so the last of several threads restores it.
    """
    with _lock:
        _users.append(torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        with _lock:
            # The first to come saw what the switch said before.
            was = _users[0]
            _users.pop()
            if not _users:
                torch.backends.mha.set_fastpath_enabled(was)
