"""What the network learns from. Oracle and naive are choices of data, made here, and not branches of the loop."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gsure.data.measurements import Measurements, Signals
from gsure.gaussian import check_size
from gsure.measurement import Measurement
from gsure.random import Generators, uniform
from gsure.training.settings import Settings


@dataclass(frozen=True)
class Examples:
    """Measurements of a file, as what they are, or one of the two things to compare with."""

    measurements: Measurements
    signals: Signals | None
    settings: Settings
    completed: Signals | None = None
    """Whole signals, one for each measurement: what was measured, and draws of a model for the rest."""

    def __len__(self) -> int:
        return len(self.measurements)

    def __getitem__(self, positions: Sequence[int] | np.ndarray) -> Measurement:
        match self.settings.train_on:
            case "measurements":
                return self.measurements[positions]
            case "naive":
                return Measurement.clean(self.measurements[positions].ybar)
            case "clean":
                return Measurement.clean(self.xbar(positions))

    def xbar(self, positions: Sequence[int] | np.ndarray) -> Tensor:
        """The clean signals behind these measurements."""
        assert self.signals is not None
        return self.measurements.basis.to_spectral(self.signals[self.measurements.indices[positions]])

    @property
    def coverage(self) -> Tensor:
        """E[P] of what the loss sees; 1 gives W = I."""
        if self.settings.train_on == "measurements" and self.settings.coverage_weighting:
            return self.measurements.coverage
        return torch.ones(())

    def shown(self, measurement: Measurement, positions: Sequence[int] | np.ndarray) -> Measurement:
        """What the network sees of these measurements: nothing else, or the signals that complete them."""
        if self.completed is None:
            return measurement
        return measurement.complete(self.measurements.basis.to_spectral(self.completed[positions]))

    def mirrored(self, measurements: Sequence[Measurement], generator: Generators) -> list[Measurement]:
        """Half of the samples mirrored, together with their masks and std: a measurement of the mirrored signal."""
        if not self.settings.flip:
            return list(measurements)
        ybar = measurements[0].ybar
        chosen = uniform((len(ybar),), generator, like=ybar).reshape(-1, *[1] * (ybar.ndim - 1)) < 0.5
        return [
            Measurement._trusted(*(torch.where(chosen, part.flip(-1), part) for part in (m.ybar, m.mask, m.std)))
            for m in measurements
        ]

    def spread(self, n: int) -> "Examples":
        """At most n of them, from all over the file."""
        n = min(n, len(self))
        chosen = np.arange(n) * len(self) // n
        return replace(self, measurements=self.measurements.subset(chosen))


def open_examples(
    measurements: Measurements, clean: Signals | None, settings: Settings
) -> tuple[Examples, Examples | None]:
    """Those to train on, and those held out; a group is never on both sides."""
    _refuse(measurements, clean, settings)
    if settings.held_out == 0:
        return Examples(measurements, clean, settings), None
    train, held_out = measurements.split(settings.held_out, settings.seed)
    if (
        settings.train_on == "naive"
    ):  # is judged by what was measured; an oracle by clean signals, for which it was made
        return Examples(train, clean, settings), Examples(held_out, clean, replace(settings, train_on="measurements"))
    return Examples(train, clean, settings), Examples(held_out, clean, settings)


def _refuse(measurements: Measurements, clean: Signals | None, settings: Settings) -> None:
    if settings.train_on == "clean" and clean is None:
        raise ValueError("An oracle learns from clean signals: give their file by --clean.")
    if settings.flip and not measurements.basis.is_signal:
        raise ValueError(
            f"--flip mirrors measurements, which is the measurement of a mirrored signal where masks lie in signal space, "
            f"but these were made in {measurements.basis}: leave it away."
        )
    coverage = measurements.coverage
    if settings.flip and not torch.allclose(coverage, coverage.flip(-1)):
        raise ValueError("--flip needs a coverage E[P] that is its own mirror image, and that of this data is not.")
    if settings.train_on != "measurements":
        asked = {"--hide hides a part of": settings.hide, "--impute-at fills in the rest of": settings.impute_at}
        for does in (does for does, value in asked.items() if value):
            raise ValueError(f"{does} what was measured; with --train-on {settings.train_on} all counts as clean.")
    if 0 in settings.impute_at:
        check_size(math.prod(measurements.shape) // (2 if measurements.header["complex"] else 1))
