"""How good is it: samples against real signals or measurements, restorations against the truth, denoising at each t.

Each function writes what it found as JSON (docs/evaluation.md) and returns it.
"""

from gsure.evaluation.denoising import evaluate_denoising
from gsure.evaluation.restorations import evaluate_restorations
from gsure.evaluation.samples import evaluate_samples

__all__ = ["evaluate_denoising", "evaluate_restorations", "evaluate_samples"]
