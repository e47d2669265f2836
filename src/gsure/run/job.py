"""A job: a run with everything that training it takes, opened, checked and, when it goes on, restored."""

import copy
import dataclasses
import os
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from gsure.basis import Basis, Dense
from gsure.denoiser import Denoiser
from gsure.objective import Objective
from gsure.run import checkpoint
from gsure.run.build import About, make_denoiser, make_objective
from gsure.run.checkpoint import Checkpoint
from gsure.run.examples import Examples, open_examples
from gsure.run.folder import Config, Run, start
from gsure.run.settings import Settings, option
from gsure.store import open, open_clean


@dataclass
class Job:
    accelerator: Accelerator
    run: Run
    config: Config
    examples: Examples
    held_out: Examples | None
    denoiser: Denoiser
    """Its network may be wrapped, to run on several processes or in mixed precision."""
    network: nn.Module
    """The network itself."""
    averaged: Denoiser
    """What samples and is validated: the denoiser with averaged weights."""
    optimizer: torch.optim.Adam
    objective: Objective
    first: int = 0
    """Steps already done."""
    best: dict[str, Any] | None = None
    """Step, mean and standard error of the best validation so far."""
    notes: list[str] = dataclasses.field(default_factory=list)
    """What was found wrong with the files of the run, and mended."""

    @property
    def settings(self) -> Settings:
        return self.config.settings

    @property
    def resume_command(self) -> str:
        n = self.accelerator.num_processes
        launch = "gsure" if n == 1 else f"torchrun --nproc-per-node {n} -m gsure"
        return f"{launch} train {shlex.quote(self.config.data)} --out {shlex.quote(str(self.run.path))} --resume"

    @property
    def introduction(self) -> str:
        settings, device, processes = self.settings, self.accelerator.device, self.accelerator.num_processes
        millions = sum(parameter.numel() for parameter in self.network.parameters()) / 1e6
        held_out = 0 if self.held_out is None else len(self.held_out)
        parts = [
            f"{len(self.examples):,} measurements of {' × '.join(map(str, self.config.about.shape))} ({settings.data_as})",
            f"{held_out:,} held out; {type(self.network).__name__} of {millions:.2f} M parameters",
            f"{settings.objective}, {settings.steps:,} steps of {settings.batch}; {device.type}",
            f"{processes} process{'es' if processes > 1 else ''}",
            *([f"{torch.get_num_threads()} threads"] if device.type == "cpu" else []),
            settings.precision,
        ]
        return ", ".join(parts)

    def header(self, step: int) -> dict[str, Any]:
        return {"step": step, "best": self.best, "config": self.config.as_dict()}

    def tensors(self) -> dict[str, Tensor]:
        """All that changes, and the basis if it is a matrix."""
        parts = {
            "network": self.network.state_dict(),
            "optimizer": checkpoint.optimizer_tensors(self.network, self.optimizer),
        }
        flat = {f"{part}.{name}": value for part, tensors in parts.items() for name, value in tensors.items()}
        return flat | self.averaged_tensors()

    def averaged_tensors(self) -> dict[str, Tensor]:
        basis = {"basis.V": self.denoiser.basis.V} if isinstance(self.denoiser.basis, Dense) else {}
        return {f"ema.{name}": value for name, value in self.averaged.network.state_dict().items()} | basis

    def restore(self, found: Checkpoint) -> None:
        try:
            self.network.load_state_dict(found.part("network"))
            self.averaged.network.load_state_dict(found.part("ema"))
            checkpoint.load_optimizer(self.network, self.optimizer, found.part("optimizer"))
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                f"The weights in {found.path} do not fit the network of these settings: {error}"
            ) from error
        self.first, self.best = found.step, found.header["best"]

    @cached_property
    def _averages(self) -> tuple[list[Tensor], list[Tensor]]:
        return list(self.averaged.network.parameters()), list(self.network.parameters())

    @torch.no_grad()
    def average(self, step: int) -> None:
        """ema ← d ema + (1-d) weights; the average starts with the weights that the first step made."""
        get_ema_multi_avg_fn(self.settings.ema if step > 0 else 0.0)(*self._averages, None)
        for mine, current in zip(self.averaged.network.buffers(), self.network.buffers(), strict=True):
            mine.copy_(current)

    def any_process(self, claim: bool) -> bool:
        """Whether one of the processes says so; all hear the same."""
        if self.accelerator.num_processes == 1:
            return claim
        said = torch.tensor(float(claim), device=self.accelerator.device)
        return float(self.accelerator.reduce(said, "sum")) > 0


