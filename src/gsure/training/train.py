"""Train: from measurements and settings to a run; and a dry run, which says what that would take."""

import contextlib
import dataclasses
import statistics
import time
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import nn

from gsure.basis import Basis
from gsure.data.measurements import Measurements, open_measurements
from gsure.display import duration, say
from gsure.files import record_request, show_resumption
from gsure.gaussian import Fitted
from gsure.training.auto import choose_settings, fit_to_budget
from gsure.training.checkpoints import TrainState
from gsure.training.examples import Examples
from gsure.training.imputation import Imputing
from gsure.training.loop import Loop, accelerated
from gsure.training.model import choose_device, make_objective
from gsure.training.prior import fit_prior, open_prior
from gsure.training.run import Log, Run, peak_memory, summary_writer
from gsure.training.settings import Settings
from gsure.training.setup import Ready, refuse_folder, setup
from gsure.training.tasks import Curriculum, Task, Unchanging, make_tasks
from gsure.training.validation import judge_run

FITTED_TO_TIME = 300
"""Measurements to which a dry run fits its Gaussian: enough to time steps with it."""
TIMED = 3
"""Steps that are timed, after one that is not: the first one also prepares."""


def train(
    data: str | Path | Measurements,
    out: str | Path,
    settings: Settings | None = None,
    *,
    minutes: float | None = None,
    clean: str | Path | None = None,
    init: str | PathLike[str] | None = None,
    resume: bool = False,
    force: bool = False,
    basis: Basis | None = None,
    network: nn.Module | None = None,
    device: str | torch.device | None = None,
    tensorboard: bool = False,
    progress: bool = False,
) -> Run:
    """Train on measurements, and record the run in the folder `out`. Returns the run, whose `denoiser` is the trained one.

    data        a measurement file, or measurements in memory; the run then keeps them in its folder
    settings    by default those that fit the data and the time budget (`gsure.choose_settings`)
    minutes     time budget, if there are no settings, which have their own; 15 by default
    clean       file of clean signals. It only adds the true error to the log, except with `Settings(train_on="clean")`,
                which trains on it
    init        start from the weights of this run instead of random ones
    resume      continue from the latest checkpoint, with the settings of the run or with `settings` if these differ in nothing
                that matters; `force` lets them differ, or archives an existing run
    network     your own; pass it again, or the returned run, to use the run
    device      such as cpu or cuda:1; by default a GPU if there is one
    """
    arguments = {name: value for name, value in locals().items() if name not in ("resume", "force")}
    began = time.monotonic()
    if tensorboard:
        summary_writer()  # refuses at once if it is not installed
    if settings is not None and minutes is not None:
        raise ValueError(
            f"minutes={minutes:g} is for settings that gsure chooses, and you gave settings: give "
            f"Settings(steps=0, minutes={minutes:g}), or omit one of the two."
        )
    run = Run(Path(out), network, basis)
    if settings is None:
        refuse_folder(run, resume, force)  # before settings are chosen, which takes seconds
        settings = _default_settings(run, data, minutes, resume, device, progress)
    request = record_request("train", arguments | {"settings": settings.changed()})
    options: dict[str, Any] = {"clean": clean, "init": init, "resume": resume, "force": force}
    with accelerated(settings.precision, device) as accelerator:
        ready = setup(accelerator, data, run, settings, request, **options)
        try:
            with contextlib.ExitStack() as stack:
                if accelerator.is_main_process:
                    stack.enter_context(run.locked())
                for note in ready.notes if accelerator.is_main_process else ():
                    say(note)
                prior = open_prior(run, ready.examples, ready.held_out, accelerator, progress)
                if settings.steps == 0:
                    ready = _fit_to_budget(accelerator, ready, prior, began, options, progress)
                    settings = ready.config.settings
                ready.state.set_base(prior.gaussian)
                log = stack.enter_context(contextlib.closing(Log(run, accelerator, ready.state.step, tensorboard)))
                loop = Loop(accelerator, run, ready.config, log)
                curriculum = make_curriculum(ready, prior, accelerator, progress)
                loop(ready.state, curriculum, ready.introduction, progress)
                if ready.state.step == settings.steps:
                    verdict = judge_run(run, prior, ready.held_out or ready.examples, accelerator, progress)
                    if progress and accelerator.is_main_process:
                        say(verdict)
        except OSError as error:
            again = (
                f"The last checkpoint is complete; fix this and resume with: {show_resumption(ready.config.request)}"
            )
            raise OSError(f"{str(error).rstrip('.')}. {again}") from error
        finally:
            ready.state.denoiser.network = ready.state.network  # lets go of the wrapper before the process group ends
    return run


