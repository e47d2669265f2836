"""A stationary Gaussian: an image is as likely as a shifted one, but for the mean. For masks and sizes that nothing else fits.

C = Fᴴ diag(s) F with a power spectrum s. Where masks are in a transform domain, s is the variance of each of its entries, and
the posterior is known entry by entry. Where masks are in signal space, it needs conjugate gradients.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.basis import Basis
from gsure.gaussian.base import Gaussian
from gsure.measurement import Measurement
from gsure.random import Seed, as_generators, normal

ITERATIONS, RESIDUAL = 200, 1e-4
"""Conjugate gradients end at this share of the first residual, or after so many iterations."""
FLOOR = 1e-3
"""Smallest value of the spectrum, as a share of the mean."""
DRAWS = 32
"""Posterior draws of which `std` is taken where there is no closed form."""


@dataclass(frozen=True, eq=False)
class StationaryGaussian(Gaussian):
    """`mean` is that of x̄; `power` the spectrum of images (Hartley's, of real images) or of each entry of a spectral basis."""

    basis: Basis
    mu: Float[Tensor, "1 *n"]
    power: Float[Tensor, "1 *n"]

    def to(self, device: torch.device | str) -> "StationaryGaussian":
        return replace(self, mu=self.mu.to(device), power=self.power.to(device))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return {"mean": self.mu, "power": self.power}, {"structure": "stationary", "shape": list(self.mu.shape[1:])}

    def mean(self, measurement: Measurement) -> Float[Tensor, "b *n"]:
        mask, variance = measurement.mask, (measurement.mask * measurement.std) ** 2
        residual = measurement.ybar - mask * self.mu
        if not self.basis.is_signal:
            return self.mu + mask * self.power / (self.power + variance + (1 - mask)) * residual
        solved = _conjugate_gradients(lambda v: mask * self._covariance(mask * v) + variance * v, residual, mask)
        return self.mu + self._covariance(mask * solved)

    def denoise(self, ybar: Float[Tensor, "b *n"], sigma: Float[Tensor, " b"]) -> Float[Tensor, "b *n"]:
        gain = self.power / (self.power + sigma.reshape(-1, *[1] * (ybar.ndim - 1)) ** 2)
        if self.basis.is_signal:
            return self.mu + hartley(gain * hartley(ybar - self.mu))
        return self.mu + gain * (ybar - self.mu)

    @property
    def variances(self) -> Float[Tensor, " k"]:
        return self.power.flatten()

    def std(self, measurement: Measurement) -> Float[Tensor, "b *n"]:
        draws = [self.draw(measurement, seed) - self.mean(measurement) for seed in range(DRAWS)]
        return torch.stack([self.basis.to_signal(one) for one in draws]).square().mean(0).sqrt()

    def draw(self, measurement: Measurement, generator: Seed) -> Float[Tensor, "b *n"]:
        ybar, mask, std = measurement.ybar, measurement.mask, measurement.std
        generator = as_generators(generator, ybar.device)
        drawn = self.power.sqrt() * normal(ybar.shape, generator, ybar)
        if self.basis.is_signal:
            drawn = hartley(drawn)
        noise = std * normal(ybar.shape, generator, ybar)
        residual = Measurement._trusted(mask * (ybar - self.mu - drawn - noise), mask, std)
        return self.mu + drawn + self.centred(residual).mean(residual)

    def centred(self, measurement: Measurement) -> "StationaryGaussian":
        return replace(self, mu=torch.zeros_like(self.mu))

    @property
    def relative_error(self) -> float:
        return RESIDUAL if self.basis.is_signal else 0.0

    def _covariance(self, v: Float[Tensor, "b *n"]) -> Float[Tensor, "b *n"]:
        return hartley(self.power * hartley(v))


def fit_stationary(batches: Callable[[], Iterable[Measurement]], basis: Basis) -> StationaryGaussian:
    """Two passes: the mean of each entry, then its power, or that of all images at each shift."""
    sums = counts = torch.zeros(())
    for batch in batches():
        sums, counts = sums + batch.ybar.double().sum(0), counts + batch.mask.expand_as(batch.ybar).double().sum(0)
    mu = (sums / counts.clamp(min=1)).float()[None]
    power = pairs = torch.zeros(())
    for batch in batches():
        mask = batch.mask.expand_as(batch.ybar)
        away, noise = batch.ybar - mask * mu, (mask * batch.std**2).double()
        if basis.is_signal:  # sums over all pairs of measured pixels at each shift
            power = power + torch.fft.fft2(away.double()).abs().square().sum(0)
            power = power - noise.sum((-2, -1), keepdim=True).sum(0)
            pairs = pairs + torch.fft.fft2(mask.double()).abs().square().sum(0)
        else:
            power, pairs = power + (away.double() ** 2 - noise).sum(0), pairs + mask.double().sum(0)
    if basis.is_signal:
        covariance = torch.fft.ifft2(power).real / torch.fft.ifft2(pairs).real.clamp(min=0.5)
        spectrum = torch.fft.fft2(covariance).real
    else:
        spectrum = power / pairs.clamp(min=1)
    floor = FLOOR * spectrum.mean().clamp(min=1e-12)
    return StationaryGaussian(basis, mu, torch.maximum(spectrum, floor).float()[None])


def hartley(x: Float[Tensor, "b *n"]) -> Float[Tensor, "b *n"]:
    """Orthonormal, its own inverse, over the last two axes."""
    z = torch.fft.fft2(x, norm="ortho")
    return z.real - z.imag


def _conjugate_gradients(matrix: object, b: Tensor, mask: Tensor) -> Tensor:
    """u with matrix(u) = b on the measured entries, sample by sample."""

    def dot(p: Tensor, q: Tensor) -> Tensor:
        return (p * q).flatten(1).sum(1).reshape(-1, *[1] * (p.ndim - 1))

    u, residual = torch.zeros_like(b), b * mask
    direction, size = residual, dot(residual, residual)
    goal = RESIDUAL**2 * size
    for _ in range(ITERATIONS):
        going = size > goal
        if not bool(going.any()):
            break
        moved = mask * matrix(direction)  # type: ignore[operator]
        step = torch.where(going, size / dot(direction, moved).clamp(min=1e-30), 0.0)
        u, residual = u + step * direction, residual - step * moved
        before, size = size, dot(residual, residual)
        direction = torch.where(going, residual + size / before.clamp(min=1e-30) * direction, direction)
    return u
