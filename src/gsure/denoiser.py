"""The denoiser f_θ of the paper, (x̄_t, t) -> an estimate of x̄: all that knows "predict x" from "predict ε"."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gsure.basis import Basis
from gsure.gaussian import Gaussian, as_complex, as_pairs, filled, with_conjugates
from gsure.measurement import Measurement
from gsure.schedule import Schedule

Predicts = Literal["x", "eps", "v"]


InContext = Callable[[Float[Tensor, "k *n"], float], Float[Tensor, "k *n"]]
"""E[x̄ | measured entries, missing ones at a noise level]."""


class BaseDenoiser(nn.Module, ABC):
    """What samplers take: any f: (x̄_t, t) -> x̄-hat that knows its schedule and basis, a network's or one made from another."""

    schedule: Schedule
    basis: Basis
    mask_conditioned: bool = False
    """Whether it uses `condition`, the mask of x̄_t."""

    @abstractmethod
    def forward(
        self, xbar_t: Float[Tensor, "b *n"], t: Int[Tensor, " b"], condition: Float[Tensor, "..."] | None = None
    ) -> Float[Tensor, "b *n"]: ...

    def estimate(self, measurement: Measurement) -> Float[Tensor, "b *n"]:
        """E[x̄ | ȳ] in one call, at the noise of the measurement itself. If anything is missing, it needs a mask-conditioned
        denoiser."""
        if not (self.mask_conditioned or measurement.is_noisy_signal):
            raise ValueError(
                "One call restores a measurement with missing entries, or noise that differs between entries, only if the "
                "denoiser is mask-conditioned, and this one is not: draw samples with ddrm or Posterior, or train with "
                "mask_conditioned=True."
            )
        std = (measurement.mask * measurement.std).expand(len(measurement), *measurement.mask.shape[1:]).flatten(1)
        t = self.schedule.first(std.amax(1)).clamp(max=self.schedule.T)
        scale = self.schedule.at(t, like=measurement.ybar).sqrt().to(measurement.ybar)
        return self(scale * measurement.ybar, t, measurement.mask)

    def in_context(self, measurement: Measurement) -> "InContext":
        """f(u, s) = E[x̄ | ȳ, u at the missing entries, with noise s], for several u of each measurement.

        Sample j of u belongs to measurement j mod b.
        """
        return lambda u, level: self.estimate(filled(measurement, u, level))

    def at_sigma(self, x: Float[Tensor, "b *n"], sigma: float | Float[Tensor, " b"]) -> Float[Tensor, "b *n"]:
        """E[signal | x] for x = signal + sigma · noise, in signal space: the denoiser as most of the field writes it.

        `sigma` is one number or one per sample, within the noise levels of the schedule, of which the nearest is taken.
        """
        t = self._nearest(sigma, len(x)).to(x.device)
        scale = self.schedule.at(t, like=x).sqrt().to(x)
        return self.basis.to_signal(self(scale * self.basis.to_spectral(x), t))

    def score(self, x: Float[Tensor, "b *n"], sigma: float | Float[Tensor, " b"]) -> Float[Tensor, "b *n"]:
        """∇ log p(x) of the distribution of signal + sigma · noise: (at_sigma(x) - x) / sigma² (Tweedie)."""
        level = self.schedule.sigma[self._nearest(sigma, len(x))].reshape(-1, *[1] * (x.ndim - 1)).to(x)
        return (self.at_sigma(x, sigma) - x) / level**2

    def _nearest(self, sigma: float | Tensor, n: int) -> Int[Tensor, " n"]:
        """The times whose noise levels are nearest to sigma, by their ratio."""
        levels = self.schedule.sigma[1:]
        wanted = torch.as_tensor(sigma, dtype=torch.float64).cpu().expand(n).contiguous()
        if not ((wanted > 0.99 * levels[0]) & (wanted < 1.01 * levels[-1])).all():
            raise ValueError(
                f"sigma must lie between {float(levels[0]):.3g} and {float(levels[-1]):.3g}, the noise levels of the "
                f"schedule, but is {float(wanted.min()):.3g} to {float(wanted.max()):.3g}."
            )
        above = torch.searchsorted(levels, wanted).clamp(1, len(levels) - 1)
        return above + 1 - (wanted / levels[above - 1] < levels[above] / wanted).long()


@contextlib.contextmanager
def evaluating(denoiser: BaseDenoiser) -> Iterator[None]:
    """Without dropout inside; afterwards in the mode it was in."""
    was_training = denoiser.training
    denoiser.eval()
    try:
        yield
    finally:
        denoiser.train(was_training)


