"""What the network learns from. Training on clean or naive data is a choice made here, and not a branch of the loop."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gsure.data.measurements import Measurements, Signals
from gsure.data.source import evenly_spread
from gsure.measurement import Measurement
from gsure.random import Generators, uniform
from gsure.training.settings import Settings


class Pair(NamedTuple):
    """What the network sees, and what the loss compares its output with.

    Without an input, the objective hides a part of the target, if asked to, and shows the network the rest.
    """

    input: Measurement | None
    target: Measurement
    as_measured: Measurement | None = None
    """What was measured, if the target is something else: the clean signal behind it."""

    @property
    def measured(self) -> Measurement:
        return self.target if self.as_measured is None else self.as_measured

    def to(self, device: torch.device) -> "Pair":
        return Pair(*(None if part is None else part.to(device) for part in self))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Examples:
    """Training pairs from a file: measurements, measurements as if they were clean, or clean signals (`settings.train_on`).

    `positions` count the measurements of this object, which may be a part of the file; `measurements.indices[positions]`
    are their numbers in the file.
    """

    measurements: Measurements
    signals: Signals | None
    settings: Settings
    imputed: Callable[[np.ndarray], Tensor] | None = None
    """Reads fully sampled signals at positions: what was measured, and draws of a model for the rest."""

    def __len__(self) -> int:
        return len(self.measurements)

    def target(self, positions: Sequence[int] | np.ndarray) -> Measurement:
        match self.settings.train_on:
            case "measurements":
                return self.measurements[positions]
            case "naive":
                return Measurement.clean(self.measurements[positions].ybar)
            case "clean":
                return Measurement.clean(self.xbar(positions))

    def for_prior(self, positions: Sequence[int] | np.ndarray) -> Measurement:
        """What the Gaussian prior is fitted to. Clean signals are measurements in which nothing is missing."""
        measured = self.measurements[positions]
        if self.settings.train_on == "measurements":
            return measured
        ybar = self.target(positions).ybar
        return Measurement._trusted(ybar, torch.ones_like(measured.mask), torch.zeros_like(measured.std))

    def as_measured(self, positions: Sequence[int] | np.ndarray) -> Measurement:
        """The same signals with the masks of the measurements, to hide and predict some entries."""
        measured, full = self.measurements[positions], self.for_prior(positions)
        return Measurement._trusted(measured.mask * full.ybar, measured.mask, full.std.expand_as(measured.std))

    def pair(self, positions: Sequence[int] | np.ndarray) -> Pair:
        target = self.target(positions)
        measured = self.measurements[positions] if self.settings.train_on == "clean" else None
        if self.imputed is None:
            return Pair(None, target, measured)
        imputed = self.measurements.basis.to_spectral(self.imputed(np.asarray(positions)))
        return Pair(target.impute(imputed), target, measured)

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

    @property
    def max_std(self) -> float:
        return self.measurements.max_std if self.settings.train_on == "measurements" else 0.0

    def augment(self, pair: Pair, generator: Generators) -> Pair:
        """Half of the samples mirrored, together with their masks and std: a measurement of the mirrored signal."""
        if not self.settings.flip:
            return pair
        ybar = pair.target.ybar
        chosen = uniform((len(ybar),), generator, like=ybar).reshape(-1, *[1] * (ybar.ndim - 1)) < 0.5

        def mirrored(m: Measurement) -> Measurement:
            parts = (torch.where(chosen, part.flip(-1), part) for part in (m.ybar, m.mask, m.std))
            return Measurement._trusted(*parts)

        return Pair(*(None if part is None else mirrored(part) for part in pair))  # type: ignore[arg-type]

    def spread(self, n: int) -> "Examples":
        """At most n of them, from all over the file."""
        return replace(self, measurements=self.measurements.subset(evenly_spread(n, len(self))))


def open_examples(
    measurements: Measurements, clean: Signals | None, settings: Settings
) -> tuple[Examples, Examples | None]:
    """Those to train on, and those held out; a group is never on both sides."""
    if problems := list(_problems(measurements, clean, settings)):
        raise ValueError("\n".join(problems))
    if settings.held_out == 0:
        return Examples(measurements, clean, settings), None
    train, held_out = measurements.split(settings.held_out, settings.seed)
    judged = settings
    if settings.train_on == "naive":  # is validated on what was measured; a clean-trained reference on clean signals
        judged = replace(settings, train_on="measurements")
    return Examples(train, clean, settings), Examples(held_out, clean, judged)


def _problems(measurements: Measurements, clean: Signals | None, settings: Settings) -> Iterator[str]:
    if settings.train_on == "clean" and clean is None:
        yield "--train-on clean needs the clean signals: give their file (--clean, in Python clean=)."
    if settings.flip and not measurements.basis.is_signal:
        yield (
            f"--flip mirrors measurements, which equals measuring a mirrored signal only where masks lie in signal space, "
            f"but these masks lie in {measurements.basis}: omit it."
        )
    coverage = measurements.coverage
    if settings.flip and not torch.allclose(coverage, coverage.flip(-1)):
        yield "--flip needs a coverage E[P] that is its own mirror image, and that of this data is not: omit it."
    if settings.train_on == "naive" and settings.purpose != "generate":
        yield (
            "--purpose restore and both predict what is hidden, but --train-on naive takes measurements for clean signals, in "
            "which nothing is missing: use --purpose generate."
        )
    if settings.train_on != "measurements" and settings.purpose == "generate":
        asked = {"--hide hides a part of": settings.hide, "--impute-at imputes the rest of": settings.impute_at}
        for does in (does for does, value in asked.items() if value):
            yield f"{does} what was measured, but --train-on {settings.train_on} takes all data for clean: omit it."
