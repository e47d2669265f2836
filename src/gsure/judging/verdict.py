"""Is a model better than no model? One sentence, from paired differences in decibels."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gsure.display import with_error

CERTAIN = 2.0
"""A difference counts if it exceeds this many standard errors."""
WITHOUT_MODEL = {"baseline": "the baseline", "total_variation": "total variation"}
"""Estimates that need no training. The baseline is zero-filled, or the pseudo-inverse."""
ADVICE = "Do not use it: train longer, or see docs/training.md."


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
        verdict = Verdict(f"Not better than {name}: the difference is {_amount(found)}.", None)
    elif found.value > 0:
        verdict = Verdict(f"Better than {name} by {_amount(found)}.", True)
    else:
        verdict = Verdict(f"Worse than no model: {name} is better by {_amount(found, -1)}. {ADVICE}", False)
    gaussian = differences.get("gaussian")
    if gaussian is not None and gaussian.is_certain and gaussian.value < 0:
        more = f"The Gaussian prior of the run is better by {_amount(gaussian, -1)}: use --method gaussian."
        return verdict._replace(sentence=f"{verdict.sentence} {more}")
    return verdict


def _amount(difference: Difference, sign: int = 1) -> str:
    value = sign * difference.value
    return f"{value:.1f} dB" if difference.error is None else f"{with_error(value, difference.error)} dB"
