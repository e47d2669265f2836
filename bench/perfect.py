"""What perfect imputation would gain: train as by a preset, but fill in what was not measured with the truth.

    python bench/perfect.py MEASUREMENTS CLEAN OUT [--preset phantom32]

The loss counts what was measured and nothing else, as always. So what is left between this and a clean-trained reference is
the price of incomplete targets, and what it gains over the preset is the price of imperfect draws. OUT is a run like any
other: `gsure restore` takes it. docs/results/README.md has the numbers of phantom32; 25 minutes on one core.
"""

import argparse
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gsure.denoiser import NetworkDenoiser
from gsure.files import record_request
from gsure.training.examples import Examples
from gsure.training.loop import Loop, accelerated
from gsure.training.run import Log, Run
from gsure.training.settings import Settings, read_preset
from gsure.training.setup import setup
from gsure.training.tasks import Diffusing, Stage, Task


def with_truth(examples: Examples) -> Examples:
    """Instead of imputed signals: the clean ones behind the measurements."""
    signals, indices = examples.signals, examples.measurements.indices
    assert signals is not None
    return dataclasses.replace(examples, imputed=lambda positions: signals[indices[positions]])


@dataclass(frozen=True)
class Perfect:
    """A curriculum: perfectly imputed signals from the first step on."""

    examples: Examples
    held_out: Examples | None
    task: Task
    changes_at: tuple[int, ...] = ()

    def at(self, step: int, averaged: NetworkDenoiser) -> Stage:
        held_out = None if self.held_out is None else with_truth(self.held_out)
        return Stage(with_truth(self.examples), held_out, (self.task,))


def train_perfectly(measurements: str, clean: str, out: str, settings: Settings) -> None:
    run, request = Run(Path(out)), record_request("bench/perfect.py", {"measurements": measurements, "clean": clean})
    with accelerated(settings.precision) as accelerator:
        ready = setup(accelerator, measurements, run, settings, request, clean=clean)
        loop = Loop(accelerator, run, ready.config, Log(run, accelerator))
        curriculum = Perfect(ready.examples, ready.held_out, Diffusing(ready.objective))
        loop(ready.state, curriculum, ready.introduction, progress=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("measurements", "clean", "out"):
        parser.add_argument(name)
    parser.add_argument("--preset", default="phantom32")
    parser.add_argument("--steps", type=int, help="fewer, to see that it works")
    options = parser.parse_args(arguments)
    changes: dict[str, Any] = {"impute_at": []} | ({} if options.steps is None else {"steps": options.steps})
    train_perfectly(options.measurements, options.clean, options.out, Settings(**read_preset(options.preset, changes)))


if __name__ == "__main__":
    main()
