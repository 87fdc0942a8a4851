"""Coordinates through convolutions, poolings and resampling, and through windows cut out and put back."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tests.backends.test_positions import HEIGHT, PATCHES, WIDTH, grid, places, same


def tokens(maps):
    return maps.flatten(2).mT


def line(size, step, first):
    return torch.arange(size) * step + first


def cells(y, x):
    """Places of a grid of rows at `y` and columns at `x`, row by row."""
    return torch.complex(*torch.meshgrid(y.float(), x.float(), indexing="ij")).flatten()


def coarse(x):
    return functional.conv2d(x, PATCHES, stride=8)


@pytest.mark.parametrize(
    ("mode", "factor", "first", "step"),
    [
        ("nearest", 0.5, 0.5, 2),  # every other pixel, as it is
        ("nearest-exact", 0.5, 1.5, 2),
        ("nearest", 2, 0.25, 0.5),
        ("bilinear", 0.5, 1.0, 2),
        ("bilinear", 0.25, 2.0, 4),
        ("bicubic", 2, 0.25, 0.5),
    ],
)
def test_resampled_pixels_sit_where_they_were_taken_from(mode, factor, first, step):
    found = places(lambda x: tokens(functional.interpolate(x, scale_factor=factor, mode=mode)))
    height, width = int(HEIGHT * factor), int(WIDTH * factor)
    same(found, cells(line(height, step, first), line(width, step, first)))


def test_resampling_to_a_size_covers_the_same_picture():
    found = places(
        lambda x: tokens(
            functional.interpolate(x, (24, 36), mode="bicubic", antialias=True, align_corners=False)
        )
    )
    same(found, cells(line(24, 4 / 3, 2 / 3), line(36, 4 / 3, 2 / 3)))


def test_aligned_corners_stay_in_their_corners():
    found = places(
        lambda x: tokens(functional.interpolate(coarse(x), (7, 11), mode="bilinear", align_corners=True))
    )
    same(found, cells(line(7, 4, 4), line(11, 4, 4)))


def test_upsampled_patches_lie_evenly_over_the_old_ones():
    for mode in ("nearest", "bilinear"):
        same(
            places(lambda x, mode=mode: tokens(functional.interpolate(coarse(x), scale_factor=4, mode=mode))),
            grid(2),
        )
    same(places(lambda x: tokens(functional.pixel_shuffle(coarse(x)[:, :4], 2))), grid(4))
    same(
        places(lambda x: tokens(functional.pixel_shuffle(functional.pixel_unshuffle(x, 4), 4)[:, :1])),
        grid(1),
    )


def test_resampling_keeps_places_where_values_vary_among_channels():
    """What was cut into channels comes back from them as it went."""
    same(places(lambda x: tokens(functional.pixel_unshuffle(x, 8)).mean(-1, keepdim=True)), grid(8))


def test_a_transposed_convolution_undoes_the_places_of_a_convolution():
    for kernel, padding in ((2, 0), (4, 1)):
        up = torch.randn(5, 3, kernel, kernel)
        found = places(
            lambda x, up=up, padding=padding: tokens(
                functional.conv_transpose2d(coarse(x), up, stride=2, padding=padding)
            )
        )
        same(found, grid(4))
    grouped = torch.randn(5, 1, 3, 3)
    found = places(
        lambda x: tokens(
            functional.conv_transpose2d(coarse(x), grouped, stride=2, padding=1, output_padding=1, groups=5)
        )
    )
    # The first output lies on the first input.
    same(found, cells(line(8, 4, 4), line(12, 4, 4)))


@pytest.mark.parametrize("kind", ["avg", "max"])
def test_adaptive_pooling_takes_the_middle_of_unequal_windows(kind):
    adaptive = getattr(functional, f"adaptive_{kind}_pool2d")
    same(places(lambda x: tokens(adaptive(x, (4, 6)))), grid(8))
    # 4 rows to 3: rows 0-1, 1-2, 2-3; 6 columns to 4: 0-1, 1-2, 3-4, 4-5, and 8 pixels each.
    expected = cells(torch.tensor([8, 16, 24]), torch.tensor([8, 16, 32, 40]))
    same(places(lambda x: tokens(adaptive(coarse(x), (3, 4)))), expected)


def test_pooling_counts_windows_that_are_rounded_up():
    found = places(lambda x: tokens(functional.avg_pool2d(x, 5, 5, ceil_mode=True)))
    same(found, cells(line(7, 5, 2.5), line(10, 5, 2.5)))


def test_grouped_convolutions_average_their_own_channels():
    def shifted(x):
        both = torch.cat([coarse(x), coarse(x).roll(1, 3)], 1)
        mixed = functional.conv2d(both, torch.randn(4, 5, 1, 1), groups=2)
        return torch.stack([tokens(mixed[:, :2]), tokens(mixed[:, 2:])], 1)

    rolled = grid(8).view(4, 6).roll(1, 1).flatten()
    same(places(shifted), torch.stack([grid(8), rolled]))


def test_cut_windows_are_groups_of_pixels():
    def windows(x):
        cut = functional.unfold(coarse(x), 2, stride=2)  # (1, 5 * 4, 6)
        return cut.view(5, 4, 6).permute(2, 1, 0)

    whole = grid(8).view(4, 6)
    expected = [whole[y : y + 2, x : x + 2].flatten() for y in (0, 2) for x in (0, 2, 4)]
    same(places(windows), torch.stack(expected))


def test_cut_windows_projected_are_a_convolution():
    weight = torch.randn(3 * 49, 4)
    found = places(lambda x: functional.unfold(x, 7, padding=3, stride=4).mT @ weight)
    same(
        found,
        places(lambda x: tokens(functional.conv2d(x, weight.mT.reshape(4, 3, 7, 7), stride=4, padding=3))),
    )
    same(found, grid(4, offset=-1.5))


@pytest.mark.parametrize(
    ("kernel", "padding", "stride", "dilation"), [(2, 0, 2, 1), (3, 1, 2, 1), (3, 2, 1, 2)]
)
def test_windows_put_back_are_where_they_were_cut(kernel, padding, stride, dilation):
    setting = {"kernel_size": kernel, "padding": padding, "stride": stride, "dilation": dilation}

    def there_and_back(x):
        return tokens(functional.fold(functional.unfold(coarse(x), **setting), (4, 6), **setting))

    same(places(there_and_back), grid(8))


def test_outlook_attention_leaves_tokens_where_they_are():
    """A window as a whole says how its nine values are mixed, and each result answers for its own."""
    generate, setting = torch.randn(5, 81), {"kernel_size": 3, "padding": 1, "stride": 2}

    def outlook(x):
        maps = coarse(x)
        values = functional.unfold(maps, **setting).view(1, 5, 9, -1).permute(0, 3, 2, 1)
        weights = (tokens(functional.avg_pool2d(maps, 2, 2)) @ generate).view(1, -1, 9, 9).softmax(-1)
        mixed = (weights @ values).permute(0, 3, 2, 1).reshape(1, 45, -1)
        return tokens(functional.fold(mixed, (4, 6), **setting))

    same(places(outlook), grid(8))


def test_a_projection_of_padding_gives_it_no_place():
    project = torch.randn(4, 5, 1, 1)
    found = places(lambda x: tokens(functional.conv2d(functional.pad(coarse(x), (0, 1, 0, 1)), project)))
    assert bool(found[0, -7:].real.isnan().all())
    same(found[:, :6], grid(8)[:6].expand(1, 6))
