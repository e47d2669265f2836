"""Curves as SVG inside the page. They take their colours from it, so that one drawing serves light, dark and print.

Names of runs appear in the legend, which is HTML, and not in a drawing: they may be in any script.
"""

import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from markupsafe import Markup

from gsure.formatting import percent
from gsure.report.collect import ROLES, Trained
from gsure.report.words import thing

INK = "#010203"
"""Stands for the colour of the text around the drawing."""
COLOURS = 6
"""That the style sheet has for curves: --curve-0 and so on. The first three are for the three roles."""
DASHES = ("", "6 3", "2 2")


class Drawing(NamedTuple):
    svg: Markup
    alt: str
    title: str
    words: str


class Style(NamedTuple):
    """Of the curve of a run: a colour of the style sheet, and dashes where colours have run out."""

    colour: int
    dash: str

    @property
    def stand_in(self) -> str:
        return f"#0405{self.colour:02x}"

    @property
    def line(self) -> Any:
        lengths = [float(length) for length in self.dash.split()]
        return (0, tuple(lengths)) if lengths else "-"


def styles(runs: Sequence[Trained]) -> list[Style]:
    """The first run of each role in that role's colour, whatever else is there; further ones in those that are left."""
    chosen: list[Style] = []
    taken: set[int] = set()
    for run in runs:
        own = list(ROLES).index(run.role)
        colour = own if own not in taken else min((c for c in range(COLOURS) if c not in taken), default=own)
        again = sum(style.colour == colour for style in chosen)
        taken.add(colour)
        chosen.append(Style(colour, DASHES[min(again, len(DASHES) - 1)]))
    return chosen


def draw(runs: Sequence[Trained]) -> list[Drawing]:
    """Loss, clean-free estimate beside the truth, and error by noise level, of all runs; what there is of it."""
    drawings = (_losses, _tracking, _by_level)
    return [drawing for function in drawings for drawing in function(list(zip(runs, styles(runs), strict=True)))]


Styled = list[tuple[Trained, Style]]


def _losses(runs: Styled) -> Iterator[Drawing]:
    found = [(run, style, run.losses) for run, style in runs if len(run.losses) > 1]
    if not found:
        return
    with _axes() as (axes, finish):
        for _, style, losses in found:
            steps, values = zip(*losses, strict=True)
            axes.plot(steps, values, color=style.stand_in, linestyle=style.line, linewidth=1.3)
        all_values = sorted(value for _, _, losses in found for _, value in losses if math.isfinite(value))
        if all_values:  # the first steps fall from so high that nothing else could be seen
            low, high = all_values[0], all_values[int(0.97 * (len(all_values) - 1))]
            axes.set_ylim(low - 0.05 * (high - low or 1), high + 0.15 * (high - low or 1))
        axes.set(xlabel="training step", ylabel="loss")
        svg = finish("loss")
    ends = "; ".join(f"{run.label}: from {losses[0][1]:.3g} to {losses[-1][1]:.3g}" for run, _, losses in found)
    words = (
        "Each curve should fall and level off. Models of different roles have different tasks, so their losses cannot be "
        "compared with each other; the next figures can."
        if len(found) > 1
        else "The curve should fall and level off."
    )
    yield Drawing(svg, f"Line chart of the training loss over steps. {ends}.", "Loss during training", words)


def _tracking(runs: Styled) -> Iterator[Drawing]:
    """The oracle is judged by clean signals, for which it was made: there is no estimate to show."""
    found = [(run, style) for run, style in runs if run.validations and run.role != "clean"]
    if not found:
        return
    known = [(run, style) for run, style in found if all("true" in v for _, v in run.validations)]
    with _axes() as (axes, finish):
        for run, style in found:
            steps = [step for step, _ in run.validations]
            means = [v["estimate"]["mean"] for _, v in run.validations]
            errors = [2 * v["estimate"]["se"] for _, v in run.validations]
            axes.errorbar(steps, means, errors, fmt="o", color=style.stand_in, markersize=4, linewidth=1, capsize=2)
        for run, style in known:
            steps = [step for step, _ in run.validations]
            truth = [v["true"]["mean"] for _, v in run.validations]
            axes.plot(steps, truth, color=style.stand_in, linestyle=style.line, linewidth=1.2)
        axes.set(xlabel="training step", ylabel="denoising error")
        svg = finish("tracking")
    one = thing(found[0][0].config.data_info)
    alt = "Chart of the denoising error on held-out measurements over training steps, as dots with error bars. "
    words = "Dots: error on held-out measurements, estimated without any clean data (± 2 standard errors). "
    if known:
        worst = max(abs(v["estimate"]["mean"] / v["true"]["mean"] - 1) for run, _ in known for _, v in run.validations)
        same = f"the largest difference is {percent(worst)}"
        alt += f"The true error, a line, runs through the dots: {same}."
        words += (
            f"Lines: true error of the same outputs, measured with the clean {one}s that training never saw; {same}."
        )
    else:
        first, last = (found[0][0].validations[k][1]["estimate"]["mean"] for k in (0, -1))
        alt += f"It goes from {first:.3g} to {last:.3g}."
        words += "It is an unbiased estimate of the true error, and chooses the best checkpoint."
    yield Drawing(svg, alt, "Error without clean data" + (", and the truth" if known else ""), words)


