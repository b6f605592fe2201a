"""Pages of text drawn for tests, as the content of image files."""

from __future__ import annotations

import io
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

Line = tuple[str, int, int]
"""A text and where it begins: x, y in pixels."""

INVOICE: Sequence[Line] = (
    ("Conch serves models", 60, 60),
    ("Invoice 2026-0417", 60, 130),
    ("Total: 1,284.50 EUR", 60, 200),
    ("right column", 500, 200),
)


def page(
    lines: Sequence[Line] = INVOICE,
    *,
    size: tuple[int, int] = (760, 320),
    angle: float = 0,
    kind: str = "PNG",
    mode: str = "RGB",
    font_size: int = 30,
) -> bytes:
    """Black text on white. In mode RGBA the paper is transparent."""
    image = Image.new(mode, size, "white" if mode != "RGBA" else (0, 0, 0, 0))
    drawing = ImageDraw.Draw(image)
    font = ImageFont.load_default(font_size)
    for text, x, y in lines:
        drawing.text((x, y), text, font=font, fill="black")
    if angle:
        image = image.rotate(angle, fillcolor="white", resample=Image.Resampling.BICUBIC)
    content = io.BytesIO()
    image.save(content, kind)
    return content.getvalue()
