"""Is a model better than no model? Baselines, a comparison that needs no clean data, and a verdict.

| module | what it has |
|---|---|
| `baselines` | the pseudo-inverse, total variation, and the Gaussian of a run |
| `calibration` | error bars of the right size, and familiarity, from hidden measured entries |
| `coverage` | intervals, and the share of entries that they contain |
| `verdict` | one sentence, from clean signals or from measured entries that were hidden from all estimates |
"""

from gsure.judging.baselines import Baselines
from gsure.judging.calibration import Calibration, Evidence, compare, fit_calibration, group_units, split_units
from gsure.judging.coverage import LEVEL, LEVELS, Reliability, half_width, relative_to_phase
from gsure.judging.verdict import (
    Predictions,
    Verdict,
    choose_judged,
    difference_of_errors,
    difference_of_scores,
    judge_differences,
    predict_hidden,
)
from gsure.metrics.images import find_object

__all__ = [
    "LEVEL",
    "LEVELS",
    "Baselines",
    "Calibration",
    "Evidence",
    "Predictions",
    "Reliability",
    "Verdict",
    "choose_judged",
    "compare",
    "difference_of_errors",
    "difference_of_scores",
    "find_object",
    "fit_calibration",
    "group_units",
    "half_width",
    "judge_differences",
    "predict_hidden",
    "relative_to_phase",
    "split_units",
]