class Denoiser(BaseDenoiser):
    """f = Vᵀ network(V x̄_t, t); or, with ε̂ or v̂ = Vᵀ network(V x̄_t, t), for `predicts="eps"` and `"v"`

        f = (x̄_t - √(1-ᾱ_t) ε̂)/√ᾱ_t,    f = √ᾱ_t x̄_t - √(1-ᾱ_t) v̂    (Salimans and Ho, 2022).

    Near t = 0, ε and v leave the details of x̄_t as they are; near T, x and v do not magnify errors. v has both, and is not
    in the paper.
    The network works in signal space, on (b, *n) signals and integer times in 1..T. With `mask_conditioned=True` it also
    takes the mask of the entries of x̄_t that carry signal, as network(x_t, t, mask); without a condition all do, P = I. For
    an entry that carries none it always predicts x: x̄_t is noise there, and x would be a small difference of ε or v.
    """

    def __init__(
        self,
        network: nn.Module,
        schedule: Schedule,
        basis: Basis,
        predicts: Predicts = "x",
        mask_conditioned: bool = False,
    ) -> None:
        if predicts not in get_args(Predicts):
            raise ValueError(f"A denoiser predicts one of {', '.join(get_args(Predicts))}, not {predicts!r}.")
        if mask_conditioned and getattr(network, "mask_input", None) == "channels" and not basis.is_signal:
            raise ValueError(
                f"mask_input='channels' shows the mask as a picture beside the signal, but in {basis} a mask entry is no "
                "pixel: build the network with mask_input='embedding' and mask_shape."
            )
        super().__init__()
        self.network = network
        self.schedule = schedule
        self.basis = basis
        self.predicts = predicts
        self.mask_conditioned = mask_conditioned

    def forward(
        self, xbar_t: Float[Tensor, "b *n"], t: Int[Tensor, " b"], condition: Float[Tensor, "..."] | None = None
    ) -> Float[Tensor, "b *n"]:
        """x̄-hat. `condition` is the mask of x̄_t, of as many dimensions; a mask-blind denoiser ignores it."""
        t = t.to(xbar_t.device)
        x_t = self.basis.to_signal(xbar_t)
        seen = (_as_batch(condition, xbar_t),) if self.mask_conditioned else ()
        predicted = self.basis.to_spectral(self.network(x_t, t, *seen))
        xbar_hat = self._as_x(predicted, xbar_t, t)
        return torch.where(seen[0] == 1, xbar_hat, predicted) if seen else xbar_hat

    def _as_x(
        self, predicted: Float[Tensor, "b *n"], xbar_t: Float[Tensor, "b *n"], t: Int[Tensor, " b"]
    ) -> Float[Tensor, "b *n"]:
        if self.predicts == "x":
            return predicted
        alpha_bar_t = self.schedule.at(t, like=xbar_t)
        signal, noise = alpha_bar_t.sqrt().to(xbar_t), (1 - alpha_bar_t).sqrt().to(xbar_t)
        if self.predicts == "eps":
            return (xbar_t - noise * predicted) / signal
        return signal * xbar_t - noise * predicted


