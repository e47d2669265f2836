"""Diagnose: are the assumptions of the method met, on the data of a run and by its model? In words, with figures."""

import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gsure.data.chunks import device
from gsure.data.measurements import Measurements, Signals, open_clean, open_measurements
from gsure.denoiser import Denoiser
from gsure.evaluation.checks import agreement, full_sampling, independence, noise_level
from gsure.evaluation.checks.check import Check, not_checked, times_to_check
from gsure.evaluation.checks.correlation import MIN_SAMPLES
from gsure.evaluation.checks.coverage import check_coverage, survey
from gsure.evaluation.checks.independence import Batch, Read
from gsure.evaluation.checks.noise_level import check_noise
from gsure.files import replacing
from gsure.plotting.checks import draw_check
from gsure.progress import bar
from gsure.training.run import CheckpointName, Config, Run, load_with_config

FOLDER, RESULT = "diagnosis", "diagnosis.json"
LIMITS = {"psnr": agreement.CLOSE, "cost": agreement.COST, "ratio": noise_level.NEAR}
"""Thresholds of the verdicts that figures show."""
MASKS = 4096
"""Masks of the file that the survey of coverage looks at, at most; from all over the file."""
COMPLETED = " But it learned from signals that had been completed, so what it makes of holes matters little."
LEARNED = " Nothing was held out: the network has learned from these very measurements."


def diagnose(
    run: str | Path,
    *,
    oracle: str | Path | None = None,
    clean: str | Path | None = None,
    n: int = 512,
    checkpoint: CheckpointName = "best",
    batch: int = 128,
    seed: int = 0,
    force: bool = False,
    progress: bool = False,
) -> dict[str, Any]:
    """Check a run's assumptions on n of its held-out measurements; figures and diagnosis.json go to RUN/diagnosis.

    `clean` are the signals behind the run's data, needed for the error of dropped entries and of whole signals.
    """
    if n < MIN_SAMPLES or batch < 1:
        raise ValueError(f"n must be at least {MIN_SAMPLES} and batch at least 1, but they are {n} and {batch}.")
    folder = Run(Path(run)).path / FOLDER
    denoiser, config, data, signals, completed = _open(run, checkpoint, clean)
    other, notes = (None, "") if oracle is None else _open_oracle(oracle, denoiser, config, signals)
    if (folder / RESULT).exists() and not force:
        raise ValueError(f"{folder} has a diagnosis already: add --force to make it again.")
    held_out = data if config.settings.held_out == 0 else data.split(config.settings.held_out, config.settings.seed)[1]
    positions = np.arange(min(n, len(held_out))) * len(held_out) // min(n, len(held_out))  # from all over the file
    reading = _reader(held_out, positions, signals, batch)
    times = times_to_check(denoiser.schedule.T)
    passes = 1 + (signals is not None) + (other is not None)
    with bar("diagnosing", len(times) * passes + 1, progress) as advance:
        checks = [_coverage(data, batch, seed), _noise(denoiser, held_out, positions)]
        advance(1)
        checks.append(_independence(denoiser, reading, times, held_out, positions, seed, advance))
        checks.append(_full_sampling(denoiser, reading, times, held_out, positions, signals, seed, advance))
        checks.append(_agreement(denoiser, other, reading, times, signals, config, seed, advance))
    learned = LEARNED if held_out is data else ""
    about_holes = learned + (COMPLETED if completed else "")
    said = {independence.NAME: about_holes, full_sampling.NAME: about_holes, agreement.NAME: learned + notes}
    checks = [replace(check, words=check.words and check.words + said.get(check.name, "")) for check in checks]
    options = _spelled(
        oracle=oracle, clean=clean, n=n, checkpoint=None if checkpoint == "best" else checkpoint, seed=seed
    )
    result = {"run": str(Path(run).resolve()), "measurements": len(positions), "held_out": held_out is not data}
    return _write(
        folder, checks, result | {"seed": seed, "command": shlex.join(["gsure", "diagnose", str(run), *options])}
    )


def _write(folder: Path, checks: list[Check], result: dict[str, Any]) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    drawn = [replace(check, figure=_draw(folder, check)).as_dict() for check in checks]
    result = result | {"checks": drawn}
    with replacing(folder / RESULT) as temporary:
        temporary.write_text(json.dumps(result, indent=1, ensure_ascii=False))
    return result


def _draw(folder: Path, check: Check) -> str | None:
    path = folder / f"{check.name}.png"
    return draw_check(path, check.name, check.title, check.verdict, check.numbers, LIMITS)


def _spelled(**options: Any) -> list[str]:
    return [part for name, value in options.items() if value is not None for part in (f"--{name}", str(value))]


def _open(
    run: str | Path, checkpoint: CheckpointName, clean: str | Path | None
) -> tuple[Denoiser, Config, Measurements, Signals | None, bool]:
    """With the data, the clean signals behind it, and whether the network has learned from completed signals."""
    if not Run(Path(run)).exists():
        raise ValueError(f"{run} is not a run of gsure train: give its folder, for the diagnosis is written there.")
    denoiser, config, step, _ = load_with_config(run, checkpoint)
    if config.settings.train_on == "clean":
        raise ValueError(
            f"{run} is an oracle: it learned from clean signals, and assumes nothing of masks. Give the run to compare with "
            f"it, and this one by --oracle {run}."
        )
    data = open_measurements(config.data, denoiser.basis)
    signals = None if clean is None else open_clean(clean, data)
    return denoiser.to(device()), config, data, signals, config.completed(step)


