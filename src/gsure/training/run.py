"""The run folder: what was asked for, what came out, the log on the way, and a summary."""

import contextlib
import dataclasses
import fcntl
import itertools
import json
import re
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from accelerate import Accelerator

from gsure.data.inspection import inspect_file
from gsure.data.measurements import Measurements
from gsure.display import with_error
from gsure.files import Request, as_request, replacing
from gsure.training import checkpoints
from gsure.training.checkpoints import TrainState
from gsure.training.settings import Settings, known

VERSION = 2
"""Of the folder: its files, and the names of settings."""


@dataclass(frozen=True)
class DataInfo:
    """What a run must know of its data, to build the denoiser and to recognise the data when it is resumed."""

    shape: tuple[int, ...]
    basis: str
    mask_shape: tuple[int, ...]
    unit: tuple[int, ...]
    is_complex: bool
    max_std: float
    scales: tuple[float, float]
    """Smallest and largest number that raw signals were divided by."""
    samples: int
    made_by: dict[str, Any]

    @staticmethod
    def of(data: Measurements) -> "DataInfo":
        scales = data.scales()
        return DataInfo(
            shape=tuple(data.shape),
            basis=type(data.basis).__name__,
            mask_shape=data.mask_shape,
            unit=data.unit,
            is_complex=data.header["complex"],
            max_std=data.max_std,
            scales=(float(scales.min()), float(scales.max())),
            samples=len(data),
            made_by={key: data.header[key] for key in ("source", "corruption", "sigma_0", "seed")},
        )


@dataclass(frozen=True)
class Config:
    """config.yaml: the settings, the files, what is known of the data, and the request that the run answers."""

    settings: Settings
    data_info: DataInfo
    data: str
    clean: str | None
    own_network: bool
    request: Request
    data_request: Request
    """What `gsure corrupt` or `gsure import` was asked for."""

    def learned_from_imputed(self, step: int) -> bool:
        """Whether the weights of this step have learned from signals whose missing part was imputed."""
        return any(at < step for at in self.settings.impute_at)

    def as_dict(self) -> dict[str, Any]:
        plain = json.loads(json.dumps(dataclasses.asdict(self)))  # tuples to lists, as YAML and JSON want them
        return {"version": VERSION, **plain}

    @staticmethod
    def from_dict(values: Mapping[str, Any], where: str) -> "Config":
        try:
            if (version := values["version"]) != VERSION:
                raise ValueError(
                    f"{where} has format version {version!r}, but this gsure reads version {VERSION} only."
                )
            info: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value
                for key, value in dict(values["data_info"]).items()
            }
            settings = Settings(**known(values["settings"], where))
            data, clean, own_network = (values[key] for key in ("data", "clean", "own_network"))
            if not isinstance(data, str) or not isinstance(clean, str | None) or not isinstance(own_network, bool):
                raise TypeError("data, clean or own_network is of another type")
            requests = (as_request(values[key]) for key in ("request", "data_request"))
            return Config(settings, DataInfo(**info), data, clean, own_network, *requests)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{where} is not a configuration that this gsure can read ({error}).") from error


