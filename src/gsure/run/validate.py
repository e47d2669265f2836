"""How good is the denoiser, without clean data: the exact estimate of its projected error on held-out measurements.

For each band of t and over all of them: the mean over held-out measurements of R_t's estimate, which is unbiased, with its
standard error. Noise depends on (seed, measurement, band) alone, so two checkpoints are compared on the same noise. Where
clean signals are at hand, the true error of the very same outputs stands beside it, and the error on fully sampled signals.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from gsure.denoiser import Denoiser
from gsure.divergence import Divergence
from gsure.measurement import Measurement
from gsure.noise import generators, uniform
from gsure.objective import Objective
from gsure.run.examples import Examples
from gsure.sampling import evaluating

STREAM = 1
"""Keeps the noise of validation apart from that of training."""


@torch.no_grad()
def validate(denoiser: Denoiser, held_out: Examples, accelerator: Accelerator, batch: int) -> dict[str, Any]:
    """{"estimate": {"mean", "se"}, "bands": [{"t", "estimate", "se", ...}]}; each process computes its share."""
    settings = held_out.settings
    exact = Objective("exact", coverage=held_out.coverage, divergence=Divergence("finite-difference"))
    plain = Objective("tweedie", coverage=1.0)
    edges = [round(denoiser.schedule.T * k / settings.bands) for k in range(settings.bands + 1)]
    positions = np.arange(min(len(held_out), settings.validate_on))
    mine = positions[accelerator.process_index :: accelerator.num_processes]
    values: dict[str, list[Tensor]] = {}
    with evaluating(denoiser):
        for part in np.array_split(mine, max(1, -(-len(mine) // batch))):
            columns: dict[str, list[Tensor]] = {}
            for band, (low, high) in enumerate(itertools.pairwise(edges)):
                for name, value in _errors(
                    denoiser, held_out, part, exact, plain, (band, low, high), accelerator.device
                ):
                    columns.setdefault(name, []).append(value)
            for name, column in columns.items():
                values.setdefault(name, []).append(torch.stack(column, 1).double().cpu())
    return _summary({name: torch.cat(parts) for name, parts in values.items()}, edges, accelerator)


def _errors(
    denoiser: Denoiser,
    held_out: Examples,
    positions: np.ndarray,
    exact: Objective,
    plain: Objective,
    band: tuple[int, int, int],
    device: torch.device,
) -> Iterator[tuple[str, Tensor]]:
    number, low, high = band
    measurement = held_out[positions].to(device)
    seed = held_out.settings.seed

    def noise() -> list[torch.Generator]:
        return generators(seed, STREAM, number, indices=positions)

    u = uniform((len(positions),), generators(seed, STREAM, number, -1, indices=positions), like=measurement.ybar)
    t = low + 1 + (u * (high - low)).long().clamp(max=high - low - 1)
    estimate = exact(denoiser, measurement, t, noise())
    yield "estimate", estimate
    if held_out.signals is None:
        return
    xbar = held_out.xbar(positions).to(device)
    truth = Measurement._trusted(measurement.mask * xbar, measurement.mask, torch.zeros_like(measurement.std))
    true = exact.compare(denoiser, measurement, truth, t, noise())  # the same x̄_t, scored against the truth
    yield "true", true
    yield "difference", estimate - true
    yield "full", plain(denoiser, Measurement.clean(xbar), t, noise())


def _summary(values: dict[str, Tensor], edges: list[int], accelerator: Accelerator) -> dict[str, Any]:
    bands: list[dict[str, Any]] = [{"t": [low + 1, high]} for low, high in itertools.pairwise(edges)]
    summary: dict[str, Any] = {}
    for name, by_band in values.items():
        value = torch.cat([by_band.mean(1, keepdim=True), by_band], 1)  # over all t first, then each band
        count = torch.full_like(value[:1], len(value))
        sums = torch.cat([count, value.sum(0, keepdim=True), (value**2).sum(0, keepdim=True)]).to(accelerator.device)
        count, total, squares = accelerator.reduce(sums, "sum").cpu()
        mean = total / count
        se = ((squares / count - mean**2).clamp(min=0) / (count - 1).clamp(min=1)).sqrt()
        summary[name] = {"mean": float(mean[0]), "se": float(se[0])}
        for band, m, s in zip(bands, mean[1:].tolist(), se[1:].tolist(), strict=True):
            band |= {name: m, f"{name}_se": s}
    return {**summary, "bands": bands}
