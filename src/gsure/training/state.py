"""A state: a run with everything that training it takes, opened, checked and, when it goes on, restored."""

import dataclasses
import os
import shlex
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from gsure.basis import Dense
from gsure.denoiser import Denoiser
from gsure.objective import Objective
from gsure.training import checkpoints
from gsure.training.checkpoints import Checkpoint
from gsure.training.examples import Examples
from gsure.training.run import Config, Run
from gsure.training.settings import Settings


@dataclass
class TrainState:
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
    """What a person should know before it starts."""
    losses: list[float] = dataclasses.field(default_factory=list)
    """Since the last line of the log."""

    @property
    def settings(self) -> Settings:
        return self.config.settings

    @property
    def resume_command(self) -> str:
        if self.config.own_network:
            return f"gsure.train({self.config.data!r}, {str(self.run.path)!r}, resume=True, network=...)"
        nodes, each = os.environ.get("GROUP_WORLD_SIZE", "1"), os.environ.get("LOCAL_WORLD_SIZE", "1")
        several = f"--nnodes {nodes} --rdzv-endpoint ... " if nodes != "1" else ""
        launch = (
            "gsure" if self.accelerator.num_processes == 1 else f"torchrun {several}--nproc-per-node {each} -m gsure"
        )
        return f"{launch} train {shlex.quote(self.config.data)} --out {shlex.quote(str(self.run.path))} --resume"

    @property
    def introduction(self) -> str:
        settings, device, processes = self.settings, self.accelerator.device, self.accelerator.num_processes
        millions = sum(parameter.numel() for parameter in self.network.parameters()) / 1e6
        held_out = 0 if self.held_out is None else len(self.held_out)
        parts = [
            f"{len(self.examples):,} measurements of {' × '.join(map(str, self.config.data_info.shape))} ({settings.train_on})",
            f"{held_out:,} held out; {type(self.network).__name__} of {millions:.2f} M parameters",
            f"{settings.objective}, {settings.steps:,} steps of {settings.batch}; {device.type}",
            f"{processes} process{'es' if processes > 1 else ''}",
            *([f"{torch.get_num_threads()} threads"] if device.type == "cpu" else []),
            settings.precision,
        ]
        return ", ".join(parts)

    def header(self, step: int) -> dict[str, Any]:
        return {"step": step, "best": self.best, "losses": self.losses, "config": self.config.as_dict()}

    def tensors(self) -> dict[str, Tensor]:
        """All that changes, and the basis if it is a matrix."""
        parts = {
            "network": self.network.state_dict(),
            "optimizer": checkpoints.optimizer_tensors(self.network, self.optimizer),
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
            checkpoints.load_optimizer(self.network, self.optimizer, found.part("optimizer"))
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                f"The weights in {found.path} do not fit the network of these settings: {error}"
            ) from error
        self.first, self.best, self.losses = found.step, found.header["best"], found.header["losses"]

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
