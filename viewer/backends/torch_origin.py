"""What the logits of an unfused attention were made from, followed through the operations in between."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from viewer.backends.torch_ops import named_arguments, op_name

VIEWS = frozenset(
    {
        "_reshape_alias",
        "_to_copy",
        "_unsafe_view",
        "alias",
        "clone",
        "contiguous",
        "detach",
        "dropout",
        "expand",
        "native_dropout",
        "permute",
        "reshape",
        "squeeze",
        "transpose",
        "unsqueeze",
        "view",
    }
)
"""Operations that hand on the same numbers, perhaps under another shape."""


@dataclass(frozen=True, eq=False)
class Origin:
    """Logits as ``gain * (scale * queries @ keys + bias)``, step by step.

    Attributes
    ----------
    queries, keys
        (heads, N, d) and (heads, d, M): the operands of the product, as they were multiplied.
    scale
        Product of the plain factors.
    gains
        Factors that differ from head to head, each broadcast to (..., 1, 1).
    biases
        What was added, each broadcast to the shape that the logits had then.
    """

    queries: Tensor
    keys: Tensor
    scale: float = 1.0
    gains: tuple[Tensor, ...] = ()
    biases: tuple[Tensor, ...] = field(default=())

    def assembled(self, heads: int) -> tuple[Tensor, Tensor, float, Tensor | None]:
        """Return queries (heads, N, d), keys (heads, M, d), scale, and bias broadcastable to the logits.

        Raises
        ------
        ValueError
            If the shapes do not fit that number of heads.
        """
        queries, keys = self.queries, self.keys.mT
        if len(queries) != heads:
            raise ValueError(f"{len(queries)} products do not make {heads} heads")
        for gain in self.gains:
            queries = queries * _per_head(gain, heads)
        bias: Tensor | None = None
        for term in self.biases:
            # Terms repeat over heads or windows, and become as large as the logits only when they are added.
            bias = term if bias is None else bias + term.reshape(bias.shape)
        if bias is not None:
            bias = _narrow(bias.reshape(heads, queries.shape[1], keys.shape[1]))
        return queries, keys, self.scale, bias


def product_origin(func: torch._ops.OpOverload, args: tuple, kwargs: dict) -> Origin:
    """Return the origin of what ``bmm`` or ``baddbmm`` gives."""
    given = named_arguments(func, args, kwargs)
    if op_name(func) == "baddbmm":
        left, right = given["batch1"], given["batch2"]
    else:
        return Origin(given["self"], given["mat2"])
    alpha, beta = float(given["alpha"]), float(given["beta"])
    if beta == 0:
        return Origin(left, right, alpha)
    shape = (left.shape[0], left.shape[1], right.shape[2])
    bias = torch.broadcast_to(given["self"], shape)
    return Origin(left, right, alpha, (), (bias if beta == 1 else bias * beta,))


def step(
    origin: Origin, logits: Tensor, func: torch._ops.OpOverload, args: tuple, kwargs: dict
) -> Origin | None:
    """Return the origin of what an operation makes of logits, or None if it makes something else.

    Parameters
    ----------
    origin, logits
        The tensor that is followed, and where it came from.
    func, args, kwargs
        The operation; `logits` is one of its arguments.
    """
    name = op_name(func)
    if name in VIEWS or (name == "copy" and args[0].shape == logits.shape):
        return origin
    given = named_arguments(func, args, kwargs)
    if name in ("mul", "div"):
        return _scaled(origin, logits, given, name)
    if name in ("add", "sub"):
        return _shifted(origin, logits, given, name)
    if name == "masked_fill" and given["self"] is logits:
        return _filled(origin, logits, given["mask"], given["value"])
    if name == "where" and given["self"] is logits:
        return _filled(origin, logits, ~given["condition"], given["other"])
    if name == "where" and given["other"] is logits:
        return _filled(origin, logits, given["condition"], given["self"])
    return None


def _scaled(origin: Origin, logits: Tensor, given: dict[str, Any], name: str) -> Origin | None:
    left, right = given["self"], given["other"]
    if name == "div" and (left is not logits or given.get("rounding_mode")):
        return None
    factor = right if left is logits else left
    if factor is logits:
        return None
    if not isinstance(factor, Tensor):
        number = 1 / float(factor) if name == "div" else float(factor)
        biases = tuple(bias * number for bias in origin.biases)
        return replace(origin, scale=origin.scale * number, biases=biases)
    if factor.ndim and any(size != 1 for size in factor.shape[-2:]):
        return None
    gain = factor.to(torch.float32)
    gain = gain.reciprocal() if name == "div" else gain
    lead = (*logits.shape[:-2], 1, 1)
    gain = torch.broadcast_to(gain, lead)
    return replace(
        origin, gains=(*origin.gains, gain), biases=tuple(_times(bias, gain) for bias in origin.biases)
    )


def _times(bias: Tensor, gain: Tensor) -> Tensor:
    """Multiply a bias by a factor per head; the two may have been noted under different shapes."""
    heads = gain.numel()
    return bias.reshape(heads, *bias.shape[-2:]) * gain.reshape(heads, 1, 1)


def _shifted(origin: Origin, logits: Tensor, given: dict[str, Any], name: str) -> Origin | None:
    left, right = given["self"], given["other"]
    if name == "sub" and left is not logits:
        return None
    term, alpha = (right, float(given["alpha"])) if left is logits else (left, 1.0)
    if left is not logits and given["alpha"] != 1:
        return None
    if term is logits:
        return None
    if not isinstance(term, Tensor):
        return origin  # the same number everywhere: softmax does not see it
    if torch.broadcast_shapes(term.shape, logits.shape) != logits.shape:
        return None
    alpha = -alpha if name == "sub" else alpha
    term = term if alpha == 1 else term * alpha
    return replace(origin, biases=(*origin.biases, torch.broadcast_to(term, logits.shape)))


def _filled(origin: Origin, logits: Tensor, mask: Tensor, value: object) -> Origin | None:
    """Masking sets logits to a number too low to be attended to; adding that number comes to the same."""
    if isinstance(value, Tensor):
        if value.numel() != 1:
            return None
        value = value.item()
    term = torch.zeros(mask.shape, dtype=torch.float32, device=logits.device).masked_fill_(mask, float(value))
    return replace(origin, biases=(*origin.biases, torch.broadcast_to(term, logits.shape)))


def _per_head(gain: Tensor, heads: int) -> Tensor:
    flat = gain.reshape(-1, 1, 1)
    return flat if len(flat) == heads else flat.expand(heads, 1, 1)


def _narrow(bias: Tensor) -> Tensor:
    """Return a bias with the dimensions along which it only repeats cut to 1."""
    for dim, stride in enumerate(bias.stride()):
        if stride == 0 and bias.shape[dim] > 1:
            bias = bias.narrow(dim, 0, 1)
    return bias
