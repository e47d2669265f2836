"""Evaluate samples, restorations and denoisers (`evaluate_*`), and check the assumptions of the method (`diagnose`).

Each function writes its results as JSON (docs/evaluation.md) and returns them.
"""

from gsure.evaluation.denoising import evaluate_denoising
from gsure.evaluation.restorations import evaluate_restorations
from gsure.evaluation.samples import evaluate_samples

__all__ = ["evaluate_denoising", "evaluate_restorations", "evaluate_samples"]
