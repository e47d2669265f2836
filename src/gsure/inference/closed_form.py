"""Estimates by the Gaussian prior of a run, in closed form; and its spread around the mean of a network."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.basis import Basis
from gsure.gaussian import Gaussian
from gsure.inference.methods import Estimates, OneCall, Restorer, noise_of_draw
from gsure.measurement import Measurement


@dataclass(frozen=True)
class ByGaussian(Restorer):
    """By the Gaussian prior of a run: mean and standard deviation in closed form."""

    gaussian: Gaussian
    basis: Basis
    draws: int
    seed: int

    def options(self) -> dict[str, Any]:
        return {"method": "gaussian", "draws": self.draws, "seed": self.seed}

    def __call__(self, measurement: Measurement, indices: Sequence[int]) -> Estimates:
        drawn = [
            self.basis.to_signal(self.gaussian.draw(measurement, noise_of_draw(self.seed, draw, indices)))
            for draw in range(self.draws)
        ]
        mean, std = self.mean(measurement, indices), self.gaussian.std(measurement)
        return Estimates(mean, std, torch.stack(drawn), is_exact=True)

    def mean(self, measurement: Measurement, indices: Sequence[int]) -> Float[Tensor, "b *n"]:
        return self.basis.to_signal(self.gaussian.mean(measurement))

    def few(self, draws: int) -> "ByGaussian":
        return replace(self, draws=draws)


@dataclass(frozen=True)
class OneCallWithGaussian(Restorer):
    """The mean by one call of a mask-conditioned denoiser; spread and samples are those of the Gaussian prior around it.

    It costs one network call per measurement. The spread is that of the Gaussian, so it needs a calibration.
    """

    call: OneCall
    gaussian: ByGaussian

    def options(self) -> dict[str, Any]:
        return self.gaussian.options() | {"method": "mean", "drawn_by": "gaussian"}

    def __call__(self, measurement: Measurement, indices: Sequence[int]) -> Estimates:
        drawn, mean = self.gaussian(measurement, indices), self.mean(measurement, indices)
        return drawn._replace(mean=mean, draws=drawn.draws - drawn.mean + mean)

    def mean(self, measurement: Measurement, indices: Sequence[int]) -> Float[Tensor, "b *n"]:
        return self.call.mean(measurement, indices)

    def few(self, draws: int) -> "OneCallWithGaussian":
        return replace(self, gaussian=self.gaussian.few(draws))
