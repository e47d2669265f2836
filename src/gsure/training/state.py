"""What changes while a model trains, and the processes that change it together."""

import atexit
import contextlib
import dataclasses
import importlib
import math
import os
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.state import AcceleratorState, PartialState
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from gsure.basis import Dense
from gsure.denoiser import Denoiser
from gsure.training import checkpoints
from gsure.training.checkpoints import Checkpoint


class Unread(NamedTuple):
    """The losses and times of one step, and the norm of its gradient, still on the device."""

    losses: Tensor
    t: Tensor
    gradient_norm: Tensor


@dataclass
class TrainState:
    """Weights, their average, the optimizer, and how far they have come. `Loop` changes it; `train` restores it."""

    denoiser: Denoiser
    """Its network may be wrapped, to run on several processes or in mixed precision."""
    network: nn.Module
    """The network itself."""
    averaged: Denoiser
    """What samples and is validated: the denoiser with averaged weights."""
    optimizer: torch.optim.Adam
    step: int = 0
    """Steps done."""
    best: dict[str, Any] | None = None
    """Step, mean and standard error of the best validation so far."""
    losses: list[float] = dataclasses.field(default_factory=list)
    """Of the steps since the last line of the log, as far as they were read."""
    unread: list[Unread] = dataclasses.field(default_factory=list)
    """Of the steps since then: reading a loss makes the host wait for the device."""

    @torch.no_grad()
    def average(self, decay: float) -> None:
        """ema ← d ema + (1-d) weights; the average starts with the weights that the first step made."""
        get_ema_multi_avg_fn(decay if self.step > 0 else 0.0)(*self._averages_and_weights, None)
        for mine, current in zip(self.averaged.network.buffers(), self.network.buffers(), strict=True):
            mine.copy_(current)

    @cached_property
    def _averages_and_weights(self) -> tuple[list[Tensor], list[Tensor]]:
        return list(self.averaged.network.parameters()), list(self.network.parameters())

    def read_losses(self) -> str | None:
        """Read the losses of the steps since the last call; returns a sentence if one of them is not finite."""
        first = self.step - len(self.unread)
        for number, (losses, t, norm) in enumerate(self.unread, start=first):
            mean = float(losses.mean())
            if not (math.isfinite(mean) and math.isfinite(float(norm))):
                return _what_is_not_finite(number, losses.cpu(), t.cpu())
            self.losses.append(mean)
        self.unread = []
        return None

    def take_losses(self) -> list[float]:
        """The losses that were read since the last call."""
        taken, self.losses = self.losses, []
        return taken

    def header(self, config: dict[str, Any]) -> dict[str, Any]:
        return {"step": self.step, "best": self.best, "losses": self.losses, "config": config}

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

    def restore(self, found: Checkpoint, keep_best: bool = True) -> None:
        """`keep_best=False` if earlier validations are no longer comparable."""
        try:
            self.network.load_state_dict(found.part("network"))
            self.averaged.network.load_state_dict(found.part("ema"))
            checkpoints.load_optimizer(self.network, self.optimizer, found.part("optimizer"))
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                f"The weights in {found.path} do not fit the network of these settings: {error}"
            ) from error
        self.step, self.losses = found.step, found.header["losses"]
        self.best = found.header["best"] if keep_best else None


def _what_is_not_finite(step: int, losses: Tensor, t: Tensor) -> str:
    bad = ~losses.isfinite()
    what = f"The loss of {int(bad.sum())} samples" if bad.any() else "The gradient"
    times = sorted((t[bad] if bad.any() else t).tolist())
    listed = ", ".join(map(str, times[:20])) + (", ..." if len(times) > 20 else "")
    return f"{what} became infinite or not a number at step {step}, at t = {listed}."


@contextlib.contextmanager
def accelerated(precision: str = "float32") -> Iterator[Accelerator]:
    """An `Accelerator` for a block. The process group behind it serves all blocks of a process, and ends with the process.

    A group whose threads outlive the interpreter aborts the process. Two things would keep it alive: `torch.distributed.nn`,
    which holds the group in its default arguments if it is first imported while there is one (the constructor of
    `DistributedDataParallel` does that), and a network that is still wrapped. So import the one before the group is created,
    and let go of the other before this block is left.
    """
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    if launched > 1 and not torch.distributed.is_initialized():
        importlib.import_module("torch.distributed.nn")
        atexit.register(_end_group)
    AcceleratorState._reset_state()  # otherwise a process could use one precision only
    accelerator = Accelerator(
        cpu=not torch.cuda.is_available(),  # torchrun's processes find each other only so; and MPS has no float64
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
