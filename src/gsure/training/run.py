"""The run folder: what was asked for, what came out, the log on the way, and a summary."""

import contextlib
import fcntl
import itertools
import json
import re
import resource
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from accelerate import Accelerator
from torch import nn

from gsure.basis import Basis
from gsure.data.inspection import inspect_file
from gsure.data.measurements import Measurements
from gsure.data.memory import save
from gsure.denoiser import NetworkDenoiser
from gsure.display import with_error
from gsure.files import replacing
from gsure.training import checkpoints
from gsure.training.checkpoints import TrainState, Weights
from gsure.training.settings import Config

LEFT_BY_A_KILL = ("checkpoints", ".lock", "measurements.h5", ".measurements.h5.tmp")
"""What may be in a folder that is not a run yet."""


@dataclass(frozen=True)
class Run:
    """A folder that `gsure train` wrote. `gsure.sample`, `restore`, `evaluate_*` and `diagnose` take it, or its path.

    `network` and `basis` are your own, if the run was trained with such.
    """

    path: Path
    network: nn.Module | None = field(default=None, compare=False, repr=False)
    basis: Basis | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def denoiser(self) -> NetworkDenoiser:
        """The denoiser of the checkpoint that validated best; `gsure.load` has others."""
        from gsure.training.model import load

        return load(self)

    def summary(self) -> dict[str, Any]:
        """Step, loss, speed, validation and checkpoints."""
        return summarize(self)

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def best(self) -> Path:
        return self.checkpoints / "best.safetensors"

    @property
    def gaussian(self) -> Path:
        return self.path / "gaussian.safetensors"

    @property
    def verdict(self) -> Path:
        """Written at the end of training: whether the model is better than no model."""
        return self.path / "verdict.json"

    @property
    def calibration(self) -> Path:
        """Written by `gsure calibrate`: error bars of the right size, and what errors are usual."""
        return self.path / "calibration.json"

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

    @property
    def own_data(self) -> Path:
        """Where a run keeps measurements that were given in memory."""
        return self.path / "measurements.h5"

    def start(
        self, config: Config, tensors: Mapping[str, torch.Tensor], header: Mapping[str, Any], data: Measurements
    ) -> None:
        """Create the folder. Its first checkpoint comes before config.yaml, which makes it a run: any run can be resumed."""
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(
                f"The folder {self.path} cannot be created: {error.strerror}. Choose another folder."
            ) from error
        if data.path is None:
            save(self.own_data, data, force=True)
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
                    f"Another process is training in {self.path}: wait for it, or choose another folder."
                ) from None
            yield

    def is_empty(self) -> bool:
        """Nothing in it, or only what a run that was killed in its first moment left there."""
        return self.path.is_dir() and all(inside.name in LEFT_BY_A_KILL for inside in self.path.iterdir())

    def discard(self) -> None:
        """Remove a run that has done no step."""
        (self.path / "config.yaml").unlink()  # without it, this is no run
        shutil.rmtree(self.path)

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
            "memory_gb": peak_memory(self.accelerator.device) / 1e9,
        }
        self._append(line)
        self.began, self.logged = time.monotonic(), state.step
        return f"loss {loss:.4f}"

    def write_validation(
        self, step: int, results: Mapping[Weights, dict[str, Any]], chosen: Weights, is_best: bool
    ) -> str:
        """`results` are those of both sets of weights; `chosen` are the better ones."""
        both = {weights: result["estimate"]["mean"] for weights, result in results.items()}
        self._append({"step": step, "validation": results[chosen], "weights": chosen, "held_out_error": both})
        parts = [f"{words} {value}" for words, value in _in_words(results[chosen]).items()]
        return f"step {step:,}: {', '.join(parts)}, {chosen} weights{' (best so far)' if is_best else ''}"

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
    """A validation of denoising has bins of t; one of restoration in one call has none."""
    names = {"estimate": "held-out error", "true": "true error", "full": "error on fully sampled signals"}
    if not result.get("t_bins"):
        names = {"estimate": "held-out error relative to the Gaussian prior", "full": "error of restored signals"}
    found = [(words, result[name]) for name, words in names.items() if name in result]
    return {words: with_error(value["mean"], value["se"]) for words, value in found}


def peak_memory(device: torch.device) -> int:
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
        drawn = {} if figure is None else {"figure": str(figure)}
        return inspect_file(path, figure, clean, force) | drawn
    if figure is not None or clean is not None:
        raise ValueError(f"{path} is a run: its pictures are in its folders samples and denoised.")
    return summarize(Run(Path(path)))


def read_verdict(run: Run) -> dict[str, Any]:
    try:
        record = json.loads(run.verdict.read_text())
        if not isinstance(record["verdict"], str):
            raise TypeError
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{run.verdict} is damaged: delete it, and resume the run.") from error
    return record


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
        "planned steps": settings.steps,
        "checkpoints": ", ".join(f"{step:,}" for step in sorted(steps)) or "none: the run cannot be resumed",
    }
    if logged:
        last = logged[-1]
        summary["loss"] = last["loss"]
        summary["speed"] = f"{last['steps_per_second']:.2g} steps/s"
        summary["memory"] = f"{last['memory_gb']:.1f} GB at most"
    if validated:
        summary |= _in_words(validated[-1]["validation"])
    if run.verdict.exists():
        summary = {"verdict": read_verdict(run)["verdict"]} | summary
    if run.best.exists():
        best = checkpoints.read(run.best).header["best"]
        summary["best"] = f"{with_error(best['mean'], best['se'])} at step {best['step']:,}, {best['weights']} weights"
    summary["gsure"] = config.request.get("gsure")
    return summary
