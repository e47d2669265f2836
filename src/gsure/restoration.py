"""Restoration: posterior draws of the signal behind a measurement, with a denoiser that was trained on any masks and noise."""

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.denoiser import BaseDenoiser, evaluating
from gsure.measurement import Measurement
from gsure.random import Seed, as_generators, normal
from gsure.sampling import Spacing, times

LEVELS = 3.0, 0.02
"""The highest and the lowest noise level of missing entries in `context`."""


class Noise(NamedTuple):
    """How much new noise each step of a sampler adds, and at which times its steps are."""

    eta: float
    spacing: Spacing


def choose_noise(is_complete: bool, eta: float | None = None, spacing: Spacing | None = None) -> Noise:
    """DDRM's options by what is missing, where you give none. `is_complete` if every entry was measured.

    On Gaussian data with its exact denoiser (tests/test_restoration.py):
    Masks: η = 1 and small steps at low noise. Each step then draws the missing entries anew from what is known so far. (If
    the noise is nearly as large as the signal too, a smaller η is better: the rule does not look at it.)
    Complete signals: with η = 1 the new noise hides the measurement (the mean of 8 draws loses up to 3 dB). 0.9 is the largest
    η at which it is about as good as that of 8 exact draws; a smaller one only makes the error bars shorter.

    >>> choose_noise(is_complete=False)
    Noise(eta=1.0, spacing='quadratic')
    """
    best = Noise(0.9, "even") if is_complete else Noise(1.0, "quadratic")
    return Noise(best.eta if eta is None else eta, best.spacing if spacing is None else spacing)


@torch.no_grad()
def ddrm(
    denoiser: BaseDenoiser,
    measurement: Measurement,
    steps: int = 100,
    eta: float = 0.85,
    eta_b: float = 1.0,
    spacing: Spacing = "even",
    *,
    generator: Seed,
) -> Float[Tensor, "b *n"]:
    """One draw x̄ for each measurement by DDRM (Kawar et al., 2022), entry by entry, on the scale u_t = x̄_t/√ᾱ_t of noise ς_t:

        dropped              u_s = x̂ + √(1-η²) ς_s (u_t - x̂)/ς_t + η ς_s ε
        kept, ς_s < std      u_s = x̂ + √(1-η²) ς_s (ȳ - x̂)/std + η ς_s ε
        kept, ς_s ≥ std      u_s = (1-η_b) x̂ + η_b ȳ + √(ς_s² - η_b² std²) ε

    This η is not DDIM's; with nothing kept the two agree at η = 0. With η_b = 1 and std = 0 kept entries stay as measured.
    """
    for name, value in {"eta": eta, "eta_b": eta_b}.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must lie between 0 and 1, but is {value}.")
    schedule, ybar = denoiser.schedule, measurement.ybar
    generator = as_generators(generator, ybar.device)
    std = (measurement.mask * measurement.std).expand_as(ybar).double()
    kept = (measurement.mask == 1).expand_as(ybar)
    sigma = schedule.sigma.tolist()
    last = sigma[-1]
    known = kept & (std < last)
    start = (last**2 - torch.where(known, std, 0.0) ** 2).sqrt().to(ybar)
    u_t = torch.where(known, ybar, 0.0) + start * normal(ybar.shape, generator, like=ybar)
    with evaluating(denoiser):
        for t, s in itertools.pairwise(times(schedule, steps, spacing)):
            sigma_t, sigma_s = sigma[t], sigma[s]
            xbar_t = schedule.alpha_bar[t].sqrt().item() * u_t
            xbar_hat = denoiser(xbar_t, torch.full((len(u_t),), t, device=u_t.device))
            below = kept & (std <= sigma_s)  # measured with less noise than the diffusion has at s
            above = kept & ~below
            away = torch.where(
                above, (ybar - xbar_hat) / torch.where(above, std, 1.0).to(ybar), (u_t - xbar_hat) / sigma_t
            )
            mean = xbar_hat + (1 - eta**2) ** 0.5 * sigma_s * away
            spread = (sigma_s**2 - (eta_b * torch.where(below, std, 0.0)) ** 2).sqrt().to(ybar)
            mean = torch.where(below, (1 - eta_b) * xbar_hat + eta_b * ybar, mean)
            u_t = mean + torch.where(below, spread, eta * sigma_s) * normal(ybar.shape, generator, like=ybar)
    return u_t


@torch.no_grad()
def context(
    denoiser: BaseDenoiser,
    measurement: Measurement,
    steps: int = 20,
    levels: tuple[float, float] = LEVELS,
    draws: int = 1,
    *,
    generator: Seed,
) -> Float[Tensor, "k *n"]:
    """Draws x̄ for each measurement, by a denoiser that takes entries at different noise levels (`ResidualDenoiser`).

    Measured entries stay as they are, at their own noise. Missing ones go through falling, geometrically spaced levels ς
    without new noise (the probability flow):

        u_s = x̂ + ς_s (u_t - x̂)/ς_t,    x̂ = E[x̄ | measured entries at std, missing ones u_t at ς_t].

    It starts at the highest level around the posterior mean, which one call gives. `levels` are in units of the data. First
    comes the first draw of all measurements, then the second one, and so on. Several draws share what depends on the
    measured entries alone.
    """
    path = context_path(denoiser, measurement, steps, levels, draws, generator=generator)
    *_, last = path
    return last


@torch.no_grad()
def context_path(
    denoiser: BaseDenoiser,
    measurement: Measurement,
    steps: int = 20,
    levels: tuple[float, float] = LEVELS,
    draws: int = 1,
    *,
    generator: Seed,
) -> Iterator[Float[Tensor, "k *n"]]:
    """x̂ of `context` at each level, from the highest to the lowest; the last is the draw.

    Each is a conditional mean of the signal, given the measured entries and noisy values of the missing ones. So its average
    over draws estimates the posterior mean at any level, with less spread at higher levels (Rao-Blackwell).
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, but is {steps}.")
    like = measurement.ybar
    generator = as_generators(generator, like.device)
    falling = falling_levels(steps, levels)
    with evaluating(denoiser):
        first = denoiser.estimate(measurement).repeat(draws, *[1] * (like.ndim - 1))
        estimate = denoiser.in_context(measurement)
    u_t = first + levels[0] * normal(first.shape, generator, like=like)
    for t, s in itertools.pairwise([*falling, 0.0]):
        with evaluating(denoiser):
            xbar_hat = estimate(u_t, t)
        yield xbar_hat
        u_t = xbar_hat + s / t * (u_t - xbar_hat)


def falling_levels(steps: int, levels: tuple[float, float] = LEVELS) -> list[float]:
    """Noise levels of the missing entries, geometrically spaced."""
    high, low = levels
    return torch.logspace(math.log10(high), math.log10(low), steps, dtype=torch.float64).tolist()
