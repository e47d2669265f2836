"""An HTML page about a run: what it was trained on, how good it is, and how to repeat it."""

from gsure.report.page import write_report

__all__ = ["write_report"]
