"""Recognise draws that cannot be right: they contradict their own measurement, or leave the range of the data. And report
draws that may be farther from the truth than the zero-filled image.

A sampler can diverge for single draws, for example where a network is poor at some noise level. Such a draw would spoil the
mean and the standard deviation of all draws.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gsure.basis import Basis
from gsure.data.chunks import read_records, write_records
from gsure.measurement import Measurement

TOLERANCE = 0.05
"""Residual that a network may leave without any noise, as a share of the root mean square of the measured entries."""
CHI2 = 4.0
"""Largest χ² per measured entry, for many entries: a residual twice as large as noise and tolerance."""
PEAK, POWER = 3.0, 1.5
"""Largest value, and largest root mean square of a signal, over those of the measurements."""

SHOWN = 8
"""Measurements that the summary names."""
MARGIN = 0.15
"""Draws are reported as below the zero-filled image even if the slope is smaller than the estimated one by this much."""


def chi_squared(xbar: Float[Tensor, "b *n"], measurement: Measurement) -> Float[Tensor, " b"]:
    """Σ (ȳ - x̄)²/(std² + tolerance²) over the measured entries, per entry. A draw from the posterior has 1 or less."""
    mask = measurement.mask.expand_as(xbar)
    kept = mask.flatten(1).sum(1).clamp(min=1)
    size = (measurement.ybar.square().flatten(1).sum(1) / kept).reshape(-1, *[1] * (xbar.ndim - 1))
    allowed = measurement.std**2 + TOLERANCE**2 * size
    away = mask * (measurement.ybar - xbar).square() / torch.where(allowed > 0, allowed, 1.0)
    return away.flatten(1).sum(1) / kept


def is_below_baseline(
    xbar: Float[Tensor, "b *n"],
    mean: Float[Tensor, "b *n"],
    measurement: Measurement,
    slope: Float[Tensor, " b"] | None = None,
) -> Bool[Tensor, " b"]:
    """Which draws may be no better than the pseudo-inverse, which is 0 at missing entries.

    Over the missing entries, the squared error of a draw d less that of 0 is |d|² - 2⟨d, x⟩. The truth x is expected to be
    slope · m, where m is the mean of a restoration: the slope is that of hidden entries (`Evidence.slope`).
    """
    missing = 1 - measurement.mask
    square, product = ((missing * xbar * part).flatten(1).sum(1) for part in (xbar, mean))
    expected = (torch.ones_like(square) if slope is None else slope.to(square)) - MARGIN
    return ~(square < 2 * expected * product) & (missing.expand_as(xbar).flatten(1).sum(1) > 0)


@dataclass(frozen=True)
class Guard:
    """What draws are compared with, in addition to their own measurement."""

    peak: float
    """The largest absolute value of the pseudo-inverse."""
    power: float
    """The largest root mean square of a signal, with missing entries as large as measured ones."""

    @staticmethod
    def of(measurement: Measurement, basis: Basis, coverage: Float[Tensor, "..."]) -> "Guard":
        """From measurements of the same file. `coverage` is the share of measurements that have an entry."""
        squares = measurement.ybar.square() / torch.where(coverage > 0, coverage, 1.0)
        power = float(squares.flatten(1).mean(1).sqrt().max())
        return Guard(float(basis.to_signal(measurement.ybar).abs().max()), power)

    def rejects(self, xbar: Float[Tensor, "b *n"], measurement: Measurement, basis: Basis) -> Bool[Tensor, " b"]:
        """Which draws are wrong; each is judged on its own.

        The limit of χ² allows for its own standard deviation √(2/k) of k entries, five times.
        """
        kept = measurement.mask.expand_as(xbar).flatten(1).sum(1).clamp(min=1)
        limit = CHI2 * (1 + 5 * (2 / kept).sqrt())
        contradicts = ~(chi_squared(xbar, measurement) <= limit)  # also what is not finite
        x = basis.to_signal(xbar).flatten(1)
        too_large = ~(x.abs().amax(1) <= PEAK * self.peak) | ~(x.square().mean(1).sqrt() <= POWER * self.power)
        return contradicts | (too_large & (self.peak > 0))


def mean_and_std(
    x: Float[Tensor, "draws b *n"], is_bad: Bool[Tensor, "draws b"]
) -> tuple[Float[Tensor, "b *n"], Float[Tensor, "b *n"]]:
    """Over the draws that are not bad; over all of them where all are."""
    used = torch.where(is_bad.all(0), True, ~is_bad)
    weight = used.to(x).reshape(*used.shape, *[1] * (x.ndim - 2))
    count = weight.sum(0)
    x = torch.where(weight > 0, x, 0.0)  # bad draws may be infinite
    mean = x.sum(0) / count
    squares = (weight * (x - mean).square()).sum(0)
    return mean, (squares / (count - 1).clamp(min=1)).sqrt()


@dataclass
class Tally:
    """How many draws were repeated, excluded, or are below the zero-filled image, by position of their measurement."""

    repeated: dict[int, int] = field(default_factory=dict)
    excluded: dict[int, int] = field(default_factory=dict)
    below: dict[int, int] = field(default_factory=dict)
    """Draws that may be no better than the zero-filled image."""

    def add(self, where: Sequence[int], repeated: Bool[Tensor, "draws b"], excluded: Bool[Tensor, "draws b"]) -> None:
        for counts, found in ((self.repeated, repeated), (self.excluded, excluded)):
            counts.update(dict(zip(where, found.sum(0).tolist(), strict=True)))

    def add_below(self, where: Sequence[int], below: Bool[Tensor, "draws b"]) -> None:
        self.below.update(dict(zip(where, below.sum(0).tolist(), strict=True)))

    def write(self, path: Path, where: Sequence[int]) -> None:
        """The counts of some measurements."""
        counts = (self.repeated, self.excluded, self.below)
        write_records(path, {k: [count.get(k, 0) for count in counts] for k in where})

    @staticmethod
    def read(folder: Path) -> "Tally":
        """What all processes counted."""
        records = read_records(folder)
        return Tally(*({k: counts[kind] for k, counts in records.items()} for kind in range(3)))

    def summary(self, n: int, draws: int) -> dict[str, str]:
        """What a user must know of the first n measurements; empty if all draws were good."""
        said = {}
        if repeated := sum(count for k, count in self.repeated.items() if k < n):
            why = "contradicted their measurement or left the range of the data"
            said["repeated draws"] = f"{repeated:,} of {n * draws:,} {why}"
        if bad := _counted(self.excluded, n):
            said["excluded draws"] = (
                f"{sum(bad.values()):,} of {n * draws:,} are still wrong after smaller steps: {_named(bad, draws)}"
            )
        if below := _counted(self.below, n):
            said["draws below zero-filled"] = (
                f"{sum(below.values()):,} of {n * draws:,} may be farther from the truth than the zero-filled image, by "
                f"hidden entries: {_named(below, draws)}"
            )
        return said


def _counted(counts: dict[int, int], n: int) -> dict[int, int]:
    return {k: count for k, count in sorted(counts.items()) if count and k < n}


def _named(bad: dict[int, int], draws: int) -> str:
    which = [f"{k} (all)" if count == draws else str(k) for k, count in bad.items()]
    more = f" and {len(which) - SHOWN:,} more" if len(which) > SHOWN else ""
    return f"measurements {', '.join(which[:SHOWN])}{more}"
