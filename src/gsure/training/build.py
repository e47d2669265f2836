"""From settings and what is known of the data to a schedule, a network, a denoiser and an objective."""

import dataclasses
from typing import Any

import torch
from torch import nn

from gsure.basis import Basis
from gsure.data.measurements import Measurements
from gsure.denoiser import Denoiser
from gsure.divergence import Divergence
from gsure.network import mlp, unet
from gsure.objective import Objective
from gsure.schedule import Schedule
from gsure.training.settings import Settings


@dataclasses.dataclass(frozen=True)
class DataInfo:
    """What a run must know of its data, to build the denoiser and to recognise the data when it goes on."""

    shape: tuple[int, ...]
    basis: str
    mask_shape: tuple[int, ...]
    unit: tuple[int, ...]
    is_complex: bool
    max_std: float
    scales: tuple[float, float]
    """Smallest and largest number that raw signals were divided by."""
    samples: int
    made_by: dict[str, Any]

    @staticmethod
    def of(data: Measurements) -> "DataInfo":
        scales = data.scales()
        made_by = {key: data.header[key] for key in ("source", "corruption", "sigma_0", "seed")}
        return DataInfo(
            shape=tuple(data.shape),
            basis=type(data.basis).__name__,
            mask_shape=data.mask_shape,
            unit=data.unit,
            is_complex=data.header["complex"],
            max_std=data.max_std,
            scales=(float(scales.min()), float(scales.max())),
            samples=len(data),
            made_by=made_by,
        )


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


def make_network(settings: Settings, data_info: DataInfo, basis_is_signal: bool) -> nn.Module:
    if settings.network == "mlp":
        size = torch.Size(data_info.shape).numel()
        return mlp(size, settings.width, settings.depth, settings.mask_conditioned, settings.seed)
    if len(data_info.shape) != 3 or data_info.shape[1] != data_info.shape[2]:
        raise ValueError(
            f"A unet takes square images, but this data has shape {data_info.shape}: use --network mlp, or your own network in "
            "Python."
        )
    spectral = settings.mask_conditioned and not basis_is_signal
    network = unet(
        data_info.shape[1],
        data_info.shape[0],
        settings.width,
        settings.multipliers,
        settings.attention,
        settings.dropout,
        settings.groups,
        settings.patch,
        settings.layers,
        mask_input="embedding" if spectral else "channels" if settings.mask_conditioned else "none",
        mask_shape=data_info.mask_shape if spectral else None,
        seed=settings.seed,
    )
    if settings.channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def make_denoiser(settings: Settings, data_info: DataInfo, basis: Basis, network: nn.Module | None = None) -> Denoiser:
    """`network` is a user's own, in place of the one that the settings describe."""
    schedule = make_schedule(settings, data_info.max_std)
    network = make_network(settings, data_info, basis.is_signal) if network is None else network
    return Denoiser(network, schedule, basis, settings.predicts, settings.mask_conditioned)


def make_objective(settings: Settings, data_info: DataInfo, coverage: torch.Tensor) -> Objective:
    return Objective(
        settings.objective,
        coverage=coverage,
        weighting=settings.weighting,
        hide=settings.hide,
        unit=data_info.unit,
        divergence=Divergence(settings.divergence, settings.divergence_fraction),
    )
