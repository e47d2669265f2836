"""What a user would take without a network: the pseudo-inverse, total variation, and the Gaussian prior of a run.

Total variation is the classical method without training. It gives images with few edges that agree with the data:

    x̂ = argmin_x  ½ Σ_i w_i (ȳ_i - x̄_i)² + λ Σ_pixels ‖∇x‖,    over measured entries i.

It is isotropic: ‖∇x‖ is one norm of both directions and of all channels, so real and imaginary parts have edges together.
Solved by the primal-dual method of Chambolle and Pock (2011).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gsure.basis import Basis
from gsure.data.source import evenly_spread
from gsure.gaussian import About, Gaussian, with_conjugates
from gsure.measurement import Measurement, Partner, draw_hidden
from gsure.random import Stream, keyed_generator

STRENGTHS = (1e-3, 1e-2, 1e-1)
"""Of total variation, in units of the root mean square of the image that the pseudo-inverse gives."""
FINER = 10**0.5
"""Then those above and below the best by this factor are tried."""
CHOSEN_BY, CHOICE_PIXELS, CHOICE_ITERATIONS = 16, 16 * 64**2, 200
"""Images by which the strength is chosen, at most; at least two, if they have more pixels than this; iterations for it."""
HIDDEN_SHARE = 0.3
"""Of the measured units, hidden to choose the strength."""
ITERATIONS = 500
TOLERANCE = 3e-4
"""A sample has converged when a step moves it by less than this share of its norm."""
STEP_RATIO = 0.3
"""Primal over dual step size, in units of the signal over λ: chosen for speed, the solution does not depend on it."""
Transform = Callable[[Tensor], Tensor]


class Estimated(NamedTuple):
    """Signals by kind: baseline, total_variation and gaussian, as far as each applies; and what a user should know."""

    signals: dict[str, Float[Tensor, "b *n"]]
    unconverged: int
    """Images for which total variation did not converge."""


@dataclass(frozen=True)
class Baselines:
    """Estimates from measurements in the basis of a model. `choose` makes them."""

    basis: Basis
    strength: float | None
    """Of total variation; None for signals that are not images."""
    gaussian: Gaussian | None
    real_images: bool

    @classmethod
    def choose(
        cls,
        measurement: Measurement,
        about: About,
        gaussian: Gaussian | None = None,
        seed: int = 0,
        real_images: bool = False,
    ) -> "Baselines":
        """The strength of total variation is the one that predicts hidden entries of these measurements best.

        Images are real if you say so, or if the Gaussian does.
        """
        real = real_images or (gaussian is not None and gaussian.real_images)
        found = cls(about.basis, None, gaussian, real)
        if len(about.shape) != 3 or min(about.shape[1:]) < 2 or measurement.mask[0].numel() == 1:
            return found
        few = max(2, min(CHOSEN_BY, CHOICE_PIXELS // (about.shape[1] * about.shape[2])))
        some = measurement[evenly_spread(few, len(measurement))]
        return cls(about.basis, found._choose_strength(some, about, seed), gaussian, real)

    @property
    def kinds(self) -> tuple[str, ...]:
        found = ("baseline",) if self.strength is None else ("baseline", "total_variation")
        return found if self.gaussian is None else (*found, "gaussian")

    def __call__(self, measurement: Measurement) -> Estimated:
        found, unconverged = {"baseline": self.basis.to_signal(measurement.ybar)}, 0
        if self.strength is not None:
            found["total_variation"], unconverged = self._total_variation(measurement, self.strength)
        if self.gaussian is not None:
            found["gaussian"] = self.basis.to_signal(self.gaussian.mean(measurement))
        return Estimated(found, unconverged)

    def _total_variation(
        self, measurement: Measurement, strength: float | Tensor, iterations: int = ITERATIONS
    ) -> tuple[Float[Tensor, "b *n"], int]:
        if self.real_images:
            measurement = with_conjugates(measurement, self.basis)
        variance = (measurement.mask * measurement.std**2).expand_as(measurement.mask)
        mean = (variance.flatten(1).sum(1) / measurement.mask.flatten(1).sum(1).clamp(min=1)).reshape(
            -1, *[1] * (variance.ndim - 1)
        )
        weight = measurement.mask * torch.where(mean > 0, mean / variance.clamp(min=1e-3 * mean + 1e-30), 1.0)
        size = self.basis.to_signal(measurement.ybar).flatten(1).square().mean(1).sqrt().clamp(min=1e-12)
        found = total_variation(
            measurement.ybar, weight, strength * size, self.basis.to_spectral, self.basis.to_signal, iterations
        )
        x = found.x
        if self.real_images:
            x = torch.stack([x[:, 0::2], torch.zeros_like(x[:, 1::2])], 2).flatten(1, 2)
        return x, int((~found.converged).sum())

    def _choose_strength(self, measurement: Measurement, about: About, seed: int) -> float:
        always = None if bool((about.always == 1).all()) else about.always
        partner: Partner | None = self.basis.conjugates if self.real_images else None
        generator = keyed_generator(seed, Stream.TOTAL_VARIATION)
        hidden = draw_hidden(measurement, HIDDEN_SHARE, generator, about.unit, always, partner)
        shown, target = measurement.hide(hidden), measurement.hide(1 - hidden)
        errors: dict[float, float] = {}

        def best_of(strengths: tuple[float, ...]) -> float:
            for strength in strengths:
                x, _ = self._total_variation(shown, strength, CHOICE_ITERATIONS)
                away = target.mask * (self.basis.to_spectral(x) - target.ybar)
                errors[strength] = float(away.double().square().sum())
            return min(errors, key=lambda strength: errors[strength])

        best = best_of(STRENGTHS)
        return best_of((best / FINER, best * FINER))


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
