"""Signals as pictures, and pictures as a PNG."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor


def as_picture(x: Tensor, is_complex: bool) -> Tensor:
    """(h, w) or (h, w, 3) in [0, 1]. MR images are shown as magnitudes, min-max normalised, as in the paper."""
    if is_complex:
        magnitude = torch.linalg.vector_norm(x, dim=0)
        return (magnitude - magnitude.min()) / (magnitude.max() - magnitude.min()).clamp(min=1e-12)
    x = (x.clamp(-1, 1) + 1) / 2
    return x.movedim(0, -1) if len(x) == 3 else x[0]


def tint_missing(picture: Tensor, kept: Tensor) -> Tensor:
    """The picture with a colour of its own where nothing was measured."""
    missing = torch.tensor([0.55, 0.70, 0.90])  # blue: grey is a value, and sand is skin
    colours = picture if picture.ndim == 3 else picture[..., None].expand(-1, -1, 3)
    return torch.where(kept[..., None] == 1, colours, missing)


def draw_rows(path: Path, rows: Sequence[tuple[str, Sequence[Tensor]]], title: str, width: float = 1.1) -> None:
    """A PNG of pictures, row by row, with the names of the rows at their left."""
    from matplotlib.figure import Figure  # a figure of its own: the caller's backend and pyplot state stay as they are

    columns = max(len(pictures) for _, pictures in rows)
    figure = Figure(figsize=(width * columns + 0.6, width * len(rows) + 0.4), layout="constrained")
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for row, (name, pictures) in zip(grid, rows, strict=True):
        row[0].set_ylabel(name, fontsize=8)
        for axes in row:
            axes.set(xticks=[], yticks=[])
        for axes, picture in zip(row, pictures, strict=False):
            axes.imshow(picture.numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    figure.suptitle(title, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def draw_panel(folder: Path, signals: Mapping[str, Tensor], is_complex: bool) -> None:
    """A PNG for each sample: baseline, reconstruction, one draw, standard deviation; and with "clean", that and the error.

    Standard deviations and errors of all samples share one colour scale, so that panels can be compared (as in the paper).
    """
    from matplotlib.figure import Figure

    spread = root_sum_of_squares(signals["std"])
    maps = {"standard deviation": spread}
    if "clean" in signals:
        maps["error of the mean"] = root_sum_of_squares(signals["mean"] - signals["clean"])
    largest = float(torch.cat([values.flatten() for values in maps.values()]).quantile(0.999)) or 1.0
    shown = {"baseline": "baseline", "mean": "mean of draws", "draw": "one draw"}
    shown |= {"clean": "clean"} if "clean" in signals else {}
    folder.mkdir(parents=True, exist_ok=True)
    for k in range(len(spread)):
        columns = len(shown) + len(maps)
        figure = Figure(figsize=(1.9 * columns + 0.5, 2.2), layout="constrained")
        axes = figure.subplots(1, columns)
        for ax, (kind, name) in zip(axes, shown.items(), strict=False):
            picture = as_picture(signals[kind][k], is_complex)
            ax.imshow(picture.numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            ax.set_title(name, fontsize=9)
        for ax, (name, values) in zip(axes[len(shown) :], maps.items(), strict=True):
            image = ax.imshow(values[k].numpy(), cmap="magma", vmin=0, vmax=largest, interpolation="nearest")
            ax.set_title(name, fontsize=9)
        for ax in axes:
            ax.set(xticks=[], yticks=[])
        figure.colorbar(image, ax=list(axes[len(shown) :]), shrink=0.85)
        figure.savefig(folder / f"{k:05d}.png", dpi=130)


def root_sum_of_squares(x: Tensor) -> Tensor:
    """(b, h, w): the root of the sum of squares over channels, of complex pairs and of colours alike."""
    return torch.linalg.vector_norm(x, dim=1)


def draw_comparison(
    path: Path, rows: Sequence[tuple[str, Mapping[str, Tensor], Mapping[str, Tensor]]], is_complex: bool
) -> None:
    """Rows of signals, shown as pictures, and of standard deviations, shown as maps that share one colour scale with all."""
    from matplotlib.figure import Figure

    spreads = [{name: root_sum_of_squares(x[None])[0] for name, x in stds.items()} for _, _, stds in rows]
    largest = max(float(values.max()) for row in spreads for values in row.values())
    columns = len(rows[0][1]) + len(rows[0][2])
    figure = Figure(figsize=(1.8 * columns + 0.7, 1.9 * len(rows) + 0.3), layout="constrained")
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for line, (name, signals, _), maps in zip(grid, rows, spreads, strict=True):
        line[0].set_ylabel(name, fontsize=9)
        for ax, x in zip(line, signals.values(), strict=False):
            ax.imshow(as_picture(x, is_complex).numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        for ax, values in zip(line[len(signals) :], maps.values(), strict=True):
            image = ax.imshow(values.numpy(), cmap="magma", vmin=0, vmax=largest, interpolation="nearest")
    for ax, name in zip(grid[0], [*rows[0][1], *rows[0][2]], strict=True):
        ax.set_title(name, fontsize=9)
    for ax in grid.flat:
        ax.set(xticks=[], yticks=[])
    figure.colorbar(image, ax=list(grid[:, -1]), shrink=0.85)
    figure.savefig(path, dpi=130)