def _open_oracle(
    oracle: str | Path, denoiser: Denoiser, config: Config, signals: Signals | None
) -> tuple[Denoiser, str]:
    """The oracle, and what is to be said of the comparison."""
    other, theirs, *_ = load_with_config(oracle)
    if signals is None:
        hint = f" The oracle's were {theirs.clean}." if theirs.clean else ""
        raise ValueError(f"An oracle is compared on whole signals: give the clean ones by --clean.{hint}")
    if theirs.settings.train_on != "clean":
        raise ValueError(f"{oracle} is no oracle: it was trained with --train-on {theirs.settings.train_on}.")
    if theirs.data_info.shape != config.data_info.shape or theirs.data_info.basis != config.data_info.basis:
        raise ValueError(
            f"The oracle was trained on signals of shape {theirs.data_info.shape} in the basis {theirs.data_info.basis}, the run on "
            f"{config.data_info.shape} in {config.data_info.basis}: they cannot be compared."
        )
    mine, others = denoiser.schedule.alpha_bar, other.schedule.alpha_bar
    if len(mine) != len(others) or not torch.allclose(mine, others, rtol=1e-3):
        raise ValueError(
            "The oracle has another noise schedule than the run, so their times mean different noise: train one with the same "
            "--schedule, --T and data."
        )
    held_out = [(one.data, one.settings.seed, one.settings.held_out) for one in (config, theirs)]
    note = " The oracle was trained on another split, perhaps on these signals." if held_out[0] != held_out[1] else ""
    return other.to(device()), note


def _reader(held_out: Measurements, positions: np.ndarray, signals: Signals | None, batch: int) -> Read:
    where = device()

    def read() -> Iterator[Batch]:
        for some in np.array_split(positions, -(-len(positions) // batch)):
            numbers = held_out.indices[some]
            xbar = None if signals is None else held_out.basis.to_spectral(signals[numbers]).to(where)
            yield held_out[some].to(where), xbar, numbers.tolist()

    return read


def _coverage(data: Measurements, batch: int, seed: int) -> Check:
    count = min(MASKS, len(data))
    positions = np.arange(count) * len(data) // count
    masks = (data[some].mask for some in np.array_split(positions, -(-count // batch)))
    found = survey(masks, torch.Generator().manual_seed(seed))
    return check_coverage(found, data.coverage, data.header["coverage"] == "closed form")


def _noise(denoiser: Denoiser, held_out: Measurements, positions: np.ndarray) -> Check:
    """From at most 512 measurements: the std of kept entries, and that of signals, which noise adds to."""
    measurement = held_out[positions[:512]]
    mask = measurement.mask.expand_as(measurement.ybar).double()
    std = measurement.std.expand_as(measurement.ybar)[mask == 1]
    count = mask.sum(0).clamp(min=1)
    mean = measurement.ybar.double().sum(0) / count
    variance = (mask * (measurement.ybar - mean) ** 2).sum() / mask.sum() - std.double().square().mean()
    loud = torch.cat([std[:: max(1, len(std) // 10_000)], torch.tensor([measurement.max_std])])
    T = denoiser.schedule.T
    shown = sorted({max(1, round(T ** (k / 60))) for k in range(61)})
    return check_noise(denoiser.schedule, loud, float(variance.clamp(min=1e-12).sqrt()), shown)


def _independence(
    denoiser: Denoiser,
    read: Read,
    times: list[int],
    held_out: Measurements,
    positions: np.ndarray,
    seed: int,
    advance: Callable[[int], None],
) -> Check:
    name, title = independence.NAME, independence.TITLE
    if len(positions) < MIN_SAMPLES:
        return not_checked(name, title, _too_few(positions))
    return independence.check_independence(
        denoiser, read, times, held_out.coverage, _groups(held_out, positions), seed=seed, advance=advance
    )


def _too_few(positions: np.ndarray) -> str:
    return f"needs at least {MIN_SAMPLES} held-out measurements, and there are {len(positions)}"


def _groups(held_out: Measurements, positions: np.ndarray) -> torch.Tensor:
    _, group = np.unique(np.array(held_out.groups())[positions], return_inverse=True)
    return torch.from_numpy(group)


def _full_sampling(
    denoiser: Denoiser,
    read: Read,
    times: list[int],
    held_out: Measurements,
    positions: np.ndarray,
    signals: Signals | None,
    seed: int,
    advance: Callable[[int], None],
) -> Check:
    name, title = full_sampling.NAME, full_sampling.TITLE
    if signals is None:
        return not_checked(name, title, "needs --clean")
    if len(positions) < MIN_SAMPLES:
        return not_checked(name, title, _too_few(positions))
    return full_sampling.check_full_sampling(
        denoiser, read, times, held_out.coverage, _groups(held_out, positions), seed=seed, advance=advance
    )


def _agreement(
    denoiser: Denoiser,
    oracle: Denoiser | None,
    read: Read,
    times: list[int],
    signals: Signals | None,
    config: Config,
    seed: int,
    advance: Callable[[int], None],
) -> Check:
    if oracle is None or signals is None:
        return not_checked(agreement.NAME, agreement.TITLE, "needs --oracle and --clean")
    is_complex = config.data_info.is_complex
    return agreement.check_agreement(denoiser, oracle, read, times, is_complex, seed=seed, advance=advance)
