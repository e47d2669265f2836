"""Is a model better than no model? Baselines, a comparison that needs no clean data, and a verdict.

| module | what it has |
|---|---|
| `baselines` | the pseudo-inverse, total variation, and the Gaussian of a run |
| `hidden` | how well each of them predicts measured entries that were hidden from it |
| `verdict` | one sentence |
"""

from gsure.judging.baselines import Baselines
from gsure.judging.hidden import Predictions, choose_judged, predict_hidden
from gsure.judging.verdict import Verdict, difference_of_errors, difference_of_scores, judge_differences

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
