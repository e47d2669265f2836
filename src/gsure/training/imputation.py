"""Completion: what was not measured is drawn by the model itself, so that the network learns from whole signals.

Each of the chosen measurements is restored by one draw of the averaged network; before the first step, when that knows
nothing, by one of a Gaussian law with the moments of all measurements. From then on the network sees whole signals, as it will
when it generates, while the loss counts what was measured and nothing else: a wrong draw spoils what is seen, never what is to
be said of it. docs/method.md tells why this helps against mask-blindness.
The draws are kept in the folder of the run, in pieces, so that none is made twice and a resumed run learns from the same.
"""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gsure.data.chunks import Pieces, open_folder, write_piece
from gsure.data.measurements import Signals
from gsure.gaussian import Gaussian
from gsure.measurement import Measurement
from gsure.progress import bar
from gsure.random import generators
from gsure.restoration import ddrm
from gsure.training.examples import Examples
from gsure.training.state import Job

STREAM = 3
"""Keeps the noise of completion apart from that of training, validation and pictures."""
BATCHES = 16
"""So many batches make a file."""
MOMENTS_OF = 1000
"""Measurements are read at once for their moments."""


def complete(job: Job, step: int, progress: bool) -> None:
    """Let the job learn from, and be judged by, signals that its averaged network completes after so many steps."""
    folder = job.run.path / "completed" / f"step-{step:08d}"
    chosen = job.examples if step == 0 else job.examples.spread(job.settings.completions)  # a Gaussian is quick
    law = functools.cache(functools.partial(_gaussian, job, job.examples, progress))
    job.examples = _completed(job, chosen, folder / "train", step, law, progress)
    if job.held_out is not None:
        job.held_out = _completed(job, job.held_out, folder / "held-out", step, law, progress)


def _completed(
    job: Job, examples: Examples, folder: Path, step: int, law: Callable[[], Gaussian], progress: bool
) -> Examples:
    settings, data = job.settings, examples.measurements
    plan = {"command": "train", "run": str(job.run.path.resolve()), "step": step, "seed": settings.seed}
    open_folder(folder, plan | {"calls": settings.completion_calls})
    at_once = max(1, settings.batch // settings.accumulate)
    pieces = Pieces(folder, len(examples), BATCHES * at_once)
    missing = [number for number in pieces.mine() if not pieces.is_done(number, ("",))]
    gaussian = law() if step == 0 and missing else None
    with bar("completing", len(examples), progress) as advance:
        advance(len(examples) - sum(len(pieces.indices(number)) for number in missing))
        for number in missing:
            positions = np.array(pieces.indices(number))
            parts = np.array_split(positions, math.ceil(len(positions) / at_once))
            x = torch.cat([_draw(job, examples, part, step, gaussian) for part in parts])
            about = [str(index) for index in data.indices[positions]], [1.0] * len(positions)
            write_piece(folder / Pieces.name(number), x, *about, plan, job.config.about.is_complex)
            advance(len(positions))
    job.accelerator.wait_for_everyone()
    return replace(examples, completed=Signals(folder))


def _draw(job: Job, examples: Examples, positions: np.ndarray, step: int, gaussian: Gaussian | None) -> Tensor:
    """One draw of the signal behind each measurement; it depends on the sample and the step alone.

    Noise drawn anew at each call (η = 1), and more calls near t = 0, bring draws closest to the law of signals when calls are
    few: docs/method.md has the numbers.
    """
    generator = generators(job.settings.seed, STREAM, step, indices=examples.measurements.indices[positions])
    measurement = examples[positions]
    if gaussian is not None:
        xbar = gaussian.draw(measurement, generator)
    else:
        measurement, calls = measurement.to(job.accelerator.device), job.settings.completion_calls
        xbar = ddrm(job.averaged, measurement, calls, eta=1.0, spacing="quadratic", generator=generator)
    return examples.measurements.basis.to_signal(xbar).cpu()


def _gaussian(job: Job, examples: Examples, progress: bool) -> Gaussian:
    with bar("second moments", len(examples), progress) as advance:

        def batches() -> Iterator[Measurement]:
            for positions in np.array_split(np.arange(len(examples)), math.ceil(len(examples) / MOMENTS_OF)):
                yield examples[positions]
                advance(len(positions))

        return Gaussian.fit(batches(), pairs=job.config.about.is_complex)
