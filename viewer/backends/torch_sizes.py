"""One set of weights at several input sizes."""

from __future__ import annotations

import copy
import warnings
from collections import OrderedDict

from torch import nn

from viewer.errors import InputError

# Whole pictures come in many sizes; a model at another size is cheap to make again.
_KEPT_SIZES = 8


def patch_size(model: nn.Module) -> tuple[int, int] | None:
    """Return height and width of a patch in pixels, None where the model does not tell."""
    told = getattr(model, "patch_px", None)
    if told is not None:
        return told
    embed = getattr(model, "patch_embed", None)
    # Where a convolutional stem comes first, this counts in picture pixels, and `patch_size` does not.
    ratio = getattr(embed, "feat_ratio", None)
    size = getattr(embed, "patch_size", None) if ratio is None else ratio(as_scalar=False)
    if size is None:
        return None
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))


class SizedModels:
    """A model at the input sizes it is asked for, its position embeddings resampled the way timm does.

    Parameters
    ----------
    name
        What to call it in errors.
    model
        At its own input size; its weights are shared by all sizes.
    own
        That size, height and width in pixels.
    """

    def __init__(self, name: str, model: nn.Module, own: tuple[int, int]) -> None:
        self.name = name
        self.base = model
        self.own = own
        self._others: OrderedDict[tuple[int, int], nn.Module] = OrderedDict()

    @property
    def _takes_sizes(self) -> bool:
        """Whether the one model takes all sizes as it is."""
        return getattr(self.base, "takes_sizes", False)

    @property
    def resizable(self) -> bool:
        """Whether there is any size it takes besides its own."""
        return patch_size(self.base) is not None and (
            hasattr(self.base, "set_input_size") or self._takes_sizes
        )

    def check(self, size: tuple[int, int]) -> None:
        """See whether the model can take a size.

        Raises
        ------
        InputError
            If it can't; the text says what it takes.
        """
        if size == self.own:
            return
        own = f"{self.own[0]}x{self.own[1]}"
        asked = f"{size[0]}x{size[1]}"
        patch = patch_size(self.base)
        if patch is None or not self.resizable:
            raise InputError(f"{self.name} takes pictures of {own} pixels, not {asked}.")
        if min(size) <= 0 or size[0] % patch[0] or size[1] % patch[1]:
            near = "x".join(
                str(max(1, round(side / step)) * step) for side, step in zip(size, patch, strict=True)
            )
            raise InputError(
                f"{self.name} takes pictures whose height and width are multiples of its "
                f"{patch[0]}x{patch[1]} pixel patch, not {asked}; the nearest is {near}."
            )

    def at(self, size: tuple[int, int]) -> nn.Module:
        """Return the model for a size, height and width in pixels.

        Raises
        ------
        InputError
            If it can't take that size.
        """
        if size == self.own:
            return self.base
        self.check(size)
        if self._takes_sizes:
            return self.base
        if size not in self._others:
            # Weights stay shared; what set_input_size resamples it puts in place of them.
            memo: dict[int, object] = {id(weight): weight for weight in self.base.parameters()}
            sized = copy.deepcopy(self.base, memo)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # timm's resampling warns of its own ways, not of ours
                sized.set_input_size(img_size=size)
            self._others[size] = sized.eval()
            if len(self._others) > _KEPT_SIZES:
                self._others.popitem(last=False)
        self._others.move_to_end(size)
        return self._others[size]

    def move(self, device: str) -> None:
        """Put the weights on another device."""
        self._others.clear()
        self.base.to(device)
