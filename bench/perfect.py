"""What perfect completion would bring: training as by a preset, but what was not measured is filled in by what is true.

    python bench/perfect.py MEASUREMENTS CLEAN OUT [--preset phantom32]

Scored is what was measured and nothing else, as always. So what is left between this and an oracle is the price of targets
with holes, and what it gains over the preset is the price of draws from another law than the true one. OUT is a run like any
other: `gsure restore` takes it. docs/results/README.md has the numbers of phantom32; 25 minutes on one core.
"""

import argparse
from dataclasses import replace
from typing import Any, cast
from unittest import mock

import numpy as np
from torch import Tensor

import gsure
from gsure.data.measurements import Signals
from gsure.training.examples import Examples
from gsure.training.settings import Settings, read_preset
from gsure.training.state import TrainState


class Truth:
    """In place of completed signals: the clean ones behind the measurements."""

    def __init__(self, examples: Examples) -> None:
        assert examples.signals is not None
        self.signals, self.indices = examples.signals, examples.measurements.indices

    def __getitem__(self, positions: np.ndarray) -> Tensor:
        return self.signals[self.indices[positions]]


def tell_the_truth(state: TrainState, _step: int, _progress: bool) -> None:
    state.examples = replace(state.examples, completed=cast(Signals, Truth(state.examples)))
    if state.held_out is not None:
        state.held_out = replace(state.held_out, completed=cast(Signals, Truth(state.held_out)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("measurements", "clean", "out"):
        parser.add_argument(name)
    parser.add_argument("--preset", default="phantom32")
    options = parser.parse_args()
    settings: dict[str, Any] = read_preset(options.preset) | {"impute_at": [0]}
    with mock.patch("gsure.training.loop.complete", tell_the_truth):
        gsure.train(options.measurements, options.out, Settings(**settings), clean=options.clean, progress=True)


if __name__ == "__main__":
    main()