def _default_settings(
    run: Run,
    data: str | Path | Measurements,
    minutes: float | None,
    resume: bool,
    device: str | torch.device | None,
    progress: bool,
) -> Settings:
    """Those of the run that is resumed; or else those that fit the data, with the threads that are fastest now."""
    if resume and run.exists():
        return run.config.settings
    changes = {} if minutes is None else {"minutes": minutes}
    if run.network is not None:
        return Settings(steps=0, minutes=minutes) if minutes else Settings()
    chosen = choose_settings(open_measurements(data, run.basis), changes, device)
    torch.set_num_threads(chosen.threads)
    for choice in chosen.choices if progress else ():
        say(str(choice))
    return chosen.settings


def make_curriculum(ready: Ready, prior: Fitted, accelerator: Accelerator, progress: bool) -> Curriculum:
    settings, examples = ready.config.settings, ready.examples
    info, coverage, largest = ready.config.data_info, examples.coverage, examples.max_std
    objective = make_objective(settings, info, coverage, largest, prior.gaussian)
    tasks = make_tasks(settings, objective, examples, prior)
    if not settings.impute_at:
        return Unchanging(examples, ready.held_out, tasks.first)
    shown = progress and accelerator.is_main_process
    folder, request = ready.run.path / "imputed", ready.config.request
    return Imputing(examples, ready.held_out, prior, tasks, folder, request, accelerator, shown)


def _fit_to_budget(
    accelerator: Accelerator, ready: Ready, prior: Fitted, began: float, options: dict[str, Any], progress: bool
) -> Ready:
    """The same run with as many steps as fit into its minutes; its folder records them before the first step."""
    settings = ready.config.settings
    cost = _time_tasks(accelerator, ready, prior)
    left = 60 * settings.minutes - (time.monotonic() - began)
    try:
        found = [fit_to_budget(settings, *cost, left, len(ready.examples))]
    except ValueError:
        if accelerator.is_main_process and not options["resume"]:
            ready.run.discard()  # so that the corrected command finds room
        raise
    broadcast_object_list(found)  # the main process decides
    ready.state.denoiser.network = ready.state.network
    accelerator.free_memory()
    if accelerator.is_main_process:
        if progress:
            say(f"About {duration(left)} left for {found[0].steps:,} steps, validation and the verdict.")
        ready.run.write_config(dataclasses.replace(ready.config, settings=found[0]))
    accelerator.wait_for_everyone()
    config = ready.config
    again = {"clean": options["clean"], "resume": True, "write": False}  # the folder has everything
    data = ready.run.own_data if ready.run.own_data.exists() else config.data
    resumed = setup(accelerator, data, ready.run, found[0], config.request, **again)
    return resumed._replace(notes=[note for note in resumed.notes if "steps" not in note])


