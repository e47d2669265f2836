"""Train: from measurements and settings to a run; and a dry run, which says what that would take."""

import contextlib
import statistics
import time
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn

from gsure.basis import Basis
from gsure.data.measurements import Measurements
from gsure.display import duration, say
from gsure.files import record_request, show_resumption
from gsure.gaussian import Gaussian
from gsure.training.examples import Curriculum, Unchanging
from gsure.training.imputation import Imputing
from gsure.training.judgement import judge_run
from gsure.training.loop import Loop, accelerated
from gsure.training.model import choose_device
from gsure.training.prior import open_prior
from gsure.training.run import Log, Run, peak_memory, summary_writer
from gsure.training.settings import Settings
from gsure.training.setup import Ready, setup

TIMED = 3
"""Steps that are timed, after one that is not: the first one also prepares."""


def train(
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
    tensorboard: bool = False,
    progress: bool = False,
) -> Run:
    """Train on measurements, and record the run in the folder `out`. Returns the run, whose `denoiser` is the trained one.

    data        a measurement file, or measurements in memory; the run then keeps them in its folder
    clean       file of clean signals. It only adds the true error to the log, except with `Settings(train_on="clean")`,
                which trains on it
    init        start from the weights of this run instead of random ones
    resume      continue from the latest checkpoint, with the settings of the run or with `settings` if these differ in nothing
                that matters; `force` lets them differ, or archives an existing run
    network     your own; pass it again, or the returned run, to use the run
    device      such as cpu or cuda:1; by default a GPU if there is one
    """
    arguments = {name: value for name, value in locals().items() if name not in ("resume", "force")}
    if tensorboard:
        summary_writer()  # refuses at once if it is not installed
    run = Run(Path(out), network, basis)
    settings = settings or (run.config.settings if resume and run.exists() else Settings())
    request = record_request("train", arguments | {"settings": settings.changed()})
    with accelerated(settings.precision, device) as accelerator:
        ready = setup(accelerator, data, run, settings, request, clean=clean, init=init, resume=resume, force=force)
        try:
            with contextlib.ExitStack() as stack:
                if accelerator.is_main_process:
                    stack.enter_context(run.locked())
                log = stack.enter_context(contextlib.closing(Log(run, accelerator, ready.state.step, tensorboard)))
                for note in ready.notes if accelerator.is_main_process else ():
                    say(note)
                loop = Loop(accelerator, run, ready.config, log)
                prior = open_prior(run, ready.examples, ready.held_out, accelerator, progress)
                curriculum = make_curriculum(ready, prior.gaussian, accelerator, progress)
                loop(ready.state, curriculum, ready.objective, ready.introduction, progress)
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


def make_curriculum(ready: Ready, prior: Gaussian, accelerator: Accelerator, progress: bool) -> Curriculum:
    if not ready.config.settings.impute_at:
        return Unchanging(ready.examples, ready.held_out)
    shown = progress and accelerator.is_main_process
    folder, request = ready.run.path / "imputed", ready.config.request
    return Imputing(ready.examples, ready.held_out, prior, folder, request, accelerator, shown)


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
    run = Run(Path(out), network, basis)
    settings = settings or (run.config.settings if resume and run.exists() else Settings())
    problems = []
    try:
        choose_device(device)
    except ValueError as error:
        problems, device = [str(error)], "cpu"
    with accelerated(settings.precision, device) as accelerator:
        options: dict[str, Any] = {"clean": clean, "init": init, "resume": resume, "force": force, "write": False}
        try:
            ready = setup(accelerator, data, run, settings, {}, **options)
        except ValueError as error:
            return {"problems": problems + str(error).splitlines()}
        if problems:
            return {"problems": problems}
        left = settings.steps - ready.state.step
        seconds = time_steps(Loop(accelerator, run, ready.config, Log(run, accelerator)), ready)
        cost = {
            "parameters": sum(parameter.numel() for parameter in ready.state.network.parameters()),
            "memory": f"{peak_memory(accelerator.device) / 1e9:.1f} GB",
            "speed": f"{1 / seconds:.2g} steps/s, from {TIMED} steps of {settings.batch} on {accelerator.device.type}",
            "time": f"{duration(left * seconds)} for {left:,} steps, without validation and imputation",
        }
        ready.state.denoiser.network = ready.state.network
    return {"problems": []} | ({"notes": ready.notes} if ready.notes else {}) | cost


def time_steps(loop: Loop, ready: Ready) -> float:
    """Median seconds of a training step. It changes the state."""
    seconds = []
    batches = loop.batches(ready.examples, ready.state.step, ready.state.step + TIMED + 1)
    for parts in batches:
        began = time.perf_counter()
        loop.step(ready.state, ready.examples, ready.objective, parts)
        float(ready.state.unread[-1].gradient_norm)  # waits for the device
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])
