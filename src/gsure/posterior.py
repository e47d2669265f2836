"""Conditioning by moment matching: from a denoiser and a measurement to a denoiser of what the measurement leaves open.

DDRM treats each entry on its own. Here the denoiser's Jacobian says how entries hang together: by Tweedie's second formula

    C_t = Cov[x̄ | x̄_t] = (1-ᾱ_t)/√ᾱ_t ∂f/∂x̄_t,

and if x̄ given x̄_t is taken for N(f(x̄_t), C_t), a measurement ȳ = P x̄ + z̄ moves its mean to

    E[x̄ | x̄_t, ȳ] ≈ f + C_t P (P C_t P + P std²)⁻¹ (ȳ - P f)        (Rozet et al., 2024; exact for Gaussian data).

Conjugate gradients solve the system, with a vector-Jacobian product in each iteration. A Gaussian prior N(μ, C) of the signals
has the same system in closed form, with C_t = (C⁻¹ + ς_t⁻²)⁻¹. Its inverse is the preconditioner: the iterations only correct
the difference between the Gaussian and the network. Where the Jacobian is not a covariance, the Gaussian replaces it.

The result is a denoiser again, so any sampler draws from the posterior with it:
`dpm(Posterior(denoiser, measurement, gaussian), measurement.shape, 20, "logsnr", generator=...)`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gsure.denoiser import BaseDenoiser
from gsure.gaussian.base import Gaussian
from gsure.measurement import Measurement

ITERATIVE = 100.0
"""Smallest std² of the preconditioner, as a share of the mean squared residual, over the error of an iterative Gaussian."""
CURVATURE = 0.5
"""A direction counts as one of a covariance if it has at least this share of the curvature that the noise alone has."""


class Posterior(BaseDenoiser):
    """E[x̄ | x̄_t, ȳ] for a batch of measurements; sample k of a batch belongs to measurement k.

    gaussian        prior of the signals, for the preconditioner; without one, it is N(0, 1) for each entry
    tolerance       conjugate gradients end when the residual, in the norm of the preconditioner, is this share of the first
    max_iterations  or after so many iterations, each a vector-Jacobian product, which costs about two network calls
    """

    def __init__(
        self,
        denoiser: BaseDenoiser,
        measurement: Measurement,
        gaussian: Gaussian | None = None,
        tolerance: float = 0.01,
        max_iterations: int = 8,
    ) -> None:
        if max_iterations < 1:
            raise ValueError(
                f"Conjugate gradients need at least one iteration, but max_iterations is {max_iterations}."
            )
        if not 0 <= tolerance < 1:
            raise ValueError(f"tolerance must be at least 0 and below 1, but is {tolerance}.")
        super().__init__()
        self.denoiser, self.schedule, self.basis = denoiser, denoiser.schedule, denoiser.basis
        self.measurement, self.tolerance, self.max_iterations = measurement, tolerance, max_iterations
        self.gaussian = None if gaussian is None else gaussian.centred(measurement)

    def forward(
        self, xbar_t: Float[Tensor, "b *n"], t: Int[Tensor, " b"], condition: Float[Tensor, "..."] | None = None
    ) -> Float[Tensor, "b *n"]:
        if xbar_t.shape != self.measurement.shape:
            raise ValueError(
                f"These are {len(xbar_t)} samples of shape {tuple(xbar_t.shape[1:])} for {len(self.measurement)} measurements "
                f"of {tuple(self.measurement.shape[1:])}: give as many, of the same shape."
            )
        ybar, mask = self.measurement.ybar, self.measurement.mask
        variance = mask * self.measurement.std**2
        alpha_bar_t = self.schedule.at(t, like=xbar_t)
        factor = ((1 - alpha_bar_t) / alpha_bar_t.sqrt()).to(xbar_t)
        with torch.enable_grad():
            x = xbar_t.detach().requires_grad_()
            xbar_hat = self.denoiser(x, t, condition)

        def covariance(v: Tensor) -> Tensor:
            return factor * torch.autograd.grad(xbar_hat, x, v, retain_graph=True)[0]

        def matrix(v: Tensor) -> Tensor:
            return mask * covariance(mask * v)

        residual = mask * (ybar - xbar_hat.detach())
        prior = Preconditioner.at(
            residual, self.measurement, ((1 - alpha_bar_t) / alpha_bar_t).to(xbar_t), self.gaussian
        )
        found = solve(matrix, variance, residual, prior, self.tolerance, self.max_iterations)
        shift = covariance(mask * found.u)
        if bool((~found.is_covariance).any()):
            here = found.is_covariance.reshape(-1, *[1] * (shift.ndim - 1))
            shift = torch.where(here, shift, prior.shift(residual))
        return xbar_hat.detach() + shift


@dataclass(frozen=True, eq=False)
class Preconditioner:
    """r -> (P C_t P + std²)⁻¹ r on the measured entries, for a Gaussian prior N(·, C) of signals and C_t = (C⁻¹ + ς_t⁻²)⁻¹.

    All of it comes from posterior means. To know x̄ with noise ς_t at all entries and with noise std at measured ones is one
    measurement of the variance D = (ς_t⁻² + P/std²)⁻¹. A residual r shifts its posterior mean by d = C_t P u, u being what
    is wanted, so that u = (r - P d)/std².
    """

    gaussian: Gaussian | None
    mask: Float[Tensor, "..."]
    variance: Float[Tensor, "..."]
    """std², or more where rounding would decide: √eps of the mean squared residual."""
    joint: Float[Tensor, "b *n"]
    """D."""
    weight: Float[Tensor, "..."]
    """D P/std², between 0 and 1."""

    @staticmethod
    def at(
        residual: Float[Tensor, "b *n"],
        measurement: Measurement,
        level: Float[Tensor, "b *ones"],
        gaussian: Gaussian | None,
    ) -> "Preconditioner":
        """At the noise level ς_t², `level`. The Gaussian is centred; None is N(0, 1)."""
        mask = measurement.mask
        kept = mask.expand_as(residual).flatten(1).sum(1).clamp(min=1).reshape(level.shape)
        rounding = torch.finfo(residual.dtype).eps ** 0.5  # u is a difference of the order of std²
        if gaussian is not None:
            rounding = max(rounding, ITERATIVE * gaussian.relative_error)
        floor = rounding * _dot(residual, residual) / kept
        variance = torch.maximum(measurement.std**2, floor)
        variance = torch.where(variance > 0, variance, 1.0)  # no residual, so nothing to solve
        joint = level * (variance / (variance + mask * level)).expand_as(residual)
        return Preconditioner(gaussian, mask, variance, joint, mask * level / (variance + mask * level))

    def shift(self, residual: Float[Tensor, "b *n"]) -> Float[Tensor, "b *n"]:
        """d: how the Gaussian's E[x̄ | x̄_t] changes if ȳ - P E[x̄ | x̄_t] is the residual."""
        pulled = self.weight * residual
        if self.gaussian is None:
            return pulled / (1 + self.joint)
        return self.gaussian.mean(Measurement._trusted(pulled, torch.ones_like(pulled), self.joint.sqrt()))

    def __call__(self, residual: Float[Tensor, "b *n"]) -> Float[Tensor, "b *n"]:
        return self.mask * (residual - self.shift(residual)) / self.variance


