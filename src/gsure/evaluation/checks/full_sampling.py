"""Does a network that was trained on signals with missing entries denoise fully sampled signals as well?

The check computes the error of the measured entries, E‖WP(f(x̄_t) - x̄)‖², twice, with the same noise on them: once with only
the measurement as input, as in training, and once with the fully sampled signal as input, as in generation. A fully sampled
signal has more information, so a denoiser that can use it has a smaller error. The check does not show that this error is as
small as possible: a mask-blind network (docs/method.md) may still not use part of the information.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gsure.denoiser import BaseDenoiser
from gsure.evaluation.checks.check import Check, judge, measure_at, not_checked
from gsure.evaluation.checks.held_out import HeldOut
from gsure.measurement import Measurement
from gsure.random import Stream

NAME, TITLE = "full_sampling", "Does it denoise fully sampled signals at least as well as those with missing entries?"
MAX_EXCESS = 0.02
"""The error on fully sampled signals may exceed the error on measurements by this share."""


def check_full_sampling(
    denoiser: BaseDenoiser,
    data: HeldOut,
    times: Sequence[int],
    advance: Callable[[int], None] = lambda done: None,
) -> Check:
    """The ratio of both errors at each timestep, with its standard error, and the verdict. Needs clean signals."""
    if bool((data.coverage == 1).all()):
        return not_checked(NAME, TITLE, "no measurement has missing entries")
    rows = measure_at(times, lambda t: _compare(denoiser, data, t), advance)
    verdict = judge(times, [row["ratio"] - 1 > max(MAX_EXCESS, 3 * row["se"]) for row in rows], denoiser.schedule.T)
    best, worst = min(rows, key=lambda row: row["ratio"]), max(rows, key=lambda row: row["ratio"])
    words = (
        "The squared error of measured entries, if the network sees the fully sampled signal, is "
        f"{best['ratio']:.2f} (t = {best['t']}) to {worst['ratio']:.2f} (t = {worst['t']}, standard error {worst['se']:.2g}) "
        "times the error if it sees only the measurement. Above 1, entries that were missing in training confuse the network."
    )
    return Check(NAME, TITLE, verdict, words, numbers={"times": rows})


@torch.no_grad()
def _compare(denoiser: BaseDenoiser, data: HeldOut, t: int) -> dict[str, Any]:
    errors = []
    for measurement, xbar, indices in data.with_signals():
        time = torch.full((len(xbar),), t)
        alpha_bar_t = denoiser.schedule.at(time, like=xbar)
        eps = data.noise(xbar, Stream.FULL_SAMPLING, t, indices=indices)
        weight, full = data.squared_weight(measurement), Measurement.clean(xbar)
        both = []
        for seen in (full, full.hide(1 - measurement.mask)):
            xbar_hat = denoiser(seen.perturb(alpha_bar_t, eps), time, seen.mask.expand_as(measurement.mask))
            both.append((weight * (xbar_hat - xbar) ** 2).flatten(1).mean(1))
        errors.append(torch.stack(both, 1).double().cpu())
    of_full, of_missing = torch.cat(errors).T
    ratio, se = data.ratio(of_full, of_missing)
    return {"ratio": ratio, "se": se, "full": float(of_full.mean()), "missing": float(of_missing.mean())}
