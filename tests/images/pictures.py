"""Pictures and colour profiles made for the tests, with known pixels."""

from __future__ import annotations

import io
import struct

import numpy as np
import pillow_heif
from PIL import Image

pillow_heif.register_heif_opener()  # lets Pillow write HEIC too

# Columns are the red, green and blue primaries as XYZ under D50.
SRGB_XYZ = np.array([[0.43607, 0.38515, 0.14307], [0.22249, 0.71687, 0.06061], [0.01392, 0.09708, 0.71410]])
P3_XYZ = np.array([[0.51512, 0.29198, 0.15710], [0.24120, 0.69225, 0.06657], [-0.00105, 0.04189, 0.78407]])


def scene(height=48, width=64):
    """A smooth picture with strong colours that lossy formats keep well; uint8 (height, width, 3)."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack(
        [255 * x / (width - 1), 255 * y / (height - 1), 127 + 120 * np.sin((x + y) / 12)], axis=-1
    ).astype(np.uint8)


def noise(height=40, width=56, channels=3, seed=0):
    """Random pixels, uint8."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def encode(pixels, fmt, **options):
    """Write an array or a Pillow picture as the bytes of a file."""
    picture = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    file = io.BytesIO()
    picture.save(file, fmt, **options)
    return file.getvalue()


def icc_profile(primaries, gamma=2.2, name="test colours"):
    """Build an ICC version 2 display profile from primaries (columns, XYZ under D50) and one gamma."""
    number = lambda value: struct.pack(">i", round(value * 65536))  # noqa: E731
    xyz = lambda values: b"XYZ \0\0\0\0" + b"".join(map(number, values))  # noqa: E731
    curve = b"curv\0\0\0\0" + struct.pack(">IH", 1, round(gamma * 256))
    tags = {
        b"rXYZ": xyz(primaries[:, 0]),
        b"gXYZ": xyz(primaries[:, 1]),
        b"bXYZ": xyz(primaries[:, 2]),
        b"rTRC": curve,
        b"gTRC": curve,
        b"bTRC": curve,
    }
    return _profile(b"mntrRGB XYZ ", name, tags)


def grey_profile(gamma, name="test grey"):
    """Build an ICC version 2 profile of one grey channel."""
    return _profile(
        b"mntrGRAYXYZ ", name, {b"kTRC": b"curv\0\0\0\0" + struct.pack(">IH", 1, round(gamma * 256))}
    )


def black_ink_profile(name="only black prints"):
    """Build a CMYK profile in which black ink darkens and the coloured inks leave no trace."""
    straight = bytes(range(256))
    # Grid of the corners, cyan slowest, black fastest: white paper, or black (L*, a*, b* in 8 bits).
    corners = b"".join(bytes((0 if black else 255, 128, 128)) for _ in range(8) for black in (0, 1))
    identity = struct.pack(">9i", *(65536 if i % 4 == 0 else 0 for i in range(9)))
    table = b"mft1\0\0\0\0" + bytes((4, 3, 2, 0)) + identity + straight * 4 + corners + straight * 3
    return _profile(b"prtrCMYKLab ", name, {b"A2B0": table, b"A2B1": table})


def _profile(kind, name, tags):
    """Put an ICC version 2 profile together."""
    white = struct.pack(">3i", *(round(65536 * value) for value in (0.9642, 1.0, 0.8249)))
    text = name.encode() + b"\0"
    tags = {
        b"desc": b"desc\0\0\0\0" + struct.pack(">I", len(text)) + text + bytes(78),
        b"wtpt": b"XYZ \0\0\0\0" + white,
        b"cprt": b"text\0\0\0\0none\0",
        **tags,
    }
    table, body, start = struct.pack(">I", len(tags)), b"", 128 + 4 + 12 * len(tags)
    for signature, content in tags.items():
        content += bytes(-len(content) % 4)
        table += signature + struct.pack(">II", start + len(body), len(content))
        body += content
    head = bytearray(128)
    head[0:4] = struct.pack(">I", start + len(body))
    head[8:12] = b"\x02\x20\0\0"
    head[12:24] = kind
    head[24:36] = struct.pack(">6H", 2024, 1, 1, 0, 0, 0)
    head[36:40] = b"acsp"
    head[68:80] = white
    return bytes(head) + table + body


def to_srgb_by_hand(pixels, primaries, gamma=2.2):
    """Convert by the formulas: power law, primaries to XYZ to sRGB primaries, clip, the sRGB curve."""
    linear = (pixels / 255.0) ** gamma
    rgb = np.clip(linear @ (np.linalg.inv(SRGB_XYZ) @ primaries).T, 0, 1)
    return 255 * np.where(rgb <= 0.0031308, 12.92 * rgb, 1.055 * rgb ** (1 / 2.4) - 0.055)
