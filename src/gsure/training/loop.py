"""The training loop: examples -> task -> loss -> backward -> clip -> Adam -> average, from any step on, by many processes.

What a step does depends on the settings and on its number alone: the order of the data and all noise are keyed by (seed,
number of the sample in the whole run). So a resumed run equals one that was never stopped, bit for bit, and two processes
compute what one computes. Dropout is the exception: its mask is drawn for the part of a batch that a process computes at once.
"""

import atexit
import contextlib
import importlib
import itertools
import math
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.state import AcceleratorState, PartialState

from gsure.denoiser import NetworkDenoiser
from gsure.display import Bar, bar
from gsure.files import show_resumption
from gsure.random import Stream, generators
from gsure.training import checkpoints
from gsure.training.checkpoints import TrainState, Unread, Weights
from gsure.training.examples import Examples
from gsure.training.model import choose_device
from gsure.training.run import Log, Run
from gsure.training.settings import Config, Settings
from gsure.training.tasks import Curriculum, Restoring, Stage, Task
from gsure.training.validation import draw_denoised, draw_samples, validate, validate_prediction

Part = tuple[np.ndarray, np.ndarray]
"""Numbers of samples in the whole run, and positions of their measurements in the file."""


@dataclass(frozen=True)
class Loop:
    """What stays the same during a run: who trains, by which settings, and where it is recorded."""

    accelerator: Accelerator
    run: Run
    config: Config
    log: Log

    @property
    def settings(self) -> Settings:
        return self.config.settings

    @property
    def is_main(self) -> bool:
        return self.accelerator.is_main_process

    def __call__(
        self,
        state: TrainState,
        curriculum: Curriculum,
        introduction: str = "",
        progress: bool = False,
    ) -> None:
        """Do the steps that are left, in stretches between which the curriculum changes what the network learns."""
        for number, (first, last) in enumerate(_stretches(state.step, self.settings.steps, curriculum.changes_at)):
            with self.log.aside():
                stage = curriculum.at(first, state.averaged)
            if first in curriculum.changes_at:
                state.best = None  # was validated on other data
            with bar("training", self.settings.steps, progress and self.is_main, done=first) as advance:
                if number == 0 and self.is_main and introduction:
                    advance.say(introduction)
                with _signals(advance.say) as stop:
                    if self._train_until(last, state, stage, advance, stop):
                        return

    def _train_until(self, last: int, state: TrainState, stage: Stage, advance: Bar, stop: "Stop") -> bool:
        """Do the steps up to number `last`; returns whether a signal stopped them before the last step of the run."""
        settings, (examples, held_out, tasks) = self.settings, stage
        for parts in self.batches(examples, state.step, last):
            self.step(state, examples, tasks[state.step % len(tasks)], parts)
            if state.step % settings.log_every == 0:
                self._read_losses(state)
                advance(0, self.log.write(state))
            stopping = any_process(self.accelerator, stop.asked) and state.step < settings.steps
            with self.log.aside():
                if stopping:  # at once: whoever sent the signal may not wait for a validation
                    self._save(state)
                if state.step % settings.checkpoint_every == 0 or state.step == last:
                    self._validate(state, held_out, tasks, advance)
                    self._save(state)
                if self.is_main and not stopping and self._is_picture_due(state.step):
                    self.draw(state, examples, held_out)
            advance(1)
            if stopping:
                again = show_resumption(self.config.request)
                advance.say(
                    f"Stopped after {state.step:,} steps. Nothing is lost; resume with:\n  {again}", always=self.is_main
                )
                return True
        return False

    def batches(self, examples: Examples, first: int, last: int) -> Iterator[list[Part]]:
        """Of each of these steps, this process's share of the batch, divided into the parts that are computed at once."""
        settings, rank, processes = self.settings, self.accelerator.process_index, self.accelerator.num_processes
        order = examples.measurements.order(settings.batch, last, settings.seed, first, rank, processes)
        for step, positions in enumerate(order, start=first):
            numbers = np.arange(step * settings.batch, (step + 1) * settings.batch)[rank::processes]
            divided = (np.array_split(indices, settings.accumulate) for indices in (numbers, positions))
            yield list(zip(*divided, strict=True))

    def step(self, state: TrainState, examples: Examples, task: Task, parts: list[Part]) -> None:
        """One step of the optimizer. Nothing in it waits for the device."""
        settings, accelerator, device = self.settings, self.accelerator, self.accelerator.device
        losses, times = [], []
        state.optimizer.zero_grad()
        for left, (numbers, positions) in zip(range(len(parts) - 1, -1, -1), parts, strict=True):
            generator = generators(settings.seed, Stream.TRAIN, indices=numbers, device=device)
            pair = examples.augment(examples.pair(positions).to(device), generator)
            with contextlib.nullcontext() if left == 0 else accelerator.no_sync(state.denoiser.network):
                loss, t = task(state.denoiser, pair, generator)
                (loss.mean() / len(parts)).backward()
            losses.append(loss.detach())
            times.append(t)
        norm = accelerator.clip_grad_norm_(state.network.parameters(), settings.clip or math.inf)
        for group in state.optimizer.param_groups:
            group["lr"] = learning_rate(settings, state.step)
        state.optimizer.step()
        state.average(settings.ema)
        state.unread.append(Unread(torch.cat(losses), torch.cat(times), norm))
        state.step += 1

    def _read_losses(self, state: TrainState) -> None:
        """Before anything is written: what is not finite must not be saved."""
        if problem := state.read_losses():
            raise ValueError(f"{problem} {self._last_good()}")

    def _last_good(self) -> str:
        steps = checkpoints.steps_of(self.run.checkpoints)
        latest = checkpoints.path_of(self.run.checkpoints, steps[0])
        return (
            f"The last checkpoint before it is {latest}. Check the data, or lower --lr or --clip and resume with: "
            f"{show_resumption(self.config.request, force=True)}"
        )

    def _validate(self, state: TrainState, held_out: Examples | None, tasks: tuple[Task, ...], advance: Bar) -> None:
        """Validate averaged and raw weights on what was held out, and keep the better ones if they are the best so far."""
        self._read_losses(state)
        if held_out is None:
            return
        at_once = max(1, self.settings.batch // self.settings.accumulate)
        candidates: dict[Weights, NetworkDenoiser] = {"averaged": state.averaged, "raw": state.raw}
        restoring = next((task for task in tasks if isinstance(task, Restoring)), None)
        results = {
            weights: validate(denoiser, held_out, self.accelerator, at_once)
            if restoring is None
            else validate_prediction(denoiser, held_out, restoring.prediction, self.accelerator, at_once)
            for weights, denoiser in candidates.items()
        }
        weights = min(results, key=lambda weights: results[weights]["estimate"]["mean"])
        estimate = results[weights]["estimate"]
        if not math.isfinite(estimate["mean"]):
            raise ValueError(f"The validation of step {state.step} is {estimate['mean']}. {self._last_good()}")
        is_best = state.best is None or estimate["mean"] < state.best["mean"]
        if is_best:
            state.best = {"step": state.step, "weights": weights, **estimate}
            if self.is_main:
                checkpoints.write(self.run.best, state.weights(), state.header(self.config.as_dict()))
        advance.say(self.log.write_validation(state.step, results, weights, is_best))

    def _save(self, state: TrainState) -> None:
        self._read_losses(state)
        if self.is_main:
            path = checkpoints.path_of(self.run.checkpoints, state.step)
            checkpoints.write(path, state.tensors(), state.header(self.config.as_dict()))
            checkpoints.prune(self.run.checkpoints, self.settings.keep)

    def _is_picture_due(self, step: int) -> bool:
        return self.settings.picture_every > 0 and step % self.settings.picture_every == 0

    def draw(self, state: TrainState, examples: Examples, held_out: Examples | None) -> None:
        name = f"step-{state.step:08d}.png"
        draw_samples(self.run.path / "samples" / name, state.averaged, examples, state.step)
        if held_out is not None:
            draw_denoised(self.run.path / "denoised" / name, state.averaged, held_out, state.step)


def _stretches(first: int, steps: int, changes_at: tuple[int, ...]) -> list[tuple[int, int]]:
    """The steps still to do, cut where the curriculum changes.

    >>> _stretches(4, 9, (3, 6, 12))
    [(4, 6), (6, 9)]
    """
    return list(itertools.pairwise([first, *(at for at in changes_at if first < at < steps), steps]))


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
        again = "" if launched else " Press Ctrl-C again to stop at once."
        if not stop.asked:
            say(f"{signal.Signals(number).name}: finishing this step and saving a checkpoint.{again}")
        stop.asked = True
        if not launched:
            signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def accelerated(precision: str = "float32", device: str | torch.device | None = None) -> Iterator[Accelerator]:
    """An `Accelerator` for a block. The process group behind it serves all blocks of a process, and ends with the process.

    A group whose threads outlive the interpreter aborts the process. Two things would keep it alive: `torch.distributed.nn`,
    which holds the group in its default arguments if it is first imported while there is one (the constructor of
    `DistributedDataParallel` does that), and a network that is still wrapped. So import the one before the group is created,
    and let go of the other before this block is left.
    """
    where, launched = choose_device(device), int(os.environ.get("WORLD_SIZE", "1"))
    if where.type == "cuda":
        torch.cuda.set_device(where)  # which accelerate takes
    if launched > 1 and not torch.distributed.is_initialized():
        importlib.import_module("torch.distributed.nn")
        atexit.register(_end_group)
    AcceleratorState._reset_state(
        reset_partial_state=launched == 1
    )  # or a process could use one precision and device only
    accelerator = Accelerator(
        cpu=where.type == "cpu",  # torchrun's processes find each other only so; and MPS has no float64
        mixed_precision="bf16" if precision == "bf16" else "no",
        kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)],  # forward passes may differ in number
    )
    if launched != accelerator.num_processes:
        raise ValueError(
            f"{launched} processes were launched, but accelerate sees {accelerator.num_processes}: on CPUs, use torchrun."
        )
    try:
        yield accelerator
        accelerator.wait_for_everyone()
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # frames that failed inside of a wrapped network hold it
        raise
    finally:
        accelerator.free_memory()


def _end_group() -> None:
    if torch.distributed.is_initialized():
        PartialState().destroy_process_group()


def any_process(accelerator: Accelerator, claim: bool) -> bool:
    """Whether one of the processes says so; all hear the same."""
    if accelerator.num_processes == 1:
        return claim
    said = torch.tensor(float(claim), device=accelerator.device)
    return float(accelerator.reduce(said, "sum")) > 0
