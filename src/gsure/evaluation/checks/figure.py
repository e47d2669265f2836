"""Figures of the checks, drawn from the numbers that diagnosis.json keeps, and that of the 2-D example."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.evaluation.checks import agreement, coverage, full_sampling, independence, noise_level
from gsure.evaluation.checks.check import Check
from gsure.files import replacing

BLUE, ORANGE, GREY, RED = "#1f5fa8", "#d9730d", "#6b6b6b", "#c0392b"


def draw(folder: Path, check: Check) -> str | None:
    """The figure of a check, as a PNG named after it; None where there is nothing to draw."""
    if not check.numbers:
        return None
    name = f"{check.name}.png"
    titled = f"{check.title} {check.verdict[0].upper()}{check.verdict[1:]}."
    match check.name:
        case independence.NAME:
            figure = _independence(check.numbers)
        case agreement.NAME:
            figure = _agreement(check.numbers)
        case full_sampling.NAME:
            figure = _full_sampling(check.numbers)
        case coverage.NAME:
            figure = _coverage(check.numbers)
        case noise_level.NAME:
            figure = _noise(check.numbers)
        case other:
            raise ValueError(f"There is no figure of a check named {other!r}.")
    figure.suptitle(titled, fontsize=11)
    _save(figure, folder / name)
    return name


def _save(figure: Any, path: Path) -> None:
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120, format="png")


def _panels(count: int, height: float = 3.3) -> tuple[Any, Any]:
    from matplotlib.figure import Figure  # a figure of its own: the caller's backend and pyplot state stay as they are

    figure = Figure(figsize=({1: 5.6, 2: 8.8, 3: 11.5}[count], height), layout="constrained")
    panels = figure.subplots(1, count, squeeze=False)[0]
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.title.set_fontsize(9)
    return figure, panels


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    return [row[name] for row in rows]


def _limit(axes: Any, value: float, text: str) -> None:
    axes.axhline(value, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.annotate(
        text, (1, value), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=7.5, color=GREY
    )


def _independence(numbers: Mapping[str, Any]) -> Any:
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
        _limit(panels[1], 1.0, "independence")
        panels[1].set_ylim(0, max(1.15, 1.1 * max(_column(rows, "seen"))))
        panels[1].set_title("share of the error that the loss sees, E‖WPe‖²/E‖e‖²", fontsize=9)
    for axes in panels:
        axes.set_xlabel("t", fontsize=9)
    return figure


def _agreement(numbers: Mapping[str, Any]) -> Any:
    rows = numbers["times"]
    figure, (left, right) = _panels(2)
    left.plot(_column(rows, "t"), _column(rows, "psnr"), "o-", markersize=3.5, color=BLUE)
    _limit(left, agreement.CLOSE, f"{agreement.CLOSE:g} dB, the paper's")
    left.set_title("PSNR of model against oracle, in dB", fontsize=9)
    right.semilogy(_column(rows, "t"), _column(rows, "cost"), "o-", markersize=3.5, color=BLUE)
    _limit(right, agreement.COST, "passes below")
    right.set_title("their squared distance / the oracle's squared error", fontsize=9)
    for axes in (left, right):
        axes.set_xlabel("t", fontsize=9)
    return figure


def _full_sampling(numbers: Mapping[str, Any]) -> Any:
    rows = numbers["times"]
    figure, (axes,) = _panels(1)
    errors = [2 * row["se"] for row in rows]
    axes.errorbar(
        _column(rows, "t"), _column(rows, "ratio"), yerr=errors, fmt="o-", markersize=3.5, capsize=2, color=BLUE
    )
    _limit(axes, 1.0, "as with holes")
    axes.set_xlabel("t", fontsize=9)
    axes.set_title("error of measured entries, whole signal / with holes (± 2 se)", fontsize=9)
    return figure


def _coverage(numbers: Mapping[str, Any]) -> Any:
    shown = numbers["kept"] is not None
    figure, panels = _panels(3 if shown else 2)
    if shown:
        _map(figure, panels[0], torch.tensor(numbers["kept"]).reshape(numbers["shape"]))
        panels[0].set_title("how often each entry is measured", fontsize=9)
    for axes, name, what in ((panels[-2], "togethers", "pairs of entries"), (panels[-1], "ranks", "masks")):
        share, count = numbers[name]["share"], numbers[name]["count"]
        gap = min((b - a for a, b in itertools.pairwise(share)), default=0.05)
        axes.bar(share, count, width=max(0.9 * gap, 0.005), color=BLUE)
        axes.set_xlim(-0.03, 1.03)
        axes.set_ylabel(what, fontsize=8)
    panels[-2].set_title("how often two entries are measured together", fontsize=9)
    panels[-1].set_title("share of the entries that a mask keeps", fontsize=9)
    return figure


def _map(figure: Any, axes: Any, values: Tensor) -> None:
    """An entry a pixel; or bars, where masks have one row."""
    if values.ndim > 1 and values.shape[-2] > 1:
        image = axes.imshow(
            values.reshape(-1, *values.shape[-2:]).mean(0).numpy(),
            cmap="viridis",
            vmin=0,
            vmax=1,
            interpolation="nearest",
        )
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        figure.colorbar(image, ax=axes, shrink=0.85).ax.tick_params(labelsize=8)
        return
    axes.bar(range(values.numel()), values.flatten().tolist(), width=1.0, color=BLUE)
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("column" if values.ndim > 1 else "entry", fontsize=9)


def _noise(numbers: Mapping[str, Any]) -> Any:
    rows = numbers["times"]
    figure, (axes,) = _panels(1)
    axes.semilogx(
        _column(rows, "t"), _column(rows, "largest"), color=BLUE, label=f"largest std, {numbers['largest_std']:.3g}"
    )
    if numbers["median_std"] < 0.99 * numbers["largest_std"]:
        label = f"median std, {numbers['median_std']:.3g}"
        axes.semilogx(_column(rows, "t"), _column(rows, "median"), color=ORANGE, label=label)
    _limit(axes, noise_level.NEAR, "nearly all the noise")
    axes.set(xlabel="t", xlim=(1, numbers["T"]), ylim=(0, 1.05))
    axes.set_title("measurement noise / all noise, ρ = ᾱ std²/(1-ᾱ)", fontsize=9)
    axes.legend(frameon=False, fontsize=8, loc="center right")
    return figure


def density(points: Float[Tensor, "n 2"], axis: Float[Tensor, " g"], least: float = 0.05) -> Float[Tensor, "g g"]:
    """A Gaussian kernel density estimate on a grid, rows along the second coordinate; by Scott's rule, but never narrower."""
    width = (points.std(0) * len(points) ** (-1 / 6)).clamp(min=least)
    kernels = torch.exp(-0.5 * ((axis[None, :, None] - points[:, None]) / width) ** 2) / (width * (2 * torch.pi) ** 0.5)
    return kernels[..., 1].mT @ kernels[..., 0] / len(points)


