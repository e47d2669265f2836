"""Compare estimates without clean data: hide some of what was measured from all of them, and see who predicts it best.

A tenth of the measured units is hidden, outside of the entries that every measurement has, such as the centre of k-space:
these would decide the comparison by their size alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gsure.data.scaling import evenly_spread
from gsure.gaussian import About
from gsure.judging.verdict import Verdict, difference_of_errors, judge_differences
from gsure.measurement import Measurement, draw_hidden
from gsure.random import Stream, generators

HIDDEN_SHARE = 0.1
MIN_UNITS = 20
"""Fewer hidden units than this do not judge a model."""

JUDGED_PIXELS, FEWEST, MOST = 32 * 64**2, 8, 64
"""A model is judged on measurements of so many pixels together; and on at least and at most so many."""

Estimate = Callable[[Measurement], Mapping[str, Tensor]]
"""Signals by kind, from measurements: `mean` is that of the model to be judged."""


class Predictions(NamedTuple):
    """Squared errors on hidden entries, by kind of estimate and by sample."""

    errors: dict[str, Float[Tensor, " b"]]
    power: Float[Tensor, " b"]
    groups: Int[Tensor, " b"]
    units: int
    """Number of units that were hidden."""

    def verdict(self) -> Verdict:
        if self.units < MIN_UNITS:
            return Verdict(_too_few(self.units), None)
        others = {name: values for name, values in self.errors.items() if name != "mean"}
        differences = {
            name: difference_of_errors(self.errors["mean"], values, self.groups) for name, values in others.items()
        }
        return judge_differences(differences)

    def decibels(self) -> dict[str, float]:
        """Signal-to-error ratio on hidden entries: 0 dB predicts nothing."""
        total = float(self.power.double().sum()) + 1e-30
        return {
            name: float(10 * np.log10(total / (float(error.double().sum()) + 1e-30)))
            for name, error in self.errors.items()
        }

    def as_dict(self) -> dict[str, Any]:
        verdict = self.verdict()
        record: dict[str, Any] = {"verdict": verdict.sentence, "is_better": verdict.is_better}
        if self.units >= MIN_UNITS:
            record["decibels"] = self.decibels()
        return record | {"measurements": len(self.power), "hidden_units": self.units}


def choose_judged(n: int, shape: Sequence[int]) -> np.ndarray:
    """Positions of the measurements to judge a model on, out of n."""
    pixels = int(np.prod(shape[-2:]))
    return evenly_spread(max(FEWEST, min(MOST, JUDGED_PIXELS // pixels)), n)


def predict_hidden(
    estimate: Estimate,
    measurement: Measurement,
    about: About,
    indices: Sequence[int],
    groups: Sequence[str],
    seed: int = 0,
    real_images: bool = False,
) -> Predictions:
    """What each estimate predicts for entries that were hidden from it. `indices` are the samples' numbers in their file."""
    numbers = torch.from_numpy(np.unique(list(groups), return_inverse=True)[1])
    nothing = torch.zeros(len(measurement))
    if measurement.mask[0].numel() == 1 or bool((about.always == 1).all()):
        return Predictions({}, nothing, numbers, 0)
    generator = generators(seed, Stream.JUDGED_HIDDEN, indices=indices)
    partner = about.basis.conjugates if real_images else None
    hidden = draw_hidden(measurement, HIDDEN_SHARE, generator, about.unit, about.always, partner)
    units = int(_units(hidden, about.unit))
    if units < MIN_UNITS:
        return Predictions({}, nothing, numbers, units)
    shown, target = measurement.hide(hidden), measurement.hide(1 - hidden)
    errors = {
        name: (target.mask * (about.basis.to_spectral(x.to(target.ybar)) - target.ybar)).flatten(1).square().sum(1)
        for name, x in estimate(shown).items()
    }
    return Predictions(errors, target.ybar.flatten(1).square().sum(1), numbers, units)


def _units(hidden: Float[Tensor, "b ..."], unit: Sequence[int]) -> float:
    """How many units were hidden: a line of k-space is one, however many entries it has."""
    return float(hidden.sum()) / float(np.prod(unit or [1]))


def _too_few(units: int) -> str:
    if units == 0:
        return "No verdict: nothing could be hidden from the model. Give the clean signals, if there are any, with --clean."
    return (
        f"No verdict: only {units} of the measured units could be hidden, and at least {MIN_UNITS} are needed. Give more "
        "measurements, or the clean signals with --clean."
    )
