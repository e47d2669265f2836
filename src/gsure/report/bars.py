"""The error bars of restorations on the page: what they claim, what they cover, and whether measurements look unfamiliar."""

from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from gsure.files import read_json
from gsure.judging import LEVEL
from gsure.plotting.curves import INK, Style, draw_svg, reliability_series
from gsure.report.collect import Drawn, Facts

SAID = ("error bars", "familiarity", "unfamiliar measurements")
"""Lines of a summary that the page repeats."""


class ErrorBars(NamedTuple):
    """Of one folder of restorations: sentences with their names, and a reliability curve if the truth is known."""

    label: str
    sentences: list[tuple[str, str]]
    is_unfamiliar: bool
    svg: Markup | None
    alt: str
    names: list[tuple[str, int]]
    """Of the curves, with the number of their colour."""


def error_bars(facts: Facts) -> list[ErrorBars]:
    return [_of(drawn, k) for k, drawn in enumerate(facts.restorations) if "error bars" in drawn.summary]


def _of(drawn: Drawn, number: int) -> ErrorBars:
    start = f"{100 * LEVEL:.0f} % intervals cover"
    shown = [key for key in drawn.summary if key in SAID or key.startswith(start)]
    sentences = [(key, str(drawn.summary[key])) for key in shown]
    is_unfamiliar = str(drawn.summary.get("familiarity", "")).startswith("These measurements do not")
    curves = _read(drawn.path / "reliability.json")
    if not curves:
        return ErrorBars(drawn.label, sentences, is_unfamiliar, None, "", [])
    styles = [Style(k, "") for k in range(len(curves))]
    series = reliability_series(curves, [*(style.stand_in for style in styles), INK])
    svg = draw_svg(f"reliability{number}", series, "claimed coverage", "observed coverage", (0.0, 1.0))
    ends = [f"{name}: {100 * curve['object'][curve['levels'].index(LEVEL)]:.0f} %" for name, curve in curves.items()]
    alt = f"Chart of the share of true values that intervals contain over the share they claim. At 90 %: {'; '.join(ends)}."
    return ErrorBars(drawn.label, sentences, is_unfamiliar, Markup(svg), alt, [(n, k) for k, n in enumerate(curves)])


def _read(path: Path) -> dict[str, Any]:
    """The curves in a file; none if it is absent or damaged."""
    try:
        found = read_json(path)
        usable = {
            name: {key: [float(value) for value in curve[key]] for key in ("levels", "object")}
            for name, curve in found.items()
        }
        return (
            usable
            if all(LEVEL in c["levels"] and len(c["levels"]) == len(c["object"]) for c in usable.values())
            else {}
        )
    except (OSError, ValueError, KeyError, TypeError):
        return {}
