"""Train: measurements -> t -> objective -> backward -> clip -> Adam -> EMA, on one process or many, from any step on.

What a step does depends on the settings and on its number alone: the order of the data and all noise are drawn from (seed,
number of the sample in the whole run). So a resumed run equals one that was never stopped, bit for bit, and two processes
compute what one computes. Dropout is the exception: its mask is drawn for the part of a batch that a process computes at once.
"""

import contextlib
import itertools
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gsure.basis import Basis
from gsure.denoiser import Denoiser
from gsure.progress import Bar, bar
from gsure.random import generators
from gsure.training import checkpoints
from gsure.training.imputation import complete
from gsure.training.log import Log, open_board
from gsure.training.previews import draw_denoised, draw_samples
from gsure.training.processes import accelerated
from gsure.training.run import Run
from gsure.training.settings import Settings
from gsure.training.setup import settings_of, setup
from gsure.training.state import TrainState
from gsure.training.validation import validate

STREAM = 0
"""Keeps the noise of training apart from that of validation and pictures."""


def train(
    data: str | Path,
    out: str | Path,
    settings: Settings | None = None,
    *,
    clean: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    basis: Basis | None = None,
    network: nn.Module | None = None,
    tensorboard: bool = False,
    progress: bool = False,
) -> Denoiser:
    """Train on the measurements of a file, record the run in the folder `out`, and return the denoiser (averaged weights).

    `clean`, the file of clean signals, is what an oracle learns from; for other runs it only shows how well the validation
    without clean data tells the true error. `resume` goes on from the latest checkpoint, with the settings of the run or
    with `settings` if these differ in nothing that matters; `force` lets them differ, or puts an existing run aside.
    """
    board = open_board(Path(out)) if tensorboard else None
    settings = settings_of(Run(Path(out)), settings, resume, force)
    with accelerated(settings.precision) as accelerator:
        state = setup(accelerator, data, out, settings, clean, resume, force, basis, network)
        try:
            _run(state, board, progress)
        except OSError as error:
            mend = f"The last checkpoint is whole; mend this and go on with: {state.resume_command}"
            raise OSError(f"{str(error).rstrip('.')}. {mend}") from error
        finally:
            state.denoiser.network = state.network  # releases the wrapper before the process group ends
    return state.averaged


def _run(state: TrainState, board: Callable[[int], Any] | None, progress: bool) -> None:
    main = state.accelerator.is_main_process
    with contextlib.closing(Log(state, board(state.first) if board and main else None)) as log:
        for first, last in _stretches(state.settings, state.first):
            with log.aside():
                _complete(state, first, progress and main)
            with bar("training", state.settings.steps, progress and main, done=first) as advance:
                if first == state.first and main:
                    _introduce(state, advance)
                with _signals(advance.say) as stop:
                    stopped = _loop(state, first, last, log, advance, stop)
            if stopped:
                break


def _introduce(state: TrainState, advance: Bar) -> None:
    for note in state.notes:
        advance.say(note, always=True)
    advance.say(state.introduction)


def _stretches(settings: Settings, first: int) -> list[tuple[int, int]]:
    """The steps still to do, cut where measurements are completed.

    >>> _stretches(Settings(steps=9, impute_at=(3, 6, 12)), 4)
    [(4, 6), (6, 9)]
    """
    return list(
        itertools.pairwise([first, *(at for at in settings.impute_at if first < at < settings.steps), settings.steps])
    )


def _complete(state: TrainState, done: int, progress: bool) -> None:
    """Go on with the measurements as the model completed them last, if it is to; it does so now, if that is not done yet."""
    latest = max((at for at in state.settings.impute_at if at <= done < state.settings.steps), default=None)
    if latest is not None:
        complete(state, latest, progress)
        if latest == done:
            state.best = None  # was judged by measurements that were not complete


def _loop(state: TrainState, first: int, last: int, log: Log, advance: Bar, stop: "Stop") -> bool:
    """Do these steps; returns whether it was stopped before the last of the run."""
    settings, main = state.settings, state.accelerator.is_main_process
    for step, parts in _batches(state, first, last):
        state.losses.append(_step(state, step, parts))
        done = step + 1
        if done % settings.log_every == 0:
            advance(0, log.write(done))
        stopping = state.any_process(stop.asked) and done < settings.steps
        with log.aside():
            if stopping:  # at once: whoever sent the signal may not wait for a validation
                _save(state, done)
            if done % settings.checkpoint_every == 0 or done == last:
                _validate(state, log, advance, done)
                _save(state, done)
            if settings.picture_every and done % settings.picture_every == 0 and main and not stopping:
                _draw(state, done)
        advance(1)
        if stopping:
            told = f"Stopped after {done:,} steps. Nothing is lost; continue with:\n  {state.resume_command}"
            advance.say(told, always=main)
            return True
    return False


def _batches(state: TrainState, first: int, last: int) -> Iterator[tuple[int, list[tuple[np.ndarray, np.ndarray]]]]:
    """Each of these steps, and this process's part of its batch: numbers of samples in the whole run, and positions of
    measurements in the file; divided into the parts that are computed at once."""
    settings, rank, processes = state.settings, state.accelerator.process_index, state.accelerator.num_processes
    order = state.examples.measurements.order(settings.batch, last, settings.seed, first, rank, processes)
    for step, positions in enumerate(order, start=first):
        numbers = np.arange(step * settings.batch, (step + 1) * settings.batch)[rank::processes]
        divided = (np.array_split(indices, settings.accumulate) for indices in (numbers, positions))
        yield step, list(zip(*divided, strict=True))


