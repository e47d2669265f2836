"""Convert signals to pictures, and draw rows and columns of pictures as PNG files.

A picture is a tensor of shape (h, w) or (h, w, 3) in [0, 1].
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from gsure.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FINEST, GAP = 48, 4
"""Larger side of a picture in a row of pictures, at least, and the space between pictures, in pixels."""
PER_INCH, WIDEST = 120, 3.2
"""Pixels of an inch of a picture that are surely drawn at 150 dots per inch, and its width in inches, at most."""
FEW = 0.005
"""Share of the pixels that may be clipped to black, and to white."""
MISSING = (0.55, 0.70, 0.90)
"""Blue, which neither grey images nor faces contain."""


def as_picture(x: Tensor, is_complex: bool, black: float = -1.0) -> Tensor:
    """A signal (c, h, w) as a picture. Complex images are shown as min-max normalised magnitudes, as in the paper.

    For real images, 1 is white, unless more than a few pixels are darker than `black` or brighter than 1.
    """
    if is_complex:
        magnitude = torch.linalg.vector_norm(x, dim=0)
        return (magnitude - magnitude.min()) / (magnitude.max() - magnitude.min()).clamp(min=1e-12)
    darkest, brightest = x.quantile(FEW), x.quantile(1 - FEW)
    darkest, white = darkest.clamp(max=black), brightest.clamp(min=1)
    x = (x.clamp(darkest, white) - darkest) / (white - darkest)
    return x.movedim(0, -1) if len(x) == 3 else x[0]


def tint_missing(picture: Tensor, kept: Tensor) -> Tensor:
    """The picture, but blue where nothing was measured."""
    colours = picture if picture.ndim == 3 else picture[..., None].expand(-1, -1, 3)
    return torch.where(kept[..., None] == 1, colours, torch.tensor(MISSING))


def root_sum_of_squares(x: Tensor) -> Tensor:
    """(b, h, w): the root of the sum of squares over channels, which may be complex pairs or colours."""
    return torch.linalg.vector_norm(x, dim=1)


def new_figure(width: float, height: float) -> "Figure":
    """A figure outside of pyplot, so that your backend and pyplot's state do not change. The size is in inches."""
    from matplotlib.figure import Figure  # slow to import, and many commands do not need it

    return Figure(figsize=(width, height), layout="constrained")


def save_png(figure: "Figure", path: Path, dpi: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=dpi, format="png")


def _show(axes: Any, values: Tensor, cmap: str = "gray", largest: float = 1.0, smooth: bool = False) -> Any:
    """`smooth` averages pixels where the figure has fewer, so that no line of a mask is left out."""
    axes.set(xticks=[], yticks=[])
    how = "antialiased" if smooth else "nearest"
    return axes.imshow(values.numpy(), cmap=cmap, vmin=0, vmax=largest, interpolation=how)


