"""Curves: as SVG inside the HTML page of a report, and as PNG files of experiments.

SVG curves take their colours from the style sheet of the page, so the same drawing works on light and dark screens and in
print. The labels of the curves are in the legend of the page, which is HTML, because the fonts of an SVG may lack characters.
"""

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gsure.plotting.images import new_figure, save_png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#010203"
"""Placeholder for the text colour of the page."""
COLOURS = 6
"""Number of curve colours in the style sheet of the page: --curve-0 to --curve-5."""
DASHES = ("", "6 3", "2 2")
BLUE, ORANGE, GREY, RED = "#1f5fa8", "#d9730d", "#6b6b6b", "#c0392b"


class Series(NamedTuple):
    """One curve. `errors` are half the lengths of its error bars, `mark` is "-" (line), "o" (dots) or "o-" (both)."""

    x: Sequence[float]
    y: Sequence[float]
    errors: Sequence[float] | None
    colour: str
    dash: str = ""
    mark: str = "-"
    label: str = ""

    def draw(self, axes: Any, line: float = 1.3, size: float = 4) -> None:
        dashes: Any = (0, tuple(float(length) for length in self.dash.split())) if self.dash else "-"
        style = {"color": self.colour, "linewidth": line, "linestyle": dashes if "-" in self.mark else "none"}
        style |= {"marker": "o", "markersize": size} if "o" in self.mark else {}
        bars = {"yerr": self.errors, "elinewidth": 1, "capsize": 2}
        axes.errorbar(self.x, self.y, label=self.label or None, **style, **bars)


class Style(NamedTuple):
    """A colour of the style sheet, and dashes if there are more curves than colours."""

    colour: int
    dash: str

    @property
    def stand_in(self) -> str:
        """Placeholder for the colour. `draw_svg` replaces it with the colour of the style sheet."""
        return f"#0405{self.colour:02x}"


def choose_styles(wanted: Sequence[int]) -> list[Style]:
    """A style for each curve: the wanted colour, or an unused one if an earlier curve already has it.

    >>> [style.colour for style in choose_styles([0, 0, 1])]
    [0, 1, 2]
    """
    chosen: list[Style] = []
    for own in wanted:
        taken = [style.colour for style in chosen]
        colour = own if own not in taken else min((c for c in range(COLOURS) if c not in taken), default=own)
        chosen.append(Style(colour, DASHES[min(taken.count(colour), len(DASHES) - 1)]))
    return chosen


def draw_svg(
    name: str,
    series: Sequence[Series],
    xlabel: str,
    ylabel: str,
    ylim: tuple[float, float] | None = None,
    log: bool = False,
) -> str:
    """An <svg> element for a page. `name` distinguishes its ids from those of other drawings."""
    from matplotlib import rc_context

    look: Any = {"svg.fonttype": "none", "svg.hashsalt": "gsure", "font.size": 10, "font.family": "DejaVu Sans"}
    inked = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color")
    look |= dict.fromkeys(inked, INK) | {"axes.spines.top": False, "axes.spines.right": False}
    with rc_context(look):
        figure = new_figure(4.7, 3.1)
        axes = figure.subplots()
        axes.grid(alpha=0.15, linewidth=0.6)
        axes.locator_params(axis="x", nbins=6)
        for one in series:
            one.draw(axes)
        if log:
            use_log_scale(axes)
        axes.set(xlabel=xlabel, ylabel=ylabel, **({} if ylim is None else {"ylim": ylim}))
        return _inline(figure, name)


