"""A Gaussian prior in closed form, from the second moments of measurements.

Two entries that are sometimes measured together show how they are correlated, whatever else is missing:

    C_ij = Σ ȳ_i ȳ_j / #{i and j measured},    less the mean of std² where i = j.

The posterior of N(0, C) is known in closed form, so it can impute measurements before any network has been trained.
"""

from collections.abc import Iterable

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from gsure.measurement import Measurement
from gsure.random import Seed, as_generators, normal

MAX_ENTRIES = 4096
"""Above this, a covariance matrix is too large to invert for each measurement."""
EIGENVALUE_FLOOR = 1e-3
"""Smallest eigenvalue, as a share of the mean variance: otherwise directions that few samples show would count as known."""


def check_size(n: int) -> None:
    """Raise an error if a Gaussian of so many entries is too large."""
    if n > MAX_ENTRIES:
        raise ValueError(
            f"A Gaussian with a full covariance of {n:,} entries is too large: {MAX_ENTRIES:,} are the most."
        )


class Gaussian:
    """x̄ ~ N(0, C). C are second moments, so that a mean, if there is one, is one of its directions.

    With `pairs`, channels are real and imaginary parts, and the distribution is one of complex numbers that does not depend on
    their phase: half as many numbers to learn.
    """

    def __init__(self, covariance: Shaped[Tensor, "n n"], pairs: bool = False) -> None:
        self.pairs = pairs
        variances, directions = torch.linalg.eigh((covariance + covariance.mH) / 2)
        if not float(variances.mean()) > 0:
            raise ValueError(
                "The second moments show no signal: the stated noise, std, is as large as all that was measured. Check std."
            )
        lowest = EIGENVALUE_FLOOR * float(variances.mean())
        variances = variances.clamp(min=lowest)  # moments of few samples can go below 0
        self.root = directions * variances.sqrt()
        self.covariance = self.root @ self.root.mH

    @classmethod
    def fit(cls, measurements: Iterable[Measurement], pairs: bool = False) -> "Gaussian":
        """To the moments of all these batches. Entries that were never measured together count as unrelated.

        >>> x = torch.randn(4000, 1, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 2.0])
        >>> Gaussian.fit([Measurement.clean(x)]).covariance.round().int()
        tensor([[1, 2],
                [2, 4]], dtype=torch.int32)
        """
        sums, counts, noise = torch.zeros(()), torch.zeros(()), torch.zeros(())
        for measurement in measurements:
            ybar = _vectors(measurement.ybar, pairs)
            check_size(ybar.shape[1])
            mask = _kept(measurement, pairs).double()
            sums = sums + ybar.mT @ ybar.conj()
            counts = counts + mask.mT @ mask
            noise = noise + (mask * _variance(measurement, pairs)).sum(0)
        return cls((sums - noise.diag()) / counts.clamp(min=1), pairs)

    def mean(self, measurement: Measurement) -> Float[Tensor, "b *n"]:
        """E[x̄ | ȳ] = C P (P C P + std²)⁻¹ ȳ."""
        parts = (_vectors(measurement.ybar, self.pairs), *(f(measurement, self.pairs) for f in (_kept, _variance)))
        means = []
        for ybar, keep, noise in zip(*parts, strict=True):
            across = self.covariance[:, keep]
            means.append(across @ torch.linalg.solve(across[keep] + noise[keep].diag(), ybar[keep]))
        return self._signals(torch.stack(means), measurement.ybar)

    def draw(self, measurement: Measurement, generator: Seed) -> Float[Tensor, "b *n"]:
        """One draw from p(x̄ | ȳ) for each: a draw from N(0, C), corrected by the posterior mean of its residual."""
        ybar, mask, std = measurement.ybar, measurement.mask, measurement.std
        generator = as_generators(generator, ybar.device)
        white = _vectors(normal(ybar.shape, generator, ybar), self.pairs)
        if self.pairs:
            white = white / 2**0.5  # a complex number of variance 1
        drawn = self._signals(white @ self.root.mT, ybar)
        residual = mask * (ybar - drawn - std * normal(ybar.shape, generator, ybar))
        return drawn + self.mean(Measurement._trusted(residual, mask, std))

    def _signals(self, vectors: Shaped[Tensor, "b n"], like: Tensor) -> Tensor:
        if not self.pairs:
            return vectors.to(like).reshape(like.shape)
        parts = torch.view_as_real(vectors.reshape(len(like), -1, *like.shape[2:]))
        return parts.movedim(-1, 2).to(like).reshape(like.shape)


def _vectors(xbar: Tensor, pairs: bool) -> Tensor:
    xbar = xbar.double()
    return (torch.complex(xbar[:, 0::2], xbar[:, 1::2]) if pairs else xbar).flatten(1)


def _kept(measurement: Measurement, pairs: bool) -> Tensor:
    mask = measurement.mask.expand_as(measurement.ybar) == 1
    return (mask[:, 0::2] if pairs else mask).flatten(1)


def _variance(measurement: Measurement, pairs: bool) -> Tensor:
    variance = measurement.std.double().square().expand_as(measurement.ybar)
    return (2 * variance[:, 0::2] if pairs else variance).flatten(1)
