"""Windows at the same places of signals and of their masks, for any shapes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.data.source import evenly_spread

MAX_SIDE = 8
"""Side of a window, as in the paper, but at most half the side of the signal, so that there are several windows."""
MAX_PLACES = 16
"""The largest number of windows per sample."""


@dataclass(frozen=True)
class Places:
    """Places of windows in images of (height, width)."""

    size: tuple[int, int]
    corners: tuple[tuple[int, int], ...]

    def cut(self, x: Float[Tensor, "b *n"], middle: tuple[bool, bool] = (False, False)) -> Float[Tensor, "b p d"]:
        """Windows of images, or of masks whose height or width may be 1. Along the axes in `middle`, only the middle entry."""
        x = as_images(x)
        return torch.stack([x[:, :, rows, columns].flatten(1) for rows, columns in self._spans(x.shape[2:], middle)], 1)

    def _spans(self, sides: Sequence[int], middle: tuple[bool, bool]) -> Iterator[tuple[slice, slice]]:
        for corner in self.corners:
            rows, columns = (
                slice(None)
                if side == 1
                else slice(start + size // 2, start + size // 2 + 1)
                if mid
                else slice(start, start + size)
                for start, size, side, mid in zip(corner, self.size, sides, middle, strict=True)
            )
            yield rows, columns


def as_images(x: Float[Tensor, "b *n"]) -> Float[Tensor, "b c h w"]:
    """As (b, channels, height, width). A vector becomes one row."""
    height, width = (1, *x.shape[1:])[-2:]
    return x.reshape(len(x), -1, height, width)


def place_windows(mask: Float[Tensor, "n ..."], shape: Sequence[int], overlap: bool = False) -> Places:
    """Adjacent or half-overlapping windows of a signal of this shape: at most 16, only those in which masks differ."""
    height, width = (1, *shape)[-2:]
    size = (max(1, min(MAX_SIDE, height // 2)), max(1, min(MAX_SIDE, width // 2)))
    strides = [max(1, side // 2) if overlap else side for side in size]
    rows, columns = (range(0, h - s + 1, step) for h, s, step in zip((height, width), size, strides, strict=True))
    every = Places(size, tuple((row, column) for row in rows for column in columns))
    windows = every.cut(mask)
    changing = (windows != windows[:1]).any(0).any(1).nonzero().flatten().tolist()
    chosen = evenly_spread(MAX_PLACES, len(changing)) if changing else ()
    return Places(size, tuple(every.corners[changing[k]] for k in chosen))
