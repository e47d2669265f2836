"""The 2-D example of the paper (fig:analytic-example), in closed form: when is the error independent of the mask?

x̄ is an isotropic Gaussian, or one of the two equally likely points ±(1, 1): two deltas. P keeps one of the two coordinates,
and eq:noise-add gives x̄_t. Do the errors f(x̄_t) - x̄ have the same distribution under both masks? At a low signal-to-noise
ratio they do, for both kinds of signals. At a high one they differ for the Gaussian, but not for the deltas.

This holds for the `ideal` denoiser, E[x̄ | x̄_t] of fully sampled signals, and for any denoiser that returns the same value
for both coordinates. (The paper does not say which denoiser it uses.) It does not hold for the minimiser of
eq:projected-diffusion-loss, called `learned` here, which is E[x̄_i | x̄_t, P_ii = 1] for each entry. The two coordinates are
never measured together, so it estimates each from itself alone. For the Gaussian, both denoisers are equal. For the deltas
they differ, and so do the errors of `learned` under the two masks: the ideal denoiser uses a correlation that these
measurements do not contain.

The distance between two distributions of errors is the energy coefficient, (2 E|X-Y| - E|X-X'| - E|Y-Y'|) / 2 E|X-Y|, which is
0 only for equal distributions and at most 1 (Székely and Rizzo, 2013). We compare it with the level that shuffled masks reach.
"""

from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.plotting.checks import ErrorClouds, draw_analytic
from gsure.random import Stream, keyed_generator
from gsure.schedule import Schedule

Distribution = Literal["gaussian", "deltas"]
Kind = Literal["ideal", "learned"]

TIMES = (900, 300, 100)
"""Timesteps of low, middle and high signal-to-noise ratio in the schedule of the paper's released configurations."""
CURVE = (10, 50, 100, 150, 200, 250, 300, 400, 500, 600, 700, 800, 900, 1000)
MAX_DISTANCE = 0.005
"""Distributions count as equal if their energy coefficient is below this, or below its level."""


class Errors(NamedTuple):
    """Errors of samples whose first coordinate was measured, and of samples whose second coordinate was."""

    first_kept: Float[Tensor, "m 2"]
    second_kept: Float[Tensor, "n 2"]


def denoise(
    signals: Distribution, kind: Kind, xbar_t: Float[Tensor, "n 2"], alpha_bar_t: float
) -> Float[Tensor, "n 2"]:
    """The ideal denoiser of fully sampled signals, or the exact minimiser of the projected loss.

    Gaussian: √ᾱ x̄_t in both cases. Deltas, with x̄_t = (a, b): tanh(√ᾱ (a + b)/(1-ᾱ)) for both coordinates, or
    tanh(√ᾱ a/(1-ᾱ)) and tanh(√ᾱ b/(1-ᾱ)).
    """
    signal = alpha_bar_t**0.5
    if signals == "gaussian":
        return signal * xbar_t
    evidence = xbar_t.sum(1, keepdim=True).expand(-1, 2) if kind == "ideal" else xbar_t
    return torch.tanh(signal * evidence / (1 - alpha_bar_t))


def draw_errors(signals: Distribution, kind: Kind, alpha_bar_t: float, n: int, generator: torch.Generator) -> Errors:
    """The errors of n signals, each with noise and one of the two equally likely masks."""
    eps = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    if signals == "gaussian":
        xbar = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    else:
        xbar = (2.0 * torch.randint(2, (n, 1), generator=generator) - 1).double().expand(-1, 2)
    first = torch.randint(2, (n,), generator=generator) == 1
    mask = torch.stack([first, ~first], 1)
    xbar_t = alpha_bar_t**0.5 * mask * xbar + (1 - alpha_bar_t) ** 0.5 * eps
    error = denoise(signals, kind, xbar_t, alpha_bar_t) - xbar
    return Errors(error[first], error[~first])


