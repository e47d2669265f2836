"""Before training: open and check everything. Whatever can be refused is refused here, before any work and any writing."""

import copy
import dataclasses
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from accelerate import Accelerator
from torch import nn

from gsure.basis import Basis
from gsure.data.inspection import why_untrainable
from gsure.data.measurements import Measurements, Signals, open_clean, open_measurements
from gsure.denoiser import NetworkDenoiser
from gsure.files import Request, as_request
from gsure.objective import Objective
from gsure.training import checkpoints
from gsure.training.checkpoints import TrainState
from gsure.training.examples import Examples, open_examples
from gsure.training.model import make_denoiser, make_objective, open_model
from gsure.training.run import Run
from gsure.training.settings import Config, DataInfo, Settings, option

T = TypeVar("T")
VALIDATION = ("t_bins", "validate_on", "weighting", "coverage_weighting", "train_on", "held_out", "seed")
"""Settings with which validations are comparable only if they are equal."""


class Ready(NamedTuple):
    """Everything that a loop takes, opened and checked."""

    run: Run
    config: Config
    state: TrainState
    examples: Examples
    held_out: Examples | None
    objective: Objective
    notes: list[str]
    """What a user should know before it starts, whether or not progress is shown."""
    introduction: str


def setup(
    accelerator: Accelerator,
    data: str | Path | Measurements,
    run: Run,
    settings: Settings,
    request: Request,
    *,
    clean: str | Path | None = None,
    init: str | PathLike[str] | None = None,
    resume: bool = False,
    force: bool = False,
    write: bool = True,
) -> Ready:
    """Open and check everything; then create the folder of the run, or restore its latest checkpoint.

    The error lists all problems, a line each. With `write=False`, nothing is written.
    """
    notes, problems = list[str](), list[str]()

    def attempt(function: Callable[..., T], *arguments: Any) -> T | None:
        try:
            return function(*arguments)
        except (ValueError, OSError) as error:
            problems.extend(str(error).splitlines())
            return None

    attempt(refuse_folder, run, resume, force)
    stored = attempt(lambda: run.config) if resume and run.exists() else None
    measurements = attempt(open_measurements, data, run.basis)
    if measurements is None:
        raise ValueError("\n".join(problems))
    signals = attempt(_open_clean, clean, stored, settings, measurements, notes)
    if stored is not None and stored.settings == settings:
        request = stored.request  # a resumed run keeps the request that started it
    config = _make_config(run, settings, measurements, signals, request)
    if stored is not None:
        attempt(_refuse_changes, stored, config, force)
        notes += _harmless_changes(stored.settings, settings)
    if stored is None:
        problems += why_untrainable(measurements, settings.network if run.network is None else "own")
    examples, held_out = attempt(open_examples, measurements, signals, settings) or (None, None)
    objective = None
    if examples is not None:
        attempt(_refuse_sizes, settings, examples, held_out, accelerator.num_processes)
        objective = attempt(make_objective, settings, config.data_info, examples.coverage, examples.max_std)
    state = attempt(_make_state, accelerator, config, measurements.basis, run.network)
    if state is not None and stored is not None:
        attempt(_resume, run, state, stored.settings, settings, notes)
    elif state is not None and init is not None:
        attempt(_start_from, init, state, notes)
    if problems or examples is None or state is None or objective is None:
        raise ValueError("\n".join(dict.fromkeys(problems)))
    accelerator.wait_for_everyone()  # all have looked, now one may write
    if accelerator.is_main_process and write:
        _write(run, config, state, measurements, resume, notes)
    accelerator.wait_for_everyone()
    introduction = _introduction(accelerator, config, state, examples, held_out)
    return Ready(run, config, state, examples, held_out, objective, notes, introduction)


def _make_config(run: Run, settings: Settings, data: Measurements, signals: Signals | None, request: Request) -> Config:
    return Config(
        settings,
        DataInfo.of(data),
        data=data.location or str(run.own_data.resolve()),
        clean=None if signals is None else signals.location,
        own_network=run.network is not None,
        request=request,
        data_request=as_request(data.header.get("request")),
    )


def _write(run: Run, config: Config, state: TrainState, data: Measurements, resume: bool, notes: list[str]) -> None:
    if resume:
        with run.locked():
            checkpoints.discard_after(run.checkpoints, state.step)
            run.write_config(config)
            run.discard_metrics_after(state.step)
        return
    if run.exists():
        with run.locked():
            notes.append(f"The run that was there is now {run.archive()}.")
    run.start(config, state.tensors(), state.header(config.as_dict()), data)


def _make_state(accelerator: Accelerator, config: Config, basis: Basis, network: nn.Module | None) -> TrainState:
    settings = config.settings
    denoiser = make_denoiser(settings, config.data_info, basis, network).to(accelerator.device)
    network = denoiser.network
    averaged = copy.deepcopy(denoiser).requires_grad_(False).eval()
    if settings.compile:
        network.compile()
    denoiser.network = accelerator.prepare(network)
    denoiser.train()
    betas, decay = (0.9, settings.beta_2), settings.weight_decay  # without decay, AdamW is Adam
    optimizer = torch.optim.AdamW(network.parameters(), lr=settings.lr, betas=betas, weight_decay=decay)
    return TrainState(denoiser, network, averaged, optimizer)


