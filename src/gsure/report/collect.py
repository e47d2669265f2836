"""Find every run, folder of samples or restorations, evaluation and diagnosis below a folder.

A report shows what it finds. A file that cannot be read is omitted, and the page says so.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from gsure.data.measurements import Signals
from gsure.files import REQUEST, Request, read_json
from gsure.training.checkpoints import steps_of
from gsure.training.run import Run, read_verdict
from gsure.training.settings import Config

DEPTH = 4
"""Levels of folders to search below the one you give."""
ROLES = {"measurements": "from measurements", "clean": "clean-trained reference", "naive": "naive"}
"""What a run was trained on, and its label. The page shows runs in this order."""
KINDS = ("mean", "std", "draw", "baseline")
COMPARED = ("total_variation", "gaussian")
"""Kinds that restorations may also have."""
T = TypeVar("T")


@dataclass(frozen=True)
class Trained:
    """A run of `gsure train`. Its label is unique on the page."""

    path: Path
    config: Config
    lines: tuple[dict[str, Any], ...]
    label: str
    verdict: str | None = None
    """Whether it is better than no model, as training ended."""

    @property
    def role(self) -> str:
        return self.config.settings.train_on

    @property
    def request(self) -> Request:
        return self.config.request

    @property
    def data_request(self) -> Request:
        """The request of the command that wrote the measurements."""
        return self.config.data_request

    @property
    def version(self) -> str | None:
        return self.request.get("gsure")

    @property
    def losses(self) -> list[tuple[int, float]]:
        return [(line["step"], line["loss"]) for line in self.lines if "loss" in line]

    @property
    def validations(self) -> list[tuple[int, dict[str, Any]]]:
        return [(line["step"], line["validation"]) for line in self.lines if "validation" in line]

    @property
    def validates_restoration(self) -> bool:
        """Whether it was validated by restoration in one call, at no timestep, and not by denoising."""
        return bool(self.validations) and not self.validations[-1][1].get("t_bins")

    @property
    def step(self) -> int:
        """The last that was logged or saved: not every step is logged."""
        logged = max((line["step"] for line in self.lines), default=0)
        return max([logged, *steps_of(Run(self.path).checkpoints)])

    @property
    def is_finished(self) -> bool:
        return self.step >= self.config.settings.steps

    @property
    def best_step(self) -> int | None:
        """The step of the checkpoint with the smallest validation error, since signals were last imputed."""
        changed = max((at for at in self.config.settings.impute_at if at < self.step), default=0)
        since = [line for line in self.validations if line[0] > changed]
        return min(since, key=lambda line: line[1]["estimate"]["mean"], default=(None,))[0]

    @property
    def seconds(self) -> float:
        """Time of the optimizer steps, from the logged rate. It does not include validation and pictures."""
        total, before = 0.0, 0
        for line in self.lines:
            if line.get("steps_per_second"):
                total, before = total + (line["step"] - before) / line["steps_per_second"], line["step"]
        return total


@dataclass(frozen=True)
class Drawn:
    """A folder of `gsure sample` (its signals under "") or of `gsure restore` (under mean, std, draw and baseline)."""

    path: Path
    request: Request
    """The content of request.json, with `made_of` and `inputs`."""
    run: Trained | None
    signals: dict[str, Signals]
    summary: dict[str, Any]
    is_one_of_many: bool = False
    """Whether the page has other results of the same command and run, so that the label needs the folder."""

    @property
    def made_of(self) -> dict[str, Any]:
        """What the signals depend on: the sampler, its steps, and so on."""
        return as_dict(self.request.get("made_of"))

    @property
    def inputs(self) -> dict[str, str]:
        """The paths of the run and, for restorations, of the data."""
        return {name: str(path) for name, path in as_dict(self.request.get("inputs")).items()}

    @property
    def slices(self) -> int:
        """How many restorations at the beginning belong to one volume."""
        groups = self.signals["mean"].groups()
        return next((k for k, group in enumerate(groups) if group != groups[0]), len(groups))

    @property
    def data(self) -> str:
        return self.inputs.get("data", "?")

    @property
    def label(self) -> str:
        run = self.run.label if self.run else f"{Path(self.inputs.get('run', '?')).name}, not in this folder"
        how = self.made_of.get("method") or self.made_of.get("sampler")
        return f"{run} ({self.path.name}: {how})" if self.is_one_of_many else run


@dataclass(frozen=True)
class Evaluation:
    """What `gsure evaluate` wrote, with the folder or run that it evaluates, if that was found."""

    path: Path
    values: dict[str, Any]
    drawn: Drawn | None
    run: Trained | None


@dataclass(frozen=True)
class Diagnosis:
    """What `gsure diagnose` wrote, with its run, if that was found."""

    path: Path
    values: dict[str, Any]
    run: Trained | None


@dataclass(frozen=True)
class Facts:
    """Everything that was found below `root`. Runs are in the order of ROLES."""

    root: Path
    runs: tuple[Trained, ...]
    samples: tuple[Drawn, ...]
    restorations: tuple[Drawn, ...]
    evaluations: tuple[Evaluation, ...]
    diagnoses: tuple[Diagnosis, ...]
    troubles: tuple[str, ...]

    @property
    def main(self) -> Trained:
        """The run that the page is about: the first one from measurements, if there is one."""
        return self.runs[0]

    def comparable(self, run: Trained, role: str) -> Trained | None:
        """A run of this role to compare `run` with: trained on the same data, and with the same seed if possible."""
        found = [other for other in self.runs if other.role == role and other.config.data_info == run.config.data_info]
        same = [other for other in found if other.config.settings.seed == run.config.settings.seed]
        return next(iter(same + found), None)

    def shown(self, path: str | Path) -> str:
        """A path as the page shows it: relative to the root if it is below the root."""
        resolved = (self.root / path).resolve()
        return str(resolved.relative_to(self.root)) if resolved.is_relative_to(self.root) else str(path)


def collect(root: str | Path) -> Facts:
    """Find everything in the folder of a run, or in a folder with runs and their results."""
    root, advice = Path(root).resolve(), "Give the folder of a run, or a folder that contains runs."
    if not root.is_dir():
        raise ValueError(f"{root} is not a folder. {advice}")
    troubles: list[str] = []

    def attempt(function: Callable[..., T], *arguments: Any) -> list[T]:
        try:
            return [function(*arguments)]
        except (ValueError, OSError, KeyError, TypeError) as error:
            troubles.append(f"{arguments[0]} was omitted: {error}")
            return []

    folders = list(_folders(root))
    runs = _ordered([run for folder in folders if Run(folder).exists() for run in attempt(_read_run, folder, root)])
    if not runs:
        trouble = f" ({troubles[0]})" if troubles else ""
        raise ValueError(f"{root} does not contain a readable run of gsure train{trouble}. {advice}")
    results = [folder for folder in folders if (folder / REQUEST).is_file()]
    drawn = [found for folder in results for found in attempt(_read_drawn, folder, runs) if found is not None]
    made = [(found.request["function"], found.inputs.get("run")) for found in drawn]
    drawn = [replace(found, is_one_of_many=made.count(key) > 1) for found, key in zip(drawn, made, strict=True)]
    names = ("evaluation*.json", "denoising*.json")
    files = [file for folder in folders for name in names for file in sorted(folder.glob(name))]
    evaluations = [e for file in files for e in attempt(_read_evaluation, file, runs, drawn)]
    files = [folder / "diagnosis.json" for folder in folders if (folder / "diagnosis.json").is_file()]
    diagnoses = [d for file in files for d in attempt(_read_diagnosis, file, runs)]
    by_run = {run.path: k for k, run in enumerate(runs)}
    drawn.sort(key=lambda found: by_run[found.run.path] if found.run else len(runs))
    samples, restorations = (
        tuple(found for found in drawn if found.request["function"] == function) for function in ("sample", "restore")
    )
    return Facts(root, tuple(runs), samples, restorations, tuple(evaluations), tuple(diagnoses), tuple(troubles))


def _folders(root: Path) -> Iterator[Path]:
    """The root and the folders below it, except those without results and the old runs that --force has renamed."""
    for name, below, _ in os.walk(root):
        folder = Path(name)
        yield folder
        skipped = {"checkpoints", "imputed", "tensorboard", "panels", *KINDS, *COMPARED}
        wanted = [inner for inner in sorted(below) if inner not in skipped and inner[0] != "." and ".old-" not in inner]
        below[:] = wanted if len(folder.relative_to(root).parts) < DEPTH else []


def _read_run(folder: Path, root: Path) -> Trained:
    run = Run(folder)
    lines = run.read_metrics()
    if not all(isinstance(line, dict) and isinstance(line.get("step"), int) for line in lines):
        raise ValueError(f"{run.metrics} is damaged: a line has no step.")
    for line in lines:
        if "validation" in line:
            float(line["validation"]["estimate"]["mean"])
    name = str(folder.relative_to(root)) if folder != root else folder.name
    verdict = read_verdict(run)["verdict"] if run.verdict.exists() else None
    return Trained(folder, run.config, tuple(lines), name, verdict)


def _ordered(runs: list[Trained]) -> list[Trained]:
    """Sorted by role, then by name. The label is the role, followed by the name if several runs have this role."""
    labels = [
        (run, ROLES[role] if len(same) == 1 else f"{ROLES[role]}: {run.label}")
        for role in ROLES
        for same in [sorted((run for run in runs if run.role == role), key=lambda run: run.label)]
        for run in same
    ]
    return [replace(run, label=label) for run, label in labels]


def as_dict(value: Any) -> dict[str, Any]:
    """The value if it is a dictionary, otherwise an empty one: a file of another version may have any value here."""
    return value if isinstance(value, dict) else {}


def _find_run(recorded: Any, runs: list[Trained], near: Path) -> Trained | None:
    """Search by path (of a run or a checkpoint), then among the parents of `near`, then by name for moved folders."""
    path = Path(str(recorded)) if recorded else None
    places = [*([path.resolve(), *path.resolve().parents] if path else []), *near.resolve().parents]
    for place in places:
        if found := [run for run in runs if run.path == place]:
            return found[0]
    named = [run for run in runs if path is not None and run.path.name == path.name]
    return named[0] if len(named) == 1 else None


def _read_drawn(folder: Path, runs: list[Trained]) -> Drawn | None:
    request = read_json(folder / REQUEST)
    function = request.get("function")
    if function == "demo":  # a folder that contains the results of other commands
        return None
    if function not in ("sample", "restore"):
        raise ValueError(f"its {REQUEST} is from {function!r}, which is neither sample nor restore.")
    there = (*KINDS, *(kind for kind in COMPARED if (folder / kind).exists()))
    kinds = {"": folder} if function == "sample" else {kind: folder / kind for kind in there}
    if not all(where.is_dir() and any(where.glob("*.h5")) for where in kinds.values()):
        raise ValueError(
            f"gsure {function} was interrupted there before it had results. Run it again, or delete the folder."
        )
    summary = folder / "summary.json"
    return Drawn(
        path=folder,
        request=request,
        run=_find_run(as_dict(request.get("inputs")).get("run"), runs, folder),
        signals={kind: Signals(where) for kind, where in kinds.items()},
        summary=read_json(summary) if summary.is_file() else {},
    )


def _read_evaluation(file: Path, runs: list[Trained], drawn: list[Drawn]) -> Evaluation:
    values = read_json(file)
    metrics = values.get("metrics")
    if not isinstance(metrics, dict) or not all(
        isinstance(metric, dict) and isinstance(metric.get("value"), int | float) for metric in metrics.values()
    ):
        raise ValueError("the file has no metrics with values.")
    of = next((found for found in drawn if found.path == file.parent), None)
    run = of.run if of is not None else _find_run(values.get("run"), runs, file)
    return Evaluation(file, values, of, run)


def _read_diagnosis(file: Path, runs: list[Trained]) -> Diagnosis:
    values = read_json(file)
    checks = values.get("checks")
    if not isinstance(checks, list) or not all(isinstance(check, dict) for check in checks):
        raise ValueError("the file has no list of checks.")
    return Diagnosis(file, values, _find_run(values.get("run"), runs, file))
