"""Blur by a random kernel: y = h * x + z, a circular convolution. In the Hartley basis Σ = |ĥ| for every real kernel h."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gsure.basis import Hartley
from gsure.corruption.base import DOUBLE, Corruption, check_image
from gsure.random import Generators, Stream, keyed_generator, uniform

Kind = Literal["gaussian", "motion"]


@dataclass(frozen=True)
class Blur(Corruption):
    """Convolves each image with its own kernel, whose width in pixels is uniform on `width` = (low, high).

    kind     "gaussian", with standard deviation `width`; or "motion", a straight line of length `width` at a random angle
    cutoff   singular values up to this value count as zero. A measured entry has noise of std σ_0/|ĥ|, which the cutoff limits
             to σ_0/cutoff, by default 10 σ_0. A lower cutoff measures weaker frequencies, but raises the first noise level of
             the schedule, which must be at least the largest std of a measured entry.
    """

    kind: Kind = "gaussian"
    width: tuple[float | int, float | int] = (0.4, 1.2)
    cutoff: float = 0.1
    basis = Hartley()

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind must be {' or '.join(get_args(Kind))}, but is {self.kind!r}.")
        if not 0 < self.width[0] <= self.width[1] < float("inf"):
            raise ValueError(f"width must be (low, high) with 0 < low <= high, in pixels, but is {self.width}.")
        if not 0 < self.cutoff < 1:
            raise ValueError(
                f"cutoff must lie in (0, 1), but is {self.cutoff}: 0 would keep entries that are pure noise, and 1 would drop "
                "even the mean."
            )

    def check_shape(self, shape: Sequence[int]) -> None:
        check_image(self, shape)
        if self.width[1] > min(shape[-2:]):
            raise ValueError(
                f"Kernels up to {self.width[1]:g} pixels wide do not fit images of {shape[-2]}x{shape[-1]}: reduce width."
            )

    def kernels(self, n: int, shape: Sequence[int], generator: Generators) -> Float[Tensor, "n h w"]:
        """n kernels of sum 1, centred at entry (0, 0), periodic."""
        u = uniform((n, 2), generator, like=DOUBLE)
        low, high = self.width
        width, angle = low + (high - low) * u[:, :1], torch.pi * u[:, 1:]
        if self.kind == "gaussian":
            rows, columns = (_bell(size, width) for size in shape[-2:])
            return rows[:, :, None] * columns[:, None, :]
        along = width * torch.linspace(-0.5, 0.5, 8 * round(high + 1) + 1, dtype=torch.float64)
        return _splat(along * angle.sin(), along * angle.cos(), *shape[-2:])

    def svals(self, n: int, shape: Sequence[int], generator: Generators) -> Float[Tensor, "n 1 h w"]:
        return torch.fft.fft2(self.kernels(n, shape, generator)).abs()[:, None]

    def lost(self, shape: Sequence[int]) -> Bool[Tensor, "h w"]:
        """The frequencies with an estimated `coverage` of 0. Training cannot learn anything about them."""
        return self.coverage(shape).value[0, 0] == 0

    def advice(self, shape: Sequence[int]) -> str | None:
        """Which frequencies the cutoff always drops and what to do about it, in a sentence; None if it drops none."""
        lost = self.lost(shape)
        if not lost.any():
            return None
        height, width = shape[-2:]
        frequency = torch.hypot(torch.fft.fftfreq(height)[:, None], torch.fft.fftfreq(width))
        n = max(1, min(self.draws(shape), 2**25 // (height * width)))
        strongest = self.svals(n, shape, keyed_generator(0, Stream.BLUR_ADVICE)).amax((0, 1))
        least = float(strongest.min())
        # A cutoff below 0.02 would amplify the noise more than 50 times.
        remedy = f"a cutoff below {least:.2g}, or " if least > 0.02 else ""
        return (
            f"The cutoff {self.cutoff:g} always loses {int(lost.sum())} of {lost.numel()} frequencies, from "
            f"{float(frequency[lost].min()):.2f} cycles a pixel on: use {remedy}narrower kernels than width = {self.width}."
        )


def _bell(size: int, width: Tensor) -> Tensor:
    """Periodic Gaussians of sum 1, centred at entry 0."""
    distance = size * torch.fft.fftfreq(size, dtype=torch.float64)
    bell = torch.exp(-0.5 * (distance / width) ** 2)
    return bell / bell.sum(1, keepdim=True)


def _splat(y: Tensor, x: Tensor, height: int, width: int) -> Tensor:
    """A kernel of points of equal weight. Bilinear interpolation spreads each over the four entries around it."""
    kernel = torch.zeros(len(y), height * width, dtype=y.dtype)
    for row in (y.floor(), y.floor() + 1):
        for column in (x.floor(), x.floor() + 1):
            weight = (1 - (y - row).abs()) * (1 - (x - column).abs()) / y.shape[1]
            kernel = kernel.scatter_add(1, (row.long() % height) * width + column.long() % width, weight)
    return kernel.reshape(-1, height, width)
