"""Evaluate denoising: the error of the network at each noise level, on data that it was not trained on.

For each bin of t there are three mean squared errors. `estimate` is estimated from measurements and needs no clean signals.
`true` is the same error, computed with clean signals. `full` is the error on fully sampled signals, as in generation.
"""

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gsure.basis import Basis
from gsure.data.measurements import Measurements, Signals, open_clean, open_measurements
from gsure.denoiser import BaseDenoiser
from gsure.display import bar
from gsure.evaluation.record import is_own, record_path, shares_source, write_record
from gsure.files import record_request
from gsure.training.checkpoints import Weights
from gsure.training.examples import Examples
from gsure.training.loop import accelerated
from gsure.training.model import CheckpointName, Model, open_model
from gsure.training.settings import Config, Settings
from gsure.training.validation import validate

IMPUTED = (
    "The network was trained on imputed signals, but here it sees measurements with missing entries. The error on fully "
    "sampled signals is more meaningful; it needs clean signals."
)


def evaluate_denoising(
    model: Model,
    *,
    measurements: str | Path | Measurements | None = None,
    clean: str | Path | Signals | None = None,
    n: int = 256,
    t_bins: int = 20,
    checkpoint: CheckpointName = "best",
    weights: Weights | None = None,
    network: nn.Module | None = None,
    basis: Basis | None = None,
    batch: int = 64,
    device: str | torch.device | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Compute the denoising error of a run in bins of t, on its held-out data or on other `measurements`.

    `model` is a run, or a denoiser, which needs `measurements`. `clean` are the clean signals behind the measurements, by
    default those of the run, if it has any. Without them, only the estimate is computed. The noise depends only on the seed,
    so runs of the same data see the same noise. The result is also written to `out`, by default to the folder of the run.
    """
    request, warnings = record_request("evaluate_denoising", locals()), list[str]()
    if min(n, t_bins, batch) < 1:
        raise ValueError(f"n, t_bins and batch must be at least 1, but are {n}, {t_bins} and {batch}.")
    loaded = open_model(model, checkpoint, basis, network, device, weights)
    config, denoiser = loaded.config, loaded.denoiser
    path = None if out is None else record_path(Path(out), out)
    if out is None and loaded.path is not None:
        folder = loaded.path if loaded.path.is_dir() else loaded.path.parent
        path = record_path(folder / "denoising.json", None)
    data = _open_data(config, denoiser, measurements, t_bins)
    chosen = _held_out(data, config, warnings)
    if config is not None and config.learned_from_imputed(loaded.step or 0):
        warnings.append(IMPUTED)
    known = _open_clean(data, config, clean)
    n = min(n, len(chosen))
    examples = Examples(chosen, known, _plain(Settings() if config is None else config.settings, t_bins, n, seed))
    with accelerated(device=device) as accelerator, bar("denoising", n * t_bins, progress) as advance:
        found = validate(denoiser.to(accelerator.device), examples, accelerator, batch, advance)
        is_main = accelerator.is_main_process
    record = {
        "kind": "denoising",
        "of": loaded.inputs.get("run"),
        "run": loaded.inputs.get("run"),
        "step": loaded.step,
        "reference": _describe(data, chosen, known, n),
        "n": n,
        "features": None,
        "seed": seed,
        "metrics": {name: _metric(found[name]) for name in ("full", "estimate", "true") if name in found},
        "t_bins": found["t_bins"],
        "warnings": warnings,
        "request": request,
    }
    if path is None or not is_main:
        return record | {"written": None if path is None else str(path)}
    return write_record(path, record)


def _plain(settings: Settings, t_bins: int, n: int, seed: int) -> Settings:
    """Settings with the same task for all runs, whatever each was trained on, so that you can compare them."""
    return dataclasses.replace(
        settings,
        train_on="measurements",
        coverage_weighting=True,
        weighting="x",
        hide=0.0,
        t_bins=t_bins,
        validate_on=n,
        seed=seed,
    )


def _metric(found: dict[str, float]) -> dict[str, Any]:
    return {"value": found["mean"], "floor": None, "se": found["se"], "better": "lower"}


def _describe(data: Measurements, chosen: Measurements, known: Signals | None, n: int) -> dict[str, Any]:
    return {
        "path": data.location,
        "clean": None if known is None else known.location,
        "holds": "measurements" if chosen is data else "held-out measurements",
        "n": n,
        "of": len(chosen),
        "fingerprint": data.fingerprint(),
    }


def _open_data(
    config: Config | None, denoiser: BaseDenoiser, measurements: str | Path | Measurements | None, t_bins: int
) -> Measurements:
    """The given measurements, or those of the run. Refuses measurements that the model cannot denoise."""
    given = config.data if measurements is None and config is not None else measurements
    if given is None:
        raise ValueError("A denoiser has no data of its own: pass measurements=...")
    if not isinstance(given, Measurements) and not Path(given).exists():
        raise ValueError(f"There are no measurements {given}: give a measurement file with --measurements.")
    data = open_measurements(given, denoiser.basis)
    if config is not None:
        known = config.data_info
        for what, mine, theirs in (
            ("shape", known.shape, tuple(data.shape)),
            ("basis", known.basis, data.header["basis"]),
            *([("mask_shape", known.mask_shape, data.mask_shape)] if denoiser.mask_conditioned else []),
        ):
            if mine != theirs:
                raise ValueError(
                    f"The model was trained on measurements of {what} {mine}, but {data.name} has {theirs}: give others."
                )
    if t_bins > denoiser.schedule.T:
        raise ValueError(f"The schedule has {denoiser.schedule.T} timesteps, fewer than --t-bins {t_bins}: lower it.")
    denoiser.schedule.check(data.max_std)
    return data


def _open_clean(data: Measurements, config: Config | None, clean: str | Path | Signals | None) -> Signals | None:
    """The given clean signals, or those of the run, if they exist."""
    if clean is not None:
        return open_clean(clean, data)
    if config is None or config.clean is None or not Path(config.clean).exists():
        return None
    return open_clean(config.clean, data) if is_own(data.location, data.header, len(data), config) else None


def _held_out(data: Measurements, config: Config | None, warnings: list[str]) -> Measurements:
    """The held-out part of the run's own data, or all of other data."""
    if config is None:
        return data
    if not is_own(data.location, data.header, len(data), config):
        if shares_source(data.header, config):
            warnings.append(
                f"{data.name} has the same source as the data of the run, so the model may have seen these signals."
            )
        return data
    if config.settings.held_out == 0:
        warnings.append(f"The run has no held-out data: this is its error on {data.name}, on which it was trained.")
        return data
    return data.split(config.settings.held_out, config.settings.seed)[1]