def _by_level(runs: Styled) -> Iterator[Drawing]:
    """The last validation, band by band: on complete signals where they are known, so that runs can be compared."""
    found = [(run, style, run.validations[-1][1]) for run, style in runs if run.validations]
    key = "full" if found and all("full" in result for _, _, result in found) else "estimate"
    found = [entry for entry in found if key == "full" or entry[0].role != "clean"]
    if not found:
        return
    from matplotlib.ticker import LogLocator, NullLocator

    with _axes() as (axes, finish):
        for _, style, result in found:
            levels = [sum(t_bin["t"]) / 2 for t_bin in result["t_bins"]]
            means, errors = ([t_bin[name] for t_bin in result["t_bins"]] for name in (key, f"{key}_se"))
            bars = {"markersize": 4, "linewidth": 1.3, "elinewidth": 1, "capsize": 2, "linestyle": style.line}
            axes.errorbar(levels, means, [2 * error for error in errors], marker="o", color=style.stand_in, **bars)
        if all(t_bin[key] > 0 for _, _, result in found for t_bin in result["t_bins"]):
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_locator(NullLocator())
        axes.set(xlabel="noise level t (small is nearly clean)", ylabel="denoising error")
        svg = finish("levels")
    one = thing(found[0][0].config.data_info)
    low = "; ".join(f"{run.label} {result['t_bins'][0][key]:.3g}" for run, _, result in found)
    what = f"complete {one}s" if key == "full" else "held-out measurements"
    yield Drawing(
        svg,
        f"Chart of the denoising error on {what} against the noise level t. At the lowest level: {low}.",
        "Error by noise level",
        f"Generating goes from loud noise (right) to none (left), so a model must be good everywhere. Error on {what} at the "
        "last checkpoint, ± 2 standard errors.",
    )


@contextmanager
def _axes() -> Iterator[tuple[Any, Callable[[str], Markup]]]:
    """Axes to draw on, and the function that makes SVG of them."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    look: Any = {"svg.fonttype": "none", "svg.hashsalt": "gsure", "font.size": 10, "font.family": "DejaVu Sans"}
    inked = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color")
    look |= dict.fromkeys(inked, INK) | {"axes.spines.top": False, "axes.spines.right": False}
    with rc_context(look):
        figure = Figure(figsize=(4.7, 3.1), layout="constrained")
        axes = figure.subplots()
        axes.grid(alpha=0.15, linewidth=0.6)
        axes.locator_params(axis="x", nbins=6)

        def finish(name: str) -> Markup:
            buffer = io.StringIO()
            figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
            return Markup(inline(buffer.getvalue(), name))  # drawn here, of numbers and fixed words

        yield axes, finish


def inline(svg: str, name: str) -> str:
    """A drawing of matplotlib as a part of the page: no prologue, no styles for all, names of its own, the page's colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (?:xmlns(?::xlink)?|version)="[^"]*"', "", svg, count=3)
    svg = re.sub(
        r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1), count=1
    )
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r' id="([^"]*)"', rf' id="{name}-\1"', svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{name}-", svg)
    svg = re.sub(r"font(?:-family)?: [^;\"]*'[^;\"]*;? ?", lambda m: _size(m[0]), svg)
    svg = re.sub(r"#0405([0-9a-f]{2})", lambda m: f"var(--curve-{int(m[1], 16)})", svg)
    return re.sub(r"\n\s*", "\n", svg.replace(INK, "currentColor")).replace("<svg", '<svg aria-hidden="true"', 1)


def _size(font: str) -> str:
    """Of a font of matplotlib's only the size is kept."""
    found = re.search(r"[\d.]+px", font)
    return f"font-size: {found[0]}; " if found else ""
