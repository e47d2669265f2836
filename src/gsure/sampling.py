"""Generation: from noise to signals with a denoiser. Times go t -> s, with s < t; 0 is clean.

| sampler | what it is                                                               | draws noise      |
|---------|--------------------------------------------------------------------------|------------------|
| `ddim`  | first order; eta = 0 follows the probability flow, 1 is ancestral        | if eta > 0       |
| `ddpm`  | ancestral: `ddim` with eta = 1                                           | at each step     |
| `dpm`   | DPM-Solver++ of second order (Lu et al., 2022), from diffusers           | only at its start |
| `unipc` | UniPC of second order, a predictor with corrector (Zhao et al., 2023), from diffusers | only at its start |

All go over our schedule and through the same times. Per-sample generators make sample k the same in any batch.
"""

import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gsure.denoiser import BaseDenoiser, evaluating
from gsure.random import Seed, as_generators, normal
from gsure.schedule import Schedule

Spacing = Literal["even", "quadratic", "logsnr"]


def times(schedule: Schedule, steps: int, spacing: Spacing = "even") -> list[int]:
    """T = t_0 > t_1 > ... > t_steps = 0: evenly spaced, or closer together towards 0, as far as integers allow.

    >>> times(Schedule.linear(), 4), times(Schedule.linear(), 4, "quadratic")
    ([1000, 750, 500, 250, 0], [1000, 562, 250, 62, 0])
    """
    T = schedule.T
    if not 1 <= steps <= T:
        raise ValueError(f"A sampler over T = {T} times takes between 1 and {T} steps, but {steps} were asked for.")
    share = [(steps - k) / steps for k in range(steps)]
    match spacing:
        case "even":
            ideal = [round(T * u) for u in share]
        case "quadratic":
            ideal = [round(T * u**2) for u in share]
        case "logsnr":  # even steps of log ς_t, from T down to 1
            levels = schedule.sigma[1:].log()
            wanted = torch.lerp(levels[-1], levels[0], torch.linspace(0, 1, steps, dtype=torch.float64))
            ideal = (torch.searchsorted(levels, wanted).clamp(max=T - 1) + 1).tolist()
        case _:
            raise ValueError(f"spacing is one of {', '.join(get_args(Spacing))}, not {spacing!r}.")
    path = [T]
    for k in range(1, steps):  # each below the one before, and room for those that follow
        path.append(max(min(ideal[k], path[-1] - 1), steps - k))
    return [*path, 0]


@torch.no_grad()
def ddim(
    denoiser: BaseDenoiser,
    shape: Sequence[int],
    steps: int = 50,
    eta: float = 0.0,
    spacing: Spacing = "even",
    *,
    generator: Seed,
) -> Float[Tensor, "b *n"]:
    """Spectral samples x̄ of this shape (batch first) by DDIM; eta = 0 is deterministic from its start, 1 ancestral.

    x̄_s = √ᾱ_s x̂ + √(1-ᾱ_s-τ²) ε̂ + τ ε,  τ = η √((1-ᾱ_s)/(1-ᾱ_t)) √(1-ᾱ_t/ᾱ_s)    (Song et al., 2021)
    """
    if not 0 <= eta <= 1:
        raise ValueError(f"eta lies between 0 (deterministic) and 1 (ancestral), but is {eta}.")
    schedule = denoiser.schedule
    like = next(denoiser.parameters(), torch.empty(0))
    generator = as_generators(generator, like.device)
    xbar_t = normal(shape, generator, like=like)
    with evaluating(denoiser):
        for t, s in itertools.pairwise(times(schedule, steps, spacing)):
            alpha_bar_t, alpha_bar_s = schedule.alpha_bar[t].item(), schedule.alpha_bar[s].item()
            xbar_hat = denoiser(xbar_t, torch.full((len(xbar_t),), t, device=xbar_t.device))
            eps_hat = (xbar_t - alpha_bar_t**0.5 * xbar_hat) / (1 - alpha_bar_t) ** 0.5
            tau = eta * ((1 - alpha_bar_s) / (1 - alpha_bar_t) * (1 - alpha_bar_t / alpha_bar_s)) ** 0.5
            kept = max(0.0, 1 - alpha_bar_s - tau**2)  # rounding can take it below 0
            xbar_t = alpha_bar_s**0.5 * xbar_hat + kept**0.5 * eps_hat
            if tau > 0:
                xbar_t = xbar_t + tau * normal(shape, generator, like=like)
    return xbar_t


def ddpm(
    denoiser: BaseDenoiser, shape: Sequence[int], steps: int = 1000, spacing: Spacing = "even", *, generator: Seed
) -> Float[Tensor, "b *n"]:
    """Ancestral sampling (Ho et al., 2020), with the variance β̃_t of q(x̄_s | x̄_t, x̄)."""
    return ddim(denoiser, shape, steps, 1.0, spacing, generator=generator)


def dpm(
    denoiser: BaseDenoiser,
    shape: Sequence[int],
    steps: int = 10,
    spacing: Spacing = "quadratic",
    *,
    generator: Seed,
) -> Float[Tensor, "b *n"]:
    """DPM-Solver++(2M): the probability flow to second order, so 10 sampling steps match 50 of DDIM."""
    from diffusers import DPMSolverMultistepScheduler

    return _solve(DPMSolverMultistepScheduler, denoiser, shape, times(denoiser.schedule, steps, spacing), generator)


def unipc(
    denoiser: BaseDenoiser,
    shape: Sequence[int],
    steps: int = 10,
    spacing: Spacing = "quadratic",
    *,
    generator: Seed,
) -> Float[Tensor, "b *n"]:
    """UniPC of second order; like `dpm`, with a corrector that costs no network call."""
    from diffusers import UniPCMultistepScheduler

    return _solve(UniPCMultistepScheduler, denoiser, shape, times(denoiser.schedule, steps, spacing), generator)


@torch.no_grad()
def _solve(
    solver: Callable[..., Any], denoiser: BaseDenoiser, shape: Sequence[int], path: Sequence[int], generator: Seed
) -> Tensor:
    """A solver of diffusers, led over our times and noise levels; its timestep k is our t = k + 1."""
    scheduler = solver(**denoiser.schedule.to_diffusers(), prediction_type="sample", solver_order=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of NumPy, about what diffusers does there
        scheduler.set_timesteps(len(path) - 1)
    scheduler.timesteps = torch.tensor(path[:-1]) - 1
    scheduler.sigmas = denoiser.schedule.sigma[list(path)]
    like = next(denoiser.parameters(), torch.empty(0))
    xbar_t = normal(shape, as_generators(generator, like.device), like)
    with evaluating(denoiser):
        for k, t in zip(scheduler.timesteps, path, strict=False):
            xbar_hat = denoiser(xbar_t, torch.full((len(xbar_t),), t, device=xbar_t.device))
            xbar_t = scheduler.step(xbar_hat, k, xbar_t).prev_sample
    return xbar_t


class Clipped(BaseDenoiser):
    """A denoiser whose estimate is clipped to the range of images, -1..1; for signals that have such a range only."""

    def __init__(self, denoiser: BaseDenoiser) -> None:
        super().__init__()
        self.denoiser, self.schedule, self.basis = denoiser, denoiser.schedule, denoiser.basis

    def forward(
        self, xbar_t: Float[Tensor, "b *n"], t: Int[Tensor, " b"], condition: Float[Tensor, "..."] | None = None
    ) -> Float[Tensor, "b *n"]:
        x_hat = self.basis.to_signal(self.denoiser(xbar_t, t, condition))
        return self.basis.to_spectral(x_hat.clamp(-1, 1))
