"""Is a network that has only ever seen signals with holes at a loss before a whole one? (mask-blindness, docs/method.md)

The error of the measured entries is looked at twice, with the same noise on them: as in training, where the network sees only
the measurement, E‖WP(f(x̄_t) - x̄)‖², and where it sees the whole signal, as in generation. A whole signal tells more, so a
denoiser that can use it has the smaller error there; one that is confused by it has the larger.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.denoiser import AnyDenoiser
from gsure.diagnosis.check import Check, judge
from gsure.diagnosis.independence import Read
from gsure.measurement import Measurement
from gsure.noise import generators, normal

NAME, TITLE = "wholeness", "Does it denoise whole signals at least as well as those with holes?"
STREAM = 13
"""Keeps this noise apart from others."""


def check_wholeness(
    denoiser: AnyDenoiser,
    read: Read,
    times: Sequence[int],
    coverage: Float[Tensor, "..."],
    *,
    seed: int = 0,
    advance: Callable[[int], None] = lambda done: None,
) -> Check:
    """The ratio of both errors at each time, with its standard error, and in words what it says."""
    rows = []
    for t in times:
        rows.append({"t": t} | _compare(denoiser, read, t, 1 / coverage.double(), seed))
        advance(1)
    verdict = judge(times, [row["ratio"] - 2 * row["se"] > 1 for row in rows], denoiser.schedule.T)
    best, worst = min(rows, key=lambda row: row["ratio"]), max(rows, key=lambda row: row["ratio"])
    words = (
        "Of the entries that were measured, the squared error with the whole signal in sight is "
        f"{best['ratio']:.2f} (t = {best['t']}) to {worst['ratio']:.2f} (t = {worst['t']}, standard error {worst['se']:.2g}) "
        "times that with holes; below 1 the network makes use of what no measurement showed it, above 1 it is confused."
    )
    return Check(NAME, TITLE, verdict, words, numbers={"times": rows})


@torch.no_grad()
def _compare(
    denoiser: AnyDenoiser, read: Read, t: int, squared_weight: Float[Tensor, "..."], seed: int
) -> dict[str, Any]:
    errors: dict[str, list[Tensor]] = {"whole": [], "holes": []}
    for measurement, xbar, indices in read():
        assert xbar is not None
        time = torch.full((len(xbar),), t)
        alpha_bar_t = denoiser.schedule.at(time, like=xbar)
        eps = normal(xbar.shape, generators(seed, STREAM, t, indices=indices), like=xbar)
        weight = (measurement.mask * squared_weight.to(xbar)).expand_as(xbar)
        for name, mask in (("whole", torch.ones_like(measurement.mask)), ("holes", measurement.mask)):
            xbar_t = Measurement._trusted(mask * xbar, mask, torch.zeros_like(mask)).perturb(alpha_bar_t, eps)
            errors[name].append((weight * (denoiser(xbar_t, time, mask) - xbar) ** 2).flatten(1).mean(1).double().cpu())
    whole, holes = torch.cat(errors["whole"]), torch.cat(errors["holes"])
    ratio = float(whole.mean() / holes.mean())
    se = float((whole - ratio * holes).std() / holes.mean() / len(whole) ** 0.5)
    return {"ratio": ratio, "se": se, "whole": float(whole.mean()), "holes": float(holes.mean())}
