"""How good is the denoiser, without clean data: the exact estimate of its projected error on held-out measurements.

For each band of t and over all of them: the mean over held-out measurements of R_t's estimate, which is unbiased, with its
standard error. Noise depends on (seed, measurement, band) alone, so two checkpoints are compared on the same noise. Where
clean signals are at hand, the true error of the very same outputs stands beside it, and the error on fully sampled signals.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from gsure.denoiser import Denoiser
from gsure.divergence import Divergence
from gsure.measurement import Measurement
from gsure.objective import Objective
from gsure.random import generators, uniform
from gsure.sampling import evaluating
from gsure.training.examples import Examples

STREAM = 1
"""Keeps the noise of validation apart from that of training."""


@torch.no_grad()
def validate(
    denoiser: Denoiser,
    held_out: Examples,
    accelerator: Accelerator,
    batch: int,
    advance: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """{"estimate": {"mean", "se"}, ..., "t_bins": [{"t", "estimate", "estimate_se", ...}]}; each process computes its share.

    `advance` is told how many measurements have been denoised in a t_bin.
    """
    settings = held_out.settings
    weighting = (
        settings.weighting
    )  # over t the error is weighted as in training, so that the best checkpoint is best for that
    exact = Objective(
        "exact", coverage=held_out.coverage, weighting=weighting, divergence=Divergence("finite-difference")
    )
    plain = Objective("tweedie", coverage=1.0, weighting=weighting)
    edges = [round(denoiser.schedule.T * k / settings.t_bins) for k in range(settings.t_bins + 1)]
    n = min(len(held_out), settings.validate_on)
    positions = np.arange(n) * len(held_out) // n  # from all over the file, not its first volumes
    names = ("estimate",) if held_out.signals is None else ("estimate", "true", "difference", "full")
    values = {name: torch.zeros(n, settings.t_bins, dtype=torch.float64) for name in names}
    mine = np.arange(n)[accelerator.process_index :: accelerator.num_processes]
    with evaluating(denoiser):
        for rows in np.array_split(mine, -(-len(mine) // batch)):
            for t_bin, (low, high) in enumerate(itertools.pairwise(edges)):
                at = (t_bin, low, high)
                for name, value in _errors(denoiser, held_out, positions[rows], exact, plain, at, accelerator.device):
                    values[name][rows, t_bin] = value.double().cpu()
                advance(len(rows))
    values = {name: accelerator.reduce(value.to(accelerator.device), "sum").cpu() for name, value in values.items()}
    _, groups = np.unique(np.array(held_out.measurements.groups())[positions], return_inverse=True)
    return _summary(values, edges, torch.from_numpy(groups))


def _errors(
    denoiser: Denoiser,
    held_out: Examples,
    positions: np.ndarray,
    exact: Objective,
    plain: Objective,
    t_bin: tuple[int, int, int],
    device: torch.device,
) -> Iterator[tuple[str, Tensor]]:
    number, low, high = t_bin
    measurement = held_out[positions]
    shown = held_out.shown(measurement, positions).to(device)
    measurement = measurement.to(device)
    seed = held_out.settings.seed

    def noise() -> list[torch.Generator]:
        return generators(seed, STREAM, number, indices=positions)

    u = uniform((len(positions),), generators(seed, STREAM, number, -1, indices=positions), like=measurement.ybar)
    t = low + 1 + (u * (high - low)).long().clamp(max=high - low - 1)
    estimate = exact.loss(denoiser, shown, measurement, t, noise())
    yield "estimate", estimate
    if held_out.signals is None:
        return
    xbar = held_out.xbar(positions).to(device)
    truth = Measurement._trusted(measurement.mask * xbar, measurement.mask, torch.zeros_like(measurement.std))
    true = exact.loss(denoiser, shown, truth, t, noise())  # the same x̄_t, scored against the truth
    yield "true", true
    yield "difference", estimate - true
    yield "full", plain(denoiser, Measurement.clean(xbar), t, noise())


def _summary(values: dict[str, Tensor], edges: list[int], groups: Tensor) -> dict[str, Any]:
    t_bins: list[dict[str, Any]] = [{"t": [low + 1, high]} for low, high in itertools.pairwise(edges)]
    summary: dict[str, Any] = {}
    for name, by_bin in values.items():
        value = torch.cat([by_bin.mean(1, keepdim=True), by_bin], 1)  # over all t first, then each band
        mean = value.mean(0)
        se = standard_error(value - mean, groups)
        summary[name] = {"mean": float(mean[0]), "se": float(se[0])}
        for t_bin, m, s in zip(t_bins, mean[1:].tolist(), se[1:].tolist(), strict=True):
            t_bin |= {name: m, f"{name}_se": s}
    return {**summary, "t_bins": t_bins}


def standard_error(deviations: Tensor, groups: Tensor) -> Tensor:
    """Of a mean over samples, given their deviations from it; those of one group (a volume) need not be independent.

    >>> independent = standard_error(torch.tensor([[1.0], [-1.0], [1.0], [-1.0]]), torch.tensor([0, 1, 2, 3]))
    >>> round(float(independent), 4) == round((4 / 3) ** 0.5 / 4**0.5, 4)
    True
    """
    count = int(groups.max()) + 1
    by_group = torch.zeros(count, deviations.shape[1], dtype=deviations.dtype).index_add(0, groups, deviations)
    return (by_group**2).sum(0).sqrt() / len(deviations) * (count / max(1, count - 1)) ** 0.5
