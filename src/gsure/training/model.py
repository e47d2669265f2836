"""From settings and what is known of the data to a denoiser and an objective; and from a run back to its denoiser."""

import os
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from gsure.basis import Basis, Dense
from gsure.data.measurements import BASES
from gsure.denoiser import BaseDenoiser, Denoiser, NetworkDenoiser, ResidualDenoiser
from gsure.divergence import Divergence
from gsure.gaussian import Fitted, Gaussian, load_gaussian
from gsure.network import mlp, unet
from gsure.objective import Objective
from gsure.schedule import Schedule
from gsure.training import checkpoints
from gsure.training.checkpoints import Checkpoint, Weights
from gsure.training.run import Run
from gsure.training.settings import Config, DataInfo, Settings

CheckpointName = Literal["best", "last"] | int
"""A checkpoint of a run: the one that validated best, the last one, or that of a step."""


MAX_VARIANCES = 256
"""Of the Gaussian, by which errors at each noise level are weighted."""


def make_schedule(settings: Settings, max_std: float) -> Schedule:
    match settings.schedule:
        case "for_noise":
            return Schedule.for_noise(max_std, settings.beta_1, settings.beta_T, settings.T)
        case "linear":
            schedule = Schedule.linear(settings.beta_1, settings.beta_T, settings.T)
        case "cosine":
            schedule = Schedule.cosine(settings.T)
    schedule.check(max_std)
    return schedule


def make_network(settings: Settings, info: DataInfo, basis_is_signal: bool) -> nn.Module:
    if settings.network == "mlp":
        size = torch.Size(info.shape).numel()
        return mlp(size, settings.width, settings.depth, settings.mask_conditioned, settings.seed)
    if len(info.shape) != 3:
        raise ValueError(
            f"A unet takes images, but this data has shape {info.shape}: use --network mlp, or your own network in Python."
        )
    conditioned, residual = settings.mask_conditioned or settings.base != "none", settings.base != "none"
    spectral = conditioned and not basis_is_signal
    network = unet(
        (info.shape[1], info.shape[2]),
        info.shape[0],
        settings.width,
        settings.multipliers,
        settings.attention,
        settings.dropout,
        settings.groups,
        settings.patch,
        settings.layers,
        mask_input="embedding" if spectral else "channels" if conditioned else "none",
        mask_shape=info.mask_shape if spectral else None,
        inputs=2 if residual else 1,
        zero_output=residual,
        seed=settings.seed,
    )
    if settings.channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def make_denoiser(
    settings: Settings, info: DataInfo, basis: Basis, network: nn.Module | None = None, base: Gaussian | None = None
) -> NetworkDenoiser:
    """`network` is a user's own, in place of the one that the settings describe; `base` the Gaussian to which it adds."""
    schedule = make_schedule(settings, info.max_std)
    network = make_network(settings, info, basis.is_signal) if network is None else network
    if settings.base == "gaussian":
        return ResidualDenoiser(network, schedule, basis, base)
    return Denoiser(network, schedule, basis, settings.predicts, settings.mask_conditioned)


