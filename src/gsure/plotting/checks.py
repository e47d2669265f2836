"""Figures of the checks of `gsure diagnose`, drawn from the numbers in diagnosis.json, and of the 2-D example of the paper."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.display import number
from gsure.plotting.curves import BLUE, GREY, ORANGE, RED, mark_limit, use_log_scale
from gsure.plotting.images import new_figure, save_png

Numbers = Mapping[str, Any]


def draw_check(
    path: Path, name: str, title: str, verdict: str, numbers: Numbers, limits: Mapping[str, float]
) -> str | None:
    """Draw a check as a PNG and return the name of the file; None if there are no numbers to draw.

    `limits` are the thresholds of the verdicts: "psnr" in dB and "cost" of the check "agreement", "ratio" of "noise".
    """
    if not numbers:
        return None
    match name:
        case "independence":
            figure = _independence(numbers)
        case "agreement":
            figure = _agreement(numbers, limits["psnr"], limits["cost"])
        case "full_sampling":
            figure = _full_sampling(numbers)
        case "coverage":
            figure = _coverage(numbers)
        case "noise":
            figure = _noise(numbers, limits["ratio"])
        case other:
            raise ValueError(f"There is no figure for a check named {other!r}.")
    figure.suptitle(f"{title} {verdict[0].upper()}{verdict[1:]}.", fontsize=11)
    save_png(figure, path, dpi=120)
    return path.name


def _panels(count: int, height: float = 3.3) -> tuple[Any, Any]:
    figure = new_figure({1: 5.6, 2: 8.8, 3: 11.5}[count], height)
    panels = figure.subplots(1, count, squeeze=False)[0]
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.title.set_fontsize(9)
    return figure, panels


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    return [row[name] for row in rows]


def _independence(numbers: Numbers) -> Any:
    rows = numbers["times"]
    t, has_all = _column(rows, "t"), "seen" in rows[0]
    figure, panels = _panels(2 if has_all else 1)
    for kind, colour in (("linear", BLUE), ("deep", ORANGE)):
        panels[0].plot(t, _column(rows, kind), "o-", markersize=3.5, color=colour, label=f"{kind} CCA")
        panels[0].fill_between(t, 0, _column(rows, f"{kind}_level"), color=colour, alpha=0.13, linewidth=0)
    panels[0].axhline(0, color="black", linewidth=0.6)
    panels[0].set_ylim(min(-0.1, 1.1 * min(*_column(rows, "linear"), *_column(rows, "deep"))), 1)
    windows = "×".join(map(str, numbers["window"]))
    panels[0].set_title(f"correlation with the mask, {windows} windows (shaded: chance)", fontsize=9)
    panels[0].legend(frameon=False, fontsize=8)
    if has_all:
        panels[1].plot(t, _column(rows, "seen"), "o-", markersize=3.5, color=BLUE)
        mark_limit(panels[1], 1.0, "if independent")
        panels[1].set_ylim(0, max(1.15, 1.1 * max(_column(rows, "seen"))))
        panels[1].set_title("error seen by the loss / total error, E‖WPe‖²/E‖e‖²", fontsize=9)
    for axes in panels:
        axes.set_xlabel("t", fontsize=9)
    return figure


def _agreement(numbers: Numbers, psnr: float, cost: float) -> Any:
    rows = numbers["times"]
    figure, (left, right) = _panels(2)
    left.plot(_column(rows, "t"), _column(rows, "psnr"), "o-", markersize=3.5, color=BLUE)
    mark_limit(left, psnr, f"{psnr:g} dB, as in the paper")
    left.set_title("PSNR between model and clean-trained reference (dB)", fontsize=9)
    right.plot(_column(rows, "t"), _column(rows, "cost"), "o-", markersize=3.5, color=BLUE)
    use_log_scale(right)
    mark_limit(right, cost, "passes below")
    right.set_title("squared distance / squared error of the reference", fontsize=9)
    for axes in (left, right):
        axes.set_xlabel("t", fontsize=9)
    return figure


def _full_sampling(numbers: Numbers) -> Any:
    rows = numbers["times"]
    figure, (axes,) = _panels(1)
    errors = [2 * row["se"] for row in rows]
    axes.errorbar(
        _column(rows, "t"), _column(rows, "ratio"), yerr=errors, fmt="o-", markersize=3.5, capsize=2, color=BLUE
    )
    mark_limit(axes, 1.0, "same error")
    axes.set_xlabel("t", fontsize=9)
    axes.set_title("error of measured entries, fully sampled / masked input (± 2 se)", fontsize=9)
    return figure


def _coverage(numbers: Numbers) -> Any:
    shown = numbers["kept"] is not None
    figure, panels = _panels(3 if shown else 2)
    if shown:
        _map(figure, panels[0], torch.tensor(numbers["kept"]).reshape(numbers["shape"]))
        panels[0].set_title("probability that an entry is measured", fontsize=9)
    for axes, name, what in ((panels[-2], "togethers", "pairs of entries"), (panels[-1], "ranks", "masks")):
        share, count = numbers[name]["share"], numbers[name]["count"]
        gap = min((b - a for a, b in itertools.pairwise(share)), default=0.05)
        axes.bar(share, count, width=max(0.9 * gap, 0.005), color=BLUE)
        axes.set_xlim(-0.03, 1.03)
        axes.set_ylabel(what, fontsize=8)
    panels[-2].set_title("probability that two entries are measured together", fontsize=9)
    panels[-1].set_title("share of entries that a mask keeps", fontsize=9)
    return figure


def _map(figure: Any, axes: Any, values: Tensor) -> None:
    """One pixel per entry, or bars if masks have one row."""
    if values.ndim > 1 and values.shape[-2] > 1:
        mean = values.reshape(-1, *values.shape[-2:]).mean(0).numpy()
        image = axes.imshow(mean, cmap="viridis", vmin=0, vmax=1, interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        figure.colorbar(image, ax=axes, shrink=0.85).ax.tick_params(labelsize=8)
        return
    axes.bar(range(values.numel()), values.flatten().tolist(), width=1.0, color=BLUE)
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("column" if values.ndim > 1 else "entry", fontsize=9)


def _noise(numbers: Numbers, limit: float) -> Any:
    rows = numbers["times"]
    figure, (axes,) = _panels(1)
    label = f"largest std, {number(numbers['largest_std'], 3)}"
    axes.semilogx(_column(rows, "t"), _column(rows, "largest"), color=BLUE, label=label)
    if numbers["median_std"] < 0.99 * numbers["largest_std"]:
        label = f"median std, {number(numbers['median_std'], 3)}"
        axes.semilogx(_column(rows, "t"), _column(rows, "median"), color=ORANGE, label=label)
    mark_limit(axes, limit, "nearly all the noise")
    axes.set(xlabel="t", xlim=(1, numbers["T"]), ylim=(0, 1.05))
    axes.set_title("measurement noise / total noise, ρ = ᾱ std²/(1-ᾱ)", fontsize=9)
    axes.legend(frameon=False, fontsize=8, loc="center right")
    return figure


def density(points: Float[Tensor, "n 2"], axis: Float[Tensor, " g"], least: float = 0.05) -> Float[Tensor, "g g"]:
    """A Gaussian kernel density estimate on a grid whose rows are the second coordinate.

    The bandwidth follows Scott's rule, but is at least `least`.
    """
    width = (points.std(0) * len(points) ** (-1 / 6)).clamp(min=least)
    kernels = torch.exp(-0.5 * ((axis[None, :, None] - points[:, None]) / width) ** 2) / (width * (2 * torch.pi) ** 0.5)
    return kernels[..., 1].mT @ kernels[..., 0] / len(points)


class ErrorClouds(NamedTuple):
    """Denoising errors under two masks: the errors at some timesteps, and the distance between them at all timesteps.

    A row of `rows` has t, snr, distance and level. With shuffled masks, 1 % of the distances exceed the level.
    """

    name: str
    clouds: Mapping[int, tuple[Tensor, Tensor]]
    rows: Sequence[Mapping[str, Any]]


def draw_analytic(path: Path, cases: Sequence[ErrorClouds]) -> None:
    """A row per case: densities of the error for both masks (blue, red dashed) at some timesteps; their distance over t."""
    times = list(cases[0].clouds)[::-1]
    axis = torch.linspace(-3.5, 3.5, 141, dtype=torch.float64)
    figure = new_figure(2.35 * (len(times) + 1.35), 2.3 * len(cases) + 0.3)
    grid = figure.subplots(len(cases), len(times) + 1, width_ratios=[1] * len(times) + [1.25], squeeze=False)
    for line, case in zip(grid, cases, strict=True):
        for axes, t in zip(line, times, strict=False):
            (row,) = (row for row in case.rows if row["t"] == t)
            _contours(axes, axis, case.clouds[t])
            title = f"t = {t}, SNR {number(row['snr'], 2)}, distance {row['distance']:.3f}"
            axes.set_title(title, fontsize=8)
        line[0].set_ylabel(case.name, fontsize=9)
        over, distance, level = (_column(case.rows, key) for key in ("t", "distance", "level"))
        line[-1].plot(over, distance, "o-", markersize=3, color="black")
        line[-1].fill_between(over, 0, level, color=GREY, alpha=0.3, linewidth=0)
        line[-1].set(ylim=(-0.004, 0.13), xlabel="t")
        line[-1].set_title("distance of blue and red (shaded: chance)", fontsize=8)
        line[-1].tick_params(labelsize=7)
    figure.suptitle(
        "Distribution of the denoising error: first coordinate missing (blue), second missing (red, dashed)",
        fontsize=10,
    )
    save_png(figure, path, dpi=120)


def _contours(axes: Any, axis: Tensor, errors: tuple[Tensor, Tensor]) -> None:
    second_dropped, first_dropped = (density(cloud, axis) for cloud in errors)
    for values, colour, style in ((first_dropped, BLUE, "solid"), (second_dropped, RED, "dashed")):
        levels = [float(values.max()) * share for share in (0.05, 0.2, 0.4, 0.65, 0.9)]
        axes.contour(
            axis.numpy(), axis.numpy(), values.numpy(), levels=levels, colors=colour, linewidths=1.0, linestyles=style
        )
    axes.set(aspect="equal", xticks=[-2, 0, 2], yticks=[-2, 0, 2])
    axes.tick_params(labelsize=7)
