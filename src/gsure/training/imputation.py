"""Imputation: the model itself draws what was not measured, so that the network learns from fully sampled signals.

Each of the chosen measurements is restored by one draw of the averaged network; before the first step, when that knows
nothing, by one draw of a Gaussian with the second moments of all measurements. From then on the network sees fully sampled
signals, as it will when it generates, while the loss counts only what was measured: a wrong draw spoils the input, never the
target. docs/method.md explains why this helps against mask-blindness.
The draws are kept in the folder of the run, in chunks, so that none is computed twice and a resumed run learns from the same.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from gsure.data.chunks import Chunks, open_folder, write_chunk
from gsure.data.measurements import Signals
from gsure.denoiser import Denoiser
from gsure.display import bar
from gsure.files import Request
from gsure.gaussian import Gaussian
from gsure.random import Stream, generators
from gsure.restoration import ddrm
from gsure.training.examples import Examples
from gsure.training.settings import Settings

BATCHES_PER_CHUNK = 16


@dataclass(frozen=True)
class Imputing:
    """A curriculum: from each of `impute_at` on, signals that the model imputed there."""

    examples: Examples
    held_out: Examples | None
    prior: Gaussian
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

    def at(self, step: int, averaged: Denoiser) -> tuple[Examples, Examples | None]:
        """What was imputed at the latest of `impute_at` up to this step; it is imputed now, if it is not there yet."""
        latest = max((at for at in self.settings.impute_at if at <= step < self.settings.steps), default=None)
        if latest is None:
            return self.examples, self.held_out
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
        return imputed, held_out

    def _impute(self, examples: Examples, folder: Path, step: int, averaged: Denoiser) -> Examples:
        settings, data = self.settings, examples.measurements
        at_once = max(1, settings.batch // settings.accumulate)
        chunks = Chunks(folder, len(examples), BATCHES_PER_CHUNK * at_once)
        made_of: dict[str, Any] = {"step": step, "seed": settings.seed, "measurements": data.fingerprint()}
        made_of |= {"sampling_steps": settings.impute_sampling_steps, "chunk_size": chunks.size}
        open_folder(folder, self.request, made_of)
        missing = [number for number in chunks.mine() if not chunks.is_done(number, ("",))]
        prior = self.prior if step == 0 else None
        with bar("imputing", len(examples), self.progress) as advance:
            advance(len(examples) - sum(len(chunks.indices(number)) for number in missing))
            for number in missing:
                positions = np.array(chunks.indices(number))
                parts = np.array_split(positions, math.ceil(len(positions) / at_once))
                x = torch.cat([self._draw(examples, part, step, averaged, prior) for part in parts])
                names = [str(index) for index in data.indices[positions]]
                write_chunk(folder / Chunks.name(number), x, names, made_of, data.header["complex"])
                advance(len(positions))
        self.accelerator.wait_for_everyone()
        return replace(examples, imputed=Signals(folder).__getitem__)

    def _draw(
        self, examples: Examples, positions: np.ndarray, step: int, averaged: Denoiser, prior: Gaussian | None
    ) -> Tensor:
        """One draw of the signal behind each measurement; it depends on the sample and the step alone.

        With few sampling steps, fresh noise at each of them (η = 1) and more of them near t = 0 bring draws closest to the
        distribution of signals: docs/method.md has the numbers.
        """
        measurement, indices = examples.target(positions), examples.measurements.indices[positions]
        device = self.accelerator.device if prior is None else torch.device("cpu")
        generator = generators(self.settings.seed, Stream.IMPUTE, step, indices=indices, device=device)
        if prior is not None:
            xbar = prior.draw(measurement, generator)
        else:
            steps = self.settings.impute_sampling_steps
            xbar = ddrm(averaged, measurement.to(device), steps, eta=1.0, spacing="quadratic", generator=generator)
        return examples.measurements.basis.to_signal(xbar).cpu()