def _time_tasks(accelerator: Accelerator, ready: Ready, prior: Fitted) -> tuple[tuple[float, float], float]:
    """Seconds of a step before and after signals are imputed, and of one imputed signal. It changes the state."""
    settings, examples = ready.config.settings, ready.examples
    ready.state.set_base(prior.gaussian)
    whole = dataclasses.replace(settings, steps=settings.steps or TIMED + 1)
    config = dataclasses.replace(ready.config, settings=whole)
    loop = Loop(accelerator, ready.run, config, Log(ready.run, accelerator))
    objective = make_objective(settings, config.data_info, examples.coverage, examples.max_std, prior.gaussian)
    tasks = make_tasks(settings, objective, examples, prior)
    drawing = 0.0
    if settings.purpose == "both" and settings.train_on == "measurements":
        few = examples.target(range(min(8, len(examples))))
        began = time.perf_counter()
        drawn = prior.gaussian.draw(few, 0) - prior.gaussian.mean(few)
        drawing = 1.3 * (time.perf_counter() - began) / len(few)
        x = examples.measurements.basis.to_signal(few.impute(drawn).ybar)
        examples = dataclasses.replace(examples, imputed=lambda positions: x[np.arange(len(positions)) % len(x)])
    seconds = {task: time_steps(loop, ready.state, examples, task) for task in {*tasks.first, *tasks.then}}
    return tuple(statistics.mean(seconds[task] for task in some) for some in tasks), drawing  # type: ignore[return-value]


def dry_run(
    data: str | Path | Measurements,
    out: str | Path,
    settings: Settings | None = None,
    *,
    clean: str | Path | None = None,
    init: str | PathLike[str] | None = None,
    resume: bool = False,
    force: bool = False,
    basis: Basis | None = None,
    network: nn.Module | None = None,
    device: str | torch.device | None = None,
) -> dict[str, Any]:
    """What `gsure.train` would do with these arguments: `problems`, a sentence each, or else the cost of the run."""
    run, began = Run(Path(out), network, basis), time.monotonic()
    problems = []
    try:
        choose_device(device)
    except ValueError as error:
        problems, device = [str(error)], "cpu"
    try:
        settings = settings or _default_settings(run, data, None, resume, device, False)
    except (ValueError, OSError) as error:
        return {"problems": problems + str(error).splitlines()}
    with accelerated(settings.precision, device) as accelerator:
        options: dict[str, Any] = {"clean": clean, "init": init, "resume": resume, "force": force, "write": False}
        try:
            ready = setup(accelerator, data, run, settings, {}, **options)
        except ValueError as error:
            return {"problems": problems + str(error).splitlines()}
        if problems:
            return {"problems": problems}
        done, prior = ready.state.step, fit_prior(ready.examples, ready.held_out, most=FITTED_TO_TIME)
        (first, then), drawing = _time_tasks(accelerator, ready, prior)
        if settings.steps == 0:
            try:
                left = 60 * settings.minutes - (time.monotonic() - began)
                settings = fit_to_budget(settings, (first, then), drawing, left, len(ready.examples))
            except ValueError as error:
                return {"problems": [str(error)]}
        cost = _cost(ready, settings, done, first, then, accelerator.device)
        ready.state.denoiser.network = ready.state.network
    return {"problems": []} | ({"notes": ready.notes} if ready.notes else {}) | cost


def _cost(
    ready: Ready, settings: Settings, step: int, first: float, then: float, device: torch.device
) -> dict[str, Any]:
    """Of a run that has done so many steps; `first` and `then` are the seconds of a step before and after imputation."""
    change = min(settings.impute_at, default=settings.steps)
    left = max(0, change - step) * first + max(0, settings.steps - max(step, change)) * then
    return {
        "parameters": sum(parameter.numel() for parameter in ready.state.network.parameters()),
        "memory": f"{peak_memory(device) / 1e9:.1f} GB",
        "speed": f"{1 / first:.2g} steps/s, from {TIMED} steps of {settings.batch} on {device.type}",
        "steps": settings.steps - step,
        "time": f"{duration(left)} for {settings.steps - step:,} steps, without validation and imputation",
    }


def time_steps(loop: Loop, state: TrainState, examples: Examples, task: Task) -> float:
    """Median seconds of a training step. It changes the state."""
    seconds = []
    for parts in loop.batches(examples, state.step, state.step + TIMED + 1):
        began = time.perf_counter()
        loop.step(state, examples, task, parts)
        float(state.unread[-1].gradient_norm)  # waits for the device
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])
