"""Is a model better than no model? Baselines, a comparison that needs no clean data, and a verdict.

| module | what it has |
|---|---|
| `baselines` | the pseudo-inverse, total variation, and the Gaussian of a run |
| `verdict` | one sentence, from clean signals or from measured entries that were hidden from all estimates |
"""

from gsure.judging.baselines import Baselines
from gsure.judging.verdict import (
    Predictions,
    Verdict,
    choose_judged,
    difference_of_errors,
    difference_of_scores,
    judge_differences,
    predict_hidden,
)

__all__ = [
    "Baselines",
    "Predictions",
    "Verdict",
    "choose_judged",
    "difference_of_errors",
    "difference_of_scores",
    "judge_differences",
    "predict_hidden",
]
