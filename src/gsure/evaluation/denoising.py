"""Denoising: the error of the network at each noise level, on data that it was not trained on.

For each bin of t there are three mean squared errors. `estimate` is estimated from measurements and needs no clean signals;
`true` is the same error, computed with clean signals; `full` is the error on fully sampled signals, as in generation.
"""

import dataclasses
from pathlib import Path
from typing import Any

from gsure.data.measurements import Measurements, Signals, open_clean, open_measurements
from gsure.denoiser import Denoiser
from gsure.display import bar
from gsure.evaluation.record import is_own, record_path, shares_source, write_record
from gsure.files import record_request
from gsure.training.examples import Examples
from gsure.training.loop import accelerated
from gsure.training.model import CheckpointName, load_with_config
from gsure.training.run import Config
from gsure.training.settings import Settings
from gsure.training.validation import validate

IMPUTED = (
    "The network was trained on imputed signals, but here it sees measurements with missing entries. The error on fully "
    "sampled signals, which needs clean ones, says more."
)


def evaluate_denoising(
    run: str | Path,
    *,
    measurements: str | Path | None = None,
    clean: str | Path | None = None,
    n: int = 256,
    t_bins: int = 20,
    checkpoint: CheckpointName = "best",
    batch: int = 64,
    seed: int = 0,
    out: str | Path | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Compute the denoising error of a run in bins of t, on its held-out data or on other `measurements`.

    `clean` are the clean signals behind the measurements, by default those that the run was trained with, if any. Without
    them only the estimate is computed. The noise depends on the seed alone, so runs of the same data see the same noise.
    """
    request, warnings = record_request("evaluate_denoising", locals()), list[str]()
    if min(n, t_bins, batch) < 1:
        raise ValueError(f"n, t_bins and batch must be at least 1, but are {n}, {t_bins} and {batch}.")
    denoiser, config, step, _ = load_with_config(run, checkpoint)
    path = record_path((Path(run) if Path(run).is_dir() else Path(run).parent) / "denoising.json", out)
    data = _open_data(config, denoiser, measurements, t_bins)
    chosen = _held_out(data, config, warnings)
    if config.learned_from_imputed(step):
        warnings.append(IMPUTED)
    known = _open_clean(data, config, clean)
    n = min(n, len(chosen))
    examples = Examples(chosen, known, _plain(config.settings, t_bins, n, seed))
    with accelerated() as accelerator, bar("denoising", n * t_bins, progress) as advance:
        found = validate(denoiser.to(accelerator.device), examples, accelerator, batch, advance)
        is_main = accelerator.is_main_process
    record = {
        "kind": "denoising",
        "of": str(Path(run).resolve()),
        "run": str(Path(run).resolve()),
        "step": step,
        "reference": _describe(data, chosen, known, n),
        "n": n,
        "features": None,
        "seed": seed,
        "metrics": {name: _metric(found[name]) for name in ("full", "estimate", "true") if name in found},
        "t_bins": found["t_bins"],
        "warnings": warnings,
        "request": request,
    }
    return write_record(path, record) if is_main else record | {"written": str(path)}


def _plain(settings: Settings, t_bins: int, n: int, seed: int) -> Settings:
    """The same task for all runs, whatever each trained on, so that you can compare them."""
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
        "path": str(data.path.resolve()),
        "clean": None if known is None else str(known.path.resolve()),
        "holds": "measurements" if chosen is data else "held-out measurements",
        "n": n,
        "of": len(chosen),
        "fingerprint": data.fingerprint(),
    }


def _open_data(config: Config, denoiser: Denoiser, measurements: str | Path | None, t_bins: int) -> Measurements:
    """The given measurements, or those of the run. Refuses measurements that the model cannot denoise."""
    path = Path(config.data if measurements is None else measurements)
    if not path.exists():
        raise ValueError(f"There are no measurements {path}: give a measurement file by --measurements.")
    data = open_measurements(path, denoiser.basis)
    for what, mine, theirs in (
        ("shape", config.data_info.shape, tuple(data.shape)),
        ("basis", config.data_info.basis, data.header["basis"]),
        *([("mask_shape", config.data_info.mask_shape, data.mask_shape)] if denoiser.mask_conditioned else []),
    ):
        if mine != theirs:
            raise ValueError(f"The model was trained on measurements of {what} {mine}, but {path} has {theirs}.")
    if t_bins > denoiser.schedule.T:
        raise ValueError(f"The schedule has {denoiser.schedule.T} timesteps, fewer than --t-bins {t_bins}.")
    denoiser.schedule.check(data.max_std)
    return data


def _open_clean(data: Measurements, config: Config, clean: str | Path | None) -> Signals | None:
    """The given clean signals, or those of the run, if they exist."""
    if clean is not None:
        return open_clean(clean, data)
    own = config.clean is not None and Path(config.clean).exists() and is_own(data.path, data.header, len(data), config)
    return open_clean(str(config.clean), data) if own else None


def _held_out(data: Measurements, config: Config, warnings: list[str]) -> Measurements:
    """The part of the run's own data that it did not train on, or all of other data."""
    if not is_own(data.path, data.header, len(data), config):
        if shares_source(data.header, config):
            warnings.append(
                f"{data.path} has the same source as the data of the run, so the model may have seen these signals."
            )
        return data
    if config.settings.held_out == 0:
        warnings.append(f"The run held nothing out: this is its error on {data.path}, on which it was trained.")
        return data
    return data.split(config.settings.held_out, config.settings.seed)[1]
