"""Imputation: the model itself draws what was not measured, so that the network learns from fully sampled signals.

Each of the chosen measurements is restored by one draw of the averaged network; before the first step, when that knows
nothing, by one draw of the Gaussian prior. A network that restores in one call gives the mean of a draw, and the Gaussian the
rest: its posterior draw less its mean, with the size that the errors of the network have on hidden entries. From then on the
network sees fully sampled signals, as it will when it generates, while the loss counts only what was measured: a wrong draw
spoils the input, never the target. docs/method.md explains why this helps against mask-blindness.
The draws are kept in the folder of the run, in chunks, so that none is computed twice and a resumed run learns from the same.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from gsure.data.chunks import Chunks, open_folder, write_chunk
from gsure.data.measurements import Signals
from gsure.denoiser import NetworkDenoiser, evaluating
from gsure.display import bar
from gsure.files import Request
from gsure.gaussian import Fitted
from gsure.measurement import Measurement
from gsure.random import Generators, Stream, generators
from gsure.restoration import ddrm
from gsure.training.examples import Examples
from gsure.training.settings import Settings
from gsure.training.tasks import Restoring, Stage, Tasks

BATCHES_PER_CHUNK = 16
RESIDUALS_FROM, PSEUDO_COUNT = 256, 0.2
"""Held-out measurements that show the errors of a network; and the weight of the mean over all entries in each of them."""

Draw = Callable[[Measurement, Generators], Tensor]


@dataclass(frozen=True)
class Imputing:
    """A curriculum: from each of `impute_at` on, signals that the model imputed there."""

    examples: Examples
    held_out: Examples | None
    prior: Fitted
    tasks: Tasks
    folder: Path
    request: Request
    accelerator: Accelerator
    progress: bool = False

    @property
    def settings(self) -> Settings:
        return self.examples.settings

    @property
    def changes_at(self) -> tuple[int, ...]:
        return self.settings.impute_at

    def at(self, step: int, averaged: NetworkDenoiser) -> Stage:
        """What was imputed at the latest of `impute_at` up to this step; it is imputed now, if it is not there yet."""
        latest = max((at for at in self.settings.impute_at if at <= step < self.settings.steps), default=None)
        if latest is None:
            return Stage(self.examples, self.held_out, self.tasks.first)
        if self.settings.train_on == "clean":  # nothing is missing
            return Stage(self.examples, self.held_out, self.tasks.then)
        folder = self.folder / f"step-{latest:08d}"
        if latest < step and not folder.exists():
            raise ValueError(
                f"The signals that were imputed at step {latest:,} are gone from {folder}, and so is the model of that step: "
                "restore that folder, or start another run."
            )
        chosen = self.examples if latest == 0 else self.examples.spread(self.settings.impute_count)
        imputed = self._impute(chosen, folder / "train", latest, averaged)
        held_out = self.held_out
        if held_out is not None:
            held_out = self._impute(held_out, folder / "held-out", latest, averaged)
        return Stage(imputed, held_out, self.tasks.then)

    def _impute(self, examples: Examples, folder: Path, step: int, averaged: NetworkDenoiser) -> Examples:
        settings, data = self.settings, examples.measurements
        at_once = max(1, settings.batch // settings.accumulate)
        chunks = Chunks(folder, len(examples), BATCHES_PER_CHUNK * at_once)
        made_of: dict[str, Any] = {"step": step, "seed": settings.seed, "measurements": data.fingerprint()}
        made_of |= {"sampling_steps": settings.impute_sampling_steps, "chunk_size": chunks.size}
        open_folder(folder, self.request, made_of)
        missing = [number for number in chunks.mine() if not chunks.is_done(number, ("",))]
        draw = self._make_draw(step, averaged) if missing else None
        with bar("imputing", len(examples), self.progress) as advance:
            advance(len(examples) - sum(len(chunks.indices(number)) for number in missing))
            for number in missing:
                positions = np.array(chunks.indices(number))
                parts = np.array_split(positions, math.ceil(len(positions) / at_once))
                assert draw is not None
                x = torch.cat([self._draw(examples, part, step, draw) for part in parts])
                names = [str(index) for index in data.indices[positions]]
                write_chunk(folder / Chunks.name(number), x, names, made_of, data.header["complex"])
                advance(len(positions))
        self.accelerator.wait_for_everyone()
        return replace(examples, imputed=Signals(folder).__getitem__)

    def _draw(self, examples: Examples, positions: np.ndarray, step: int, draw: Draw) -> Tensor:
        """One draw of the signal behind each measurement; it depends on the sample and the step alone."""
        measurement, indices = examples.target(positions), examples.measurements.indices[positions]
        generator = generators(self.settings.seed, Stream.IMPUTE, step, indices=indices)
        return examples.measurements.basis.to_signal(draw(measurement, generator)).cpu()

    def _make_draw(self, step: int, averaged: NetworkDenoiser) -> Draw:
        """With few sampling steps, fresh noise at each of them (η = 1) and more of them near t = 0 bring draws closest to the
        distribution of signals: docs/method.md has the numbers.
        """
        device, gaussian = self.accelerator.device, self.prior.gaussian
        if step == 0:
            return gaussian.draw
        if self.settings.purpose == "generate":
            steps = self.settings.impute_sampling_steps
            return lambda measurement, generator: ddrm(
                averaged, measurement.to(device), steps, eta=1.0, spacing="quadratic", generator=generator
            )
        factor = self._residual_factor(averaged)

        def around_mean(measurement: Measurement, generator: Generators) -> Tensor:
            with torch.no_grad(), evaluating(averaged):
                mean = averaged.estimate(measurement.to(device)).cpu()
            return mean + factor * (gaussian.draw(measurement, generator) - gaussian.mean(measurement))

        return around_mean

    @torch.no_grad()
    def _residual_factor(self, averaged: NetworkDenoiser) -> Tensor:
        """For each entry of a mask: the errors of the network on hidden entries over the spread that the Gaussian expects."""
        prediction = next(task.prediction for task in self.tasks.first if isinstance(task, Restoring))
        device, seed = self.accelerator.device, self.settings.seed
        squares = torch.zeros(2, *self.examples.measurements.mask_shape, dtype=torch.float64)
        chosen = (self.held_out or self.examples).spread(RESIDUALS_FROM)
        for positions in np.array_split(np.arange(len(chosen)), -(-len(chosen) // 64)):
            pair, numbers = chosen.pair(positions), chosen.measurements.indices[positions]
            shown = prediction.show(pair.measured, generators(seed, Stream.IMPUTE_ERROR, 0, indices=numbers))
            with evaluating(averaged):
                away = averaged.estimate(shown.to(device)).cpu() - pair.target.ybar
            spread = self.prior.gaussian.draw(
                shown, generators(seed, Stream.IMPUTE_ERROR, 1, indices=numbers)
            ) - self.prior.gaussian.mean(shown)
            hidden = pair.target.mask * (1 - shown.mask)
            for k, residual in enumerate((away, spread)):
                squares[k] += _summed_to((hidden * residual**2).double().sum(0), squares[k].shape)
        total = squares.flatten(1).sum(1)
        prior_share = PSEUDO_COUNT * total / squares[0].numel()  # entries that were seldom hidden get the factor of all
        found = squares + prior_share.reshape(-1, *[1] * (squares.ndim - 1))
        return (found[0] / found[1].clamp(min=1e-30)).sqrt().float()[None]


def _summed_to(values: Tensor, shape: tuple[int, ...]) -> Tensor:
    for dim, size in enumerate(shape):
        if size == 1:
            values = values.sum(dim, keepdim=True)
    return values
