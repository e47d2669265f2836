"""Conditioning by moment matching: from a denoiser and a measurement to a denoiser of what the measurement leaves open.

DDRM treats each entry on its own. Here the denoiser's Jacobian says how entries hang together: by Tweedie's second formula

    C_t = Cov[x̄ | x̄_t] = (1-ᾱ_t)/√ᾱ_t ∂f/∂x̄_t,

and if x̄ given x̄_t is taken for N(f(x̄_t), C_t), a measurement ȳ = P x̄ + z̄ moves its mean to

    E[x̄ | x̄_t, ȳ] ≈ f + C_t P (P C_t P + P std²)⁻¹ (ȳ - P f)        (Rozet et al., 2024; exact for Gaussian data).

The system is solved by a few conjugate-gradient steps, each a vector-Jacobian product. The result is a denoiser again, so any
sampler draws from the posterior with it: `ddim(Posterior(denoiser, measurement), measurement.shape, generator=...)`.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gsure.denoiser import BaseDenoiser
from gsure.measurement import Measurement


class Posterior(BaseDenoiser):
    """E[x̄ | x̄_t, ȳ] for a batch of measurements; sample k of a batch belongs to measurement k.

    Each of the `iterations` of conjugate gradients costs a vector-Jacobian product, about two network calls; one comes last.
    """

    def __init__(self, denoiser: BaseDenoiser, measurement: Measurement, iterations: int = 3) -> None:
        if iterations < 1:
            raise ValueError(f"Conjugate gradients need at least one iteration, but {iterations} were asked for.")
        super().__init__()
        self.denoiser, self.schedule, self.basis = denoiser, denoiser.schedule, denoiser.basis
        self.measurement, self.iterations = measurement, iterations

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

        residual = mask * (ybar - xbar_hat.detach())
        u = solve(lambda v: mask * covariance(mask * v), variance, residual, self.iterations)
        return xbar_hat.detach() + covariance(mask * u)


def solve(
    matrix: Callable[[Tensor], Tensor], diagonal: Float[Tensor, "..."], b: Float[Tensor, "b *n"], iterations: int
) -> Float[Tensor, "b *n"]:
    """u with matrix(u) + diagonal u ≈ b by conjugate gradients from 0, sample by sample.

    A network's Jacobian need not be a covariance. A sample is left as it is once a direction shows up along which `matrix` is
    not positive: from there on the equations are not those of any Gaussian.
    """
    u, residual, direction = torch.zeros_like(b), b, b
    size = _dot(residual, residual)
    going = size > 0
    for _ in range(iterations):
        moved = matrix(direction)
        going = going & (_dot(direction, moved) > 0)
        moved = moved + diagonal * direction
        step = _divided(size, _dot(direction, moved), going)
        u, residual = u + step * direction, residual - step * moved
        before, size = size, _dot(residual, residual)
        going = going & (size > 0)
        direction = residual + _divided(size, before, going) * direction
    return u


def _divided(a: Tensor, b: Tensor, where: Tensor) -> Tensor:
    return torch.where(where, a / torch.where(where, b, 1.0), 0.0)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).flatten(1).sum(1).reshape(-1, *[1] * (a.ndim - 1))
