"""Mosaics of pictures as data: URLs for an HTML page.

A mosaic has one pixel per pixel of the signal; the browser enlarges it.
"""

import base64
import io
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from gsure.plotting.images import as_picture, tint_missing

CLEAR = 255
"""Index of the transparent colour in the palette of a map."""


def shrink(x: Tensor, side: int) -> Tensor:
    """(b, ..., h, w) with at most `side` pixels per side, averaged over areas."""
    height, width = x.shape[-2:]
    if max(height, width) <= side:
        return x
    factor = side / max(height, width)
    target = (max(1, round(height * factor)), max(1, round(width * factor)))
    return torch.nn.functional.interpolate(x.flatten(1, -3), target, mode="area").unflatten(1, x.shape[1:-2])


def as_pictures(
    x: Tensor, is_complex: bool, side: int, kept: Tensor | None = None, *, black: float = -1.0
) -> list[Tensor]:
    """Signals (b, c, h, w) as small pictures, blue where `kept` (b, h, w) is 0.

    Computes magnitudes before it averages: the average of complex numbers with different phases would be too dark.
    """
    pictures = torch.stack([as_picture(one, is_complex, black) for one in x])
    if pictures.ndim == 4:  # colours last
        small = list(shrink(pictures.movedim(-1, 1), side).movedim(1, -1))
    else:
        small = list(shrink(pictures[:, None], side)[:, 0])
    if kept is None:
        return small
    masks = (shrink(kept[:, None].float(), side)[:, 0] > 0.5).float()
    return [tint_missing(picture, mask) for picture, mask in zip(small, masks, strict=True)]


class Picture(NamedTuple):
    """An image as a data: URL, with its alternative text and its size in pixels."""

    url: str
    alt: str
    width: int
    height: int
    is_coarse: bool
    """Whether it has so few pixels that the page shows them as squares."""
    tiles: "Tiles | None" = None


class Tiles(NamedTuple):
    """How many pictures a mosaic has, and where they are, in pixels of the signals."""

    n: int
    columns: int
    width: int
    height: int

    @property
    def gap(self) -> int:
        return max(1, round(max(self.height, self.width) / 16))

    @property
    def breadth(self) -> int:
        """Of the mosaic."""
        return self.columns * (self.width + self.gap) - self.gap


def mosaic(pictures: Sequence[Tensor], columns: int, alt: str) -> Picture:
    """Pictures in rows. The gaps are transparent because a page may be light or dark."""
    in_colour = any(picture.ndim == 3 for picture in pictures)
    tiles = [_tile(picture, in_colour) for picture in pictures]
    canvas, layout = _lay(tiles, columns, np.zeros(4 if in_colour else 2, np.uint8))
    picture = _encode(Image.fromarray(canvas, "RGBA" if in_colour else "LA"), alt, pictures[0].shape[0])
    return picture._replace(tiles=layout)


def heat_maps(values: Sequence[Tensor], columns: int, largest: float, alt: str) -> Picture:
    """Maps (h, w) of numbers, in colours from black (0) through red to yellow (`largest`)."""
    tiles = [(v / largest).clamp(0, 1).mul(CLEAR - 1).round().to(torch.uint8).numpy()[..., None] for v in values]
    canvas, layout = _lay(tiles, columns, np.array([CLEAR], np.uint8))
    picture = _encode(_in_palette(canvas[..., 0]), alt, values[0].shape[0], transparency=CLEAR)
    return picture._replace(tiles=layout)


def colour_bar(alt: str) -> Picture:
    return _encode(_in_palette(np.arange(CLEAR, dtype=np.uint8)[None]), alt, 1)


def colormap(values: Tensor, largest: float) -> Tensor:
    """A map with the colours of `heat_maps`, as a picture, for a mosaic with other pictures."""
    return torch.from_numpy(_palette()[((values / largest).clamp(0, 1) * (CLEAR - 1)).round().long().numpy()])


def embed_png(content: bytes, alt: str, widest: int = 1100, most: int = 120_000) -> Picture:
    """A PNG file for a page: at most `widest` pixels wide, and with fewer colours if it has more than `most` bytes."""
    with Image.open(io.BytesIO(content), formats=("PNG",)) as image:
        image.load()
        if len(content) <= most and image.width <= widest:
            return Picture(_url(content), alt, *image.size, False)
        flat = Image.new("RGB", image.size, "white")
        flat.paste(image.convert("RGBA"), mask=image.convert("RGBA").getchannel("A"))
    if flat.width > widest:
        flat = flat.resize((widest, max(1, round(flat.height * widest / flat.width))), Image.Resampling.LANCZOS)
    return _encode(flat.quantize(255, Image.Quantize.FASTOCTREE), alt, flat.height)


def _tile(picture: Tensor, in_colour: bool) -> np.ndarray:
    values = (picture.clamp(0, 1) * 255).round().to(torch.uint8)
    if in_colour and values.ndim == 2:
        values = values[..., None].expand(-1, -1, 3)
    values = values if values.ndim == 3 else values[..., None]
    return torch.cat([values, torch.full_like(values[..., :1], 255)], -1).numpy()


def _lay(tiles: Sequence[np.ndarray], columns: int, empty: np.ndarray) -> tuple[np.ndarray, Tiles]:
    height, width, depth = tiles[0].shape
    layout = Tiles(len(tiles), min(columns, len(tiles)), width, height)
    gap, rows = layout.gap, math.ceil(len(tiles) / columns)
    canvas = np.broadcast_to(empty, (rows * (height + gap) - gap, layout.breadth, depth)).copy()
    for k, tile in enumerate(tiles):
        top, left = k // layout.columns * (height + gap), k % layout.columns * (width + gap)
        canvas[top : top + height, left : left + width] = tile
    return canvas, layout


def _palette() -> np.ndarray:
    from matplotlib import colormaps

    return colormaps["magma"](np.linspace(0, 1, CLEAR))[:, :3].astype(np.float32)


def _in_palette(canvas: np.ndarray) -> Image.Image:
    image = Image.fromarray(canvas, "L").convert("P")
    colours = (_palette() * 255).round().astype(np.uint8)
    image.frombytes(canvas.tobytes())
    image.putpalette([*colours.flatten().tolist(), 0, 0, 0])
    return image


def _encode(image: Image.Image, alt: str, side: int, **options: int) -> Picture:
    """Repeat the pixels of small images two or four times, because browsers show them sharply but some printers do not."""
    factor = 1 if image.height == 1 else 4 if side <= 16 else 2 if side <= 32 else 1
    if factor > 1:
        image = image.resize((factor * image.width, factor * image.height), Image.Resampling.NEAREST)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True, **options)
    return Picture(_url(buffer.getvalue()), alt, *image.size, side <= 64)


def _url(content: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"
