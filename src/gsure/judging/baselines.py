"""What a user would take without a network: the pseudo-inverse, total variation, and the Gaussian prior of a run."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.basis import Basis
from gsure.data.scaling import evenly_spread
from gsure.gaussian import About, Gaussian, with_conjugates
from gsure.measurement import Measurement, Partner, draw_hidden
from gsure.metrics.total_variation import ITERATIONS, total_variation
from gsure.random import Stream, keyed_generator

STRENGTHS = (1e-3, 1e-2, 1e-1)
"""Of total variation, in units of the root mean square of the image that the pseudo-inverse gives."""
FINER = 10**0.5
"""Then those above and below the best by this factor are tried."""
CHOSEN_BY, CHOICE_PIXELS, CHOICE_ITERATIONS = 16, 16 * 64**2, 200
"""Images by which the strength is chosen, at most; at least two, if they have more pixels than this; iterations for it."""
HIDDEN_SHARE = 0.3
"""Of the measured units, hidden to choose the strength."""


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