def draw_rows(path: Path, rows: Sequence[tuple[str, Sequence[Tensor]]], title: str, width: float = 1.1) -> None:
    """Rows of pictures of one size, with a name at the left of each row. `width` of a picture is in inches.

    All pictures are one image: a hundred axes would take seconds to draw.
    """
    columns, first = max(len(pictures) for _, pictures in rows), rows[0][1][0]
    times = -(-FINEST // max(first.shape[:2]))  # so that gaps between tiny pictures are narrow
    high, wide = times * first.shape[0] + GAP, times * first.shape[1] + GAP
    canvas = torch.ones(high * len(rows) - GAP, wide * columns - GAP, 3)
    for top, (_, pictures) in zip(range(0, high * len(rows), high), rows, strict=True):
        for left, picture in zip(range(0, wide * columns, wide), pictures, strict=False):
            colours = picture if picture.ndim == 3 else picture[..., None].expand(-1, -1, 3)
            tile = colours.repeat_interleave(times, 0).repeat_interleave(times, 1)
            canvas[top : top + high - GAP, left : left + wide - GAP] = tile
    figure = new_figure(width * columns + 0.6, width * high / wide * len(rows) + 0.4)
    axes = figure.subplots()
    axes.imshow(canvas.clamp(0, 1).numpy(), interpolation="nearest")
    middles = [(high - GAP) / 2 + high * k for k in range(len(rows))]
    axes.set_yticks(middles, [name for name, _ in rows], rotation=90, va="center", fontsize=8)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    figure.suptitle(title, fontsize=9)
    save_png(figure, path, dpi=120)


def draw_panel(folder: Path, signals: Mapping[str, Tensor], is_complex: bool, black: float = -1.0) -> None:
    """A PNG for each sample: baseline, mean, one draw and standard deviation; with "clean", also the truth and the error.

    The standard deviations and errors of all samples share one colour scale, so you can compare panels (as in the paper).
    """
    maps = {}
    if signals["std"].any():  # a single draw has none
        maps["standard deviation"] = root_sum_of_squares(signals["std"])
    if "clean" in signals:
        maps["error of the mean"] = root_sum_of_squares(signals["mean"] - signals["clean"])
    pooled = [values.flatten() for values in maps.values()]
    largest = float(torch.cat(pooled).quantile(0.999)) or 1.0 if pooled else 1.0
    names = {"baseline": "baseline", "total_variation": "total variation", "gaussian": "Gaussian prior"}
    names |= {"mean": "mean", "draw": "one draw", "clean": "clean"}
    shown = {name: signals[kind] for kind, name in names.items() if kind in signals}
    for k in range(len(signals["std"])):
        columns = len(shown) + len(maps)
        figure = new_figure(1.9 * columns + 0.5, 2.2)
        axes = figure.subplots(1, columns)
        for ax, x in zip(axes, shown.values(), strict=False):
            _show(ax, as_picture(x[k], is_complex, black))
        for ax, values in zip(axes[len(shown) :], maps.values(), strict=True):
            image = _show(ax, values[k], "magma", largest)
        for ax, name in zip(axes, [*shown, *maps], strict=True):
            ax.set_title(name, fontsize=9)
        if maps:
            scale = figure.colorbar(image, ax=list(axes[len(shown) :]), shrink=0.85)
            scale.set_label("scale of the model", fontsize=8)
        save_png(figure, folder / f"{k:05d}.png", dpi=130)


class Picture(NamedTuple):
    """A signal to show, and a few words to write into its corner."""

    x: Tensor
    words: str = ""


def draw_comparison(path: Path, rows: Sequence[tuple[str, Mapping[str, Picture], Mapping[str, Tensor]]]) -> None:
    """Rows of complex images, shown as magnitudes, and of standard deviations, shown as maps. All maps share one colour scale.

    The last picture of a row is the truth. White is the same magnitude in all pictures of a row: all but the brightest 0.3 %
    of the truth are darker, so that bright spots do not hide the rest.
    """
    spreads = [{name: root_sum_of_squares(x[None])[0] for name, x in stds.items()} for _, _, stds in rows]
    largest = max(float(values.max()) for row in spreads for values in row.values())
    columns = len(rows[0][1]) + len(rows[0][2])
    figure = new_figure(1.8 * columns + 0.7, 1.9 * len(rows) + 0.3)
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for line, (name, pictures, _), maps in zip(grid, rows, spreads, strict=True):
        truth = list(pictures.values())[-1].x
        white = float(torch.linalg.vector_norm(truth, dim=0).quantile(0.997))
        for ax, (x, words) in zip(line, pictures.values(), strict=False):
            _show(ax, torch.linalg.vector_norm(x, dim=0), largest=white)
            ax.text(0.03, 0.03, words, transform=ax.transAxes, color="white", fontsize=7)
        for ax, values in zip(line[len(pictures) :], maps.values(), strict=True):
            image = _show(ax, values, "magma", largest)
        line[0].set_ylabel(name, fontsize=9)
    for ax, name in zip(grid[0], [*rows[0][1], *rows[0][2]], strict=True):
        ax.set_title(name, fontsize=9)
    figure.colorbar(image, ax=list(grid[:, -1]), shrink=0.85)
    save_png(figure, path, dpi=130)


def draw_measurements(path: Path, rows: Mapping[str, Sequence[Tensor]], coverage: Tensor, title: str) -> None:
    """Rows of pictures with a name at the left of each row, and a map of the coverage at the right."""
    columns = max(map(len, rows.values()))
    width = min(max(1.5, coverage.shape[-1] / PER_INCH), WIDEST)
    smooth = max(coverage.shape) > PER_INCH * width
    figure = new_figure(width * (columns + 1.6) + 0.6, width * len(rows) + 0.7)
    grid = figure.add_gridspec(len(rows), columns + 1, width_ratios=[1] * columns + [1.5])
    for r, (name, pictures) in enumerate(rows.items()):
        for c, picture in enumerate(pictures):
            axes = figure.add_subplot(grid[r, c])
            _show(axes, picture, smooth=smooth)
            if c == 0:
                axes.set_ylabel(name)
    axes = figure.add_subplot(grid[:, -1])
    image = _show(axes, coverage, "viridis", smooth=smooth)
    axes.set_title("coverage E[P]", fontsize=10)
    figure.colorbar(image, ax=axes, shrink=0.6)
    figure.suptitle(title, fontsize=10)
    save_png(figure, path, dpi=150)