@dataclass(frozen=True)
class Run:
    """A folder that `gsure train` wrote."""

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
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"{path} is damaged: it is not YAML.") from error
        return Config.from_dict(values if isinstance(values, dict) else {}, str(path))

    def write_config(self, config: Config) -> None:
        with replacing(self.path / "config.yaml") as temporary:
            temporary.write_text(yaml.safe_dump(config.as_dict(), sort_keys=False, allow_unicode=True))

    def start(self, config: Config, tensors: Mapping[str, torch.Tensor], header: Mapping[str, Any]) -> None:
        """Create the folder. Its first checkpoint comes before config.yaml, which makes it a run: any run can be resumed."""
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(
                f"The folder {self.path} cannot be created: {error.strerror}. Choose another --out."
            ) from error
        checkpoints.write(checkpoints.path_of(self.checkpoints, 0), tensors, header)
        self.write_config(config)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from training in this folder, if there is one."""
        if not self.path.exists():
            yield
            return
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(
                    f"Another process is training in {self.path}: wait for it, or choose another --out."
                ) from None
            yield

    def is_empty(self) -> bool:
        """Nothing in it, or only what a run that was killed in its first moment left there."""
        return self.path.is_dir() and all(inside.name in ("checkpoints", ".lock") for inside in self.path.iterdir())

    def archive(self) -> Path:
        """A run may be days of work: --force makes room for another, but deletes nothing."""
        names = (self.path.with_name(f"{self.path.name}.old-{k}") for k in itertools.count(1))
        return self.path.rename(next(name for name in names if not name.exists()))

    def read_metrics(self) -> list[dict[str, Any]]:
        """Every line; the last may be incomplete, if the run was killed while writing it."""
        lines = self.metrics.read_text(errors="replace").splitlines() if self.metrics.exists() else []
        parsed = []
        for number, line in enumerate(lines):
            try:
                values = json.loads(line)
            except (json.JSONDecodeError, RecursionError) as error:
                if number == len(lines) - 1:
                    break
                raise ValueError(f"{self.metrics} is damaged at line {number + 1}: it is not JSON.") from error
            if not isinstance(values, dict) or not isinstance(values.get("step"), int):
                raise ValueError(f"{self.metrics} is damaged at line {number + 1}: it has no step.")
            parsed.append(values)
        return parsed

    def discard_metrics_after(self, step: int) -> None:
        lines = [json.dumps(line) + "\n" for line in self.read_metrics() if line["step"] <= step]
        with replacing(self.metrics) as temporary:
            temporary.write_text("".join(lines))


class Log:
    """metrics.jsonl, and TensorBoard if asked for. Speed counts from the last line on, without the time inside `aside()`."""

    def __init__(self, run: Run, accelerator: Accelerator, first: int = 0, tensorboard: bool = False) -> None:
        self.run, self.accelerator, self.board = run, accelerator, None
        if tensorboard and accelerator.is_main_process:
            self.board = summary_writer()(str(run.path / "tensorboard"), purge_step=first + 1)
        self.began, self.logged = time.monotonic(), first

    def close(self) -> None:
        if self.board is not None:
            self.board.close()

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Time that does not count as training."""
        left = time.monotonic()
        yield
        self.began += time.monotonic() - left

    def write(self, state: TrainState) -> str:
        """Log the mean loss since the last time; returns it in words."""
        loss = float(np.mean(state.take_losses()))
        if self.accelerator.num_processes > 1:
            loss = float(self.accelerator.reduce(torch.tensor(loss, device=self.accelerator.device), "mean"))
        line = {
            "step": state.step,
            "loss": loss,
            "lr": state.optimizer.param_groups[0]["lr"],
            "steps_per_second": (state.step - self.logged) / (time.monotonic() - self.began),
            "memory_gb": _peak_memory(self.accelerator.device) / 1e9,
        }
        self._append(line)
        self.began, self.logged = time.monotonic(), state.step
        return f"loss {loss:.4f}"

    def write_validation(self, step: int, result: dict[str, Any], is_best: bool) -> str:
        self._append({"step": step, "validation": result})
        parts = [f"{words} {value}" for words, value in _in_words(result).items()]
        return f"step {step:,}: {', '.join(parts)}{' (best so far)' if is_best else ''}"

    def _append(self, line: dict[str, Any]) -> None:
        if not self.accelerator.is_main_process:
            return
        with self.run.metrics.open("a") as file:
            file.write(json.dumps(line) + "\n")
        if self.board is not None:
            for name, value in line.get("validation", line).items():
                if name not in ("step", "t_bins"):
                    self.board.add_scalar(name, value["mean"] if isinstance(value, dict) else value, line["step"])


def _in_words(result: Mapping[str, Any]) -> dict[str, str]:
    names = {"estimate": "held-out error", "true": "true error", "full": "error on fully sampled signals"}
    found = [(words, result[name]) for name, words in names.items() if name in result]
    return {words: with_error(value["mean"], value["se"]) for words, value in found}


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")  # where there is one: ru_maxrss starts at the peak of the parent process
    if status.exists() and (match := re.search(r"VmHWM:\s+(\d+) kB", status.read_text())):
        return int(match[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def summary_writer() -> Any:
    """The class that writes for TensorBoard; a sentence if it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ValueError("TensorBoard is not installed: pip install 'gsure-diffusion[tensorboard]'.") from error
    return SummaryWriter


def inspect(
    path: str | Path, figure: str | Path | None = None, clean: str | Path | None = None, force: bool = False
) -> dict[str, Any]:
    """A summary of a run or of a file, which can be printed or turned to JSON.

    With `figure`, a PNG of the first samples of a file is drawn too, beside the signals of `clean` if given.
    """
    if not Run(Path(path)).exists():
        return inspect_file(path, figure, clean, force)
    if figure is not None or clean is not None:
        raise ValueError(f"{path} is a run: its pictures are in its folders samples and denoised.")
    return summarize(Run(Path(path)))


def summarize(run: Run) -> dict[str, Any]:
    """Step, loss, speed, validation and checkpoints."""
    config, lines = run.config, run.read_metrics()
    settings = config.settings
    logged = [line for line in lines if "loss" in line]
    validated = [line for line in lines if "validation" in line]
    steps = checkpoints.steps_of(run.checkpoints)
    summary: dict[str, Any] = {
        "run": str(run.path),
        "data": config.data,
        "trained on": settings.train_on,
        "objective": settings.objective,
        "step": max([line["step"] for line in lines] + steps, default=0),
        "of": settings.steps,
        "checkpoints": ", ".join(f"{step:,}" for step in sorted(steps)) or "none: the run cannot be resumed",
    }
    if logged:
        last = logged[-1]
        summary["loss"] = last["loss"]
        summary["speed"] = f"{last['steps_per_second']:.2g} steps/s, {last['memory_gb']:.1f} GB"
    if validated:
        result = validated[-1]["validation"]
        names = {"estimate": "held-out error", "true": "true error", "full": "error on full signals"}
        summary |= {
            words: with_error(result[name]["mean"], result[name]["se"])
            for name, words in names.items()
            if name in result
        }
    if run.best.exists():
        best = checkpoints.read(run.best).header["best"]
        summary["best"] = f"{with_error(best['mean'], best['se'])} at step {best['step']:,}"
    summary["gsure"] = config.request.get("gsure")
    return summary
