"""Diagnose: check whether the data and the model of a run meet the assumptions of the method, in words and figures."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from gsure.basis import Basis
from gsure.data.measurements import Measurements, Signals, open_clean, open_measurements
from gsure.data.source import evenly_spread
from gsure.denoiser import BaseDenoiser
from gsure.display import Bar, bar
from gsure.evaluation.checks import agreement, full_sampling, independence, noise_level
from gsure.evaluation.checks.check import Check, not_checked, times_to_check
from gsure.evaluation.checks.correlation import MIN_SAMPLES
from gsure.evaluation.checks.coverage import check_coverage, survey
from gsure.evaluation.checks.held_out import Batch, HeldOut
from gsure.evaluation.checks.noise_level import check_noise
from gsure.files import record_request, replacing
from gsure.plotting.checks import draw_check
from gsure.random import Stream, keyed_generator
from gsure.training.checkpoints import Weights
from gsure.training.model import CheckpointName, Loaded, Model, choose_device, open_model
from gsure.training.run import Run
from gsure.training.settings import Config

FOLDER, RESULT = "diagnosis", "diagnosis.json"
LIMITS = {"psnr": agreement.MIN_PSNR, "cost": agreement.MAX_COST, "ratio": noise_level.MAX_RATIO}
"""Thresholds of the verdicts that figures show."""
MAX_MASKS = 4096
"""The largest number of masks that the check of coverage uses, evenly spread over the file."""
MAX_NOISE_SAMPLES, MAX_NOISE_ENTRIES = 512, 10_000
"""The check of noise uses at most this many measurements, and the std of about this many of their entries."""
IMPUTED = " But it was trained on imputed signals, so its output for missing entries matters little."
NOTHING_HELD_OUT = " Nothing was held out: the network was trained on these measurements."


def diagnose(
    model: Model,
    *,
    measurements: str | Path | Measurements | None = None,
    reference_run: Model | None = None,
    clean: str | Path | Signals | None = None,
    n: int = 512,
    checkpoint: CheckpointName = "best",
    weights: Weights | None = None,
    network: nn.Module | None = None,
    basis: Basis | None = None,
    batch: int = 128,
    device: str | torch.device | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    force: bool = False,
    progress: bool = False,
) -> dict[str, Any]:
    """Check the assumptions of the method on n held-out measurements of a run; figures and diagnosis.json go to RUN/diagnosis.

    `model` is a run, or a denoiser. A denoiser needs `measurements` that it was not trained on, and a folder `out` for the
    figures. `clean` are the clean signals behind the measurements, which are needed for the error of missing entries.
    `reference_run` is a run that was trained on clean signals, to compare with.
    """
    request = record_request("diagnose", locals())
    if n < MIN_SAMPLES or batch < 1:
        raise ValueError(f"n must be at least {MIN_SAMPLES} and batch at least 1, but they are {n} and {batch}.")
    loaded = _open(model, checkpoint, basis, network, device, weights)
    denoiser, config = loaded.denoiser, loaded.config
    data, held_out = _open_data(denoiser, config, measurements)
    signals = None if clean is None else open_clean(clean, data)
    reference, note = (None, "") if reference_run is None else _open_reference(reference_run, loaded, signals, device)
    folder = Path(out) if out is not None else None if loaded.path is None else loaded.path / FOLDER
    if folder is not None and (folder / RESULT).exists() and not force:
        raise ValueError(f"{folder} already has a diagnosis: add --force to replace it.")
    imputed = config is not None and config.learned_from_imputed(loaded.step or 0)
    positions = evenly_spread(n, len(held_out))
    chosen = _read(held_out, positions, signals, batch, seed, choose_device(device))
    times = times_to_check(denoiser.schedule.T)
    passes = 1 + (signals is not None) + (reference is not None)
    with bar("diagnosing", len(times) * passes + 1, progress) as advance:
        checks = [_coverage(data, batch, seed), _noise(denoiser, held_out, positions)]
        advance(1)
        checks.append(_independence(denoiser, chosen, times, advance))
        checks.append(_full_sampling(denoiser, chosen, times, signals, advance))
        checks.append(_agreement(denoiser, reference, chosen, times, signals, advance))
    trained_on = NOTHING_HELD_OUT if held_out is data and config is not None else ""
    of_missing = trained_on + (IMPUTED if imputed else "")
    notes = {independence.NAME: of_missing, full_sampling.NAME: of_missing, agreement.NAME: trained_on + note}
    checks = [replace(check, words=check.words and check.words + notes.get(check.name, "")) for check in checks]
    result = {
        "run": loaded.inputs.get("run"),
        "measurements": len(positions),
        "held_out": held_out is not data or config is None,
    }
    return _write(folder, checks, result | {"seed": seed, "request": request})


def _write(folder: Path | None, checks: list[Check], result: dict[str, Any]) -> dict[str, Any]:
    if folder is None:
        return result | {"checks": [check.as_dict() for check in checks]}
    folder.mkdir(parents=True, exist_ok=True)
    drawn = [replace(check, figure=_draw(folder, check)).as_dict() for check in checks]
    result = result | {"checks": drawn}
    with replacing(folder / RESULT) as temporary:
        temporary.write_text(json.dumps(result, indent=1, ensure_ascii=False))
    return result


def _draw(folder: Path, check: Check) -> str | None:
    path = folder / f"{check.name}.png"
    return draw_check(path, check.name, check.title, check.verdict, check.numbers, LIMITS)


def _open(
    model: Model,
    checkpoint: CheckpointName,
    basis: Basis | None,
    network: nn.Module | None,
    device: str | torch.device | None,
    weights: Weights | None,
) -> Loaded:
    if not isinstance(model, BaseDenoiser) and not Run(Path(model)).exists():
        raise ValueError(f"{model} is not a run of gsure train: give the folder of a run.")
    loaded = open_model(model, checkpoint, basis, network, device, weights)
    if loaded.config is not None and loaded.config.settings.train_on == "clean":
        raise ValueError(
            f"{loaded.path} was trained on clean signals, so it makes no assumptions on masks. Diagnose the run that you want "
            f"to compare with it, and add --reference-run {loaded.path}."
        )
    return loaded


def _open_data(
    denoiser: BaseDenoiser, config: Config | None, measurements: str | Path | Measurements | None
) -> tuple[Measurements, Measurements]:
    """All measurements, and those that were held out of training. For a denoiser without a run, both are the same."""
    if config is None:
        if measurements is None:
            raise ValueError("A denoiser has no data of its own: pass measurements=...")
        data = open_measurements(measurements, denoiser.basis)
        return data, data
    if measurements is not None:
        raise ValueError(f"A run is diagnosed on its own held-out measurements, {config.data}: omit measurements.")
    data = open_measurements(config.data, denoiser.basis)
    share, seed = config.settings.held_out, config.settings.seed
    return data, data if share == 0 else data.split(share, seed)[1]


def _open_reference(
    model: Model, loaded: Loaded, signals: Signals | None, device: str | torch.device | None
) -> tuple[BaseDenoiser, str]:
    """The denoiser of the clean-trained reference, and a note on the comparison."""
    found = open_model(model, "best", device=device)
    other, theirs, config, denoiser = found.denoiser, found.config, loaded.config, loaded.denoiser
    if signals is None:
        hint = f" The reference was trained on {theirs.clean}." if theirs is not None and theirs.clean else ""
        raise ValueError(f"The comparison with --reference-run needs clean signals: give them with --clean.{hint}")
    if theirs is not None and theirs.settings.train_on != "clean":
        raise ValueError(
            f"--reference-run needs a run trained with --train-on clean, but {found.path} was trained with --train-on "
            f"{theirs.settings.train_on}: give another run."
        )
    if (
        theirs is not None
        and config is not None
        and (theirs.data_info.shape != config.data_info.shape or theirs.data_info.basis != config.data_info.basis)
    ):
        raise ValueError(
            f"The reference run was trained on signals of shape {theirs.data_info.shape} in the basis "
            f"{theirs.data_info.basis}, but the run on {config.data_info.shape} in {config.data_info.basis}: they cannot be "
            "compared."
        )
    mine, others = denoiser.schedule.alpha_bar, other.schedule.alpha_bar
    if len(mine) != len(others) or not torch.allclose(mine, others, rtol=1e-3):
        raise ValueError(
            "The reference run has another noise schedule than the run: train one with the same --schedule, --T and data."
        )
    if theirs is None or config is None:
        return other, ""
    split = [(one.data, one.settings.seed, one.settings.held_out) for one in (config, theirs)]
    return other, " The reference was trained on another split, perhaps on these signals." * (split[0] != split[1])


def _read(
    held_out: Measurements,
    positions: np.ndarray,
    signals: Signals | None,
    batch: int,
    seed: int,
    where: torch.device,
) -> HeldOut:
    def read() -> Iterator[Batch]:
        for some in np.array_split(positions, -(-len(positions) // batch)):
            numbers = held_out.indices[some]
            xbar = None if signals is None else held_out.basis.to_spectral(signals[numbers]).to(where)
            yield held_out[some].to(where), xbar, numbers.tolist()

    _, group = np.unique(np.array(held_out.groups())[positions], return_inverse=True)
    return HeldOut(read, held_out.coverage, torch.from_numpy(group), seed)


def _coverage(data: Measurements, batch: int, seed: int) -> Check:
    positions = evenly_spread(MAX_MASKS, len(data))
    masks = (data[some].mask for some in np.array_split(positions, -(-len(positions) // batch)))
    found = survey(masks, keyed_generator(seed, Stream.SURVEY))
    return check_coverage(found, data.coverage, data.header["coverage"] == "closed form")


def _noise(denoiser: BaseDenoiser, held_out: Measurements, positions: np.ndarray) -> Check:
    """Uses the noise std of measured entries, and the std of the signals: the variance of ȳ minus that of the noise."""
    measurement = held_out[positions[:MAX_NOISE_SAMPLES]]
    mask = measurement.mask.expand_as(measurement.ybar).double()
    std = measurement.std.expand_as(measurement.ybar)[mask == 1]
    count = mask.sum(0).clamp(min=1)
    mean = measurement.ybar.double().sum(0) / count
    variance = (mask * (measurement.ybar - mean) ** 2).sum() / mask.sum() - std.double().square().mean()
    some = torch.cat([std[:: max(1, len(std) // MAX_NOISE_ENTRIES)], torch.tensor([measurement.max_std])])
    T = denoiser.schedule.T
    shown = sorted({max(1, round(T ** (k / 60))) for k in range(61)})
    return check_noise(denoiser.schedule, some, float(variance.clamp(min=1e-12).sqrt()), shown)


def _independence(denoiser: BaseDenoiser, chosen: HeldOut, times: list[int], advance: Bar) -> Check:
    if len(chosen) < MIN_SAMPLES:
        return not_checked(independence.NAME, independence.TITLE, _too_few(chosen))
    return independence.check_independence(denoiser, chosen, times, advance)


def _full_sampling(
    denoiser: BaseDenoiser, chosen: HeldOut, times: list[int], signals: Signals | None, advance: Bar
) -> Check:
    if signals is None or len(chosen) < MIN_SAMPLES:
        why = "needs --clean" if signals is None else _too_few(chosen)
        return not_checked(full_sampling.NAME, full_sampling.TITLE, why)
    return full_sampling.check_full_sampling(denoiser, chosen, times, advance)


def _too_few(chosen: HeldOut) -> str:
    return f"needs at least {MIN_SAMPLES} held-out measurements, and there are {len(chosen)}"


def _agreement(
    denoiser: BaseDenoiser,
    reference: BaseDenoiser | None,
    chosen: HeldOut,
    times: list[int],
    signals: Signals | None,
    advance: Bar,
) -> Check:
    if reference is None or signals is None:
        return not_checked(agreement.NAME, agreement.TITLE, "needs --reference-run and --clean")
    is_complex = bool(signals.header["complex"])
    return agreement.check_agreement(denoiser, reference, chosen, times, is_complex, advance)
