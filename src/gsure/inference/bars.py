"""Calibrated error bars: what `restore` and `calibrate` do with hidden measured units. `gsure.judging` has the statistics."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gsure.files import read_json, replacing
from gsure.gaussian import About
from gsure.inference.guard import mean_and_std
from gsure.inference.methods import Estimates, Restorer
from gsure.judging import (
    Calibration,
    Evidence,
    Reliability,
    along_phase,
    compare,
    find_object,
    fit_calibration,
    group_units,
    split_units,
)
from gsure.judging.calibration import LIMITS, SPLITS
from gsure.measurement import Measurement
from gsure.random import Stream, generators, normal

CHECK_DRAWS = 2
"""Draws of each restoration with hidden units: their spread is averaged over many entries."""
RENOISE = 0.7
"""ȳ + wz and ȳ - z/w with z like the noise of ȳ have independent noise: the second one judges a restoration of the first."""
REMAINING = 0.75, 0.25
"""The share of the noise variance that is left in the mean at measured entries, and its standard deviation, a priori."""
MOST_SCALED = 3.0
"""Some samplers hardly vary measured entries. A spread that would need a larger factor is replaced by a share of the noise."""


class Hidden(NamedTuple):
    """Restorations of the same measurements with different units hidden."""

    targets: list[Measurement]
    """The hidden entries, by split."""
    means: list[Tensor]
    """Signals."""
    draws: list[Tensor]
    are_bad: list[Bool[Tensor, "draws b"]]


@dataclass(frozen=True)
class Checker:
    """Hides measured units, restores the rest, and compares."""

    restorer: Restorer
    about: About
    mask_shape: tuple[int, ...]
    real_images: bool
    seed: int

    @cached_property
    def groups(self) -> Tensor:
        return group_units(self.mask_shape, self.about.unit)

    def restore(self, measurement: Measurement, indices: Sequence[int], draws: int = CHECK_DRAWS) -> Hidden | None:
        """All splits go through the network as one batch. None if nothing can be hidden."""
        hidden = split_units(measurement, self.about, indices, self.seed, self.real_images)
        if hidden is None:
            return None
        shown = Measurement.cat([measurement.hide(some) for some in hidden])
        numbers = [-1 - SPLITS * index - k for k in range(SPLITS) for index in indices]  # noise of their own
        found = self.restorer.few(draws)(shown, numbers)
        n, bad = len(measurement), which_are_bad(found)
        parts = [slice(k * n, (k + 1) * n) for k in range(SPLITS)]
        return Hidden(
            [measurement.hide(1 - some) for some in hidden],
            [found.mean[part] for part in parts],
            [found.draws[:, part] for part in parts],
            [bad[:, part] for part in parts],
        )

    def evidence(self, hidden: Hidden) -> Evidence:
        """Of the first CHECK_DRAWS draws, so that the numbers of `calibrate` and `restore` can be compared."""
        to_spectral, groups, found = self.about.basis.to_spectral, self.groups, []
        for target, mean, drawn, bad in zip(*hidden, strict=True):
            few = drawn[:CHECK_DRAWS]
            xbar = to_spectral(few.flatten(0, 1)).unflatten(0, few.shape[:2])
            inside = find_object(mean, self.about.is_complex)
            parts = compare(target, to_spectral(mean), xbar, bad[:CHECK_DRAWS], inside, self.about, groups)
            found.append(self._for_more_draws(*parts, checked=len(drawn)))
        return Evidence(*(torch.stack(values, 1) for values in zip(*found, strict=True)))

    def _for_more_draws(
        self, error: Tensor, spread: Tensor, noise: Tensor, units: Tensor, checked: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The mean of K draws has 1/K of their variance as an error; here K is smaller than in the restoration."""
        if self.restorer.averages:
            error = error + spread * (1 / self.restorer.options()["draws"] - 1 / checked)
        return error, spread, noise, units

    def at_measured(self, measurement: Measurement, indices: Sequence[int]) -> Float[Tensor, "4 b"]:
        """Squared error less noise on measured entries, its variance by chance, the spread of the draws, and the noise of the
        restored measurement, all in the object."""
        where = measurement.ybar.device
        noise = generators(self.seed, Stream.CALIBRATION_NOISE, indices=indices, device=where)
        z = measurement.mask * measurement.std * normal(measurement.shape, noise, measurement.ybar)
        shown = Measurement._trusted(
            measurement.ybar + RENOISE * z, measurement.mask, measurement.std * (1 + RENOISE**2) ** 0.5
        )
        left = (1 + RENOISE**-2) ** 0.5
        target = Measurement._trusted(measurement.ybar - z / RENOISE, measurement.mask, measurement.std * left)
        found = self.restorer.few(CHECK_DRAWS)(shown, [-1 - SPLITS * index for index in indices])
        to_spectral = self.about.basis.to_spectral
        drawn = to_spectral(found.draws.flatten(0, 1)).unflatten(0, found.draws.shape[:2])
        inside, groups = find_object(found.mean, self.about.is_complex), torch.zeros_like(self.groups)
        parts = compare(target, to_spectral(found.mean), drawn, which_are_bad(found), inside, self.about, groups)
        error, spread, noise_there, _ = self._for_more_draws(*parts, checked=CHECK_DRAWS)
        entries = measurement.mask.expand_as(measurement.ybar).flatten(1).sum(1, dtype=torch.float64)
        chance = 2 * noise_there[:, 0] ** 2 / entries.clamp(min=1)
        shown_noise = noise_there[:, 0] * RENOISE**2  # (1 + w²) of (1 + 1/w²)
        return torch.stack([(error - noise_there)[:, 0], chance, spread[:, 0], shown_noise])


