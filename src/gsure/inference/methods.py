"""Estimates of the signals behind measurements, by any of the methods that `restore` offers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.basis import Basis
from gsure.data.measurements import Measurements
from gsure.denoiser import BaseDenoiser
from gsure.gaussian import Gaussian
from gsure.measurement import Measurement
from gsure.posterior import Posterior
from gsure.random import Stream, generators
from gsure.restoration import ddrm
from gsure.sampling import Spacing, ddim, evaluating

Method = Literal["auto", "mean", "gaussian", "moments", "ddrm"]


class Estimates(NamedTuple):
    """Posterior mean, standard deviation and samples."""

    mean: Float[Tensor, "b *n"]
    std: Float[Tensor, "b *n"]
    draws: Float[Tensor, "draws b *n"]


@runtime_checkable
class Restorer(Protocol):
    """Signals from measurements; `indices` number them, and decide the noise that each of them gets."""

    def options(self) -> dict[str, Any]: ...

    def __call__(self, measurement: Measurement, indices: Sequence[int]) -> Estimates: ...

    def mean(self, measurement: Measurement, indices: Sequence[int]) -> Float[Tensor, "b *n"]:
        """The mean alone, which may be quicker."""


@dataclass(frozen=True)
class Draws:
    """By posterior samples of a denoiser."""

    denoiser: BaseDenoiser
    method: Method
    draws: int
    steps: int
    eta: float
    eta_b: float
    spacing: Spacing
    seed: int

    def options(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in ("method", "draws", "steps", "eta", "eta_b", "spacing", "seed")}

    def __call__(self, measurement: Measurement, indices: Sequence[int]) -> Estimates:
        """All draws of all measurements go through the network as one batch."""
        denoiser = self.denoiser
        where = next(denoiser.parameters(), torch.empty(0)).device
        many = Measurement.cat([measurement] * self.draws).to(where)
        generator = [
            g
            for draw in range(self.draws)
            for g in generators(self.seed, Stream.RESTORE, draw, indices=indices, device=where)
        ]
        if self.method == "ddrm":
            xbar = ddrm(denoiser, many, self.steps, self.eta, self.eta_b, self.spacing, generator=generator)
        else:
            xbar = ddim(Posterior(denoiser, many), many.shape, self.steps, self.eta, self.spacing, generator=generator)
        x = denoiser.basis.to_signal(xbar).cpu().reshape(self.draws, len(indices), *xbar.shape[1:])
        return Estimates(x.mean(0), x.std(0, correction=min(1, len(x) - 1)), x)

    def mean(self, measurement: Measurement, indices: Sequence[int]) -> Float[Tensor, "b *n"]:
        return self(measurement, indices).mean


@dataclass(frozen=True)
class OneCall:
    """The mean by one call of a mask-conditioned denoiser; standard deviation and samples by another method."""

    draws: Draws

    def options(self) -> dict[str, Any]:
        return self.draws.options() | {"method": "mean", "drawn_by": self.draws.method}

    @torch.no_grad()
    def __call__(self, measurement: Measurement, indices: Sequence[int]) -> Estimates:
        drawn = self.draws(measurement, indices)
        return drawn._replace(mean=self.mean(measurement, indices))

    @torch.no_grad()
    def mean(self, measurement: Measurement, indices: Sequence[int]) -> Float[Tensor, "b *n"]:
        denoiser = self.draws.denoiser
        where = next(denoiser.parameters(), torch.empty(0)).device
        with evaluating(denoiser):
            return denoiser.basis.to_signal(denoiser.estimate(measurement.to(where))).cpu()


@dataclass(frozen=True)
class ByGaussian:
    """By the Gaussian prior of a run: mean and standard deviation in closed form."""

    gaussian: Gaussian
    basis: Basis
    draws: int
    seed: int

    def options(self) -> dict[str, Any]:
        return {"method": "gaussian", "draws": self.draws, "seed": self.seed}

    def __call__(self, measurement: Measurement, indices: Sequence[int]) -> Estimates:
        drawn = [
            self.basis.to_signal(
                self.gaussian.draw(measurement, generators(self.seed, Stream.RESTORE, draw, indices=indices))
            )
            for draw in range(self.draws)
        ]
        return Estimates(self.mean(measurement, indices), self.gaussian.std(measurement), torch.stack(drawn))

    def mean(self, measurement: Measurement, indices: Sequence[int]) -> Float[Tensor, "b *n"]:
        return self.basis.to_signal(self.gaussian.mean(measurement))


def in_basis(measurement: Measurement, data: Measurements, basis: Basis) -> Measurement:
    """In the basis of the model: white noise on a fully sampled signal is white noise in any."""
    if type(data.basis) is type(basis):
        return measurement
    white = measurement.std.flatten(1)
    if not bool((measurement.mask == 1).all() and (white == white[:, :1]).all()):
        raise ValueError(
            f"{data.name} was measured in the basis {data.header['basis']}, the model works in {basis}, and only fully "
            "sampled signals with white noise can be transformed: measure in that basis, or train another model."
        )
    ybar = basis.to_spectral(data.basis.to_signal(measurement.ybar))
    return Measurement._trusted(ybar, measurement.mask, measurement.std)
