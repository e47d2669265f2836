"""The run folder: what was asked for, what came out, and the way back to a denoiser."""

import dataclasses
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml
from torch import nn

import gsure
from gsure.basis import Basis, Dense
from gsure.data.measurements import BASES
from gsure.denoiser import Denoiser
from gsure.files import replacing
from gsure.training import checkpoints
from gsure.training.build import DataInfo, make_denoiser
from gsure.training.checkpoints import Checkpoint
from gsure.training.settings import Settings, known

CheckpointName = Literal["best", "last"] | int
"""A checkpoint of a run: the one that validated best, the last one, or that of a step."""


@dataclass(frozen=True)
class Config:
    """config.yaml: the settings, the files, and what is known of the data."""

    settings: Settings
    data_info: DataInfo
    data: str
    clean: str | None
    own_network: bool = False
    gsure: str = gsure.__version__

    def completed(self, step: int) -> bool:
        """Whether the weights of this step have learned from signals whose missing part was filled in."""
        return any(at < step for at in self.settings.impute_at)

    def as_dict(self) -> dict[str, Any]:
        return json.loads(json.dumps(dataclasses.asdict(self)))  # tuples to lists, as YAML and JSON want them

    @staticmethod
    def from_dict(values: Mapping[str, Any], where: str) -> "Config":
        try:
            about: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value for key, value in dict(values["about"]).items()
            }
            settings = Settings(**known(values["settings"], where))
            rest = {key: values[key] for key in ("data", "clean", "own_network", "gsure")}
            return Config(settings, DataInfo(**about), **rest)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{where} is not a configuration that this gsure can read ({error}).") from error


@dataclass(frozen=True)
class Run:
    """A folder that `gsure train` made."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def best(self) -> Path:
        return self.checkpoints / "best.safetensors"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    def exists(self) -> bool:
        return (self.path / "config.yaml").is_file()

    @property
    def config(self) -> Config:
        path = self.path / "config.yaml"
        if not self.exists():
            raise ValueError(f"{self.path} is not a run of gsure train: it has no config.yaml.")
        try:
            values = yaml.safe_load(path.read_text())
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is damaged: it is not YAML.") from error
        return Config.from_dict(values if isinstance(values, dict) else {}, str(path))

    def write_config(self, config: Config) -> None:
        with replacing(self.path / "config.yaml") as temporary:
            temporary.write_text(yaml.safe_dump(config.as_dict(), sort_keys=False, allow_unicode=True))

    def read_metrics(self) -> list[dict[str, Any]]:
        """Every line; the last may be incomplete, if the run was killed while writing it."""
        lines = self.metrics.read_text().splitlines() if self.metrics.exists() else []
        parsed = []
        for number, line in enumerate(lines):
            try:
                parsed.append(json.loads(line))
            except json.JSONDecodeError as error:
                if number < len(lines) - 1:
                    raise ValueError(f"{self.metrics} is damaged at line {number + 1}.") from error
        return parsed

    def forget_metrics_after(self, step: int) -> None:
        lines = [json.dumps(line) + "\n" for line in self.read_metrics() if line["step"] <= step]
        with replacing(self.metrics) as temporary:
            temporary.write_text("".join(lines))

    def log(self, line: Mapping[str, Any]) -> None:
        with self.metrics.open("a") as file:
            file.write(json.dumps(line) + "\n")


def is_empty(path: Path) -> bool:
    """Nothing in it, or only what a run that was killed in its first moment left there."""
    return path.is_dir() and all(inside.name == "checkpoints" for inside in path.iterdir())


def archive(path: Path) -> Path:
    """A run may be days of work: --force makes room for another, but deletes nothing."""
    names = (path.with_name(f"{path.name}.old-{k}") for k in itertools.count(1))
    return path.rename(next(aside for aside in names if not aside.exists()))


def start(path: Path, config: Config, first: Mapping[str, Any]) -> Run:
    """Make the folder. Its first checkpoint comes before config.yaml, which makes it a run: so any run can be resumed."""
    run = Run(path)
    try:
        run.checkpoints.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"The folder {path} cannot be made: {error.strerror}. Choose another --out.") from error
    checkpoints.write(checkpoints.path_of(run.checkpoints, 0), **first)
    run.write_config(config)
    return run


def load(
    path: str | Path,
    checkpoint: CheckpointName = "best",
    *,
    basis: Basis | None = None,
    network: nn.Module | None = None,
) -> Denoiser:
    """The denoiser of a run (or of one checkpoint file), with averaged weights, ready to sample and restore.

    `which` is the checkpoint that validated best (the last, if nothing was held out), the last one, or that of a step.
    A basis or network of your own, with which the run was trained, must be given again.
    """
    return load_with_config(path, checkpoint, basis=basis, network=network).denoiser


class Loaded(NamedTuple):
    """The denoiser of a checkpoint, and what is known of it."""

    denoiser: Denoiser
    config: Config
    step: int
    checksum: int
    """Of the weights: a run that was trained anew has others at the same place and step."""


def load_with_config(
    path: str | Path,
    checkpoint: CheckpointName = "best",
    *,
    basis: Basis | None = None,
    network: nn.Module | None = None,
) -> Loaded:
    """What `load` returns, and what was not asked there."""
    found = _find(Path(path), checkpoint)
    config = Config.from_dict(found.header["config"], str(found.path))
    if config.own_network and network is None:
        raise ValueError(f"{path} was trained with a network of your own: pass load(..., network=...).")
    denoiser = make_denoiser(config.settings, config.data_info, basis or _basis(config.data_info.basis, found), network)
    try:
        denoiser.network.load_state_dict(found.part("ema"))
    except RuntimeError as error:
        raise ValueError(f"The weights in {found.path} do not fit the network: {error}") from error
    return Loaded(denoiser.eval(), config, found.step, found.header["checksum"])


def _find(path: Path, checkpoint: CheckpointName) -> Checkpoint:
    if path.is_file():
        return checkpoints.read(path)
    run = Run(path)
    if not run.exists():
        raise ValueError(f"{path} is neither a run of gsure train nor a checkpoint.")
    if isinstance(checkpoint, int):
        if checkpoint not in (steps := checkpoints.steps_of(run.checkpoints)):
            raise ValueError(f"{path} has no checkpoint of step {checkpoint}; it has {', '.join(map(str, steps))}.")
        return checkpoints.read(checkpoints.path_of(run.checkpoints, checkpoint))
    if checkpoint == "best" and run.best.exists():
        return checkpoints.read(run.best)
    return checkpoints.read_latest(run.checkpoints)[0]


def _basis(name: str, found: Checkpoint) -> Basis:
    if "V" in found.part("basis"):
        return Dense(found.part("basis")["V"])
    if name not in BASES:
        raise ValueError(
            f"This run was trained in the basis {name!r}, which is not one of gsure's: pass load(..., basis=...)."
        )
    return BASES[name]()
