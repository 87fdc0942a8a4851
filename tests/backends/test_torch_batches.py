"""Several pictures in one pass: the same numbers as one by one, or none at all."""

from __future__ import annotations

import numpy as np
import pytest
import timm
import torch
from torch import nn
from torch.nn import functional

from tests.backends.timm_zoo import attending, build, randomize
from viewer.backends.model import Job
from viewer.backends.torch_model import TorchModel
from viewer.backends.torch_runner import TorchRunner
from viewer.backends.torch_sizes import SizedModels
from viewer.backends.verdicts import check
from viewer.errors import Cancelled

COUNT = 4
SMALL = {
    "swin_tiny_patch4_window7_224": {"embed_dim": 24, "depths": (2, 2, 1, 1), "num_heads": (1, 2, 2, 4)},
    "swinv2_cr_tiny_224": {
        "embed_dim": 24,
        "depths": (2, 1, 1, 1),
        "num_heads": (1, 2, 2, 4),
        "img_size": 64,
    },
    "pvt_v2_b0": {},
    "levit_128s": {},
    "cait_xxs24_224": {"img_size": 64, "depth": 2},
}
PLAIN = ("vit_tiny_patch16_224", "deit_tiny_distilled_patch16_224", "vit_base_patch16_siglip_224")


def opened(name: str) -> TorchModel:
    if name in PLAIN:
        return attending(name, build(name))
    torch.manual_seed(0)
    net = timm.create_model(name, pretrained=False, **SMALL[name]).eval()
    randomize(net)
    with torch.no_grad():
        for weight in net.parameters():
            # Attention that is sharper still makes noise of the last digit larger than what is allowed.
            weight.mul_(0.5 if weight.ndim >= 2 else 1)
    return attending(name, net)


def pictures(count: int, height: int, width: int) -> torch.Tensor:
    squares = torch.randn(count, 3, height // 8, width // 8, generator=torch.Generator().manual_seed(1))
    return functional.interpolate(squares, size=(height, width))


@pytest.mark.parametrize("given", [COUNT, 3])
@pytest.mark.parametrize("name", [*PLAIN, *SMALL])
def test_a_batch_holds_what_pictures_leave_one_by_one(name, given):
    model = opened(name)
    batch = pictures(given, *model.preprocessing.size)
    together = model.attend_together(batch, COUNT)
    assert together.pictures == given
    for at, picture in enumerate(batch):
        record = model.attend(picture[None])
        assert together.verified[at] == record.verified
        for layer, alone in zip(together.record.layers, record.layers, strict=True):
            assert (layer.name, layer.heads, layer.note) == (alone.name, given * alone.heads, alone.note)
            assert layer.query_layout is alone.query_layout
            mine = slice(at * alone.heads, (at + 1) * alone.heads)
            for query in (0, alone.scores.queries // 2, alone.scores.queries - 1):
                np.testing.assert_allclose(
                    layer.weights(query)[mine], alone.weights(query), rtol=0, atol=1e-5
                )


class Attending(nn.Module):
    """Two attentions over 4 x 4 patches of 8 px; `how` says what is done with the batch."""

    takes_sizes = True

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.embed = nn.Conv2d(3, 16, 8, 8)
        self.mix = nn.ModuleList(nn.Linear(16, 48) for _ in range(2))
        torch.manual_seed(0)
        for weight in self.parameters():
            nn.init.normal_(weight, std=0.3)

    def forward(self, x):
        if self.how == "refuses" and len(x) > 1:
            raise ValueError("one at a time")
        x = self.embed(x).flatten(2).transpose(1, 2)
        if self.how == "coupled":
            x = x - 0.5 * x.mean(dim=0, keepdim=True)
        if self.how == "sorted":
            x = x[:, x[0, :, 0].argsort()]
        for mix in self.mix:
            query, key, value = mix(x).chunk(3, dim=-1)
            if self.how == "windows first":
                x = x + self.windows(query, key, value)
            else:
                x = x + functional.scaled_dot_product_attention(query, key, value)
        return x.mean(dim=1)

    def windows(self, *sides):
        """Attend in four windows of rows, which come ahead of the pictures."""
        by_window = [side.unflatten(1, (4, 4)).transpose(0, 1) for side in sides]
        return functional.scaled_dot_product_attention(*by_window).transpose(0, 1).flatten(1, 2)


def run_of(how: str) -> TorchRunner:
    return TorchRunner(how, SizedModels(how, Attending(how).eval(), (32, 32)), "cpu")


@pytest.mark.parametrize(
    ("how", "taken"),
    [("plain", True), ("windows first", False), ("coupled", False), ("sorted", False), ("refuses", False)],
)
def test_a_model_that_does_not_keep_its_pictures_apart_gives_no_batch(how, taken):
    runner, batch = run_of(how), pictures(COUNT, 32, 32)
    for _ in range(2):
        assert (runner.together(batch, COUNT, Job()) is not None) == taken
    run = runner.run(batch[:1], Job())
    assert len(run.layers) == 2
    assert all(layer.verdict.verified for layer in run.layers)


def test_a_picture_that_is_no_number_spoils_no_other():
    runner, batch = run_of("plain"), pictures(COUNT, 32, 32)
    batch[1, 0, 3, 3] = torch.nan
    layers, verified = runner.together(batch, COUNT, Job())
    assert verified == (True, False, True, True)
    alone = runner.run(batch[2:3], Job()).layers
    for layer, other in zip(layers, alone, strict=True):
        np.testing.assert_allclose(layer.matrix(2), other.matrix(0), rtol=0, atol=1e-5)


def test_every_picture_of_a_batch_is_checked_apart():
    generator = torch.Generator().manual_seed(0)
    model = opened("vit_tiny_patch16_224")
    scores = model.attend_together(pictures(COUNT, 64, 64), COUNT).record.layers[0].scores
    values = torch.randn(scores.heads, scores.keys, 8, generator=generator)
    output = torch.softmax(scores.scale * scores.query_vectors @ scores.key_vectors.mT, -1) @ values
    output[2 * scores.heads // COUNT] += 0.1
    found = check(scores, values, output, pictures=COUNT).verdicts()
    assert [one.verified for one in found] == [True, True, False, True]
    assert "differ from the model's output" in found[2].reason


def test_a_batch_can_be_cancelled():
    job, runner = Job(), run_of("plain")
    job.cancel()
    with pytest.raises(Cancelled):
        runner.together(pictures(COUNT, 32, 32), COUNT, job)
    assert runner.together(pictures(COUNT, 32, 32), COUNT, Job()) is not None
