"""Checks of the assumptions of the method on held-out data, one module for each. `gsure diagnose` runs them."""

from gsure.evaluation.checks.agreement import check_agreement
from gsure.evaluation.checks.check import Check
from gsure.evaluation.checks.correlation import correlate
from gsure.evaluation.checks.coverage import check_coverage
from gsure.evaluation.checks.full_sampling import check_full_sampling
from gsure.evaluation.checks.independence import check_independence
from gsure.evaluation.checks.noise_level import check_noise

__all__ = [
    "Check",
    "check_agreement",
    "check_coverage",
    "check_full_sampling",
    "check_independence",
    "check_noise",
    "correlate",
]
