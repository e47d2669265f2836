"""Restorations against the truth: PSNR, SSIM and NMSE by volume, as fastMRI has them, and for each image."""

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gsure.basis import Identity
from gsure.data.measurements import Signals, open_clean, open_measurements
from gsure.evaluation.record import (
    command_of,
    config_of,
    held_out_of,
    is_own,
    read_plan,
    record_path,
    shares_source,
    write_record,
)
from gsure.evaluation.reference import Reference
from gsure.files import replacing
from gsure.metrics import LPIPS, mean_of_groups, nmse, psnr, ssim
from gsure.metrics.images import WINDOW
from gsure.progress import bar

KINDS = ("mean", "draw", "baseline")
BETTER = {"psnr": "higher", "ssim": "higher", "nmse": "lower", "lpips": "lower"}
CHUNK = 256
"""Images at a time; a volume is never divided."""
Metric = Callable[[Tensor, Tensor, bool, Tensor | None], Tensor]
Scores = dict[tuple[str, str], Tensor]
"""By metric and kind of picture."""


def evaluate_restorations(
    folder: str | Path,
    *,
    clean: str | Path,
    n: int | None = None,
    lpips: bool = False,
    out: str | Path | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Compare the restorations in a folder of `gsure restore` with the clean signals behind the measurements.

    `psnr`, `ssim` and `nmse` are those of the mean of draws; those of one draw and of the baseline, which has no model, stand
    beside them. Each is a mean over volumes, with its standard error; an image without a volume is one of its own. Values of
    every image go to per_image.csv in the folder. `n` limits the number; `lpips` adds that distance.
    """
    given, warnings = locals().copy(), list[str]()
    plan = read_plan(Path(folder), "restore", warnings)
    path = record_path(Path(folder) / "evaluation.json", out)
    _refuse_gaps(Path(folder))
    found = {kind: Signals(Path(folder) / kind) for kind in KINDS}
    truth = Signals(clean)
    n = min([*map(len, found.values()), *([] if n is None else [n])])
    _refuse(found["mean"], truth, n, plan)
    _warn_of_training(plan, n, warnings)
    groups = truth.groups()[:n]
    metrics = _metrics(truth, lpips, warnings)
    volumes, images = _scores(metrics, found, truth, groups, progress)
    fingerprint = Reference.clean(truth).fingerprint
    table = Path(folder) / "per_image.csv"
    _write_images(table, groups, images)
    record = {
        "kind": "restorations",
        "of": str(Path(folder).resolve()),
        "run": plan.get("run"),
        "reference": {"path": str(truth.path.resolve()), "n": n, "of": len(truth), "fingerprint": fingerprint},
        "n": n,
        "volumes": len(set(groups)),
        "features": None,
        "seed": plan.get("seed"),
        "metrics": {
            name if kind == "mean" else f"{name}_of_{kind}": _summary(name, values, images[name, kind])
            for (name, kind), values in volumes.items()
        },
        "per_sample": str(table.resolve()),
        "warnings": warnings,
        "command": command_of(evaluate_restorations, given),
    }
    return write_record(path, record)


def _metrics(truth: Signals, lpips: bool, warnings: list[str]) -> dict[str, Metric]:
    metrics: dict[str, Metric] = {"psnr": psnr, "ssim": ssim, "nmse": nmse}
    if min(truth.shape[-2:]) < WINDOW:
        del metrics["ssim"]
        warnings.append(f"SSIM was left out: its window is {WINDOW}x{WINDOW}, and the images are smaller.")
    if lpips:
        if truth.header["complex"]:
            raise ValueError("LPIPS judges pictures of the range -1..1, but these are complex: leave --lpips away.")
        network = LPIPS()

        def perceptual(x: Tensor, reference: Tensor, is_complex: bool, groups: Tensor | None = None) -> Tensor:
            return mean_of_groups(network(x.clamp(-1, 1), reference).double(), groups)

        metrics["lpips"] = perceptual
    return metrics


def _scores(
    metrics: Mapping[str, Metric], found: Mapping[str, Signals], truth: Signals, groups: list[str], progress: bool
) -> tuple[Scores, Scores]:
    """Of every volume, and of every image."""
    by_volume: dict[tuple[str, str], list[Tensor]] = {(name, kind): [] for name in metrics for kind in found}
    by_image: dict[tuple[str, str], list[Tensor]] = {key: [] for key in by_volume}
    order: list[int] = []
    with bar("evaluating", len(groups) * len(found), progress) as advance:
        for where in _whole_volumes(groups):
            order += where
            of = torch.from_numpy(np.unique([groups[k] for k in where], return_inverse=True)[1])
            reference, is_complex = truth[where], bool(truth.header["complex"])
            for kind, signals in found.items():
                x = signals[where]
                for name, metric in metrics.items():
                    by_volume[name, kind].append(metric(x, reference, is_complex, of))
                    by_image[name, kind].append(metric(x, reference, is_complex, None))
                advance(len(where))
    back = np.argsort(order)
    volumes = {key: torch.cat(values) for key, values in by_volume.items()}
    return volumes, {key: torch.cat(values)[back] for key, values in by_image.items()}


def _whole_volumes(groups: list[str]) -> Iterator[list[int]]:
    """Positions, some whole volumes at a time."""
    members: dict[str, list[int]] = {}
    for position, name in enumerate(groups):
        members.setdefault(name, []).append(position)
    where: list[int] = []
    for positions in members.values():
        if where and len(where) + len(positions) > CHUNK:
            yield where
            where = []
        where = where + positions
    yield where


def _summary(name: str, volumes: Tensor, images: Tensor) -> dict[str, Any]:
    summary = {"value": float(volumes.mean()), "floor": None, "se": _standard_error(volumes), "better": BETTER[name]}
    if len(volumes) < len(images) and images.isfinite().all():  # an empty image has no PSNR, a volume with one has
        summary["per_image"] = float(images.mean())
    return summary


def _standard_error(values: Tensor) -> float | None:
    return float(values.std() / len(values) ** 0.5) if len(values) > 1 else None


def _write_images(path: Path, groups: list[str], images: Scores) -> None:
    with replacing(path) as temporary, temporary.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(
            ["index", "volume", *(name if kind == "mean" else f"{name}_of_{kind}" for name, kind in images)]
        )
        for index, group in enumerate(groups):
            writer.writerow([index, group, *(f"{float(values[index]):.6g}" for values in images.values())])


def _refuse_gaps(folder: Path) -> None:
    """A missing piece would shift all that come after it against the clean signals."""
    for kind in KINDS:
        names = sorted(path.name for path in (folder / kind).glob("shard-*.h5"))
        numbers = [int(found[1]) for name in names if (found := re.fullmatch(r"shard-(\d+)\.h5", name))]
        if numbers != list(range(len(numbers))) or not numbers:
            raise ValueError(
                f"{folder / kind} is not finished: pieces are missing between others, or all are. Give its gsure restore "
                "again to go on, then evaluate."
            )


def _refuse(restored: Signals, truth: Signals, n: int, plan: Mapping[str, Any]) -> None:
    if n < 1:
        raise ValueError(f"--n must be at least 1, but is {n}.")
    if tuple(restored.shape) != tuple(truth.shape):
        raise ValueError(
            f"The restorations have shape {tuple(restored.shape)}, but those of {truth.path} {tuple(truth.shape)}: give the "
            "clean signals behind the measurements."
        )
    if Path(str(plan.get("data"))).exists():
        open_clean(
            truth.path, open_measurements(plan["data"], Identity())
        )  # refuses others; the basis does not matter for that
    if restored.groups()[:n] != truth.groups()[:n]:
        raise ValueError(
            f"The restorations are not of the volumes of {truth.path}: give the clean signals behind them."
        )


def _warn_of_training(plan: Mapping[str, Any], n: int, warnings: list[str]) -> None:
    config, path = config_of(plan), Path(str(plan.get("data")))
    if config is None or not path.exists():
        warnings.append(
            "Whether the model was trained on what was restored cannot be told: the run or the data is gone."
        )
        return
    data = open_measurements(path, Identity())
    header = data.header
    if is_own(path, header, len(data), config):
        trained = n - int((held_out_of(config) < n).sum()) if config.settings.held_out > 0 else n
        warnings.append(
            f"The model was trained on {trained:,} of the {n:,} measurements that were restored: restore others."
        )
    elif shares_source(header, config):
        warnings.append(
            f"{path} was made from the same source as the data of the run, which may have seen these signals."
        )