def which_are_bad(found: Estimates) -> Bool[Tensor, "draws b"]:
    """Excluded draws stand last."""
    draws, n = found.draws.shape[:2]
    good = torch.full((n,), draws) if found.excluded is None else (~found.excluded).sum(0)
    return torch.arange(draws)[:, None] >= good


Batches = Iterable[tuple[Measurement, list[int]]]
"""Measurements and their numbers."""


def learn(checker: Checker, batches: Batches) -> Calibration:
    """A calibration from hidden units of these measurements. A `ValueError` says if too little can be hidden."""
    evidence, measured = [], []
    for measurement, indices in batches:
        if (hidden := checker.restore(measurement, indices)) is not None:
            evidence.append(checker.evidence(hidden))
        if measurement.max_std > 0:
            measured.append(checker.at_measured(measurement, indices))
    return combine(evidence, measured)


def combine(evidence: Sequence[Evidence], measured: Sequence[Tensor]) -> Calibration:
    """From what `Checker` found for several batches."""
    factor, added = 1.0, 0.0
    if measured:
        error, chance, spread, noise = torch.cat(list(measured), 1).sum(1).tolist()
        usual, deviation = REMAINING
        precise, vague = deviation**-2, chance / max(noise, 1e-30) ** 2
        share = (usual * precise + error / max(noise, 1e-30) / max(vague, 1e-12)) / (precise + 1 / max(vague, 1e-12))
        share = max(share, LIMITS[0] ** 2)
        has = spread / max(noise, 1e-30)
        factor = min((share / has) ** 0.5, MOST_SCALED) if has > 0 else 1.0
        added = max(0.0, share - factor**2 * has)
    if not evidence:
        return fit_calibration(Evidence(*[torch.zeros(1, SPLITS, 1)] * 4), factor, added)
    return fit_calibration(Evidence.cat(list(evidence)), factor, added)


class Bars(NamedTuple):
    """Calibrated standard deviations, and what the own hidden units of each measurement say."""

    std: Float[Tensor, "b *n"]
    kappa: Float[Tensor, " b"]
    chi_squared: Float[Tensor, " b"]
    """NaN if nothing could be hidden."""


