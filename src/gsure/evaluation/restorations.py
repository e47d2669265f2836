"""Evaluate restorations against clean signals: PSNR, SSIM and NMSE by volume, as in fastMRI, and for each image; a verdict."""

import csv
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from gsure.basis import Identity
from gsure.data.measurements import Signals, open_clean, open_measurements
from gsure.display import bar
from gsure.evaluation import record as records
from gsure.files import record_request, replacing
from gsure.inference.restored import Restored
from gsure.judging import difference_of_scores, judge_differences
from gsure.metrics import LPIPS, mean_of_groups
from gsure.metrics.images import WINDOW
from gsure.metrics.restorations import BETTER, KINDS, Metric, column, mean_and_error, metrics_for, score_stored


def evaluate_restorations(
    restored: str | Path | Restored,
    *,
    clean: str | Path | Signals | None = None,
    n: int | None = None,
    lpips: bool = False,
    out: str | Path | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Compare restorations (the folder of `gsure restore`, or what it returned) with the clean signals behind them.

    Without `clean`, the result has what `gsure restore` found on measured entries that it hid from all methods.

    `psnr`, `ssim` and `nmse` are the metrics of the mean of the draws. The result also has those of one draw and of the
    estimates without a network: the baseline, total variation and the Gaussian prior. `object_psnr` counts only pixels of the
    object. Each is a mean over volumes, with its standard error; an image without a volume counts as a volume. `verdict` says
    whether the mean is better than estimates without a model. The values of every image go to per_image.csv in the folder.
    `n` limits the number of restorations. `lpips` adds the LPIPS distance. The result is also written to `out`, by default to
    the folder.
    """
    request, warnings = record_request("evaluate_restorations", locals()), list[str]()
    folder = restored.folder if isinstance(restored, Restored) else Path(restored)
    path = None if out is None else records.record_path(Path(out), out)
    if folder is None:
        assert isinstance(restored, Restored)
        inputs, seed = {}, restored.signals["mean"].header["seed"]
        found = {kind: restored.signals[kind] for kind in KINDS if kind in restored.signals}
    else:
        made = records.read_request(folder, "restore", warnings)
        inputs, seed = made["inputs"], made["made_of"]["seed"]
        path = records.record_path(folder / "evaluation.json", out)
        _refuse_gaps(folder)
        found = {kind: Signals(folder / kind) for kind in KINDS if _is_there(folder, kind)}
    common = {
        "kind": "restorations",
        "of": None if folder is None else str(folder.resolve()),
        "run": inputs.get("run"),
        "features": None,
        "seed": seed,
        "warnings": warnings,
        "request": request,
    }
    if clean is None:
        if n is not None or lpips:
            raise ValueError("--n and --lpips need clean signals: give --clean, or omit them.")
        record = common | _by_hidden_entries(restored if isinstance(restored, Restored) else _read_summary(folder))
        return record if path is None else records.write_record(path, record)
    truth = clean if isinstance(clean, Signals) else Signals(clean)
    n = min([*map(len, found.values()), *([] if n is None else [n])])
    _refuse(found["mean"], truth, n, inputs)
    if folder is not None:
        _warn_of_training(inputs, n, warnings)
    volumes, is_complex = truth.groups()[:n], bool(truth.header["complex"])
    metrics = _metrics(truth, lpips, warnings)
    with bar("evaluating", n, progress) as advance:
        scores = score_stored(found, truth, is_complex, volumes, metrics, advance)
    table = None if folder is None else folder / "per_image.csv"
    if table is not None:
        _write_images(table, volumes, scores.by_image)
    record = common | {
        "verdict": _verdict(scores.by_volume),
        "reference": {
            "path": truth.location,
            "n": n,
            "of": len(truth),
            "fingerprint": truth.fingerprint(),
        },
        "n": n,
        "volumes": len(set(volumes)),
        "metrics": {name: _summary(name, values, scores.by_image[name]) for name, values in scores.by_volume.items()},
        "per_sample": None if table is None else str(table.resolve()),
    }
    return record if path is None else records.write_record(path, record)


def _read_summary(folder: Path | None) -> dict[str, Any]:
    path = Path(folder or "") / "summary.json"
    try:
        summary = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: run gsure restore again to finish it.") from error
    return summary if isinstance(summary, dict) else {}


def _by_hidden_entries(restored: Restored | dict[str, Any]) -> dict[str, Any]:
    summary = restored.summary if isinstance(restored, Restored) else restored
    start = "hidden entries, "
    found = {
        key.removeprefix(start).replace(" ", "_"): float(str(value).split()[0])
        for key, value in summary.items()
        if key.startswith(start)
    }
    if "mean" not in found:
        raise ValueError(
            "These restorations were not compared on hidden entries, because they were restored with --clean or with "
            "--no-baselines, or too few entries could be hidden: give --clean."
        )
    metrics = {
        column("hidden", kind): {"value": value, "floor": None, "se": None, "better": BETTER["hidden"]}
        for kind, value in found.items()
    }
    n = summary.get("restored")
    reference = {"path": None, "n": n, "of": n, "holds": "hidden entries"}
    return {"verdict": summary.get("verdict"), "reference": reference, "n": n, "volumes": n, "metrics": metrics}


def _metrics(truth: Signals, lpips: bool, warnings: list[str]) -> dict[str, Metric]:
    metrics = metrics_for(truth.shape)
    if "ssim" not in metrics:
        warnings.append(f"SSIM was omitted: its window is {WINDOW}x{WINDOW}, and the images are smaller.")
    if lpips:
        if truth.header["complex"]:
            raise ValueError("LPIPS compares images in the range -1..1, but these are complex: omit --lpips.")
        network = LPIPS()

        def perceptual(x: Tensor, reference: Tensor, is_complex: bool, groups: Tensor | None = None) -> Tensor:
            return mean_of_groups(network(x.clamp(-1, 1), reference).double(), groups)

        metrics["lpips"] = perceptual
    return metrics


def _summary(name: str, volumes: Tensor, images: Tensor) -> dict[str, Any]:
    value, se = mean_and_error(volumes)
    summary = {"value": value, "floor": None, "se": se, "better": BETTER[name.partition("_of_")[0]]}
    if len(volumes) < len(images) and images.isfinite().all():  # an empty image has no PSNR, but its volume has one
        summary["per_image"] = float(images.mean())
    return summary


def _verdict(scores: Mapping[str, Tensor]) -> str | None:
    """By the PSNR of volumes; None if there is nothing to compare with."""
    others = {kind: scores[name] for kind in KINDS[2:] if (name := column("psnr", kind)) in scores}
    differences = {kind: difference_of_scores(scores["psnr"], values) for kind, values in others.items()}
    return judge_differences(differences).sentence if "baseline" in differences else None


def _is_there(folder: Path, kind: str) -> bool:
    """Restorations without baselines have the first three kinds only."""
    return kind in KINDS[:3] or (folder / kind).exists()


def _write_images(path: Path, volumes: list[str], scores: Mapping[str, Tensor]) -> None:
    with replacing(path) as temporary, temporary.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["index", "volume", *scores])
        for index, volume in enumerate(volumes):
            writer.writerow([index, volume, *(f"{float(values[index]):.6g}" for values in scores.values())])


def _refuse_gaps(folder: Path) -> None:
    """Raise an error if a shard is missing, because all later ones would be compared with the wrong clean signals."""
    for kind in (kind for kind in KINDS if _is_there(folder, kind)):
        names = sorted(path.name for path in (folder / kind).glob("shard-*.h5"))
        numbers = [int(found[1]) for name in names if (found := re.fullmatch(r"shard-(\d+)\.h5", name))]
        if numbers != list(range(len(numbers))) or not numbers:
            raise ValueError(
                f"{folder / kind} is not finished: shards are missing. Run its gsure restore again to resume it."
            )


def _refuse(restored: Signals, truth: Signals, n: int, inputs: Mapping[str, Any]) -> None:
    if n < 1:
        raise ValueError(f"--n must be at least 1, but is {n}.")
    if tuple(restored.shape) != tuple(truth.shape):
        raise ValueError(
            f"The restorations have shape {tuple(restored.shape)}, but {truth.name} has signals of shape "
            f"{tuple(truth.shape)}: give the clean signals behind the measurements."
        )
    if "data" in inputs and Path(inputs["data"]).exists():
        open_clean(truth, open_measurements(inputs["data"], Identity()))  # refuses others; any basis is fine here
    if restored.groups()[:n] != truth.groups()[:n]:
        raise ValueError(
            f"The restorations are not of the volumes in {truth.name}: give the clean signals behind the measurements."
        )


def _warn_of_training(inputs: Mapping[str, Any], n: int, warnings: list[str]) -> None:
    config, path = records.config_of(inputs), Path(inputs["data"])
    if config is None or not path.exists():
        warnings.append("The run or the data is gone, so the model may have been trained on these measurements.")
        return
    data = open_measurements(path, Identity())
    if records.is_own(data.location, data.header, len(data), config):
        trained = n - int((records.held_out_of(config) < n).sum()) if config.settings.held_out > 0 else n
        warnings.append(f"The model was trained on {trained:,} of the {n:,} restored measurements: restore others.")
    elif records.shares_source(data.header, config):
        warnings.append(f"{path} has the same source as the data of the run, so the model may have seen these signals.")
