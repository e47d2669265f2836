"""The state of a training run, and the checkpoints that keep it.

A checkpoint is one safetensors file with JSON in its header; written completely or not at all, and checked when read.
Tensors are named network.* (the raw weights), ema.* (the averaged ones), optimizer.<parameter>.*, and basis.V where the basis
is a matrix. The header holds the step, the best validation so far and the weights that it is of, the configuration of the run,
and a checksum of the tensors.
"""

import dataclasses
import json
import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from gsure.basis import Dense
from gsure.denoiser import NetworkDenoiser, ResidualDenoiser, with_network
from gsure.files import replacing
from gsure.gaussian import Gaussian

FORMAT = "gsure checkpoint"
VERSION = 3


Weights = Literal["averaged", "raw"]
"""The average of the weights over the last steps, or those of the last step alone."""
PARTS: dict[Weights, str] = {"averaged": "ema", "raw": "network"}


class DamagedError(ValueError):
    """A checkpoint that cannot be used; the message says which, and why."""


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds."""

    path: Path
    tensors: dict[str, Tensor]
    header: dict[str, Any]

    @property
    def step(self) -> int:
        return self.header["step"]

    def part(self, name: str) -> dict[str, Tensor]:
        """The tensors under network, ema, optimizer or basis, by the rest of their names."""
        return {
            key.removeprefix(f"{name}."): value for key, value in self.tensors.items() if key.startswith(f"{name}.")
        }


def path_of(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}.safetensors"


def write(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """To a temporary name first, so that whatever happens `path` is a complete checkpoint or what it was before."""
    flat = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    owners = {tensor.data_ptr(): name for name, tensor in flat.items()}
    flat = {
        name: tensor if owners[tensor.data_ptr()] == name else tensor.clone() for name, tensor in flat.items()
    }  # tied
    metadata = {"format": FORMAT, "version": str(VERSION)}
    metadata["header"] = json.dumps({**header, "checksum": checksum(flat)})
    with replacing(path) as temporary:
        try:
            save_file(flat, temporary, metadata)
        except SafetensorError as error:
            raise OSError(str(error)) from error


def read(path: Path) -> Checkpoint:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise DamagedError(f"{path} is not a checkpoint of gsure.")
            if metadata["version"] != str(VERSION):
                raise DamagedError(
                    f"{path} has format version {metadata['version']}, but this gsure reads version {VERSION} only."
                )
            header = json.loads(metadata["header"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError, RecursionError) as error:
        if isinstance(error, DamagedError):
            raise
        raise DamagedError(f"{path} is damaged: {error}.") from error
    kinds: dict[str, Any] = {"step": int, "config": dict, "losses": list, "best": dict | None}
    if not isinstance(header, dict) or not all(isinstance(header.get(name), kind) for name, kind in kinds.items()):
        raise DamagedError(f"{path} is damaged: its header is not that of a checkpoint.")
    if header["best"] is not None and header["best"].get("weights") not in PARTS:
        raise DamagedError(f"{path} is damaged: its header does not say which weights validated best.")
    if header.get("checksum") != checksum(tensors):
        raise DamagedError(f"{path} is damaged: its checksum is wrong.")
    return Checkpoint(path, tensors, header)


def checksum(tensors: Mapping[str, Tensor]) -> int:
    checksum = 0
    for name in sorted(tensors):
        values = tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy().data
        checksum = zlib.crc32(values, zlib.crc32(name.encode(), checksum))
    return checksum


def steps_of(folder: Path) -> list[int]:
    """Of the checkpoints in a folder, the latest first."""
    found = [re.fullmatch(r"step-(\d{8,})\.safetensors", path.name) for path in folder.glob("step-*.safetensors")]
    return sorted((int(match[1]) for match in found if match), reverse=True)


def read_latest(folder: Path) -> tuple[Checkpoint, list[str]]:
    """The latest good checkpoint, and what is wrong with later ones."""
    complaints: list[str] = []
    for step in steps_of(folder):
        try:
            return read(path_of(folder, step)), complaints
        except DamagedError as error:
            complaints.append(str(error))
    raise ValueError(" ".join([*complaints, f"There is no checkpoint to resume from in {folder}."]))


def prune(folder: Path, keep: int) -> None:
    for step in steps_of(folder)[keep:]:
        path_of(folder, step).unlink()


def discard_after(folder: Path, step: int) -> None:
    """Checkpoints after this step could not be read: they keep their content, but no longer count. Half-written ones go."""
    for begun in folder.glob(".*.tmp"):
        begun.unlink()
    for later in steps_of(folder):
        if later > step:
            path_of(folder, later).rename(folder / f"damaged-{later:08d}")


def optimizer_tensors(network: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Adam's moments and step counts, by the names of the parameters."""
    return {
        f"{name}.{key}": torch.as_tensor(value)
        for name, parameter in network.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }


def load_optimizer(network: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    names = [name for name, _ in network.named_parameters()]
    for key, value in tensors.items():
        name, _, what = key.rpartition(".")
        state.setdefault(names.index(name), {})[what] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


class Unread(NamedTuple):
    """The losses and times of one step, and the norm of its gradient, still on the device."""

    losses: Tensor
    t: Tensor
    gradient_norm: Tensor


@dataclass
class TrainState:
    """Weights, their average, the optimizer, and how far they have come. `Loop` changes it; `train` restores it."""

    denoiser: NetworkDenoiser
    """Its network may be wrapped, to run on several processes or in mixed precision."""
    network: nn.Module
    """The network itself."""
    averaged: NetworkDenoiser
    """The denoiser with averaged weights."""
    optimizer: torch.optim.AdamW
    step: int = 0
    """Steps done."""
    best: dict[str, Any] | None = None
    """Step, weights, mean and standard error of the best validation so far."""
    losses: list[float] = dataclasses.field(default_factory=list)
    """Of the steps since the last line of the log, as far as they were read."""
    base_checksum: int | None = None
    """Of the Gaussian to which the network adds."""
    unread: list[Unread] = dataclasses.field(default_factory=list)
    """Of the steps since then: reading a loss makes the host wait for the device."""

    @torch.no_grad()
    def average(self, decay: float) -> None:
        """ema ← d ema + (1-d) weights. Early in training d is smaller than `decay`: see `warm_decay`."""
        get_ema_multi_avg_fn(warm_decay(decay, self.step))(*self._averages_and_weights, None)
        for mine, current in zip(self.averaged.network.buffers(), self.network.buffers(), strict=True):
            mine.copy_(current)

    @cached_property
    def _averages_and_weights(self) -> tuple[list[Tensor], list[Tensor]]:
        return list(self.averaged.network.parameters()), list(self.network.parameters())

    @property
    def raw(self) -> NetworkDenoiser:
        """The denoiser with the weights as they are, without a wrapper."""
        return with_network(self.denoiser, self.network)

    def set_base(self, base: Gaussian) -> None:
        """The Gaussian to which the network adds; a denoiser without one is left as it is."""
        for denoiser in (self.denoiser, self.averaged):
            if isinstance(denoiser, ResidualDenoiser):
                denoiser.base = base
                self.base_checksum = checksum({name: value.cpu() for name, value in base.state()[0].items()})

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
        return {
            "step": self.step,
            "best": self.best,
            "losses": self.losses,
            "base": self.base_checksum,
            "config": config,
        }

    def tensors(self) -> dict[str, Tensor]:
        """All that changes, and the basis if it is a matrix."""
        moments = optimizer_tensors(self.network, self.optimizer)
        return {f"optimizer.{name}": value for name, value in moments.items()} | self.weights()

    def weights(self) -> dict[str, Tensor]:
        """What a denoiser is made of: both sets of weights, and the basis if it is a matrix."""
        parts = {"network": self.network.state_dict(), "ema": self.averaged.network.state_dict()}
        flat = {f"{part}.{name}": value for part, tensors in parts.items() for name, value in tensors.items()}
        return flat | ({"basis.V": self.denoiser.basis.V} if isinstance(self.denoiser.basis, Dense) else {})

    def restore(self, found: Checkpoint, keep_best: bool = True) -> None:
        """`keep_best=False` if earlier validations are no longer comparable."""
        try:
            self.network.load_state_dict(found.part("network"))
            self.averaged.network.load_state_dict(found.part("ema"))
            load_optimizer(self.network, self.optimizer, found.part("optimizer"))
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                f"The weights in {found.path} do not fit the network of these settings: {error}"
            ) from error
        self.step, self.losses = found.step, found.header["losses"]
        self.best = found.header["best"] if keep_best else None


def warm_decay(decay: float, step: int) -> float:
    """Of the average after step number `step`, counted from 0: min(d, (1 + k) / (10 + k)).

    A constant decay would keep a share d^k of the weights that training starts with. This average forgets them, and covers
    about the last tenth of a short run.

    >>> [round(warm_decay(0.999, step), 3) for step in (0, 1, 90, 100_000)]
    [0.0, 0.182, 0.91, 0.999]
    """
    return min(decay, (1 + step) / (10 + step)) if step > 0 else 0.0


def _what_is_not_finite(step: int, losses: Tensor, t: Tensor) -> str:
    bad = ~losses.isfinite()
    what = f"The loss of {int(bad.sum())} samples" if bad.any() else "The gradient"
    times = sorted((t[bad] if bad.any() else t).tolist())
    listed = ", ".join(map(str, times[:20])) + (", ..." if len(times) > 20 else "")
    return f"{what} became infinite or not a number at step {step}, at t = {listed}."
