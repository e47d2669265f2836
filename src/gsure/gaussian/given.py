"""A Gaussian given the measured entries, of which the missing ones are then seen too, at noise levels that fall.

Drawing in context asks for E[v | measured entries, missing ones with noise s] at many levels s, for several draws of one
measurement. Only s and the values of the missing entries change. So the posterior given the measured entries is found once,
and its covariance at the missing entries is turned to its eigenvectors:

    v | ȳ ~ N(m, S),    A S Aᵀ = U diag(λ) Uᵀ,    E[v | ȳ, A v + s · noise = z] = m + S Aᵀ U diag(1/(λ + s²)) Uᵀ (z - A m),

where A takes the missing entries. Each level then costs two products with matrices, instead of a system to be solved.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from gsure.gaussian.base import Gaussian
from gsure.measurement import Measurement

EstimateAndPhase = tuple[Float[Tensor, "k *n"], Shaped[Tensor, "k p h w"] | None]


class Given(ABC):
    """What `Gaussian.given` makes of b measurements."""

    @abstractmethod
    def mean_and_phase(self, missing: Float[Tensor, "k *n"], level: float) -> EstimateAndPhase:
        """E[x̄ | ȳ, missing entries with noise of std `level`], and the phase reference.

        `missing` has a value for each entry; those of measured entries are not used. Sample j belongs to measurement j mod b.
        """


@dataclass(frozen=True, eq=False)
class SolvedAnew(Given):
    """For any Gaussian: each level is a measurement of its own, in which nothing is missing."""

    gaussian: Gaussian
    measurement: Measurement

    def mean_and_phase(self, missing: Float[Tensor, "k *n"], level: float) -> EstimateAndPhase:
        return self.gaussian.mean_and_phase(filled(self.measurement, missing, level))


def filled(measurement: Measurement, missing: Float[Tensor, "k *n"], level: float) -> Measurement:
    """The measurements, repeated, with these values at this noise where entries are missing."""
    times = len(missing) // len(measurement)
    ybar, mask = measurement.ybar.repeat(times, *[1] * (missing.ndim - 1)), _repeated(measurement.mask, times)
    std = torch.where(mask == 1, _repeated(measurement.std, times), missing.new_full((), level))
    return Measurement._trusted(torch.where(mask == 1, ybar, missing), missing.new_ones([1] * missing.ndim), std)


def _repeated(part: Tensor, times: int) -> Tensor:
    return part if len(part) == 1 else part.repeat(times, *[1] * (part.ndim - 1))


@dataclass(frozen=True, eq=False)
class Turned:
    """m (r, b, v), A (r, b, k, v), the eigenvectors U (r, b, k, k), S Aᵀ U (r, b, v, k) and the eigenvalues λ (r, b, k)."""

    mean: Tensor
    matrix: Tensor
    rotation: Tensor
    response: Tensor
    eigenvalues: Tensor

    @staticmethod
    def of(mean: Tensor, matrix: Tensor, covariance: Tensor) -> "Turned":
        """From m, A and S (r, b, v, v)."""
        across = covariance @ matrix.mT  # S Aᵀ
        eigenvalues, rotation = torch.linalg.eigh(matrix @ across)
        return Turned(mean, matrix, rotation, across @ rotation, eigenvalues.clamp(min=0))

    @staticmethod
    def cat(parts: Sequence["Turned"]) -> "Turned":
        """Of all measurements."""
        names = [field.name for field in fields(Turned)]
        return Turned(*(torch.cat([getattr(part, name) for part in parts], 1) for name in names))

    def posterior_mean(self, values: Float[Tensor, "d r b k"], level: float) -> Float[Tensor, "d r b v"]:
        """E[v | ȳ, z = `values`], for d draws of each measurement."""
        away = values.movedim(0, 2) - (self.matrix @ self.mean[..., None]).mT  # r, b, d, k
        turned = (away @ self.rotation) / (self.eigenvalues[..., None, :] + level**2)
        return (self.mean[..., None, :] + turned @ self.response.mT).movedim(2, 0)