@dataclass(frozen=True)
class Calibrator:
    """Turns estimates into calibrated ones."""

    checker: Checker
    calibration: Calibration

    def __call__(self, measurement: Measurement, indices: Sequence[int], found: Estimates) -> Bars:
        hidden = self.checker.restore(measurement, indices)
        kappa, chi_squared = torch.ones(len(measurement)), torch.full((len(measurement),), torch.nan)
        if hidden is not None:
            evidence = self.checker.evidence(hidden)
            kappa, chi_squared = self.calibration.kappa(evidence), self.calibration.chi_squared(evidence)
        scaled = self.scale(found.draws, measurement, kappa)
        bad = which_are_bad(found)
        raw, corrected = mean_and_std(found.draws, bad)[1], mean_and_std(scaled, bad)[1]
        ratio = torch.where(raw > 0, corrected / torch.where(raw > 0, raw, 1.0), 1.0)
        noise = (measurement.mask * measurement.std**2).expand_as(raw)
        if not self.checker.about.basis.is_signal:
            noise = noise.flatten(1).mean(1).reshape(-1, *[1] * (raw.ndim - 1))
        std = ((found.std * ratio).square() + self.calibration.added * noise).sqrt()
        return Bars(std, kappa, chi_squared)

    def scale(
        self, draws: Float[Tensor, "draws b *n"], measurement: Measurement, kappa: Float[Tensor, " b"]
    ) -> Float[Tensor, "draws b *n"]:
        """Signals whose spread around their mean is that of the calibration; their mean has no meaning."""
        basis, factors = self.checker.about.basis, self.calibration.factors.to(draws)[self.checker.groups]
        own = kappa.to(draws).reshape(-1, *[1] * (draws.ndim - 2))
        scale = torch.where(measurement.mask.to(draws) == 1, self.calibration.measured, own * factors)
        xbar = scale * basis.to_spectral(draws.flatten(0, 1)).unflatten(0, draws.shape[:2])
        return basis.to_signal(xbar.flatten(0, 1)).unflatten(0, draws.shape[:2])

    def reliability(self, hidden: Hidden, into: Reliability) -> None:
        """Count how often hidden entries lie within their intervals. κ is of the other splits of the same measurement."""
        about = self.checker.about
        evidence = self.checker.evidence(hidden)
        for k, (target, mean, drawn, bad) in enumerate(zip(*hidden, strict=True)):
            others = [j for j in range(SPLITS) if j != k]
            kappa = self.calibration.kappa(Evidence(*(values[:, others] for values in tuple(evidence))))
            hides = target.mask.expand_as(target.ybar)
            error = about.basis.to_signal(hides * (target.ybar - about.basis.to_spectral(mean)))
            shown = Measurement._trusted(target.ybar, 1 - target.mask, target.std)
            scaled = about.basis.to_spectral(self.scale(drawn, shown, kappa).flatten(0, 1))
            scaled = about.basis.to_signal(hides.repeat(len(drawn), *[1] * (hides.ndim - 1)) * scaled)
            std = mean_and_std(scaled.unflatten(0, drawn.shape[:2]), bad)[1]
            frame = (hides if about.basis.is_signal else torch.ones_like(mean)) * (hides.flatten(1).sum(1) > 0).reshape(
                -1, *[1] * (mean.ndim - 1)
            )
            variance = (target.mask * target.std**2).expand_as(mean)
            if not about.basis.is_signal:
                variance = variance.flatten(1).mean(1).reshape(-1, *[1] * (mean.ndim - 1))
            std = (std**2 + variance).sqrt()
            if about.is_complex:
                frame = frame[:, 0::2]
                error, std = along_phase(mean, std, error)
            into.count(error, std, find_object(mean, about.is_complex), frame)


@dataclass
class Checks:
    """κ and χ² of each measurement, by its position in its file."""

    kappa: dict[int, float] = field(default_factory=dict)
    chi_squared: dict[int, float] = field(default_factory=dict)

    def add(self, where: Sequence[int], bars: Bars) -> None:
        for values, found in ((self.kappa, bars.kappa), (self.chi_squared, bars.chi_squared)):
            values.update(dict(zip(where, found.tolist(), strict=True)))

    def write(self, path: Path, where: Sequence[int]) -> None:
        some = {k: {"kappa": self.kappa[k], "chi_squared": _finite(self.chi_squared[k])} for k in where}
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(some))

    @staticmethod
    def read(folder: Path) -> "Checks":
        """What all processes found."""
        found = Checks()
        for path in sorted(folder.glob("shard-*.json")):
            for position, values in read_json(path).items():
                found.kappa[int(position)] = float(values["kappa"])
                chi_squared = values["chi_squared"]
                found.chi_squared[int(position)] = torch.nan if chi_squared is None else float(chi_squared)
        return found

    def of(self, n: int) -> tuple[Tensor, Tensor]:
        """κ and χ² of the first n measurements."""
        where = range(n)
        return torch.tensor([self.kappa[k] for k in where]), torch.tensor([self.chi_squared[k] for k in where])


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