def _resume(run: Run, state: TrainState, before: Settings, settings: Settings, notes: list[str]) -> None:
    found, complaints = checkpoints.read_latest(run.checkpoints)
    notes += [f"{complaint} Step {found.step:,} is taken instead." for complaint in complaints]
    comparable = all(getattr(before, name) == getattr(settings, name) for name in VALIDATION)
    state.restore(found, keep_best=comparable)
    if settings.steps < state.step:
        raise ValueError(
            f"The run has done {state.step:,} steps already, more than {settings.steps:,}: give a larger number of steps."
        )
    if settings.steps == state.step:
        notes.append(f"The run has done all its {state.step:,} steps: give a larger number to continue.")


def _start_from(init: str | PathLike[str], state: TrainState, notes: list[str]) -> None:
    """Start from the averaged weights of another run."""
    loaded = open_model(init, network=copy.deepcopy(state.network) if _has_own_network(init) else None, device="cpu")
    assert isinstance(loaded.denoiser, NetworkDenoiser)
    weights = loaded.denoiser.network.state_dict()
    try:
        state.network.load_state_dict(weights)
        state.averaged.network.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(
            f"The weights of {init} do not fit the network of this run: give the settings of its network, such as --width, "
            f"--multipliers and --mask-conditioned, and data of its shape ({str(error).splitlines()[1].strip()[:120]} ...)."
        ) from error
    notes.append(f"Starts from the weights of {init}, step {loaded.step:,}.")


def _has_own_network(run: str | PathLike[str]) -> bool:
    return Run(Path(run)).exists() and Run(Path(run)).config.own_network


def _introduction(
    accelerator: Accelerator, config: Config, state: TrainState, examples: Examples, held_out: Examples | None
) -> str:
    settings, device, processes = config.settings, accelerator.device, accelerator.num_processes
    millions = sum(parameter.numel() for parameter in state.network.parameters()) / 1e6
    shape = " × ".join(map(str, config.data_info.shape))
    what = f"{len(examples):,} measurements of {shape}"
    learned = {"clean": f"the clean signals of {what}", "naive": f"{what} as if they were clean"}
    parts = [
        f"Training on {learned.get(settings.train_on, what)}",
        f"{len(held_out or ()):,} held out; {type(state.network).__name__} of {millions:.2f} M parameters",
        f"{settings.objective}, {settings.steps:,} steps of {settings.batch}; {device.type}",
        f"{processes} process{'es' if processes > 1 else ''}",
        *([_threads()] if device.type == "cpu" else []),
        settings.precision,
    ]
    return ", ".join(parts)


def _open_clean(
    clean: str | Path | None, stored: Config | None, settings: Settings, data: Measurements, notes: list[str]
) -> Signals | None:
    """The file that is given; or, when a run is resumed, the one it had, if that is still there or needed."""
    if clean is None and stored is not None and stored.clean is not None:
        if settings.train_on == "clean" or Path(stored.clean).exists():
            return open_clean(stored.clean, data)
        notes.append(f"{stored.clean} is gone, so the true error is no longer logged.")
    return None if clean is None else open_clean(clean, data)


def refuse_folder(run: Run, resume: bool, force: bool) -> None:
    if resume and not run.exists():
        raise ValueError(
            f"There is no run in {run.path} to resume: omit --resume (in Python, resume=True) to start one there."
        )
    if run.exists() and not (resume or force):
        raise ValueError(
            f"{run.path} holds a run already: continue it with --resume (in Python, resume=True), choose another folder, or "
            "add --force (force=True) to archive it."
        )
    if run.path.exists() and not run.exists() and not run.is_empty():
        raise ValueError(f"{run.path} exists and is not a run of gsure train: choose another folder.")


def _threads() -> str:
    count = torch.get_num_threads()
    return "1 thread" if count == 1 else f"{count} threads"


def _harmless_changes(before: Settings, now: Settings) -> list[str]:
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
        changes.append(f"the clean signals were {stored.clean}, now {config.clean}")
    if stored.own_network != config.own_network:
        changes.append("a network of your own was given only once")
    if changes and not force:
        raise ValueError(
            f"The resumed run would differ: {'; '.join(changes)}. Leave that as it was, or add --force (in Python, "
            "force=True) to change it."
        )


def _refuse_sizes(settings: Settings, examples: Examples, held_out: Examples | None, processes: int) -> None:
    if problems := list(_problems_of_size(settings, examples, held_out, processes)):
        raise ValueError("\n".join(problems))


def _problems_of_size(
    settings: Settings, examples: Examples, held_out: Examples | None, processes: int
) -> Iterator[str]:
    n = len(examples)
    if processes > n:
        yield f"There are {processes} processes, but only {n} measurements to train on: use fewer processes."
    if settings.batch > n:
        yield f"A batch of {settings.batch} is larger than the {n} measurements to train on: use {n} or less."
    parts = processes * settings.accumulate
    if settings.batch % parts:
        yield (
            f"A batch of {settings.batch} cannot be divided over {processes} processes times {settings.accumulate} parts: use "
            f"a batch of {max(parts, settings.batch // parts * parts)}."
        )
    if held_out is not None and min(len(held_out), settings.validate_on) < processes:
        yield (
            f"{min(len(held_out), settings.validate_on)} held-out measurements cannot be shared by {processes} processes: "
            "raise --held-out and --validate-on, or set --held-out 0."
        )
