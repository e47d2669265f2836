"""What a person looks at while a model learns: samples, and held-out measurements denoised."""

from pathlib import Path

import torch

from gsure.denoiser import Denoiser
from gsure.plotting import as_picture, draw_rows, tint_missing
from gsure.random import generators, normal
from gsure.sampling import dpm
from gsure.training.examples import Examples

STREAM = 2
"""Keeps the noise of pictures apart from that of training and validation."""


def draw_samples(
    path: Path, denoiser: Denoiser, examples: Examples, step: int, rows: int = 4, columns: int = 8
) -> None:
    """Samples by 25 steps of DPM-Solver++, from the same noise each time."""
    data, n = examples.measurements, rows * columns
    noise = generators(examples.settings.seed, STREAM, indices=range(n))
    steps = min(25, denoiser.schedule.T)
    x = data.basis.to_signal(dpm(denoiser, (n, *data.shape), steps, "quadratic", generator=noise)).cpu()
    pictures = [as_picture(sample, data.header["complex"]) for sample in x]
    lines = [("", pictures[row * columns :][:columns]) for row in range(rows)]
    draw_rows(path, lines, f"samples after {step:,} steps ({steps} network calls each)")


@torch.no_grad()
def draw_denoised(path: Path, denoiser: Denoiser, held_out: Examples, step: int, columns: int = 8) -> None:
    """Held-out measurements, noise added to them at three levels, and what the network makes of it."""
    data = held_out.measurements
    positions = list(range(min(columns, len(data))))
    like = next(denoiser.parameters())
    measurement = held_out[positions].to(like.device)
    shown = held_out.shown(held_out[positions], positions).to(like.device)

    def pictures(xbar: torch.Tensor) -> list[torch.Tensor]:
        return [as_picture(x, data.header["complex"]) for x in data.basis.to_signal(xbar).cpu()]

    measured = pictures(measurement.ybar)
    if data.basis.is_signal:
        whole = measurement.mask.expand_as(measurement.ybar).amax(1).cpu()
        measured = [tint_missing(picture, kept) for picture, kept in zip(measured, whole, strict=True)]
    rows = [("measured", measured)]
    if held_out.completed is not None:
        rows.append(("completed", pictures(shown.ybar)))
    for share in (0.1, 0.3, 0.6):
        t = torch.full((len(positions),), max(1, round(share * denoiser.schedule.T)), device=like.device)
        alpha_bar_t = denoiser.schedule.at(t, like=measurement.ybar)
        eps = normal(
            measurement.shape, generators(held_out.settings.seed, STREAM, int(t[0]), indices=positions), like=like
        )
        xbar_t = shown.perturb(alpha_bar_t, eps)
        rows.append((f"t = {int(t[0])}", pictures(xbar_t)))
        rows.append(("denoised", pictures(denoiser(xbar_t, t, shown.mask))))
    if held_out.signals is not None:
        rows.append(("clean", pictures(held_out.xbar(positions))))
    draw_rows(path, rows, f"held-out measurements after {step:,} steps")
