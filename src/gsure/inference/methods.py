"""Estimates of the signals behind measurements, by any of the methods that `restore` offers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gsure.denoiser import BaseDenoiser, evaluating
from gsure.gaussian import Gaussian
from gsure.inference.guard import Guard, mean_and_std
from gsure.measurement import Measurement
from gsure.posterior import Posterior
from gsure.random import Stream, generators
from gsure.restoration import choose_noise, context_path, ddrm, falling_levels
from gsure.sampling import Spacing, ddim, dpm

Method = Literal["auto", "mean", "gaussian", "context", "moments", "ddrm"]


class Estimates(NamedTuple):
    """Posterior mean, standard deviation and samples."""

    mean: Float[Tensor, "b *n"]
    std: Float[Tensor, "b *n"]
    """Of each entry; `spread_of` has what error bars are made of."""
    draws: Float[Tensor, "draws b *n"]
    repeated: Bool[Tensor, "draws b"] | None = None
    """Draws that were wrong at first, if they were checked; and those that are not in mean and std, which stand last."""
    excluded: Bool[Tensor, "draws b"] | None = None
    is_exact: bool = False
    """Whether std is known in closed form, and not from the draws."""

    @property
    def are_bad(self) -> Bool[Tensor, "draws b"]:
        """Excluded draws stand last."""
        draws, n = self.draws.shape[:2]
        good = torch.full((n,), draws) if self.excluded is None else (~self.excluded).sum(0)
        return torch.arange(draws)[:, None] >= good


class Restorer(ABC):
    """Signals from measurements; `indices` number them, and decide the noise that each of them gets."""

    averages: ClassVar[bool] = False
    """Whether the mean is that of the draws, so that it has more error if they are few."""

    @abstractmethod
    def options(self) -> dict[str, Any]: ...

    @abstractmethod
    def __call__(self, measurement: Measurement, indices: Sequence[int]) -> Estimates: ...

    @abstractmethod
    def mean(self, measurement: Measurement, indices: Sequence[int]) -> Float[Tensor, "b *n"]:
        """The mean alone, which may be quicker."""

    @abstractmethod
    def few(self, draws: int) -> "Restorer":
        """The same with another number of draws."""

    def short(self, draws: int, steps: int) -> "Restorer":
        """The same with so many draws and steps, which are not checked: to time them."""
        return self.few(draws)

    def stop_at(self, step: int | None) -> "Restorer":
        """The same, with the mean of the conditional means at this step of `context`; None for the usual mean."""
        return self

    @property
    def sampler(self) -> "Draws | None":
        """What draws by a network, if anything does."""
        return None


def noise_of_draw(
    seed: int, draw: int, indices: Sequence[int], device: torch.device | str = "cpu"
) -> Sequence[torch.Generator]:
    """What decides a draw of each measurement, by any method."""
    return generators(seed, Stream.RESTORE, draw, indices=indices, device=device)


class Drawn(NamedTuple):
    xbar: Float[Tensor, "k *n"]
    stopped: Float[Tensor, "k *n"] | None = None
    """The conditional means at the level of `Draws.stop`."""


@dataclass(frozen=True)
class Draws(Restorer):
    """By posterior samples of a denoiser."""

    averages: ClassVar[bool] = True

    denoiser: BaseDenoiser
    method: Method
    draws: int
    steps: int
    eta: float
    eta_b: float
    spacing: Spacing
    seed: int
    gaussian: Gaussian | None = None
    """The preconditioner of moment matching."""
    guard: Guard | None = None
    stop: int | None = None
    """Of `context`: the mean is that of the conditional means at the noise level of this step, not of the draws."""

    def options(self) -> dict[str, Any]:
        named = ("method", "draws", "steps", "eta", "eta_b", "spacing", "seed")
        level = {} if self.stop is None else {"mean_at_level": float(f"{falling_levels(self.steps)[self.stop]:.3g}")}
        return {key: getattr(self, key) for key in named} | level

    def __call__(self, measurement: Measurement, indices: Sequence[int]) -> Estimates:
        """All draws of all measurements go through the network as one batch."""
        denoiser = self.denoiser
        where = next(denoiser.parameters(), torch.empty(0)).device
        measurement = measurement.to(where)
        many = Measurement.cat([measurement] * self.draws)
        generator = [g for draw in range(self.draws) for g in noise_of_draw(self.seed, draw, indices, where)]
        xbar, stopped = self._draw(measurement, self.draws, generator, self.steps)
        shape = (self.draws, len(indices))
        repeated = excluded = torch.zeros(shape, dtype=torch.bool)
        if self.guard is not None:
            is_bad = self.guard.rejects(xbar, many, denoiser.basis)
            xbar, still_bad = self._again(xbar, is_bad, many, indices)
            repeated, excluded = is_bad.cpu().reshape(shape), still_bad.cpu().reshape(shape)
        x = denoiser.basis.to_signal(xbar).cpu().reshape(*shape, *xbar.shape[1:])
        mean, std = mean_and_std(x, excluded)
        if stopped is not None:
            mean = mean_and_std(denoiser.basis.to_signal(stopped).cpu().reshape(x.shape), repeated)[0]
        good_first = excluded.int().argsort(dim=0, stable=True)
        kept = x.gather(0, good_first.reshape(*shape, *[1] * (x.ndim - 2)).expand_as(x))
        return Estimates(mean, std, kept, repeated, excluded)

    def mean(self, measurement: Measurement, indices: Sequence[int]) -> Float[Tensor, "b *n"]:
        return self(measurement, indices).mean

    def few(self, draws: int) -> "Draws":
        return replace(self, draws=draws, stop=None)

    def short(self, draws: int, steps: int) -> "Draws":
        return replace(self, draws=draws, steps=steps, guard=None, stop=None)

    def stop_at(self, step: int | None) -> "Draws":
        return replace(self, stop=step)

    @property
    def sampler(self) -> "Draws":
        return self

    def _again(
        self, xbar: Tensor, is_bad: Tensor, many: Measurement, indices: Sequence[int]
    ) -> tuple[Tensor, Bool[Tensor, " b"]]:
        """Bad draws anew, with other noise and twice as many steps; and which are still bad."""
        where = is_bad.nonzero().flatten()
        if self.guard is None or not len(where):
            return xbar, is_bad
        generator = [
            generators(
                self.seed,
                Stream.RESTORE_AGAIN,
                k // len(indices),
                indices=[indices[k % len(indices)]],
                device=xbar.device,
            )[0]
            for k in where.tolist()
        ]
        steps = min(2 * self.steps, self.denoiser.schedule.T)
        drawn = self._draw(many[where], 1, generator, steps).xbar
        still = self.guard.rejects(drawn, many[where], self.denoiser.basis)
        return xbar.index_copy(0, where, drawn), is_bad.index_copy(0, where, still)

    def _draw(self, measurement: Measurement, draws: int, generator: Sequence[torch.Generator], steps: int) -> Drawn:
        """x̄, all first draws first. Moment matching without new noise follows the probability flow to second order."""
        if self.method == "context":
            path = enumerate(context_path(self.denoiser, measurement, steps, draws=draws, generator=generator))
            stopped = None
            for step, xbar in path:
                stopped = xbar if step == self.stop else stopped
            return Drawn(xbar, stopped)
        return Drawn(self._sample(Measurement.cat([measurement] * draws), generator, steps))

    def _sample(self, measurement: Measurement, generator: Sequence[torch.Generator], steps: int) -> Tensor:
        if self.method == "ddrm":
            return ddrm(self.denoiser, measurement, steps, self.eta, self.eta_b, self.spacing, generator=generator)
        gaussian = None if self.gaussian is None else self.gaussian.to(measurement.ybar.device)
        posterior = Posterior(self.denoiser, measurement, gaussian)
        if self.eta == 0:
            return dpm(posterior, measurement.shape, steps, self.spacing, generator=generator)
        return ddim(posterior, measurement.shape, steps, self.eta, self.spacing, generator=generator)


class Sampling(NamedTuple):
    """What `restore` takes where you give nothing."""

    steps: int
    eta: float
    spacing: Spacing


def choose_sampling(
    method: Method, is_complete: bool, steps: int | None, eta: float | None, spacing: Spacing | None
) -> Sampling:
    """The options of a method, as given or by default. `is_complete` if nothing is missing in any measurement."""
    if method == "context":
        return Sampling(20 if steps is None else steps, 0.0, "logsnr")
    if method == "moments":
        return Sampling(20 if steps is None else steps, 0.0 if eta is None else eta, spacing or "logsnr")
    return Sampling(100 if steps is None else steps, *choose_noise(is_complete, eta, spacing))


@dataclass(frozen=True)
class OneCall(Restorer):
    """The mean by one call of a mask-conditioned denoiser; standard deviation and samples by another method.

    If its draws stop at a level, the mean is that of the conditional means there.
    """

    draws: Draws

    def options(self) -> dict[str, Any]:
        return self.draws.options() | {"method": "mean", "drawn_by": self.draws.method}

    @torch.no_grad()
    def __call__(self, measurement: Measurement, indices: Sequence[int]) -> Estimates:
        drawn = self.draws(measurement, indices)
        return drawn if self.draws.stop is not None else drawn._replace(mean=self.mean(measurement, indices))

    @torch.no_grad()
    def mean(self, measurement: Measurement, indices: Sequence[int]) -> Float[Tensor, "b *n"]:
        if self.draws.stop is not None:
            return self.draws.mean(measurement, indices)
        denoiser = self.draws.denoiser
        where = next(denoiser.parameters(), torch.empty(0)).device
        with evaluating(denoiser):
            return denoiser.basis.to_signal(denoiser.estimate(measurement.to(where))).cpu()

    def few(self, draws: int) -> "OneCall":
        return replace(self, draws=self.draws.few(draws))

    def short(self, draws: int, steps: int) -> "OneCall":
        return replace(self, draws=self.draws.short(draws, steps))

    def stop_at(self, step: int | None) -> "OneCall":
        return replace(self, draws=self.draws.stop_at(step))

    @property
    def sampler(self) -> Draws:
        return self.draws
