"""Is a network that has only ever seen signals with holes confused by a whole one?

The error of the measured entries is looked at twice, with the same noise on them: as in training, where the network sees only
the measurement, E‖WP(f(x̄_t) - x̄)‖², and where it sees the whole signal, as in generation. A whole signal tells more, so a
denoiser that is not confused by it has the smaller error there. That it is smaller does not show that it is as small as it
could be: mask-blindness (docs/method.md) may still cost a part of what the whole tells.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gsure.denoiser import BaseDenoiser
from gsure.evaluation.checks.check import Check, judge, not_checked
from gsure.evaluation.checks.independence import Read
from gsure.measurement import Measurement
from gsure.random import generators, normal
from gsure.training.validation import standard_error

NAME, TITLE = "full_sampling", "Does it denoise whole signals at least as well as those with holes?"
LARGE = 0.02
"""By this share, at least, the error must be larger with the whole signal in sight."""
STREAM = 13
"""Keeps this noise apart from others."""


def check_full_sampling(
    denoiser: BaseDenoiser,
    read: Read,
    times: Sequence[int],
    coverage: Float[Tensor, "..."],
    group: Int[Tensor, " n"],
    *,
    seed: int = 0,
    advance: Callable[[int], None] = lambda done: None,
) -> Check:
    """The ratio of both errors at each time, with its standard error, and in words what it says. `read` tells signals too."""
    if bool((coverage == 1).all()):
        return not_checked(NAME, TITLE, "no measurement has holes")
    rows = []
    squared_weight = torch.where(coverage > 0, 1 / coverage.double(), 0.0)
    for t in times:
        rows.append({"t": t} | _compare(denoiser, read, t, squared_weight, group, seed))
        advance(1)
    verdict = judge(times, [row["ratio"] - 1 > max(LARGE, 3 * row["se"]) for row in rows], denoiser.schedule.T)
    best, worst = min(rows, key=lambda row: row["ratio"]), max(rows, key=lambda row: row["ratio"])
    words = (
        "Of the entries that were measured, the squared error with the whole signal in sight is "
        f"{best['ratio']:.2f} (t = {best['t']}) to {worst['ratio']:.2f} (t = {worst['t']}, standard error {worst['se']:.2g}) "
        "times that with holes; above 1 the network is confused by what no measurement showed it."
    )
    return Check(NAME, TITLE, verdict, words, numbers={"times": rows})


@torch.no_grad()
def _compare(
    denoiser: BaseDenoiser,
    read: Read,
    t: int,
    squared_weight: Float[Tensor, "..."],
    group: Int[Tensor, " n"],
    seed: int,
) -> dict[str, Any]:
    errors: list[Float[Tensor, "b 2"]] = []
    for measurement, xbar, indices in read():
        if xbar is None:
            raise ValueError(
                "Whole signals are compared with those with holes: the reader must give clean signals too."
            )
        time = torch.full((len(xbar),), t)
        alpha_bar_t = denoiser.schedule.at(time, like=xbar)
        eps = normal(xbar.shape, generators(seed, STREAM, t, indices=indices), like=xbar)
        weight = measurement.mask * squared_weight.to(xbar)
        whole = Measurement.clean(xbar)
        both = []
        for shown in (whole, whole.hide(1 - measurement.mask)):
            xbar_hat = denoiser(shown.perturb(alpha_bar_t, eps), time, shown.mask.expand_as(measurement.mask))
            both.append((weight * (xbar_hat - xbar) ** 2).flatten(1).mean(1))
        errors.append(torch.stack(both, 1).double().cpu())
    with_whole, with_holes = torch.cat(errors).T
    ratio = with_whole.sum() / with_holes.sum()
    se = standard_error((with_whole - ratio * with_holes)[:, None], group) / with_holes.mean()
    return {
        "ratio": float(ratio),
        "se": float(se),
        "whole": float(with_whole.mean()),
        "holes": float(with_holes.mean()),
    }
