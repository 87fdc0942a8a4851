"""What models really compute, taken apart from Patchreach, and where their tokens sit by closed forms."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import Union

import numpy as np
import timm
import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tests.backends.timm_zoo import attending, fused, randomize
from viewer.attention.uniform import uniform_layer_distance
from viewer.backends.model import Job
from viewer.backends.torch_runner import TorchRunner
from viewer.backends.torch_sizes import SizedModels

# Masks of models forbid keys by a number that no learned bias comes near.
FORBIDDEN = -50.0
CALM = 0.7


class Softmaxes(TorchFunctionMode):
    """Notes, in float64, the logits of each softmax over the last dimension that a model's own code asks for.

    Fused attention is written out: its logits are noted, and it is left to run.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.logits: list[tuple[str, torch.Tensor]] = []
        self._module = ""
        for name, module in model.named_modules():
            module.register_forward_pre_hook(lambda *_, name=name: setattr(self, "_module", name))

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in (torch.Tensor.softmax, torch.softmax, functional.softmax):
            dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
            if dim % args[0].ndim == args[0].ndim - 1:
                self.logits.append((self._module, args[0].double()))
        elif func is functional.scaled_dot_product_attention:
            self.logits.append((self._module, _fused_logits(*args, **kwargs)))
        return func(*args, **kwargs)


def _fused_logits(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **_):
    assert not is_causal
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    if key.shape[-3] != query.shape[-3]:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    logits = query.double() @ key.double().mT * scale
    if attn_mask is None:
        return logits
    if attn_mask.dtype == torch.bool:
        return logits.masked_fill(~attn_mask, -torch.inf)
    return logits + attn_mask


def built(
    name: str | type[nn.Module], is_fused: bool = True, seed: int = 0, **arguments: object
) -> nn.Module:
    """Make a model, named or of a class, of seeded random weights that make attention uneven."""
    with fused(is_fused):
        model = timm.create_model(name, **arguments) if isinstance(name, str) else name(**arguments)
    model.eval()
    randomize(model, seed)
    with torch.no_grad():
        for weight in model.parameters():
            # Attention so sharp that float32 can't tell its weights to 1e-5 would show nothing.
            weight.mul_(CALM if weight.ndim >= 2 else 1)
    return model


def settled(model: nn.Module, tensor: torch.Tensor) -> nn.Module:
    """Give batch norms the statistics of a picture, as training would have."""
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    if norms:
        with torch.no_grad():
            model(torch.cat([tensor, tensor.flip(-1)]))
    return model.eval()


def logits_of(model: nn.Module, tensor: torch.Tensor, modules: str = "") -> list[torch.Tensor]:
    """Return the logits of a model run in float64, of modules whose name has a pattern in it."""
    model = copy.deepcopy(model).double()
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # of what models make as they run
    try:
        with torch.no_grad(), Softmaxes(model) as found:
            model(tensor.double())
    finally:
        torch.set_default_dtype(usual)
    return [logits for module, logits in found.logits if re.search(modules, module)]


def record_of(model: nn.Module, tensor: torch.Tensor):
    """Return what Patchreach has of a model and a preprocessed picture."""
    wrapped = attending(type(model).__name__, model)
    wrapped.runner.sizes.own = tuple(tensor.shape[-2:])
    return wrapped.attend(tensor)


def run_of(model: nn.Module, tensor: torch.Tensor):
    """Return what Patchreach has of any module that takes a picture."""
    size = tuple(tensor.shape[-2:])
    return TorchRunner("net", SizedModels("net", model.eval(), size), "cpu").run(tensor, Job())


def picture(height: int, width: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(1, 3, height, width, generator=torch.Generator().manual_seed(seed))


# --- closed forms of places: (rows, columns, 2) grids, (groups, tokens, 2) windows; NaN is no place


def lattice(rows: int, columns: int, step: float, first: float | None = None) -> np.ndarray:
    """Return centres of a grid as (y, x): patches of `step` pixels, or starting at `first`."""
    first = step / 2 if first is None else first
    y, x = np.arange(rows) * step + first, np.arange(columns) * step + first
    return np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1)


def whole(places: np.ndarray, prefix: int = 0) -> np.ndarray:
    """Return all of a grid as one group, row by row, with some prefix tokens before."""
    tokens = places.reshape(1, -1, 2)
    return np.concatenate([np.full((1, prefix, 2), np.nan), tokens], axis=1)


Sides = Union[int, "tuple[int, int]"]


def pair(sides: Sides) -> tuple[int, int]:
    return (sides, sides) if isinstance(sides, int) else sides


def windows(places: np.ndarray, window: Sides, shift: tuple[int, int] = (0, 0)) -> np.ndarray:
    """Return the windows of a grid that was rolled back by `shift` and filled up at its ends."""
    rows, columns = pair(window)
    rolled = np.roll(places, (-shift[0], -shift[1]), axis=(0, 1))
    missing = [(0, -size % multiple) for size, multiple in zip(places.shape, (rows, columns), strict=False)]
    filled = np.pad(rolled, [*missing, (0, 0)], constant_values=np.nan)
    high, wide = filled.shape[0] // rows, filled.shape[1] // columns
    cut = filled.reshape(high, rows, wide, columns, 2).transpose(0, 2, 1, 3, 4)
    return cut.reshape(high * wide, rows * columns, 2)


