"""Linear algebra of image rows relative to a phase reference u: vectors [Re; Im] of conj(u) · row, and entries of spectra.

Drawing in context asks for E[v | measured entries, missing ones with noise s] at many levels s, for several draws of one
measurement. Only s and the values of the missing entries change. So the posterior given the measured entries is found once,
and its covariance at the missing entries is turned to its eigenvectors:

    v | ȳ ~ N(m, S),    A S Aᵀ = U diag(λ) Uᵀ,    E[v | ȳ, A v + s · noise = z] = m + S Aᵀ U diag(1/(λ + s²)) Uᵀ (z - A m),

where A takes the missing entries. Each level then costs two products with matrices, instead of a system to be solved.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from gsure.gaussian.base import EstimateAndPhase, Given
from gsure.gaussian.coordinates import Rows, centred


@dataclass(frozen=True, eq=False)
class System:
    """A (r, b, k, v), A C, the Cholesky factor of A C Aᵀ + std², and the residual ȳ - A μ."""

    matrix: Tensor
    across: Tensor
    factor: Tensor
    residual: Tensor

    def shift(self) -> Float[Tensor, "r b v"]:
        """E[v | ȳ] - μ."""
        return (self.across.mT @ torch.cholesky_solve(self.residual[..., None], self.factor))[..., 0]

    def explained(self) -> Float[Tensor, "r b v k"]:
        return torch.linalg.solve_triangular(self.factor, self.across, upper=False).mT

    def information(self) -> Float[Tensor, "r v v"]:
        """Σ over samples of Aᵀ (A C Aᵀ + std²)⁻¹ A."""
        half = torch.linalg.solve_triangular(self.factor, self.matrix, upper=False).flatten(1, 2)
        return half.mT @ half


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


@dataclass(frozen=True, eq=False)
class GivenReferenced(Given):
    """Rows relative to a phase reference, given the measured entries."""

    rows: Rows
    u: Shaped[Tensor, "b r w"]
    order: Int[Tensor, "b k"]
    valid: Float[Tensor, "b k"]
    """The missing entries of each row, and which of them are; masks miss different numbers."""
    turned: Turned

    def mean_and_phase(self, missing: Float[Tensor, "k *n"], level: float) -> EstimateAndPhase:
        times = len(missing) // len(self.u)
        order, valid = self.order.repeat(times, 1), self.valid.repeat(times, 1)
        values = entries_at(self.rows.spectra(missing), order, valid)  # r, times * b, 2 k
        found = self.turned.posterior_mean(values.unflatten(1, (times, -1)).movedim(1, 0), level)
        u = self.u.repeat(times, 1, 1)
        image = u * from_parts(found.movedim(2, 1).flatten(0, 1))
        return self.rows.spectral(to_spectrum(image)).to(missing), plane_of(self.rows, u)


def first_entries(mask: Float[Tensor, "b w"]) -> tuple[Int[Tensor, "b k"], Float[Tensor, "b k"]]:
    """The entries of each mask, as many as the largest has; and 1 for those that are in it, or else 0."""
    kept = int(mask.sum(1).max())
    order = mask.argsort(dim=1, descending=True, stable=True)[:, :kept]
    return order, mask.gather(1, order)


def matrix_of(
    order: Int[Tensor, "b k"], valid: Float[Tensor, "b k"], u: Shaped[Tensor, "b r w"]
) -> Float[Tensor, "r b j v"]:
    """A: from [Re; Im] of rows relative to u to [Re; Im] of these entries of their spectrum."""
    transform = to_spectrum(torch.eye(u.shape[-1], dtype=u.dtype, device=u.device)[None])[0].T
    seen = (transform[order] * valid[..., None])[:, None] * u[:, :, None]  # b, r, k, w
    upper, lower = torch.cat([seen.real, -seen.imag], 3), torch.cat([seen.imag, seen.real], 3)
    return torch.cat([upper, lower], 2).movedim(0, 1)


def entries_at(
    spectra: Shaped[Tensor, "b r w"], order: Int[Tensor, "b k"], valid: Float[Tensor, "b k"]
) -> Float[Tensor, "r b j"]:
    """[Re; Im] of these entries; 0 for those that are not valid."""
    found = spectra.gather(2, order[:, None].expand(-1, spectra.shape[1], -1)) * valid[:, None]
    return as_parts(found).movedim(0, 1)


def plane_of(rows: Rows, values: Shaped[Tensor, "b r w"]) -> Shaped[Tensor, "b p h w"]:
    """Rows of images as images."""
    return values.unflatten(1, (-1, rows.neighbours)).movedim(2, rows.axis)


def from_parts(v: Float[Tensor, "... v"]) -> Shaped[Tensor, "... w"]:
    w = v.shape[-1] // 2
    return torch.complex(v[..., :w], v[..., w:])


def as_parts(z: Shaped[Tensor, "... w"]) -> Float[Tensor, "... v"]:
    """[Re; Im]."""
    return torch.cat([z.real, z.imag], -1)


def to_image(rows: Tensor) -> Tensor:
    return centred(torch.fft.ifft, rows, -1)


def to_spectrum(rows: Tensor) -> Tensor:
    return centred(torch.fft.fft, rows, -1)


def unit(z: Tensor) -> Tensor:
    return z / z.abs().clamp(min=1e-20)


def over_rows(rows: Shaped[Tensor, "b r w"], neighbours: int, width: float) -> Shaped[Tensor, "b r w"]:
    """Smoothed by a Gaussian over the rows of each image."""
    radius = max(1, int(3 * width))
    weights = torch.exp(-0.5 * (torch.arange(-radius, radius + 1, device=rows.device) / width) ** 2)
    weights = weights / weights.sum()
    images = rows.unflatten(1, (-1, neighbours))
    edge = [images[:, :, :1].expand(-1, -1, radius, -1), images, images[:, :, -1:].expand(-1, -1, radius, -1)]
    padded = torch.cat(edge, 2)
    smoothed = sum(weight * padded[:, :, k : k + neighbours] for k, weight in enumerate(weights))
    assert isinstance(smoothed, Tensor)
    return smoothed.flatten(1, 2)
