"""At which noise level the conditional means of `context` are averaged: by what they predict for hidden measured entries.

The mean of K complete draws has 1/K of the posterior's variance as an error. A draw that stops at a higher noise level gives
E[x̄ | measured entries, missing ones at that level] instead, which varies less and has the same mean (Rao-Blackwell). With an
exact denoiser the highest level is the best, and one call is better still. A network is not equally good at all levels.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from gsure.denoiser import evaluating
from gsure.display import with_error
from gsure.gaussian import About
from gsure.inference.methods import Draws, Method
from gsure.judging import split_units
from gsure.judging.verdict import Difference, difference_of_errors
from gsure.measurement import Measurement
from gsure.random import Stream, generators
from gsure.restoration import context_path, falling_levels

IMAGES = 32
"""Measurements that choose the level: the difference is that of the same measurements."""


class Stop(NamedTuple):
    """A step of `context`, and by how much its mean is better on hidden entries than the usual one."""

    step: int | None
    """None for the usual mean: one call, or the mean of complete draws."""
    gain: Difference

    def describe(self, method: Method, steps: int) -> str:
        """
        >>> Stop(5, Difference(0.19, 0.03)).describe("mean", 20)
        'of draws that stop at noise level 0.803: 0.190 ± 0.030 dB better on hidden entries than one call'
        """
        usual = "one call" if method == "mean" else "the mean of complete draws"
        if self.step is None:
            return f"{usual}: draws that stop at a noise level are not better on hidden entries"
        level = falling_levels(steps)[self.step]
        gain = with_error(self.gain.value, self.gain.error)
        return f"of draws that stop at noise level {level:.3g}: {gain} dB better on hidden entries than {usual}"


def choose_stop(
    drawing: Draws,
    method: Method,
    about: About,
    batches: Iterable[tuple[Measurement, list[int]]],
    real_images: bool = False,
) -> Stop | None:
    """The best level on hidden entries, if it is better than the usual mean by two standard errors.

    None if nothing can be hidden. `method` is what gives the usual mean.
    """
    errors = []
    for measurement, indices in batches:
        hidden = split_units(measurement, about, indices, drawing.seed, real_images)
        if hidden is not None:
            errors.append(_errors(drawing, method, measurement, hidden[0], indices))
    if not errors:
        return None
    found = torch.cat(errors, 1)  # the usual mean, and all levels
    *levels, _ = found[1:]
    best = min(range(len(levels)), key=lambda k: float(levels[k].sum())) if levels else None
    if best is None:
        return None
    gain = difference_of_errors(levels[best], found[0], torch.arange(found.shape[1]))
    return Stop(best if gain.is_certain and gain.value > 0 else None, gain)


@torch.no_grad()
def _errors(drawing: Draws, method: Method, measurement: Measurement, hidden: Tensor, indices: list[int]) -> Tensor:
    """(1 + steps, b): squared errors on hidden entries of the usual mean, and of the mean at each step."""
    denoiser, draws = drawing.denoiser, drawing.draws
    where = next(denoiser.parameters(), torch.empty(0)).device
    shown, target = measurement.hide(hidden).to(where), measurement.hide(1 - hidden).to(where)
    generator = [
        g
        for draw in range(draws)
        for g in generators(drawing.seed, Stream.CALIBRATION_STOP, draw, indices=indices, device=where)
    ]

    def error(xbar: Tensor) -> Tensor:
        return (target.mask * (target.ybar - xbar)).square().flatten(1).sum(1, dtype=torch.float64).cpu()

    path = context_path(denoiser, shown, drawing.steps, draws=draws, generator=generator)
    at_levels = [error(xbar.unflatten(0, (draws, -1)).mean(0)) for xbar in path]
    with evaluating(denoiser):
        usual = error(denoiser.estimate(shown)) if method == "mean" else at_levels[-1]
    return torch.stack([usual, *at_levels])
