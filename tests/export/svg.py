"""An SVG figure taken apart, for tests."""

from __future__ import annotations

import base64
import io
import re
from xml.etree import ElementTree

import numpy as np
from PIL import Image

from viewer.export.typesetting import text_width

SVG = "{http://www.w3.org/2000/svg}"
HREF = "{http://www.w3.org/1999/xlink}href"


class Svg:
    """Texts, images and marks of a figure; lengths in points, as Matplotlib writes them."""

    def __init__(self, content: bytes) -> None:
        self.root = ElementTree.fromstring(content)
        self.width, self.height = (float(side) for side in self.root.get("viewBox").split()[2:])
        self.images = {
            image.get("id"): image
            for image in self.root.iter(f"{SVG}image")
            if image.get("id") in ("picture", "attention", "heads", "whole", "likeness")
        }

    @property
    def texts(self) -> list[str]:
        return [re.sub(r"\s+", " ", element.text or "") for element in self.root.iter(f"{SVG}text")]

    def sized_texts(self) -> list[tuple[str, float]]:
        return [
            (element.text, float(re.search(r"font-size: ([\d.]+)px", element.get("style"))[1]))
            for element in self.root.iter(f"{SVG}text")
        ]

    def image(self, name: str) -> np.ndarray:
        content = base64.b64decode(self.images[name].get(HREF).partition(",")[2])
        return np.asarray(Image.open(io.BytesIO(content)).convert("RGBA"))

    def paths(self) -> list[ElementTree.Element]:
        return list(self.root.iter(f"{SVG}path"))

    def marks(self) -> list[ElementTree.Element]:
        return list(self.root.iter(f"{SVG}use"))

    def background_fills(self) -> list[str]:
        """Styles of filled shapes that cover the whole page."""
        page = f"L {self.width:g} {self.height:g}"
        return [
            path.get("style")
            for path in self.paths()
            if "fill: #" in path.get("style", "") and page in re.sub(r"\s+", " ", path.get("d"))
        ]

    def text_boxes(self) -> list[tuple[str, tuple[float, float, float, float]]]:
        """Text and (left, top, right, bottom) of every line of type, as wide as it is in DejaVu Sans."""
        return [_box(element) for element in self.root.iter(f"{SVG}text")]


def _box(element: ElementTree.Element) -> tuple[str, tuple[float, float, float, float]]:
    style, text = element.get("style"), element.text
    size = float(re.search(r"font-size: ([\d.]+)px", style)[1])
    width = text_width(text, size, "font-weight: 700" in style) * 72 / 96
    anchor = re.search(r"text-anchor: (\w+)", style)
    start = {"start": 0.0, "middle": width / 2, "end": width}[anchor[1] if anchor else "start"]
    x, y = (float(element.get(name, 0)) for name in "xy")
    turn = re.search(r"rotate\((-?[\d.]+)", element.get("transform", ""))
    shift = re.search(r"translate\(([-\d.]+)[ ,]+([-\d.]+)\)", element.get("transform", ""))
    if shift:
        x, y = x + float(shift[1]), y + float(shift[2])
    if turn and abs(float(turn[1])) > 45:
        return text, (x - 0.75 * size, y - width + start, x + 0.2 * size, y + start)
    return text, (x - start, y - 0.75 * size, x - start + width, y + 0.2 * size)
