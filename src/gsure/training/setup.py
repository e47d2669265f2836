"""From files and settings to a state. Whatever can be refused is refused here, before any work and before any writing."""

import copy
import dataclasses
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn

from gsure.basis import Basis
from gsure.data.measurements import Measurements, Signals, open_clean, open_measurements
from gsure.training import checkpoints
from gsure.training.build import DataInfo, make_denoiser, make_objective
from gsure.training.examples import Examples, open_examples
from gsure.training.run import Config, Run, archive, is_empty, start
from gsure.training.settings import Settings, option
from gsure.training.state import TrainState


def setup(
    accelerator: Accelerator,
    data: str | Path,
    out: str | Path,
    settings: Settings,
    clean: str | Path | None,
    resume: bool,
    force: bool,
    basis: Basis | None,
    network: nn.Module | None,
) -> TrainState:
    run, notes = Run(Path(out)), list[str]()
    stored = run.config if resume else None
    measurements = open_measurements(data, basis)
    signals = _open_clean(clean, stored, settings, measurements, notes)
    files = str(Path(data).resolve()), None if signals is None else str(signals.path.resolve())
    config = Config(settings, DataInfo.of(measurements), *files, own_network=network is not None)
    if stored:
        _refuse_changes(stored, config, force)
        notes += _changes_that_matter_little(stored.settings, settings)
    examples, held_out = open_examples(measurements, signals, settings)
    _refuse_sizes(settings, examples, held_out, accelerator.num_processes)
    state = _assemble(accelerator, run, config, examples, held_out, network)
    state.notes = notes
    if stored:
        _resume(state, stored)
    accelerator.wait_for_everyone()  # all have looked, now one may write
    if accelerator.is_main_process and resume:
        checkpoints.discard_after(run.checkpoints, state.first)
        run.write_config(config)
        run.forget_metrics_after(state.first)
    elif accelerator.is_main_process:
        if run.exists():
            state.notes.append(f"The run that was there is now {archive(run.path)}.")
        start(run.path, config, {"tensors": state.tensors(), "header": state.header(0)})
    accelerator.wait_for_everyone()
    return state


def _assemble(
    accelerator: Accelerator,
    run: Run,
    config: Config,
    examples: Examples,
    held_out: Examples | None,
    network: nn.Module | None,
) -> TrainState:
    settings = config.settings
    denoiser = make_denoiser(settings, config.data_info, examples.measurements.basis, network).to(accelerator.device)
    network = denoiser.network
    averaged = copy.deepcopy(denoiser).requires_grad_(False).eval()
    if settings.compile:
        network.compile()
    denoiser.network = accelerator.prepare(network)
    denoiser.train()
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.lr)
    objective = make_objective(settings, config.data_info, examples.coverage)
    return TrainState(accelerator, run, config, examples, held_out, denoiser, network, averaged, optimizer, objective)


def _resume(state: TrainState, stored: Config) -> None:
    found, complaints = checkpoints.read_latest(state.run.checkpoints)
    state.notes += [f"{complaint} Step {found.step:,} is taken instead." for complaint in complaints]
    state.restore(found)
    if state.settings.steps < state.first:
        raise ValueError(f"The run has done {state.first:,} steps already, more than --steps {state.settings.steps:,}.")
    if state.settings.steps == state.first:
        state.notes.append(f"The run has done all its {state.first:,} steps: give a larger number by --steps to go on.")
    if any(getattr(stored.settings, name) != getattr(state.settings, name) for name in ("t_bins", "validate_on")):
        state.best = None  # what was measured otherwise cannot be compared


def _open_clean(
    clean: str | Path | None, stored: Config | None, settings: Settings, data: Measurements, notes: list[str]
) -> Signals | None:
    """The file that is given; or, when a run goes on, the one it had, if that is still there or needed."""
    if clean is None and stored is not None and stored.clean is not None:
        if settings.train_on == "clean" or Path(stored.clean).exists():
            return open_clean(stored.clean, data)
        notes.append(f"{stored.clean} is gone, so the true error is no longer logged.")
    return None if clean is None else open_clean(clean, data)


def settings_of(run: Run, settings: Settings | None, resume: bool, force: bool) -> Settings:
    """Those given, those of the run that is resumed, or the defaults; refuses a folder that cannot be used."""
    _refuse_folder(run, resume, force)
    return settings or (run.config.settings if resume else Settings())


def _refuse_folder(run: Run, resume: bool, force: bool) -> None:
    if resume and not run.exists():
        raise ValueError(f"There is no run in {run.path} to resume: leave --resume away to start one there.")
    if run.exists() and not (resume or force):
        raise ValueError(
            f"{run.path} holds a run already: continue it by --resume, choose another --out, or add --force to put it aside."
        )
    if run.path.exists() and not run.exists() and not is_empty(run.path):
        raise ValueError(f"{run.path} exists and is not a run of gsure train: choose another --out.")


def _changes_that_matter_little(before: Settings, now: Settings) -> list[str]:
    if before.steps != now.steps and now.decay != "none":
        return [
            f"The learning rate now falls to zero at step {now.steps:,} instead of {before.steps:,}, and differs from here on."
        ]
    return []


def _refuse_changes(stored: Config, config: Config, force: bool) -> None:
    before, now = stored.data_info, config.data_info
    for what in ("shape", "basis"):
        if getattr(before, what) != getattr(now, what):
            raise ValueError(
                f"The run was trained on measurements of {what} {getattr(before, what)}, but {config.data} has "
                f"{getattr(now, what)}: give the file it was trained on, {stored.data}."
            )
    changes = [
        f"{option(name)} was {old}, now {new}"
        for name, (old, new) in stored.settings.differences(config.settings).items()
    ]
    changes += [
        f"the data's {field.name} was {old}, now {new}"
        for field in dataclasses.fields(DataInfo)
        if (old := getattr(before, field.name)) != (new := getattr(now, field.name))
    ]
    if config.settings.train_on == "clean" and stored.clean != config.clean:
        changes.append(f"the oracle's clean signals were {stored.clean}, now {config.clean}")
    if stored.own_network != config.own_network:
        changes.append("a network of your own was given only once")
    if changes and not force:
        raise ValueError(
            f"The run would not go on as it was: {'; '.join(changes)}. Leave that as it was, or add --force to change it."
        )


def _refuse_sizes(settings: Settings, examples: Examples, held_out: Examples | None, processes: int) -> None:
    n = len(examples)
    if processes > n:
        raise ValueError(
            f"There are {processes} processes, but only {n} measurements to train on: use fewer processes."
        )
    if settings.batch > n:
        raise ValueError(
            f"A batch of {settings.batch} is larger than the {n} measurements to train on: use --batch {n} or less."
        )
    parts = processes * settings.accumulate
    if settings.batch % parts:
        raise ValueError(
            f"A batch of {settings.batch} cannot be divided over {processes} processes times {settings.accumulate} parts: use "
            f"--batch {max(parts, settings.batch // parts * parts)}."
        )
    if held_out is not None and min(len(held_out), settings.validate_on) < processes:
        raise ValueError(
            f"{min(len(held_out), settings.validate_on)} held-out measurements cannot be shared by {processes} processes: "
            "raise --held-out and --validate-on, or set --held-out 0."
        )
