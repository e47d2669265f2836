"""Steps of experiments. Each does nothing if its result exists, and resumes if a part of it exists."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from gsure.corruption import FAMILIES
from gsure.data.corrupt import corrupt
from gsure.data.measurements import open_measurements
from gsure.data.sources import Source
from gsure.training import checkpoints
from gsure.training.auto import choose_settings
from gsure.training.run import Run
from gsure.training.settings import Settings, known, option, read_preset
from gsure.training.train import train


def refuse_file(folder: Path, option: str) -> None:
    """Raise an error if the path of a folder is a file."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, not a folder: choose another {option}.")


def measure_once(
    source: Source, data: Path, clean: Path, corruption: Mapping[str, Any], sigma: float, progress: bool, **options: Any
) -> None:
    """Corrupt a source. `corruption` has the name of a family and its options; other options are those of `corrupt`."""
    if data.exists() and clean.exists():
        return
    data.parent.mkdir(parents=True, exist_ok=True)
    family = FAMILIES[corruption["name"]](**{key: value for key, value in corruption.items() if key != "name"})
    corrupt(source, data, family, sigma, clean=clean, force=True, progress=progress, **options)


def resolve(preset: str, changes: Mapping[str, Any], data: Path) -> Settings:
    """A preset with some settings changed. `auto` fits the data, and does not depend on the speed of this computer."""
    if preset == "auto":
        return choose_settings(open_measurements(data), known(changes, "The experiment"), timed=False).settings
    return Settings(**read_preset(preset, changes))


def train_once(data: Path, out: Path, settings: Settings, clean: Path, progress: bool) -> None:
    """Train until the last step. If you interrupt `train`, it saves and returns, and this raises KeyboardInterrupt."""
    run = Run(out)
    if run.exists() and (changes := _changes(run.config.settings, settings)):
        told = "; ".join(f"{option(name)} was {old}, now {new}" for name, (old, new) in changes.items())
        raise ValueError(f"{out} was trained with different settings ({told}): remove it, or choose another folder.")
    _finish(run, data, settings, clean, progress)


def train_for(data: Path, out: Path, changes: Mapping[str, Any], clean: Path, progress: bool) -> Settings:
    """The same with settings that fit the data and the speed of this computer, now; or with those of the run, if it exists.

    Returns the settings of the run, with its number of steps. `changes` may have a time budget, `minutes`.
    """
    run = Run(out)
    if run.exists():
        settings = run.config.settings
    else:
        chosen = choose_settings(open_measurements(data), known(changes, "The demo"))
        torch.set_num_threads(chosen.threads)
        settings = chosen.settings
    _finish(run, data, settings, clean, progress)
    return run.config.settings


def _finish(run: Run, data: Path, settings: Settings, clean: Path, progress: bool) -> None:
    if not _is_finished(run):
        train(data, run.path, settings, clean=clean, resume=run.exists(), progress=progress)
        if not _is_finished(run):
            raise KeyboardInterrupt


def _is_finished(run: Run) -> bool:
    return run.exists() and _last_step(run) >= run.config.settings.steps > 0


def _changes(before: Settings, now: Settings) -> dict[str, tuple[Any, Any]]:
    """All changed settings. `steps` is one: samples of a shorter run would not match those of a longer one."""
    steps = {} if before.steps == now.steps else {"steps": (before.steps, now.steps)}
    return before.differences(now) | steps


def _last_step(run: Run) -> int:
    return max(checkpoints.steps_of(run.checkpoints), default=0)
