"""What evaluations have in common: the folder that is looked at, the run behind it, and the record of what was found."""

import inspect
import json
import math
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gsure.data.chunks import PLAN
from gsure.data.measurements import open_measurements
from gsure.files import replacing
from gsure.training.run import Config, Run


def read_plan(folder: Path, command: Literal["sample", "restore"], warnings: list[str]) -> dict[str, Any]:
    """How a folder was made; {} of signals that another program made. Warns if it is not finished."""
    kind = {"sample": "samples", "restore": "restorations"}
    if not folder.exists():
        raise ValueError(f"There is no {folder}: give a folder of gsure {command}.")
    if Run(folder).exists():
        raise ValueError(f"{folder} is a run: make {kind[command]} with it by gsure {command}, and give their folder.")
    if not (folder / PLAN).is_file():
        if command == "restore":
            raise ValueError(f"{folder} is not a folder of gsure restore: it has no {PLAN}.")
        return {}
    try:
        plan = dict(json.loads((folder / PLAN).read_text()))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{folder / PLAN} is damaged: make the folder again.") from error
    if plan.get("command") != command:
        made = kind.get(str(plan.get("command")))
        advice = (
            f"it holds {made}: gsure evaluate {made} {folder} ..." if made else f"its {PLAN} was not written by gsure."
        )
        raise ValueError(f"{folder} does not hold {kind[command]}; {advice}")
    finished = folder / ("grid.png" if command == "sample" else "summary.json")
    if not finished.exists() or any(folder.rglob(".shard-*.tmp")):
        warnings.append(
            f"{folder} is not finished: only what is there was evaluated. Give its gsure {command} again to go on."
        )
    return plan


def config_of(plan: Mapping[str, Any]) -> Config | None:
    """Of the run that made it, if it is still there."""
    path = Path(str(plan.get("run", "")))
    run = Run(path if path.is_dir() else path.parent.parent)  # of a checkpoint, RUN/checkpoints/step.safetensors
    return run.config if "run" in plan and run.exists() else None


def is_own(path: Path, header: dict[str, Any], n: int, config: Config) -> bool:
    """Whether a file, of n samples, is what the run learned from, or the clean signals behind that."""
    if n != config.data_info.samples:
        return False
    if str(path.resolve()) in (config.data, config.clean):
        return True
    return all(header[key] == config.data_info.made_by.get(key) for key in ("source", "corruption", "seed"))


def shares_source(header: dict[str, Any], config: Config) -> bool:
    return header["source"] == config.data_info.made_by.get("source")


def held_out_of(config: Config) -> np.ndarray:
    """Which samples of its data the run did not train on."""
    if config.settings.held_out == 0:
        raise ValueError("The run held nothing out (--held-out 0): all of its data was trained on.")
    try:
        data = open_measurements(config.data)
    except OSError as error:
        raise ValueError(f"Which samples the run held out is told by its data, but {config.data} is gone.") from error
    return data.split(config.settings.held_out, config.settings.seed)[1].indices


def warn_of_training(path: Path, header: dict[str, Any], n: int, config: Config | None, warnings: list[str]) -> None:
    """A model may have learned its training data by heart: compared with that, it looks better than it is."""
    if config is None:
        warnings.append(f"Whether {path} was trained on cannot be told: the run is not there.")
    elif is_own(path, header, n, config):
        share = 1 - config.settings.held_out
        warnings.append(
            f"{path} is what the run learned from, or the clean signals behind it: {share:.0%} of it was trained on, and a "
            "model that learned by heart would look good. Take another file, or --held-out."
        )
    elif shares_source(header, config):
        warnings.append(
            f"{path} was made from the same source as the data of the run, so the model has probably seen these signals: take "
            "others."
        )


def record_path(default: Path, out: str | Path | None) -> Path:
    """Where a record goes. Refuses, before any work, to replace what is not one."""
    path = default if out is None else Path(out)
    if not path.exists():
        return path
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict) or not {"kind", "metrics"} <= set(found):
        raise ValueError(f"{path} exists and is no evaluation: give another file by --out.")
    return path


def write_record(path: Path, record: dict[str, Any]) -> dict[str, Any]:
    """As JSON, which has no infinity: a number that is none is left out, and said to be."""
    metrics = record["metrics"]
    for name in [name for name, metric in metrics.items() if not math.isfinite(metric["value"])]:
        del metrics[name]
        record["warnings"].append(f"{name} is not finite here, and was left out.")
    try:
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False))
    except OSError as error:
        raise OSError(f"{path} cannot be written ({error}): give another file by --out.") from error
    return {**record, "written": str(path)}


def command_of(function: Callable[..., Any], given: dict[str, Any]) -> str:
    """What to type to have it again: arguments without default first, then options that are not as by default."""
    words = ["gsure", "evaluate", function.__name__.removeprefix("evaluate_")]
    for name, parameter in inspect.signature(function).parameters.items():
        value = given.get(name, parameter.default)
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            words.append(str(value))
        elif value != parameter.default and name != "progress":
            option = name.replace("_", "-")
            words += [f"--{'' if value else 'no-'}{option}"] if isinstance(value, bool) else [f"--{option}", str(value)]
    return shlex.join(words)
