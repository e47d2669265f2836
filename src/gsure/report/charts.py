"""The charts of the page: how training went, and error bars, with what they claim and what they cover."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from gsure.display import number, percent
from gsure.files import read_json
from gsure.judging import LEVEL
from gsure.plotting.curves import INK, Series, Style, draw_svg, reliability_series
from gsure.report import words
from gsure.report.collect import Drawn, Facts, Trained

SAID = ("error bars", "familiarity", "unfamiliar measurements")
"""Lines of a summary that the page repeats."""


class Curves(NamedTuple):
    """A figure with its title, a sentence below it, and its alternative text."""

    svg: Markup
    title: str
    words: str
    alt: str


Styled = list[tuple[Trained, Style]]


def training_curves(runs: Sequence[Trained], styles: Sequence[Style]) -> list[Curves]:
    """Figures of all runs: the loss, the validation error and its true value, and the error over the noise level."""
    styled = list(zip(runs, styles, strict=True))
    return [curves for function in (_losses, _validation, _noise_levels) for curves in function(styled)]


def _losses(runs: Styled) -> Iterator[Curves]:
    found = [(run, style) for run, style in runs if len(run.losses) > 1]
    if not found:
        return
    series = []
    for run, style in found:
        steps, losses = zip(*run.losses, strict=True)
        series.append(Series(steps, losses, None, style.stand_in, style.dash))
    finite = sorted(value for one in series for value in one.y if math.isfinite(value))
    ylim = None
    if finite:  # omit the first steps, whose loss is so high that it hides all the others
        low, high = finite[0], finite[int(0.97 * (len(finite) - 1))]
        ylim = (low - 0.05 * (high - low or 1), high + 0.15 * (high - low or 1))
    svg = draw_svg("loss", series, "training step", "loss", ylim)
    ends = [f"{run.label}: from {number(run.losses[0][1], 3)} to {number(run.losses[-1][1], 3)}" for run, _ in found]
    about = "The curve should fall and level off."
    if len(found) > 1:
        about = (
            "Each curve should fall and level off. Models with different training data have different losses: do not "
        )
        about += "compare them here, but in the next figures."
    yield Curves(Markup(svg), "Training loss", about, f"Line chart of the loss over steps. {'; '.join(ends)}.")


def _validation(runs: Styled) -> Iterator[Curves]:
    """Of the runs that were validated like the first. Omits the reference, which is validated on clean signals and needs no
    estimate."""
    found = [(run, style) for run, style in runs if run.validations and run.role != "clean"]
    found = [entry for entry in found if entry[0].validates_restoration == found[0][0].validates_restoration]
    if not found:
        return
    known = [(run, style) for run, style in found if all("true" in v for _, v in run.validations)]
    series = []
    for run, style in found:
        steps, results = zip(*run.validations, strict=True)
        values, errors = [v["estimate"]["mean"] for v in results], [2 * v["estimate"]["se"] for v in results]
        series.append(Series(steps, values, errors, style.stand_in, mark="o"))
    for run, style in known:
        steps, results = zip(*run.validations, strict=True)
        series.append(Series(steps, [v["true"]["mean"] for v in results], None, style.stand_in, style.dash))
    error = "error on hidden entries" if found[0][0].validates_restoration else "denoising error"
    svg = draw_svg("validation", series, "training step", error)
    alt = f"Chart of the {error} of held-out measurements over training steps, as dots with error bars. "
    about = f"Dots: {error} of held-out measurements, estimated without clean data (± 2 standard errors). "
    if known:
        one = words.thing(found[0][0].config.data_info)
        worst = max(abs(v["estimate"]["mean"] / v["true"]["mean"] - 1) for run, _ in known for _, v in run.validations)
        alt += f"The largest difference from the true error, a line, is {percent(worst)}."
        about += f"Lines: true error, computed with the clean {one}s. The largest difference is {percent(worst)}."
    else:
        first, last = (number(found[0][0].validations[k][1]["estimate"]["mean"], 3) for k in (0, -1))
        alt += f"It goes from {first} to {last}."
        about += (
            "It is a share of the error of the Gaussian prior: below 1, the network adds to it."
            if found[0][0].validates_restoration
            else "It is an unbiased estimate of the true error and selects the best checkpoint."
        )
    yield Curves(Markup(svg), f"Validation error{', estimated and true' if known else ''}", about, alt)


def _noise_levels(runs: Styled) -> Iterator[Curves]:
    """The last validation over t: on fully sampled signals if all runs have them, so that you can compare the runs."""
    found = [(run, style, run.validations[-1][1]) for run, style in runs if run.validations]
    found = [entry for entry in found if entry[2]["t_bins"]]  # restoration in one call is validated at no timestep
    key = "full" if found and all("full" in result for _, _, result in found) else "estimate"
    found = [entry for entry in found if key == "full" or entry[0].role != "clean"]
    if not found:
        return
    series = []
    for _, style, result in found:
        t, values, errors = zip(*((sum(b["t"]) / 2, b[key], 2 * b[f"{key}_se"]) for b in result["t_bins"]), strict=True)
        series.append(Series(t, values, errors, style.stand_in, style.dash, "o-"))
    log = all(value > 0 for one in series for value in one.y)
    svg = draw_svg("levels", series, "timestep t (small: low noise)", "denoising error", log=log)
    what = f"complete {words.thing(found[0][0].config.data_info)}s" if key == "full" else "held-out measurements"
    about = "Sampling goes from high noise (right) to low noise (left), so a model must be good at all levels. "
    about += f"Error on {what} at the last checkpoint, ± 2 standard errors."
    low = "; ".join(f"{run.label} {number(one.y[0], 3)}" for (run, *_), one in zip(found, series, strict=True))
    alt = f"Chart of the denoising error on {what} over the timestep t. At the lowest noise: {low}."
    yield Curves(Markup(svg), "Error by noise level", about, alt)


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


def _of(drawn: Drawn, index: int) -> ErrorBars:
    start = f"{100 * LEVEL:.0f} % intervals cover"
    shown = [key for key in drawn.summary if key in SAID or key.startswith(start)]
    sentences = [(key, str(drawn.summary[key])) for key in shown]
    is_unfamiliar = str(drawn.summary.get("familiarity", "")).startswith("These measurements do not")
    curves = _read(drawn.path / "reliability.json")
    if not curves:
        return ErrorBars(drawn.label, sentences, is_unfamiliar, None, "", [])
    styles = [Style(k, "") for k in range(len(curves))]
    series = reliability_series(curves, [*(style.stand_in for style in styles), INK])
    svg = draw_svg(f"reliability{index}", series, "claimed coverage", "observed coverage", (0.0, 1.0))
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
