"""The steps of an experiment. Each keeps its result in a folder named by its settings, and reuses it.

Each step is one of the commands, so an interrupted step resumes where it stopped.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gsure.data.sources import Source, open_source
from gsure.experiments.chain import measure_once, resolve, train_once
from gsure.experiments.tint import Tinted
from gsure.inference.restore import restore
from gsure.inference.sample import sample
from gsure.training.settings import Settings, read_preset


@dataclass(frozen=True)
class Measured:
    """Simulated measurements, and the clean signals behind them."""

    data: Path
    clean: Path


@dataclass(frozen=True)
class Work:
    """The folder of all results. `data` is the folder of the dataset, if the experiment needs one."""

    folder: Path
    data: Path | None = None
    progress: bool = False

    def source(self, asked: Mapping[str, Any]) -> Source:
        """`asked` has the name of the source, with `{data}` for the user's folder, its options, and whether to tint it."""
        name = asked["source"]
        if "{data}" in name:
            if self.data is None:
                raise ValueError(f"This experiment needs the dataset {asked['needs']}: give its folder with --data.")
            name = name.replace("{data}", str(self.data))
        source = open_source(name, **asked.get("options", {}))
        return Tinted(source) if asked.get("tinted") else source

    def measured(self, asked: Mapping[str, Any], corruption: Mapping[str, Any], sigma: float) -> Measured:
        folder = self.folder / "data" / _name("data", {**asked, "corruption": dict(corruption), "sigma": sigma})
        files = Measured(folder / "measurements.h5", folder / "clean.h5")
        measure_once(
            self.source(asked),
            files.data,
            files.clean,
            corruption,
            sigma,
            self.progress,
            limit=asked.get("limit"),
            seed=asked.get("seed", 0),
        )
        return files

    def trained(self, files: Measured, preset: str, changes: Mapping[str, Any]) -> Path:
        """A finished run. Its folder does not depend on settings that do not affect the weights, such as `picture_every`."""
        settings = resolve(preset, changes, files.data)
        asked = {"data": files.data.parent.name} | training(preset, changes)
        run = self.folder / "runs" / _name(f"{preset}-{settings.train_on}", asked)
        train_once(files.data, run, settings, files.clean, self.progress)
        return run

    def sampled(self, run: Path, n: int, **options: Any) -> Path:
        out = self.folder_of_samples(run.name, **options)
        sample(run, n, out, progress=self.progress, **options)
        return out

    def folder_of_samples(self, run: str, **options: Any) -> Path:
        return self.folder / "samples" / _name(run, options)

    def restored(self, run: Path, files: Measured, **options: Any) -> Path:
        out = self.folder / "restored" / _name(run.name, {"data": files.data.parent.name} | options)
        if not (out / "summary.json").exists():
            restore(run, files.data, out, clean=files.clean, panels=0, progress=self.progress, **options)
        return out


def training(preset: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the weights depend on. Omits defaults, so that a new setting does not rename existing runs."""
    if preset == "auto":  # the others follow from the data, which has its own place in a digest
        return {"preset": preset, **changes}
    settings = Settings(**read_preset(preset, changes))
    differing = {name: value for name, (_, value) in Settings().differences(settings).items()}
    return differing | {"steps": settings.steps}


def _name(prefix: str, asked: Mapping[str, Any]) -> str:
    return f"{prefix}-{digest(asked)}"


def digest(asked: Mapping[str, Any]) -> str:
    """The first ten hexadecimal digits of a hash of the content."""
    content = json.dumps(asked, sort_keys=True, default=list)
    return hashlib.sha256(content.encode()).hexdigest()[:10]
