"""Generation: from noise to signals with a denoiser. Times go t -> s, with s < t; 0 is clean."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.denoiser import Denoiser
from gsure.noise import Generators, normal


def times(T: int, steps: int) -> list[int]:
    """T = t_0 > t_1 > ... > t_steps = 0, as evenly spaced as integers allow.

    >>> times(1000, 4)
    [1000, 750, 500, 250, 0]
    """
    if not 1 <= steps <= T:
        raise ValueError(f"A sampler over T = {T} times takes between 1 and {T} steps, but {steps} were asked for.")
    return [round(T * (steps - k) / steps) for k in range(steps + 1)]


@torch.no_grad()
def ddim(
    denoiser: Denoiser, shape: Sequence[int], steps: int = 50, eta: float = 0.0, *, generator: Generators
) -> Float[Tensor, "b *n"]:
    """Spectral samples x̄ of this shape (batch first) by DDIM; eta = 0 is deterministic from its start, 1 ancestral.

    x̄_s = √ᾱ_s x̂ + √(1-ᾱ_s-τ²) ε̂ + τ ε,  τ = η √((1-ᾱ_s)/(1-ᾱ_t)) √(1-ᾱ_t/ᾱ_s)    (Song et al., 2021)
    """
    if not 0 <= eta <= 1:
        raise ValueError(f"eta lies between 0 (deterministic) and 1 (ancestral), but is {eta}.")
    schedule = denoiser.schedule
    like = next(denoiser.parameters(), torch.empty(0))
    xbar_t = normal(shape, generator, like=like)
    path = times(schedule.T, steps)
    with evaluating(denoiser):
        for t, s in itertools.pairwise(path):
            alpha_bar_t, alpha_bar_s = schedule.alpha_bar[t].item(), schedule.alpha_bar[s].item()
            xbar_hat = denoiser(xbar_t, torch.full((len(xbar_t),), t, device=xbar_t.device))
            eps_hat = (xbar_t - alpha_bar_t**0.5 * xbar_hat) / (1 - alpha_bar_t) ** 0.5
            tau = eta * ((1 - alpha_bar_s) / (1 - alpha_bar_t) * (1 - alpha_bar_t / alpha_bar_s)) ** 0.5
            xbar_t = alpha_bar_s**0.5 * xbar_hat + (1 - alpha_bar_s - tau**2) ** 0.5 * eps_hat
            if tau > 0:
                xbar_t = xbar_t + tau * normal(shape, generator, like=like)
    return xbar_t


@contextlib.contextmanager
def evaluating(denoiser: Denoiser) -> Iterator[None]:
    """Without dropout inside; afterwards in the mode it was in."""
    was_training = denoiser.training
    denoiser.eval()
    try:
        yield
    finally:
        denoiser.train(was_training)
