"""The denoiser f_θ of the paper, (x̄_t, t) -> an estimate of x̄: all that knows "predict x" from "predict ε"."""

from abc import ABC, abstractmethod
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gsure.basis import Basis
from gsure.schedule import Schedule

Predicts = Literal["x", "eps", "v"]


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


def _as_batch(mask: Tensor | None, xbar_t: Tensor) -> Tensor:
    if mask is None:
        mask = xbar_t.new_ones([1] * xbar_t.ndim)
    if mask.ndim != xbar_t.ndim:
        raise ValueError(
            f"A mask has as many dimensions as the batch of signals, {xbar_t.ndim}, but this has shape {tuple(mask.shape)}."
        )
    return mask.expand(len(xbar_t), *mask.shape[1:])
