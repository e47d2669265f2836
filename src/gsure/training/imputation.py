"""Completion: what was not measured is drawn by the model itself, so that the network learns from whole signals.

Each of the chosen measurements is restored by one draw of the averaged network; before the first step, when that knows
nothing, by one of a Gaussian law with the moments of all measurements. From then on the network sees whole signals, as it will
when it generates, while the loss counts what was measured and nothing else: a wrong draw spoils what is seen, never what is to
be said of it. docs/method.md tells why this helps against mask-blindness.
The draws are kept in the folder of the run, in chunks, so that none is made twice and a resumed run learns from the same.
"""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gsure.data.chunks import Chunks, open_folder, write_chunk
from gsure.data.measurements import Signals
from gsure.gaussian import Gaussian
from gsure.measurement import Measurement
from gsure.progress import bar
from gsure.random import generators
from gsure.restoration import ddrm
from gsure.training.examples import Examples
from gsure.training.state import TrainState

STREAM = 3
"""Keeps the noise of completion apart from that of training, validation and pictures."""
BATCHES = 16
"""So many batches make a file."""
MOMENTS_OF = 1000
"""Measurements are read at once for their moments."""


def complete(state: TrainState, step: int, progress: bool) -> None:
    """Let the state learn from, and be judged by, signals that its averaged network completes after so many steps."""
    folder = state.run.path / "completed" / f"step-{step:08d}"
    chosen = state.examples if step == 0 else state.examples.spread(state.settings.impute_count)  # a Gaussian is quick
    law = functools.cache(functools.partial(_gaussian, state, state.examples, progress))
    state.examples = _completed(state, chosen, folder / "train", step, law, progress)
    if state.held_out is not None:
        state.held_out = _completed(state, state.held_out, folder / "held-out", step, law, progress)


def _completed(
    state: TrainState, examples: Examples, folder: Path, step: int, law: Callable[[], Gaussian], progress: bool
) -> Examples:
    settings, data = state.settings, examples.measurements
    plan = {"command": "train", "run": str(state.run.path.resolve()), "step": step, "seed": settings.seed}
    open_folder(folder, plan | {"calls": settings.impute_sampling_steps})
    at_once = max(1, settings.batch // settings.accumulate)
    chunks = Chunks(folder, len(examples), BATCHES * at_once)
    missing = [number for number in chunks.mine() if not chunks.is_done(number, ("",))]
    gaussian = law() if step == 0 and missing else None
    with bar("completing", len(examples), progress) as advance:
        advance(len(examples) - sum(len(chunks.indices(number)) for number in missing))
        for number in missing:
            positions = np.array(chunks.indices(number))
            parts = np.array_split(positions, math.ceil(len(positions) / at_once))
            x = torch.cat([_draw(state, examples, part, step, gaussian) for part in parts])
            about = [str(index) for index in data.indices[positions]], [1.0] * len(positions)
            write_chunk(folder / Chunks.name(number), x, *about, plan, state.config.data_info.is_complex)
            advance(len(positions))
    state.accelerator.wait_for_everyone()
    return replace(examples, completed=Signals(folder))


def _draw(state: TrainState, examples: Examples, positions: np.ndarray, step: int, gaussian: Gaussian | None) -> Tensor:
    """One draw of the signal behind each measurement; it depends on the sample and the step alone.

    Noise drawn anew at each call (η = 1), and more calls near t = 0, bring draws closest to the law of signals when calls are
    few: docs/method.md has the numbers.
    """
    generator = generators(state.settings.seed, STREAM, step, indices=examples.measurements.indices[positions])
    measurement = examples[positions]
    if gaussian is not None:
        xbar = gaussian.draw(measurement, generator)
    else:
        measurement, calls = measurement.to(state.accelerator.device), state.settings.impute_sampling_steps
        xbar = ddrm(state.averaged, measurement, calls, eta=1.0, spacing="quadratic", generator=generator)
    return examples.measurements.basis.to_signal(xbar).cpu()


def _gaussian(state: TrainState, examples: Examples, progress: bool) -> Gaussian:
    with bar("second moments", len(examples), progress) as advance:

        def batches() -> Iterator[Measurement]:
            for positions in np.array_split(np.arange(len(examples)), math.ceil(len(examples) / MOMENTS_OF)):
                yield examples[positions]
                advance(len(positions))

        return Gaussian.fit(batches(), pairs=state.config.data_info.is_complex)