class Solution(NamedTuple):
    u: Float[Tensor, "b *n"]
    residual: Float[Tensor, " b"]
    """As a share of the first, in the norm of the preconditioner."""
    is_covariance: Bool[Tensor, " b"]
    """False where the matrix was found not to be positive before anything was gained: u is 0 there."""
    iterations: int


def solve(
    matrix: Callable[[Tensor], Tensor],
    diagonal: Float[Tensor, "..."],
    b: Float[Tensor, "b *n"],
    preconditioner: Callable[[Tensor], Tensor],
    tolerance: float,
    max_iterations: int,
) -> Solution:
    """u with matrix(u) + diagonal u ≈ b by preconditioned conjugate gradients from 0, sample by sample.

    A network's Jacobian need not be a covariance. A sample ends once a direction shows up along which `matrix` is not
    positive, and u is the best that was found: from there on the equations are not those of any Gaussian. The iteration is
    the flexible one, which also allows for a preconditioner that is itself iterative or rounded.
    """
    u = best = torch.zeros_like(b)
    residual, steep = b, preconditioner(b)
    direction, size = steep, _dot(b, steep)
    first = torch.where(size > 0, size, 1.0)
    lowest, is_solved = torch.ones_like(size), ~(_dot(b, b) > 0)
    going, iterations = (size > 0) & ~is_solved, 0
    while bool(going.any()) and iterations < max_iterations:
        noise = diagonal * direction
        moved = matrix(direction) + noise
        curvature = _dot(direction, moved)
        going = going & (curvature > CURVATURE * _dot(direction, noise)) & curvature.isfinite()
        step = _divided(size, curvature, going)
        u, before = u + step * direction, residual
        residual = residual - torch.where(going, step * moved, 0.0)
        steep, previous = preconditioner(residual), size
        size = _dot(residual, steep)
        share = torch.where(going, size / first, lowest)
        best, lowest = torch.where(share < lowest, u, best), torch.minimum(share, lowest)
        going = going & (share > tolerance**2)
        direction = steep + _divided(_dot(residual - before, steep), previous, going) * direction
        iterations += 1
    gained = is_solved | (lowest < 1)
    left = torch.where(is_solved, 0.0, lowest.clamp(min=0).sqrt())
    return Solution(best, left.flatten(), gained.flatten(), iterations)


def _divided(a: Tensor, b: Tensor, where: Tensor) -> Tensor:
    return torch.where(where, a / torch.where(where, b, 1.0), 0.0)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).flatten(1).sum(1).reshape(-1, *[1] * (a.ndim - 1))
