"""Are the assumptions of the method met, on this data and by this model? One module a check; `gsure diagnose` runs them."""

from gsure.diagnosis.agreement import check_agreement
from gsure.diagnosis.analytic import analytic_example
from gsure.diagnosis.check import Check
from gsure.diagnosis.correlation import correlate
from gsure.diagnosis.coverage import check_coverage
from gsure.diagnosis.independence import check_independence
from gsure.diagnosis.loudness import check_noise
from gsure.diagnosis.wholeness import check_wholeness

__all__ = [
    "Check",
    "analytic_example",
    "check_agreement",
    "check_coverage",
    "check_independence",
    "check_noise",
    "check_wholeness",
    "correlate",
]