def _step(state: TrainState, step: int, parts: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """One step of the optimizer; returns the loss of this process's part of the batch."""
    settings, accelerator = state.settings, state.accelerator
    losses, times, completed = [], [], state.examples.completed is not None
    state.optimizer.zero_grad()
    for last, (numbers, positions) in zip(range(1 - len(parts), 1), parts, strict=True):
        generator = generators(settings.seed, STREAM, indices=numbers)
        read = state.examples[positions]
        both = state.examples.mirrored([read, state.examples.shown(read, positions)], generator)
        measurement, shown = (part.to(accelerator.device) for part in both)
        t = state.denoiser.schedule.draw(len(measurement), generator)
        with contextlib.nullcontext() if last == 0 else accelerator.no_sync(state.denoiser.network):
            loss = state.objective(state.denoiser, measurement, t, generator, shown=shown if completed else None)
            (loss.mean() / len(parts)).backward()
        losses.append(loss.detach())
        times.append(t)
    norm = accelerator.clip_grad_norm_(state.network.parameters(), settings.clip or math.inf)
    total = float(torch.cat(losses).mean())
    if not math.isfinite(total) or not math.isfinite(float(norm)):
        raise ValueError(_what_is_not_finite(state, step, torch.cat(losses), torch.cat(times)))
    for group in state.optimizer.param_groups:
        group["lr"] = learning_rate(settings, step)
    state.optimizer.step()
    state.average(step)
    return total


def learning_rate(settings: Settings, step: int) -> float:
    """Of the step with this number, counted from 0: rising over the warm-up, then constant or falling to 0 at the end.

    >>> [learning_rate(Settings(lr=1.0, steps=8, warmup=2, decay="linear"), step) for step in (0, 1, 2, 5)]
    [0.5, 1.0, 1.0, 0.5]
    """
    if step < settings.warmup:
        return settings.lr * (step + 1) / settings.warmup
    passed = (step - settings.warmup) / max(1, settings.steps - settings.warmup)
    match settings.decay:
        case "none":
            return settings.lr
        case "linear":
            return settings.lr * (1 - passed)
        case "cosine":
            return settings.lr * (1 + math.cos(math.pi * passed)) / 2


def _what_is_not_finite(state: TrainState, step: int, losses: Tensor, t: Tensor) -> str:
    bad = ~losses.isfinite().cpu()
    what = f"The loss of {int(bad.sum())} samples" if bad.any() else "The gradient"
    times = sorted((t.cpu()[bad] if bad.any() else t.cpu()).tolist())
    listed = ", ".join(map(str, times[:20])) + (", ..." if len(times) > 20 else "")
    told = f"{what} became infinite or not a number at step {step}, at t = {listed}. That step was not taken."
    return f"{told} {_last_good(state)}"


def _last_good(state: TrainState) -> str:
    latest = checkpoints.path_of(state.run.checkpoints, checkpoints.steps_of(state.run.checkpoints)[0])
    return (
        f"The last checkpoint before it is {latest}. Look at the data, or lower --lr or --clip and go on with: "
        f"{state.resume_command} --force"
    )


def _validate(state: TrainState, log: Log, advance: Bar, done: int) -> None:
    """Judge the averaged weights on what was held out, and keep them if they are the best so far."""
    if state.held_out is None:
        return
    at_once = max(1, state.settings.batch // state.settings.accumulate)
    result = validate(state.averaged, state.held_out, state.accelerator, at_once)
    estimate = result["estimate"]
    if not math.isfinite(estimate["mean"]):
        raise ValueError(f"The validation of step {done} is {estimate['mean']}. {_last_good(state)}")
    if state.best is None or estimate["mean"] < state.best["mean"]:
        state.best = {"step": done, **estimate}
        if state.accelerator.is_main_process:
            checkpoints.write(state.run.best, state.averaged_tensors(), state.header(done))
    advance.say(log.validation(done, result))


def _save(state: TrainState, done: int) -> None:
    if state.accelerator.is_main_process:
        checkpoints.write(checkpoints.path_of(state.run.checkpoints, done), state.tensors(), state.header(done))
        checkpoints.prune(state.run.checkpoints, state.settings.keep)


def _draw(state: TrainState, done: int) -> None:
    name = f"step-{done:08d}.png"
    draw_samples(state.run.path / "samples" / name, state.averaged, state.examples, done)
    if state.held_out is not None:
        draw_denoised(state.run.path / "denoised" / name, state.averaged, state.held_out, done)


@dataclass
class Stop:
    asked: bool = False


@contextlib.contextmanager
def _signals(say: Callable[[str], None]) -> Iterator[Stop]:
    """SIGINT (Ctrl-C) and SIGTERM (a scheduler that wants its machine back) end the run after the current step. A second
    one ends it at once; but not under torchrun, which passes on what the terminal has already sent to all."""
    stop, launched = Stop(), "TORCHELASTIC_RUN_ID" in os.environ
    if threading.current_thread() is not threading.main_thread():  # where Python sets no handlers
        yield stop
        return

    def ask(number: int, _frame: Any) -> None:
        again = "" if launched else "; once more to stop at once"
        if not stop.asked:
            say(f"{signal.Signals(number).name}: finishing the step and saving{again}.")
        stop.asked = True
        if not launched:
            signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