def _inline(figure: "Figure", name: str) -> str:
    """Matplotlib's SVG as part of a page: no prologue, no global styles, unique ids, the colours of the page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (?:xmlns(?::xlink)?|version)="[^"]*"', "", svg, count=3)
    for size in ("height", "width"):
        svg = re.sub(rf'(<svg[^>]*?) {size}="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r' id="([^"]*)"', rf' id="{name}-\1"', svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{name}-", svg)
    svg = re.sub(r"font(?:-family)?: [^;\"]*'[^;\"]*;? ?", lambda m: _font_size(m[0]), svg)
    svg = re.sub(r"#0405([0-9a-f]{2})", lambda m: f"var(--curve-{int(m[1], 16)})", svg)
    return re.sub(r"\n\s*", "\n", svg.replace(INK, "currentColor")).replace("<svg", '<svg aria-hidden="true"', 1)


def _font_size(font: str) -> str:
    """Keeps only the size of a font."""
    found = re.search(r"[\d.]+px", font)
    return f"font-size: {found[0]}; " if found else ""


def draw_distances(
    path: Path, panels: Sequence[tuple[str, Sequence[Series]]], xlabel: str, ylabel: str, floor: float
) -> None:
    """Panels of curves on logarithmic axes with a common y axis, a legend, and the floor as a dotted line."""
    figure = new_figure(3.4 * len(panels), 3.2)
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, series) in zip(grid, panels, strict=True):
        for one in series:
            one.draw(axes)
        axes.axhline(floor, color="black", linestyle=":", linewidth=0.8)
        axes.set(title=title, xlabel=xlabel, xscale="log")
        ticks = sorted({x for one in series for x in one.x})
        axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
        use_log_scale(axes)
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
    grid[0].set_ylabel(ylabel)
    handles = {label: handle for axes in grid for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside right center", frameon=False, fontsize=8)
    save_png(figure, path, dpi=130)


def draw_over_t(
    path: Path,
    series: Sequence[Series],
    ylabel: str,
    *,
    log: bool = False,
    limit: tuple[float, str] | None = None,
) -> None:
    """Curves over the timestep t, with a legend if they have labels, and a dashed line if there is a limit."""
    figure = new_figure(5.2, 3.4)
    axes = figure.subplots()
    for one in series:
        one.draw(axes)
    if log:
        use_log_scale(axes)
    if limit is not None:
        mark_limit(axes, *limit)
    if any(one.label for one in series):
        axes.legend(frameon=False)
    axes.set(xlabel="t", ylabel=ylabel)
    axes.spines[["top", "right"]].set_visible(False)
    save_png(figure, path, dpi=130)


def reliability_series(curves: Mapping[str, Mapping[str, Any]], colours: Sequence[str]) -> list[Series]:
    """Claimed against observed coverage inside the object, one curve for each name, and the diagonal where both are equal."""
    series = [
        Series(curve["levels"], curve["object"], None, colour, mark="o-", label=f"{name}, inside the object")
        for (name, curve), colour in zip(curves.items(), colours, strict=False)
    ]
    return [*series, Series((0, 1), (0, 1), None, colours[-1], "4 3", label="claimed = observed")]


def draw_reliability(path: Path, curves: Mapping[str, Mapping[str, Any]]) -> None:
    """A reliability curve: which share of the true values intervals contain, over the share that they claim."""
    figure = new_figure(4.2, 3.8)
    axes = figure.subplots()
    for one in reliability_series(curves, (*(BLUE, ORANGE, RED)[: len(curves)], GREY)):
        one.draw(axes)
    axes.set(xlabel="claimed coverage", ylabel="observed coverage", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    save_png(figure, path, dpi=130)


def mark_limit(axes: Any, value: float, text: str) -> None:
    """A dashed horizontal line with a label at the right."""
    axes.axhline(value, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
    where = {"xycoords": ("axes fraction", "data"), "xytext": (0, 2), "textcoords": "offset points"}
    where |= {"ha": "right", "va": "bottom"}
    ground = {"facecolor": "white", "alpha": 0.8, "pad": 0.5, "linewidth": 0}  # readable where a curve crosses it
    axes.annotate(text, (1, value), fontsize=7.5, color=GREY, bbox=ground, **where)


def use_log_scale(axes: Any) -> None:
    """A logarithmic y axis with plain numbers at 1, 2 and 5, or at 1 alone over many decades. Call it after drawing."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
