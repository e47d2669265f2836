"""Is a model better than no model? One sentence, from paired differences in decibels.

Without clean data, estimates are compared by what they predict for measured entries that were hidden from all of them. A
tenth of the measured units is hidden, outside of the entries that every measurement has, such as the centre of k-space:
these would decide the comparison by their size alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gsure.data.source import evenly_spread
from gsure.display import with_error
from gsure.gaussian import About
from gsure.measurement import Measurement, draw_hidden
from gsure.random import Stream, generators

CERTAIN = 2.0
"""A difference counts if it exceeds this many standard errors."""
WITHOUT_MODEL = {"baseline": "the baseline", "total_variation": "total variation"}
"""Estimates that need no training. The baseline is zero-filled, or the pseudo-inverse."""
ADVICE = "Do not use it: train longer, or see docs/training.md."

HIDDEN_SHARE = 0.1
MIN_UNITS = 20
"""Fewer hidden units than this do not judge a model."""

JUDGED_PIXELS, FEWEST, MOST = 32 * 64**2, 8, 64
"""A model is judged on measurements of so many pixels together; and on at least and at most so many."""

Estimate = Callable[[Measurement], Mapping[str, Tensor]]
"""Signals by kind, from measurements: `mean` is that of the model to be judged."""


class Difference(NamedTuple):
    """Decibels by which the model is better, and their standard error; None if there is only one volume."""

    value: float
    error: float | None

    @property
    def is_certain(self) -> bool:
        return self.error is not None and abs(self.value) > CERTAIN * self.error


class Verdict(NamedTuple):
    sentence: str
    is_better: bool | None
    """Than the best estimate without a model; None if that cannot be said."""


def difference_of_scores(model: Float[Tensor, " n"], other: Float[Tensor, " n"]) -> Difference:
    """Of values in decibels, such as PSNRs, of the same volumes."""
    away = (model - other).double()
    return Difference(float(away.mean()), float(away.std() / len(away) ** 0.5) if len(away) > 1 else None)


def difference_of_errors(
    model: Float[Tensor, " n"], other: Float[Tensor, " n"], groups: Int[Tensor, " n"]
) -> Difference:
    """Of squared errors, added over all samples; the standard error is a jackknife over groups, such as volumes."""
    count = int(groups.max()) + 1
    sums = torch.zeros(count, 2, dtype=torch.float64).index_add(0, groups, torch.stack([model, other], 1).double())
    total = sums.sum(0)
    if count == 1:
        return Difference(_decibels(total), None)
    without = torch.tensor([_decibels(total - left_out) for left_out in sums], dtype=torch.float64)
    return Difference(_decibels(total), float((without.var(correction=0) * (count - 1)).sqrt()))


def _decibels(sums: Tensor) -> float:
    return float(10 * torch.log10((sums[1] + 1e-30) / (sums[0] + 1e-30)))


def judge_differences(differences: Mapping[str, Difference]) -> Verdict:
    """`differences` are those to the estimates of WITHOUT_MODEL, and to the Gaussian if there is one.

    >>> judge_differences({"baseline": Difference(3.0, 0.1), "total_variation": Difference(1.3, 0.2)}).sentence
    'Better than total variation by 1.30 ± 0.20 dB.'
    >>> judge_differences({"baseline": Difference(-1.0, 0.1)}).sentence
    'Worse than no model: the baseline is better by 1.00 ± 0.10 dB. Do not use it: train longer, or see docs/training.md.'
    """
    hardest = min((name for name in WITHOUT_MODEL if name in differences), key=lambda name: differences[name].value)
    found, name = differences[hardest], WITHOUT_MODEL[hardest]
    if found.error is None:
        sentence = (
            f"{_amount(found)} against {name}, on one volume: too few to say whether the model is better than no model."
        )
        return Verdict(sentence, None)
    if not found.is_certain:
        within = "within two standard errors. Train longer."
        verdict = Verdict(f"Not better than {name}: the difference is {_amount(found)}, {within}", None)
    elif found.value > 0:
        verdict = Verdict(f"Better than {name} by {_amount(found)}.", True)
    else:
        verdict = Verdict(f"Worse than no model: {name} is better by {_amount(found, -1)}. {ADVICE}", False)
    gaussian = differences.get("gaussian")
    if gaussian is not None and gaussian.is_certain and gaussian.value < 0:
        more = f"The Gaussian prior of the run is better by {_amount(gaussian, -1)}: restore with the method gaussian."
        return verdict._replace(sentence=f"{verdict.sentence} {more}")
    return verdict


def _amount(difference: Difference, sign: int = 1) -> str:
    value = sign * difference.value
    return f"{value:.1f} dB" if difference.error is None else f"{with_error(value, difference.error)} dB"


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
        return "No verdict: nothing could be hidden from the model. Give clean signals if you have any (--clean, or clean=)."
    return (
        f"No verdict: only {units} of the measured units could be hidden, and at least {MIN_UNITS} are needed. Give more "
        "measurements, or clean signals (--clean, in Python clean=)."
    )
