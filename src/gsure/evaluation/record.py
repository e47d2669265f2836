"""Functions that all evaluations use: the evaluated folder, the run behind it, and the record of the results."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gsure.basis import Identity
from gsure.data.measurements import open_measurements
from gsure.files import REQUEST, Request, read_json, replacing
from gsure.training.run import Run
from gsure.training.settings import Config


def read_request(folder: Path, function: Literal["sample", "restore"], warnings: list[str]) -> Request:
    """The request that made a folder. `made_of` is what the result depends on, `inputs` are paths.

    Both are empty for signals of another program. Adds a warning if the folder is not finished.
    """
    kind = {"sample": "samples", "restore": "restorations"}
    if not folder.exists():
        raise ValueError(f"There is no {folder}: give a folder of gsure {function}.")
    if Run(folder).exists():
        raise ValueError(f"{folder} is a run: make {kind[function]} with gsure {function}, and give their folder.")
    if not (folder / REQUEST).is_file():
        if function == "restore":
            raise ValueError(f"{folder} is not a folder of gsure restore: it has no {REQUEST}.")
        return {"made_of": {}, "inputs": {}}
    try:
        request = read_json(folder / REQUEST)
        found, _, _ = request["function"], request["made_of"]["seed"], dict(request["inputs"])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{folder / REQUEST} is damaged: regenerate the folder.") from error
    if found != function:
        holds = kind.get(found)
        advice = f"it holds {holds}: gsure evaluate {holds} {folder} ..." if holds else f"gsure {found} wrote it."
        raise ValueError(f"{folder} does not hold {kind[function]}; {advice}")
    finished = folder / ("grid.png" if function == "sample" else "summary.json")
    if not finished.exists() or any(folder.rglob(".shard-*.tmp")):
        warnings.append(
            f"{folder} is not finished: only the existing part was evaluated. Run its gsure {function} again to resume it."
        )
    return request


def config_of(inputs: Mapping[str, Any]) -> Config | None:
    """The configuration of the run among the inputs of a folder, if the run still exists."""
    path = Path(str(inputs.get("run", "")))
    run = Run(path if path.is_dir() else path.parent.parent)  # a checkpoint is RUN/checkpoints/step.safetensors
    return run.config if "run" in inputs and run.exists() else None


def is_own(location: str | None, header: Mapping[str, Any], n: int, config: Config) -> bool:
    """Whether a file of n samples is the training data of a run, or the clean signals behind it."""
    if n != config.data_info.samples:
        return False
    if location is not None and location in (config.data, config.clean):
        return True
    return all(header[key] == config.data_info.made_by.get(key) for key in ("source", "corruption", "seed"))


def shares_source(header: Mapping[str, Any], config: Config) -> bool:
    return header["source"] == config.data_info.made_by.get("source")


def held_out_of(config: Config) -> np.ndarray:
    """Positions of the held-out samples in the data of the run."""
    if config.settings.held_out == 0:
        raise ValueError(
            "The run has no held-out data (--held-out 0), because it was trained on all of it: use other data."
        )
    try:
        data = open_measurements(config.data, Identity())  # the basis does not matter here
    except OSError as error:
        raise ValueError(f"The held-out samples of the run need its data, but {config.data} is gone.") from error
    return data.split(config.settings.held_out, config.settings.seed)[1].indices


def warn_of_training(
    name: str, location: str | None, header: Mapping[str, Any], n: int, config: Config | None, warnings: list[str]
) -> None:
    """Warn if the reference may be training data: a model that has memorized it looks better than it is."""
    if config is None:
        warnings.append(f"The run is gone, so {name} may be its training data.")
    elif is_own(location, header, n, config):
        share = 1 - config.settings.held_out
        warnings.append(
            f"{name} is the training data of the run, or the clean signals behind it: the model was trained on {share:.0%} of "
            "it, and memorization would look like quality. Use another file, or --held-out."
        )
    elif shares_source(header, config):
        warnings.append(
            f"{name} has the same source as the data of the run, so the model has probably seen these signals: use others."
        )


def record_path(default: Path, out: str | Path | None) -> Path:
    """The path of the record. Raises an error, before any work, if it is a file that is not a record."""
    path = default if out is None else Path(out)
    if not path.exists():
        return path
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict) or not {"kind", "metrics"} <= set(found):
        raise ValueError(f"{path} exists and is not an evaluation: choose another --out.")
    return path


def write_record(path: Path, record: dict[str, Any]) -> dict[str, Any]:
    """Write the record as JSON, which has no infinity: a metric that is not finite is omitted, with a warning."""
    metrics = record["metrics"]
    for name in [name for name, metric in metrics.items() if not math.isfinite(metric["value"])]:
        del metrics[name]
        record["warnings"].append(f"{name} is not finite, and was omitted.")
    try:
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False))
    except OSError as error:
        raise OSError(f"{path} cannot be written ({error}): choose another --out.") from error
    return {**record, "written": str(path)}
