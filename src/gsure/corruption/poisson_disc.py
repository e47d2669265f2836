"""Variable-density Poisson-disc masks for the two phase-encoding directions of 3-D MRI: random, but no two points are close.

Entries of k-space are tried in a random order. An entry is kept unless it lies within the radius of one already kept,

    r² = scale² (1 + 2 d)² (1 + 2 u),    d the distance from the centre, 1 at the middle of each edge,    u ~ U(0, 1),

so that the density falls as 1/r². u differs between entries: with the same u for all, the density would fall in steps, one at
each distance that two points of the grid can have. The centre is fully sampled and excludes nothing around it. Distances are
periodic, as are the frequencies of a sampled image, so there is no border, and the distribution is the same at k and at its
mirror images.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gsure.basis import Fourier
from gsure.corruption.base import DOUBLE, Corruption, Coverage, check_acceleration, check_complex
from gsure.random import Generators, Stream, keyed_generator, uniform

CENTRE = 0.1
"""Share of the kept entries that form the fully sampled disc in the centre."""


@dataclass(frozen=True)
class PoissonDisc(Corruption):
    """Keeps round(H W / R) entries, with a new pattern for each sample.

    Every entry has a coverage above 0, because the entry that is tried first is always kept. The corners, where r is largest,
    have the lowest coverage: about 1/40 for R = 15.
    """

    R: float | int
    basis = Fourier()
    is_binary = True

    def __post_init__(self) -> None:
        check_acceleration(self.R)

    def check_shape(self, shape: Sequence[int]) -> None:
        check_complex(self, shape)
        entries = shape[-2] * shape[-1]
        kept = self.count(shape)
        if kept <= int(self.centre(shape).sum()) < entries or abs(entries / kept / self.R - 1) > 0.02:
            raise ValueError(
                f"R = {self.R:g} cannot be met within 2 % by {kept} of {shape[-2]}x{shape[-1]} entries: use a smaller R, or "
                "larger images."
            )

    def count(self, shape: Sequence[int]) -> int:
        """The number of entries that each draw keeps."""
        return max(1, round(shape[-2] * shape[-1] / self.R))

    def centre(self, shape: Sequence[int]) -> Bool[Tensor, "h w"]:
        """The disc that is always kept."""
        y, x = (torch.arange(size) - size // 2 for size in shape[-2:])
        return y[:, None] ** 2 + x**2 <= CENTRE * self.count(shape) / torch.pi

    def radius(self, shape: Sequence[int]) -> Float[Tensor, "h w"]:
        """The smallest r, at u = 0. On average it allows 2 % more entries than needed. A draw with too few lowers it."""
        return torch.from_numpy(_scale(self.R, *shape[-2:]) * _growth(*shape[-2:]))

    def svals(self, n: int, shape: Sequence[int], generator: Generators) -> Float[Tensor, "n 1 h w"]:
        centre, radius = self.centre(shape).numpy(), self.radius(shape).numpy()
        wanted = self.count(shape) - int(centre.sum())
        height, width = shape[-2:]
        darts = _darts(n, height, width, generator)
        masks = [_fill(order, centre, radius * stretch, wanted) for order, stretch in darts]
        return torch.from_numpy(np.stack(masks)).double()[:, None]

    def draws(self, shape: Sequence[int]) -> int:
        """Number of draws for the Monte Carlo `coverage`: 1,024, and fewer for large images, down to 256."""
        return max(256, min(1_024, 2**23 // (shape[-2] * shape[-1])))

    def coverage(self, shape: Sequence[int]) -> Coverage:
        """E[P] by Monte Carlo, averaged over the up to 8 mirror images of each entry, which all have the same coverage.

        The standard error is that of a single entry, and so an upper bound.
        """
        estimate = super().coverage(shape)
        height, width = shape[-2:]
        value = estimate.value
        value = (value + value[..., (2 * (height // 2) - torch.arange(height)) % height, :]) / 2
        value = (value + value[..., (2 * (width // 2) - torch.arange(width)) % width]) / 2
        value = (value + value.mT) / 2 if height == width else value
        return Coverage(value, estimate.standard_error)


def _growth(height: int, width: int) -> np.ndarray:
    y, x = ((np.arange(size) - size // 2) / (size / 2) for size in (height, width))
    return 1 + 2 * np.hypot(y[:, None], x)


def _darts(n: int, height: int, width: int, generator: Generators) -> Iterator[tuple[list[int], np.ndarray]]:
    """For each sample, the order in which to try the entries, and √(1 + 2 u)."""
    u = uniform((n, 2, height * width), generator, like=DOUBLE)
    for order, stretch in zip(u[:, 0].argsort(dim=1, stable=True), (1 + 2 * u[:, 1]).sqrt(), strict=True):
        yield order.tolist(), stretch.reshape(height, width).numpy()


def _fill(order: list[int], centre: np.ndarray, radius: np.ndarray, wanted: int) -> np.ndarray:
    """The mask with `wanted` entries outside the centre. The radius shrinks by 2 % until they fit."""
    while len(kept := throw(order, centre, radius, wanted)) < wanted:
        radius = 0.98 * radius
    mask = centre.copy()
    mask.flat[kept] = True
    return mask


def throw(order: list[int], centre: np.ndarray, radius: np.ndarray, wanted: int) -> list[int]:
    """Up to `wanted` entries outside the centre, tried in this order. None lies within the radius of an earlier one."""
    height, width = radius.shape
    reach = int(np.ceil(radius.max()))
    y, x = (side.ravel() for side in np.mgrid[-reach : reach + 1, -reach : reach + 1])
    squared = y**2 + x**2
    nearest = np.argsort(squared, kind="stable")
    y, x = y[nearest] + reach, x[nearest] + reach
    # The first `near` of these neighbours lie closer than the radius.
    near = np.searchsorted(squared[nearest], radius.ravel() ** 2).tolist()
    row, column = (np.arange(-reach, size + reach) % size for size in (height, width))
    row = row * width

    # A bytearray reads single entries ten times faster than NumPy, and NumPy writes many entries at once.
    taken = bytearray(centre.astype(np.uint8).tobytes())
    shadow = np.frombuffer(taken, dtype=np.uint8)
    kept: list[int] = []
    for i in order:
        if taken[i]:
            continue
        if len(kept) == wanted:
            break
        kept.append(i)
        k = near[i]
        if k > 1:
            shadow[row[y[:k] + i // width] + column[x[:k] + i % width]] = 1
    return kept


@functools.cache
def _scale(R: float | int, height: int, width: int) -> float:
    """The scale at which 2 % more entries fit than needed, on average over orders with a fixed seed, by bisection."""
    shape = (2, height, width)
    family = PoissonDisc(R)
    centre = family.centre(shape).numpy()
    wanted = 1.02 * (family.count(shape) - int(centre.sum()))
    growth = _growth(height, width)
    trials = max(1, 2**14 // (height * width))
    darts = list(_darts(trials, height, width, keyed_generator(0, Stream.POISSON_DISC_SCALE)))
    # Random discs in the plane reach a density of at most 0.7/r², and r² is on average twice its minimum.
    guess = (0.35 * (1 / growth**2).sum() / wanted) ** 0.5
    low, high = 0.2 * guess, 2 * guess
    for _ in range(10):
        scale = (low * high) ** 0.5
        fit = [len(throw(order, centre, scale * growth * stretch, centre.size)) for order, stretch in darts]
        low, high = (scale, high) if np.mean(fit) >= wanted else (low, scale)
    return low