def draw_analytic(
    path: Path,
    clouds: Mapping[tuple[str, str, int], tuple[Tensor, Tensor]],
    rows: Sequence[Mapping[str, Any]],
) -> None:
    """Densities of the error, blue where the first coordinate was dropped and red where the second was; and how far apart."""
    from matplotlib.figure import Figure

    names = {
        ("gaussian", "ideal"): "Gaussian",
        ("deltas", "ideal"): "two deltas,\nideal denoiser",
        ("deltas", "learned"): "two deltas,\nwhat the loss learns",
    }
    times = list(dict.fromkeys(t for _, _, t in clouds))[::-1]
    axis = torch.linspace(-3.5, 3.5, 141, dtype=torch.float64)
    figure = Figure(figsize=(2.35 * (len(times) + 1.35), 2.3 * len(names) + 0.3), layout="constrained")
    grid = figure.subplots(len(names), len(times) + 1, width_ratios=[1] * len(times) + [1.25], squeeze=False)
    for line, ((law, kind), name) in zip(grid, names.items(), strict=True):
        for axes, t in zip(line, times, strict=False):
            (row,) = (r for r in rows if (r["law"], r["denoiser"], r["t"]) == (law, kind, t))
            _contours(axes, axis, clouds[law, kind, t])
            axes.set_title(f"t = {t}, SNR {row['snr']:.2g}, distance {row['distance']:.3f}", fontsize=8)
        line[0].set_ylabel(name, fontsize=9)
        mine = [r for r in rows if (r["law"], r["denoiser"]) == (law, kind)]
        line[-1].plot(_column(mine, "t"), _column(mine, "distance"), "o-", markersize=3, color="black")
        line[-1].fill_between(_column(mine, "t"), 0, _column(mine, "level"), color=GREY, alpha=0.3, linewidth=0)
        line[-1].set(ylim=(-0.004, 0.13), xlabel="t")
        line[-1].set_title("distance of blue and red (shaded: chance)", fontsize=8)
        line[-1].tick_params(labelsize=7)
    figure.suptitle(
        "Law of the denoising error: first coordinate dropped (blue), second dropped (red, dashed)", fontsize=10
    )
    _save(figure, path)


def _contours(axes: Any, axis: Tensor, errors: tuple[Tensor, Tensor]) -> None:
    second_dropped, first_dropped = (density(cloud, axis) for cloud in errors)
    for values, colour, style in ((first_dropped, BLUE, "solid"), (second_dropped, RED, "dashed")):
        levels = [float(values.max()) * share for share in (0.05, 0.2, 0.4, 0.65, 0.9)]
        axes.contour(
            axis.numpy(), axis.numpy(), values.numpy(), levels=levels, colors=colour, linewidths=1.0, linestyles=style
        )
    axes.set(aspect="equal", xticks=[-2, 0, 2], yticks=[-2, 0, 2])
    axes.tick_params(labelsize=7)
