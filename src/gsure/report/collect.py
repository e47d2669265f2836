"""What there is to tell: every run, folder of samples or restorations, evaluation and diagnosis below a folder.

A report is made of whatever is there. A file that cannot be read becomes a sentence of the page, not the end of it.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gsure.data.measurements import Signals
from gsure.training.run import Config, Run

DEPTH = 4
"""Folders below the one that was given, and no deeper."""
ROLES = {"measurements": "from measurements", "clean": "oracle", "naive": "naive"}
"""What a run learned from, in the order in which runs are shown."""
KINDS = ("mean", "std", "draw", "baseline")
T = TypeVar("T")


@dataclass(frozen=True)
class Trained:
    """A run of `gsure train`. `label` tells it from the others on the page."""

    path: Path
    config: Config
    lines: tuple[dict[str, Any], ...]
    label: str

    @property
    def role(self) -> str:
        return self.config.settings.train_on

    @property
    def losses(self) -> list[tuple[int, float]]:
        return [(line["step"], line["loss"]) for line in self.lines if "loss" in line]

    @property
    def validations(self) -> list[tuple[int, dict[str, Any]]]:
        return [(line["step"], line["validation"]) for line in self.lines if "validation" in line]

    @property
    def step(self) -> int:
        return max((line["step"] for line in self.lines), default=0)

    @property
    def is_finished(self) -> bool:
        return self.step >= self.config.settings.steps

    @property
    def best_step(self) -> int | None:
        """Of the checkpoint that validated best."""
        return min(self.validations, key=lambda line: line[1]["estimate"]["mean"], default=(None,))[0]

    @property
    def seconds(self) -> float:
        """Of computing steps, by the rate that was logged; validation and pictures come on top."""
        total, before = 0.0, 0
        for line in self.lines:
            if line.get("steps_per_second"):
                total, before = total + (line["step"] - before) / line["steps_per_second"], line["step"]
        return total


@dataclass(frozen=True)
class Drawn:
    """A folder of `gsure sample` (its signals under "") or of `gsure restore` (under mean, std, draw and baseline)."""

    path: Path
    plan: dict[str, Any]
    run: Trained | None
    signals: dict[str, Signals]
    summary: dict[str, Any]

    @property
    def label(self) -> str:
        return (
            self.run.label
            if self.run is not None
            else f"{Path(str(self.plan.get('run', '?'))).name}, not in this folder"
        )


@dataclass(frozen=True)
class Evaluation:
    """What `gsure evaluate` wrote, and the folder or run that it is about, if that was found."""

    path: Path
    values: dict[str, Any]
    drawn: Drawn | None
    run: Trained | None


@dataclass(frozen=True)
class Diagnosis:
    path: Path
    values: dict[str, Any]
    run: Trained | None


@dataclass(frozen=True)
class Facts:
    """All that was found below `root`, runs in the order of ROLES."""

    root: Path
    runs: tuple[Trained, ...]
    samples: tuple[Drawn, ...]
    restorations: tuple[Drawn, ...]
    evaluations: tuple[Evaluation, ...]
    diagnoses: tuple[Diagnosis, ...]
    troubles: tuple[str, ...]

    @property
    def main(self) -> Trained:
        """The run that the page is about: the first that learned from measurements."""
        return self.runs[0]

    def comparable(self, run: Trained, role: str) -> Trained | None:
        """The oracle, or the naive run, to compare a run with: of the same data, and of the same seed if there is one."""
        found = [other for other in self.runs if other.role == role and _same_data(other, run)]
        same = [other for other in found if other.config.settings.seed == run.config.settings.seed]
        return next(iter(same + found), None)

    def shown(self, path: str | Path) -> str:
        """A path as it is told on the page: from the root, if it lies below it."""
        resolved = (self.root / path).resolve()
        inside = resolved.is_relative_to(self.root)
        return str(resolved.relative_to(self.root)) if inside else str(path)


def collect(root: str | Path) -> Facts:
    """Look at a run, or at a folder of runs and of what was made with them."""
    root = Path(root).resolve()
    if not root.is_dir():
        raise ValueError(f"{root} is not a folder: give a run of gsure train, or a folder that holds runs.")
    troubles: list[str] = []

    def attempt(function: Callable[..., T], *arguments: Any) -> list[T]:
        try:
            return [function(*arguments)]
        except (ValueError, OSError, KeyError, TypeError) as error:
            troubles.append(f"{arguments[0]} was left out: {error}")
            return []

    folders = list(_folders(root))
    runs = _ordered([run for folder in folders if Run(folder).exists() for run in attempt(_read_run, folder, root)])
    if not runs:
        raise ValueError(
            f"{root} has no run of gsure train in it that can be read{f' ({troubles[0]})' if troubles else ''}: "
            "give a run, or a folder that holds runs."
        )
    planned = [folder for folder in folders if (folder / "plan.json").is_file()]
    drawn = [found for folder in planned for found in attempt(_read_drawn, folder, runs) if found is not None]
    names = ("evaluation*.json", "denoising*.json")
    files = [file for folder in folders for name in names for file in sorted(folder.glob(name))]
    evaluations = [e for file in files for e in attempt(_read_evaluation, file, runs, drawn)]
    files = [folder / "diagnosis.json" for folder in folders]
    diagnoses = [d for file in files if file.is_file() for d in attempt(_read_diagnosis, file, runs)]
    by_run = {run.path: k for k, run in enumerate(runs)}
    drawn.sort(key=lambda found: by_run[found.run.path] if found.run else len(runs))
    return Facts(
        root=root,
        runs=tuple(runs),
        samples=tuple(found for found in drawn if found.plan["command"] == "sample"),
        restorations=tuple(found for found in drawn if found.plan["command"] == "restore"),
        evaluations=tuple(evaluations),
        diagnoses=tuple(diagnoses),
        troubles=tuple(troubles),
    )


def _folders(root: Path) -> Iterator[Path]:
    """The root and what is below it; not where there can be nothing, nor runs that --force put aside."""
    for name, below, _ in os.walk(root):
        folder = Path(name)
        yield folder
        deep = len(folder.relative_to(root).parts) >= DEPTH
        dull = {"checkpoints", "completed", "tensorboard", "panels", *KINDS}
        wanted = [
            inner for inner in sorted(below) if inner not in dull and not inner.startswith(".") and ".old-" not in inner
        ]
        below[:] = [] if deep else wanted


def _read_run(folder: Path, root: Path) -> Trained:
    run = Run(folder)
    lines = run.read_metrics()
    if not all(isinstance(line, dict) and isinstance(line.get("step"), int) for line in lines):
        raise ValueError(f"{run.metrics} is damaged: a line has no step.")
    for line in lines:
        if "validation" in line:
            float(line["validation"]["estimate"]["mean"])
    name = str(folder.relative_to(root)) if folder != root else folder.name
    return Trained(folder, run.config, tuple(lines), name)


def _ordered(runs: list[Trained]) -> list[Trained]:
    """By role, then by name; where a role is unique, it is all that a reader wants to know."""
    ranks = list(ROLES)
    runs = sorted(runs, key=lambda run: (ranks.index(run.role), run.label))
    count = {role: sum(run.role == role for run in runs) for role in ROLES}

    def label(run: Trained) -> str:
        return ROLES[run.role] if count[run.role] == 1 else f"{ROLES[run.role]}: {run.label}"

    return [dataclasses.replace(run, label=label(run)) for run in runs]


def _same_data(one: Trained, other: Trained) -> bool:
    return one.config.data_info == other.config.data_info


def read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError("it is damaged, and not JSON.") from error
    if not isinstance(values, dict):
        raise ValueError("it is JSON, but not of this kind.")
    return values


def _find_run(told: Any, runs: list[Trained], near: Path) -> Trained | None:
    """By its path, which may be that of a checkpoint; by where the file lies; and by its name, if all was moved together."""
    path = Path(str(told)) if told else None
    places = [*([path.resolve(), *path.resolve().parents] if path else []), *near.resolve().parents]
    for place in places:
        if found := [run for run in runs if run.path == place]:
            return found[0]
    named = [run for run in runs if path is not None and run.path.name == path.name]
    return named[0] if len(named) == 1 else None


def _read_drawn(folder: Path, runs: list[Trained]) -> Drawn | None:
    plan = read_json(folder / "plan.json")
    if plan.get("command") == "demo":  # which only holds what others made
        return None
    if plan.get("command") not in ("sample", "restore"):
        raise ValueError(f"its plan.json is of {plan.get('command')!r}, which is neither sample nor restore.")
    kinds = {"": folder} if plan["command"] == "sample" else {kind: folder / kind for kind in KINDS}
    signals = {kind: Signals(where) for kind, where in kinds.items()}
    summary = folder / "summary.json"
    return Drawn(
        path=folder,
        plan=plan,
        run=_find_run(plan.get("run"), runs, folder),
        signals=signals,
        summary=read_json(summary) if summary.is_file() else {},
    )


def _read_evaluation(file: Path, runs: list[Trained], drawn: list[Drawn]) -> Evaluation:
    values = read_json(file)
    metrics = values.get("metrics")
    if not isinstance(metrics, dict) or not all(
        isinstance(metric, dict) and isinstance(metric.get("value"), int | float) for metric in metrics.values()
    ):
        raise ValueError("it has no metrics with values.")
    of = next((found for found in drawn if found.path == file.parent), None)
    run = of.run if of is not None else _find_run(values.get("run"), runs, file)
    return Evaluation(file, values, of, run)


def _read_diagnosis(file: Path, runs: list[Trained]) -> Diagnosis:
    values = read_json(file)
    checks = values.get("checks")
    if not isinstance(checks, list) or not all(isinstance(check, dict) for check in checks):
        raise ValueError("it has no list of checks.")
    return Diagnosis(file, values, _find_run(values.get("run"), runs, file))