def prepare(
    data: str | Path,
    out: str | Path,
    settings: Settings | None,
    clean: str | Path | None,
    resume: bool,
    force: bool,
    basis: Basis | None,
    network: nn.Module | None,
) -> Job:
    """Everything that can be refused is refused here, before any work is done and before anything is written."""
    run = Run(Path(out))
    _refuse_folder(run, resume, force)
    measurements = open(data, basis)
    stored = run.config if resume else None
    if settings is None:
        settings = stored.settings if stored else Settings()
    if clean is None and stored:
        clean = stored.clean
    paths = [None if path is None else str(Path(path).resolve()) for path in (data, clean)]
    config = Config(settings, About.of(measurements), str(paths[0]), paths[1], own_network=network is not None)
    if stored:
        _refuse_changes(stored, config, force)
    examples, held_out = open_examples(
        measurements, None if clean is None else open_clean(clean, measurements), settings
    )

    accelerator = Accelerator(
        cpu=not torch.cuda.is_available(),  # else torchrun's processes would not know of each other; and MPS has no float64
        mixed_precision="bf16" if settings.precision == "bf16" else "no",
    )
    if (launched := int(os.environ.get("WORLD_SIZE", "1"))) != accelerator.num_processes:
        raise ValueError(f"{launched} processes were launched, but accelerate sees {accelerator.num_processes}.")
    _refuse_sizes(settings, examples, held_out, accelerator.num_processes)
    denoiser = make_denoiser(settings, config.about, measurements.basis, network).to(accelerator.device)
    network = denoiser.network
    averaged = copy.deepcopy(denoiser).requires_grad_(False).eval()
    if settings.compile:
        network.compile()
    denoiser.network = accelerator.prepare(network)
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.lr)
    objective = make_objective(settings, config.about, examples.coverage)
    job = Job(accelerator, run, config, examples, held_out, denoiser, network, averaged, optimizer, objective)
    if resume:
        found, job.notes = checkpoint.read_latest(run.checkpoints)
        job.restore(found)
    accelerator.wait_for_everyone()  # all have looked, now one may write
    if accelerator.is_main_process:
        if resume:
            run.write_config(config)
            run.forget_metrics_after(job.first)
        else:
            _put_aside(run.path)
            start(run.path, config, {"tensors": job.tensors(), "header": job.header(0)})
    accelerator.wait_for_everyone()
    return job


def _refuse_folder(run: Run, resume: bool, force: bool) -> None:
    if resume and not run.exists():
        raise ValueError(f"There is no run in {run.path} to resume: leave --resume away to start one there.")
    if run.exists() and not (resume or force):
        raise ValueError(
            f"{run.path} holds a run already: continue it by --resume, choose another --out, or add --force to put it aside."
        )
    if run.path.exists() and not run.exists() and (not run.path.is_dir() or any(run.path.iterdir())):
        raise ValueError(f"{run.path} exists and is not a run of gsure train: choose another --out.")


def _put_aside(path: Path) -> None:
    """A run may be days of work: --force makes room for another, but deletes nothing."""
    if path.exists() and any(path.iterdir()):
        taken = (path.with_name(f"{path.name}.old-{k}") for k in range(1, 1000))
        path.rename(next(aside for aside in taken if not aside.exists()))


def _refuse_changes(stored: Config, config: Config, force: bool) -> None:
    before, now = stored.about, config.about
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
        for field in dataclasses.fields(About)
        if (old := getattr(before, field.name)) != (new := getattr(now, field.name))
    ]
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
