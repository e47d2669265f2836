"""Restoration by total variation, the classical method without training: images with few edges that agree with the data.

    x̂ = argmin_x  ½ Σ_i w_i (ȳ_i - x̄_i)² + λ Σ_pixels ‖∇x‖,    over measured entries i.

It is isotropic: ‖∇x‖ is one norm of both directions and of all channels, so real and imaginary parts have edges together.
Solved by the primal-dual method of Chambolle and Pock (2011).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

ITERATIONS = 500
TOLERANCE = 3e-4
"""A sample has converged when a step moves it by less than this share of its norm."""
STEP_RATIO = 0.3
"""Primal over dual step size, in units of the signal over λ: chosen for speed, the solution does not depend on it."""
Transform = Callable[[Tensor], Tensor]


class Restored(NamedTuple):
    """Images, and whether each of them has converged."""

    x: Float[Tensor, "b c h w"]
    converged: Bool[Tensor, " b"]


def total_variation(
    ybar: Float[Tensor, "b c h w"],
    weight: Float[Tensor, "b _ _ _"],
    strength: float | Float[Tensor, " b"],
    to_spectral: Transform,
    to_signal: Transform,
    iterations: int = ITERATIONS,
) -> Restored:
    """`weight` is w, zero for missing entries: 1 for white noise, or inversely proportional to the variance of the noise.

    `strength` is λ, one number or one per image; `to_spectral` and `to_signal` are those of the basis of ȳ.
    """
    shape = [-1] + [1] * (ybar.ndim - 1)
    lam = torch.as_tensor(strength, dtype=ybar.dtype, device=ybar.device).expand(len(ybar)).reshape(shape)
    x = to_signal(ybar)
    size = x.flatten(1).square().mean(1).sqrt().reshape(shape)
    ratio = (STEP_RATIO * size / lam).clamp(1e-3, 1e4)
    tau, sigma = ratio / 8**0.5, 1 / (ratio * 8**0.5)  # their product times ‖∇‖² = 8 is 1
    ahead, dual = x, torch.zeros_like(torch.stack([x, x], 1))
    converged = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for _ in range(iterations):
        dual = dual + sigma[:, None] * gradient(ahead)
        length = dual.square().sum((1, 2), keepdim=True).sqrt()
        dual = dual / (length / lam[:, None]).clamp(min=1)
        step = to_spectral(x - tau * _adjoint(dual))
        before, x = x, to_signal((step + tau * weight * ybar) / (1 + tau * weight))
        ahead = 2 * x - before
        moved, norm = (part.flatten(1).norm(dim=1) for part in (x - before, x))
        converged = moved <= TOLERANCE * norm
        if bool(converged.all()):
            break
    return Restored(x, converged)


def gradient(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b 2 c h w"]:
    """Differences to the next row and to the next column; none at the border."""
    down, right = torch.zeros_like(x), torch.zeros_like(x)
    down[..., :-1, :] = x[..., 1:, :] - x[..., :-1, :]
    right[..., :-1] = x[..., 1:] - x[..., :-1]
    return torch.stack([down, right], 1)


def _adjoint(p: Float[Tensor, "b 2 c h w"]) -> Float[Tensor, "b c h w"]:
    down, right = p[:, 0], p[:, 1]
    x = torch.zeros_like(down)
    x[..., :-1, :] -= down[..., :-1, :]
    x[..., 1:, :] += down[..., :-1, :]
    x[..., :-1] -= right[..., :-1]
    x[..., 1:] += right[..., :-1]
    return x