def spread(places: np.ndarray, window: Sides) -> np.ndarray:
    """Return groups of as many tokens as a window, spread evenly over the grid (MaxViT's grid attention)."""
    rows, columns = pair(window)
    high, wide = places.shape[0] // rows, places.shape[1] // columns
    cut = places.reshape(rows, high, columns, wide, 2).transpose(1, 3, 0, 2, 4)
    return cut.reshape(high * wide, rows * columns, 2)


def haloed(places: np.ndarray, block: int, halo: int) -> np.ndarray:
    """Return the keys of each block: its tokens and those up to `halo` around, none past the border."""
    filled = np.pad(places, [(halo, halo), (halo, halo), (0, 0)], constant_values=np.nan)
    side = block + 2 * halo
    starts = [range(0, size, block) for size in places.shape[:2]]
    cut = [filled[y : y + side, x : x + side] for y in starts[0] for x in starts[1]]
    return np.stack(cut).reshape(len(cut), -1, 2)


# --- comparison


@dataclass(frozen=True)
class Truth:
    """One layer as it must be.

    Attributes
    ----------
    logits
        Stacked in any way that reshapes to (groups, heads, queries, keys).
    queries, keys
        (groups, tokens, 2); None where channels attend.
    weights
        Softmax of the logits, unless a model changes it.
    """

    logits: torch.Tensor
    queries: np.ndarray | None
    keys: np.ndarray | None
    weights: torch.Tensor | None = None

    def shaped(self, stacked: torch.Tensor) -> torch.Tensor:
        return stacked.reshape(len(self.queries), -1, self.queries.shape[1], self.keys.shape[1])


def check_layer(layer, truth: Truth) -> None:
    """Compare places, weights, reach and the uniform reference of one layer."""
    assert layer.verdict.verified, layer.verdict
    groups = len(truth.queries)
    assert layer.scores.groups == groups
    assert layer.kind == ("self" if np.isfinite(truth.queries).any() else "pool")
    for layout, places in ((layer.query_layout, truth.queries), (layer.key_layout, truth.keys)):
        found = layout.positions.reshape(groups, -1, 2)
        np.testing.assert_allclose(found, places, rtol=0, atol=1e-3)
    logits = truth.shaped(truth.logits)
    weights = torch.softmax(logits, -1) if truth.weights is None else truth.shaped(truth.weights)
    found = layer.scores.stacked.weights(slice(None)).reshape(weights.shape)
    np.testing.assert_allclose(found.numpy(), weights.numpy(), rtol=0, atol=1e-5)
    reach = (logits > logits.amax(-1, keepdim=True) + FORBIDDEN).any(1).numpy()
    check_reach(layer, reach)
    if layer.query_layout.placed and layer.key_layout.placed:
        check_uniform(layer, truth, reach)


def check_channels(layer, logits: torch.Tensor) -> None:
    """Compare a layer whose channels attend to one another: (1, heads, channels, channels) logits."""
    assert (layer.kind, layer.scores.groups) == ("channel", 1)
    assert layer.verdict.verified, layer.verdict
    assert not (layer.query_layout.placed or layer.key_layout.placed)
    assert "channels" in layer.note
    found = layer.scores.weights(slice(None)).numpy()
    np.testing.assert_allclose(found, torch.softmax(logits, -1)[0].numpy(), rtol=0, atol=1e-5)


def check_reach(layer, reach: np.ndarray) -> None:
    """Compare what queries may look at with (groups, queries, keys)."""
    groups, queries, keys = reach.shape
    for token in {0, queries - 1, groups * queries // 2, groups * queries - 1}:
        expected = np.zeros((groups, keys), bool)
        expected[token // queries] = reach[token // queries, token % queries]
        np.testing.assert_array_equal(layer.reach(token), expected.ravel())


def check_uniform(layer, truth: Truth, reach: np.ndarray) -> None:
    """Compare the reference with mean distances to the placed keys in reach."""
    far = np.linalg.norm(truth.queries[:, :, None] - truth.keys[:, None], axis=-1)
    counted = reach & np.isfinite(truth.keys).all(-1)[:, None]
    mean = np.where(counted, far, 0).sum(-1) / counted.sum(-1).clip(1)
    expected = mean.ravel()[layer.query_layout.patch_tokens]
    np.testing.assert_allclose(uniform_layer_distance(layer), expected, rtol=1e-4, atol=1e-4)


def check(record, truths: list[Truth]) -> None:
    """Compare a record layer by layer; the model must give attention something to tell apart."""
    assert record.output_unchanged
    assert len(record.layers) == len(truths)
    for layer, truth in zip(record.layers, truths, strict=True):
        if truth.queries is None:
            check_channels(layer, truth.logits)
        else:
            check_layer(layer, truth)
    weights = [torch.softmax(truth.logits, -1) for truth in truths]
    peaks = [float(rows.amax(-1).mean()) * rows.shape[-1] for rows in weights]
    assert max(peaks) > 1.3, "attention is as good as uniform, so that nothing is shown by this test"