def make_objective(
    settings: Settings, info: DataInfo, coverage: torch.Tensor, max_std: float, prior: Gaussian | None = None
) -> Objective:
    """`prior` is the Gaussian of the run, as soon as it is known."""
    relative = settings.weighting == "wiener" and prior is not None
    variances = None
    if relative and prior is not None:
        variances = prior.variances.double().sort().values
        variances = variances[:: max(1, len(variances) // MAX_VARIANCES)]
    return Objective(
        settings.objective,
        coverage=coverage,
        weighting="v" if settings.weighting == "wiener" and not relative else settings.weighting,
        variances=variances,
        hide=settings.hide if settings.purpose == "generate" else 0.0,
        unit=info.unit,
        max_std=max_std,
        divergence=Divergence(settings.divergence, settings.divergence_fraction),
    )


def choose_device(asked: str | torch.device | None = None) -> torch.device:
    """The device that was asked for, if it exists; by default a GPU for each process, or else the CPU.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if asked is None:
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if gpus else torch.device("cpu")
    try:
        device = torch.device(asked)
    except RuntimeError as error:
        raise ValueError(f"There is no device {str(asked)!r}: choose cpu, cuda, or cuda:1 and so on.") from error
    if device.type == "cuda" and (device.index or 0) >= gpus:
        found = f"only {gpus} GPU{'s' * (gpus > 1)}" if gpus else "no GPU that it can use"
        raise ValueError(f"The device {device} does not exist: PyTorch finds {found} here. Omit it, or choose cpu.")
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"The device {device.type} is not supported: choose cpu or cuda.")
    return device


def load(
    run: str | PathLike[str],
    checkpoint: CheckpointName = "best",
    *,
    weights: Weights | None = None,
    basis: Basis | None = None,
    network: nn.Module | None = None,
) -> NetworkDenoiser:
    """The denoiser of a run (or of one checkpoint file), ready to sample and restore.

    `checkpoint` is the one that validated best (the last, if nothing was held out), the last one, or that of a step.
    `weights` are averaged or raw: by default those that validated best, or the averaged ones if neither was validated.
    Pass your own basis or network again if the run was trained with one.
    """
    loaded = open_model(run, checkpoint, basis=basis, network=network, weights=weights)
    assert isinstance(loaded.denoiser, NetworkDenoiser)
    return loaded.denoiser


Model = str | PathLike[str] | BaseDenoiser
"""What samples and restores: a run, its path, the path of a checkpoint, or a denoiser."""


class Loaded(NamedTuple):
    """The denoiser of a checkpoint, and what is known of it."""

    denoiser: BaseDenoiser
    config: Config | None
    """None for a denoiser that is not of a run."""
    step: int | None
    checksum: int
    """Of the weights: a run that was trained again has others at the same place and step."""
    path: Path | None

    @property
    def name(self) -> str:
        return "the denoiser" if self.path is None else self.path.name

    @property
    def inputs(self) -> dict[str, str]:
        """As requests record it."""
        return {} if self.path is None else {"run": str(self.path.resolve())}


def open_model(
    model: Model,
    checkpoint: CheckpointName = "best",
    basis: Basis | None = None,
    network: nn.Module | None = None,
    device: str | torch.device | None = None,
    weights: Weights | None = None,
) -> Loaded:
    """The denoiser on its device, and what it was made of."""
    where = choose_device(device)
    if weights is not None and weights not in checkpoints.PARTS:
        raise ValueError(f"weights is averaged or raw, not {weights!r}.")
    if isinstance(model, BaseDenoiser):
        tensors = {name: value.detach().cpu() for name, value in model.state_dict().items()}
        return Loaded(model.to(where), None, None, checkpoints.checksum(tensors), None)
    if not isinstance(model, str | PathLike):
        raise TypeError(
            f"A run, its folder or a gsure.Denoiser is needed here, but a {type(model).__name__} was given: pass what "
            "gsure.train returned, and then the measurements."
        )
    if isinstance(model, Run):
        network, basis = network or model.network, basis or model.basis
    path = Path(model)
    found = _find(path, checkpoint)
    config = Config.from_dict(found.header["config"], str(found.path))
    if (run := Run(path)).exists():  # whose data may have moved since this checkpoint was written
        config = replace(config, data=run.config.data, clean=run.config.clean)
    if config.own_network and network is None:
        raise ValueError(
            f"{path} was trained with your own network, which a run does not store: pass network=... in Python, built as it "
            "was for training. The command line cannot use such a run."
        )
    basis = basis or _basis(config.data_info.basis, found)
    base = _base(found, config, basis)
    denoiser = make_denoiser(config.settings, config.data_info, basis, network, base)
    chosen = found.part(checkpoints.PARTS[weights or _better_weights(found)])
    try:
        denoiser.network.load_state_dict(chosen)
    except RuntimeError as error:
        raise ValueError(f"The weights in {found.path} do not fit the network: {error}") from error
    return Loaded(denoiser.eval().to(where), config, found.step, checkpoints.checksum(chosen), path)


def open_stored_prior(loaded: Loaded) -> Fitted | None:
    """The Gaussian of the run that a denoiser is of; None if that is not known."""
    if loaded.path is None or not (run := Run(loaded.path)).gaussian.exists():
        return None
    return load_gaussian(run.gaussian, loaded.denoiser.basis)[0]


def _better_weights(found: Checkpoint) -> Weights:
    """Those that validated best, if this is the checkpoint that did."""
    best = found.header["best"]
    return best["weights"] if best is not None and best["step"] == found.step else "averaged"


def _find(path: Path, checkpoint: CheckpointName) -> Checkpoint:
    if path.is_file() and path.suffix == ".safetensors":
        return checkpoints.read(path)
    run = Run(path)
    if not run.exists():
        nothing = "" if path.exists() else ": nothing is there"
        raise ValueError(
            f"{path} is neither a run of gsure train nor a checkpoint{nothing}. Give the folder that gsure train wrote, and "
            "after it the measurements, if the command needs any."
        )
    if not isinstance(checkpoint, int | np.integer) and checkpoint not in ("best", "last"):
        raise ValueError(f"checkpoint is best, last or the number of a step, not {checkpoint!r}.")
    if not isinstance(checkpoint, str):
        if checkpoint not in (steps := checkpoints.steps_of(run.checkpoints)):
            raise ValueError(f"{path} has no checkpoint of step {checkpoint}; it has {', '.join(map(str, steps))}.")
        return checkpoints.read(checkpoints.path_of(run.checkpoints, checkpoint))
    if checkpoint == "best" and run.best.exists():
        return checkpoints.read(run.best)
    return checkpoints.read_latest(run.checkpoints)[0]


def _basis(name: str, found: Checkpoint) -> Basis:
    if "V" in found.part("basis"):
        return Dense(found.part("basis")["V"])
    if name not in BASES:
        raise ValueError(
            f"This run was trained in your own basis, {name!r}: pass basis=... in Python. The command line cannot use such "
            "a run."
        )
    return BASES[name]()


def _base(found: Checkpoint, config: Config, basis: Basis) -> Gaussian | None:
    """The Gaussian to which the network of a checkpoint adds; it is in the folder of the run."""
    if config.settings.base == "none":
        return None
    path = Run(found.path.parent.parent).gaussian
    if not path.exists():
        raise ValueError(
            f"{path} is missing: the network of {found.path} adds to this Gaussian prior and is of no use without it. "
            "Restore the file, or give the folder of the run instead of a copy of its checkpoint."
        )
    base = load_gaussian(path, basis)[0].gaussian
    if found.header.get("base") not in (None, checkpoints.checksum(base.state()[0])):
        raise ValueError(
            f"{path} is not the Gaussian prior that the network of {found.path} was trained with: restore the file of this "
            "run."
        )
    return base