class ResidualDenoiser(BaseDenoiser):
    """A Gaussian's posterior mean plus what a network adds to it, given entries that each have their own noise level:

        f(ȳ) = g + c ⊙ Vᵀ network(V g, V c_in ȳ, t, levels),    g = E[x̄ | ȳ] of the Gaussian (`base`),

    with c_i = d std_i / √(std_i² + d²), where d² is the mean variance of an entry: d for a missing entry, and about std_i for
    one that is known well. The network knows the noise level of each entry, and t, that of the noisiest one. Its last layer
    starts at zero, so an untrained network returns the mean of the Gaussian. If the Gaussian has a phase reference u, the
    network works on images times conj(u), and what it adds is multiplied by u; if images are real, it adds nothing imaginary.

    One denoiser restores (`estimate`: measured entries at their own noise, nothing of the others), generates (`forward`: all
    entries at the noise of t), and draws what is missing (`estimate`: measured entries at their own noise, the others at a
    level that falls from step to step).
    """

    mask_conditioned = True

    def __init__(self, network: nn.Module, schedule: Schedule, basis: Basis, base: Gaussian | None = None) -> None:
        super().__init__()
        self.network, self.schedule, self.basis = network, schedule, basis
        self.base = base

    def forward(
        self, xbar_t: Float[Tensor, "b *n"], t: Int[Tensor, " b"], condition: Float[Tensor, "..."] | None = None
    ) -> Float[Tensor, "b *n"]:
        """x̄-hat. `condition` is the mask of x̄_t; without it, or with a mask of one entry, nothing is missing."""
        alpha_bar_t = self.schedule.at(t, like=xbar_t)
        std = ((1 - alpha_bar_t) / alpha_bar_t).sqrt().to(xbar_t)
        mask = xbar_t.new_ones([1] * xbar_t.ndim) if condition is None else condition
        return self.estimate(Measurement._trusted(mask * xbar_t / alpha_bar_t.sqrt().to(xbar_t), mask, std))

    def estimate(self, measurement: Measurement) -> Float[Tensor, "b *n"]:
        base = self._base(measurement.ybar)
        return self._corrected(base, *self._gaussian(base, measurement), measurement)

    def in_context(self, measurement: Measurement) -> InContext:
        """What does not change with the noise level is computed once."""
        base = self._base(measurement.ybar)
        given = base.given(measurement)

        def estimate(u: Tensor, level: float) -> Tensor:
            return self._corrected(base, *given.mean_and_phase(u, level), filled(measurement, u, level))

        return estimate

    def _corrected(self, base: Gaussian, g: Tensor, phase: Tensor | None, measurement: Measurement) -> Tensor:
        """The Gaussian's posterior mean plus what the network adds."""
        if base.real_images:  # entry k also tells entry -k
            measurement = with_conjugates(measurement, self.basis)
        ybar, mask, std = measurement.ybar, measurement.mask, measurement.std
        d = base.variances.mean().sqrt().to(ybar)
        c_out = torch.where(mask == 1, d * std / (std**2 + d**2).sqrt(), d)
        c_in = mask / (std**2 + d**2).sqrt()
        seen = torch.cat([self._to_network(g / d, phase), self._to_network(c_in * ybar, phase)], 1)
        noise = (mask * std).expand(len(ybar), *[max(a, b) for a, b in zip(mask.shape[1:], std.shape[1:], strict=True)])
        t = self.schedule.first(noise.flatten(1).amax(1)).clamp(max=self.schedule.T)
        added = self.network(seen, t.to(ybar.device), self._levels(mask, std, len(ybar))).to(ybar)
        return g + c_out * self._from_network(added, phase, base.real_images)

    def _base(self, like: Tensor) -> Gaussian:
        if self.base is None:
            raise ValueError("This denoiser has no Gaussian: set its `base`, which the folder of its run has.")
        if self._base_device != like.device:
            self.base, self._base_device = self.base.to(like.device), like.device
        return self.base

    _base_device: torch.device = torch.device("cpu")

    @torch.no_grad()
    def _gaussian(self, base: Gaussian, measurement: Measurement) -> tuple[Tensor, Tensor | None]:
        """The posterior mean and the phase reference, by the quickest way that the shapes of mask and std allow."""
        mask, std = measurement.mask, measurement.std
        with torch.autocast(mask.device.type, enabled=False):  # linear systems need full precision
            if mask.numel() > 1:
                return base.mean_and_phase(measurement)
            if std[0].numel() > 1:
                return base.single.mean_and_phase(measurement)
            return base.denoise_and_phase(measurement.ybar, std.flatten(1)[:, 0].expand(len(measurement)))

    def _levels(self, mask: Tensor, std: Tensor, n: int) -> Tensor:
        """1 for an entry at the lowest noise of the schedule, 0 for one at the highest or missing; linear in the logarithm."""
        low, high = self.schedule.sigma[1].log().item(), self.schedule.sigma[-1].log().item()
        level = (high - std.clamp(min=1e-12).log()) / (high - low)
        level = mask * level.clamp(0, 1)
        return level.expand(n, *level.shape[1:])

    def _to_network(self, xbar: Tensor, phase: Tensor | None) -> Tensor:
        x = self.basis.to_signal(xbar)
        return x if phase is None else as_pairs(as_complex(x) * phase.conj())

    def _from_network(self, x: Tensor, phase: Tensor | None, is_real: bool) -> Tensor:
        if is_real:
            x = torch.stack([x[:, 0::2], torch.zeros_like(x[:, 1::2])], 2).flatten(1, 2)
        return self.basis.to_spectral(x if phase is None else as_pairs(as_complex(x) * phase))


NetworkDenoiser = Denoiser | ResidualDenoiser
"""Denoisers that have a `network`, which training changes."""


def with_network(denoiser: NetworkDenoiser, network: nn.Module) -> NetworkDenoiser:
    """The same denoiser with another network."""
    if isinstance(denoiser, ResidualDenoiser):
        return ResidualDenoiser(network, denoiser.schedule, denoiser.basis, denoiser.base)
    return Denoiser(network, denoiser.schedule, denoiser.basis, denoiser.predicts, denoiser.mask_conditioned)


def _as_batch(mask: Tensor | None, xbar_t: Tensor) -> Tensor:
    if mask is None:
        mask = xbar_t.new_ones([1] * xbar_t.ndim)
    if mask.ndim != xbar_t.ndim:
        raise ValueError(
            f"A mask has as many dimensions as the batch of signals, {xbar_t.ndim}, but this has shape {tuple(mask.shape)}."
        )
    return mask.expand(len(xbar_t), *mask.shape[1:])