def energy_coefficient(
    x: Float[Tensor, "m d"],
    y: Float[Tensor, "n d"],
    generator: torch.Generator,
    most: int = 800,
    permutations: int = 199,
) -> tuple[float, float]:
    """The distance between two distributions, from 0 to 1, and the level that 1 % of the distances after shuffling exceed.

    With weights p = 1/m on x and q = 1/n on y, and D the matrix of distances, E|X-Y| is pᵀDq, and so on. Shuffling changes p.
    """
    x, y = x[:most], y[:most]
    both, m, n = torch.cat([x, y]), len(x), len(y)
    distance = torch.cdist(both, both)
    orders = [torch.arange(m + n), *(torch.randperm(m + n, generator=generator) for _ in range(permutations))]
    p = torch.stack([(order < m).to(x) / m for order in orders], 1)
    q = (1 - m * p) / n
    from_p = distance @ p
    from_q = (distance.sum(1, keepdim=True) - m * from_p) / n
    cross = (p * from_q).sum(0)
    energy = 2 * cross - (p * from_p).sum(0) - (q * from_q).sum(0)
    coefficient = energy / (2 * cross).clamp(min=1e-300)
    return float(coefficient[0]), float(coefficient[1:].quantile(0.99))


def analytic_example(folder: str | Path, n: int = 10_000, seed: int = 0) -> dict[str, Any]:
    """Draw folder/analytic.png and return its numbers: the distance between the errors under the two masks, against t.

    `statement` says whether each claim of the paper holds: equal at low SNR for both signals; at high SNR different for the
    Gaussian, equal for the deltas.
    """
    schedule = Schedule.linear()
    cases: list[tuple[Distribution, Kind]] = [("gaussian", "ideal"), ("deltas", "ideal"), ("deltas", "learned")]
    rows: list[dict[str, Any]] = []
    clouds: dict[tuple[Distribution, Kind], dict[int, tuple[Tensor, Tensor]]] = {case: {} for case in cases}
    for number, (signals, kind) in enumerate(cases):
        for t in sorted({*TIMES, *CURVE}):
            generator = keyed_generator(seed, Stream.ANALYTIC, number, t)
            errors = draw_errors(signals, kind, float(schedule.alpha_bar[t]), n, generator)
            value, level = energy_coefficient(*errors, generator)
            row = {"distribution": signals, "denoiser": kind, "t": t, "snr": float(schedule.sigma[t] ** -2)}
            rows.append(row | {"distance": value, "level": level, "apart": value > max(level, MAX_DISTANCE)})
            if t in TIMES:
                clouds[signals, kind][t] = errors
    apart = {(row["distribution"], row["denoiser"], row["t"]): row["apart"] for row in rows}
    low, _, high = TIMES
    statement = {
        "alike at low SNR, Gaussian": not apart["gaussian", "ideal", low],
        "alike at low SNR, two deltas": not apart["deltas", "ideal", low],
        "apart at high SNR, Gaussian": apart["gaussian", "ideal", high],
        "alike at high SNR, two deltas": not apart["deltas", "ideal", high],
    }
    beyond = {"apart at high SNR, two deltas, as learned": apart["deltas", "learned", high]}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _draw(folder / "analytic.png", clouds, rows)
    return {
        "n": n,
        "seed": seed,
        "figure": "analytic.png",
        "statement": statement,
        "beyond the paper": beyond,
        "rows": rows,
    }


def _draw(
    path: Path, clouds: dict[tuple[Distribution, Kind], dict[int, tuple[Tensor, Tensor]]], rows: list[dict[str, Any]]
) -> None:
    names: dict[tuple[Distribution, Kind], str] = {
        ("gaussian", "ideal"): "Gaussian",
        ("deltas", "ideal"): "two deltas,\nideal denoiser",
        ("deltas", "learned"): "two deltas,\nminimiser of the loss",
    }
    drawn = [
        ErrorClouds(name, clouds[case], [row for row in rows if (row["distribution"], row["denoiser"]) == case])
        for case, name in names.items()
    ]
    draw_analytic(path, drawn)
