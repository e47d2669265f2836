"""Restore measurements with some of their measured units hidden, and compare: what error bars are calibrated by.

Measured entries cannot be hidden from an estimate of themselves: there, noise is added, and the estimate is compared with a
second measurement of independent noise. That is all that signals need that are complete, but noisy.

`gsure.judging.calibration` has the statistics, `bars` applies the result, and `calibrate` stores it with a run.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gsure.gaussian import About
from gsure.inference.methods import Restorer
from gsure.inference.setup import Setup
from gsure.judging import Calibration, Evidence, compare, find_object, fit_calibration, group_units, split_units
from gsure.judging.calibration import IMAGE_PRIOR, LIMITS, SPLITS, count_units
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
    halves: list[Tensor]
    """1 for one half of them."""
    means: list[Tensor]
    """Signals."""
    draws: list[Tensor]
    are_bad: list[Bool[Tensor, "draws b"]]
    missing: Float[Tensor, "b 1"]
    """The number of missing units."""

    def splits(self) -> Iterator[tuple[Measurement, Tensor, Tensor, Tensor, Tensor]]:
        return zip(self.targets, self.halves, self.means, self.draws, self.are_bad, strict=True)


@dataclass(frozen=True)
class Checker:
    """Hides measured units, restores the rest, and compares."""

    restorer: Restorer
    about: About
    mask_shape: tuple[int, ...]
    real_images: bool
    seed: int
    is_complete: bool = False
    """Nothing is missing in any measurement, so that nothing need be hidden."""
    learned: dict[int, Evidence] = field(default_factory=dict)
    """What `learn` found, by number of the measurement."""

    @staticmethod
    def of(restorer: Restorer, setup: Setup) -> "Checker":
        return Checker(restorer, setup.about, setup.data.mask_shape, setup.real_images, setup.seed, setup.is_complete)

    @cached_property
    def groups(self) -> Tensor:
        return group_units(self.mask_shape, self.about.unit)

    def restore(self, measurement: Measurement, indices: Sequence[int], draws: int = CHECK_DRAWS) -> Hidden | None:
        """All splits go through the network as one batch. None if nothing can be hidden."""
        halves = split_units(measurement, self.about, indices, self.seed, self.real_images, 2 * SPLITS)
        if halves is None:
            return None
        hidden = [one + other for one, other in zip(halves[0::2], halves[1::2], strict=True)]
        known = measurement.mask.expand(len(measurement), *measurement.mask.shape[1:])
        if self.real_images:
            known = torch.maximum(known, self.about.basis.conjugates(known))
        shown = Measurement.cat([measurement.hide(some) for some in hidden])
        numbers = [-1 - SPLITS * index - k for k in range(SPLITS) for index in indices]  # noise of their own
        found = self.restorer.few(draws)(shown, numbers)
        n, bad = len(measurement), found.are_bad
        parts = [slice(k * n, (k + 1) * n) for k in range(SPLITS)]
        return Hidden(
            [measurement.hide(1 - some) for some in hidden],
            halves[0::2],
            [found.mean[part] for part in parts],
            [found.draws[:, part] for part in parts],
            [bad[:, part] for part in parts],
            count_units(1 - known, self.about, self.real_images),
        )

    def check(self, measurement: Measurement, indices: Sequence[int]) -> Evidence | None:
        """None if nothing can be hidden. What `learn` has restored is not restored again."""
        new = [k for k, index in enumerate(indices) if index not in self.learned]
        hidden = self.restore(measurement[new], [indices[k] for k in new]) if new else None
        if new and hidden is None:
            return None
        found = {} if hidden is None else dict(zip(new, self.evidence(hidden).each(), strict=True))
        return Evidence.cat([found[k] if k in found else self.learned[index] for k, index in enumerate(indices)])

    def evidence(self, hidden: Hidden) -> Evidence:
        """Of the first CHECK_DRAWS draws, so that the numbers of `calibrate` and `restore` can be compared."""
        to_spectral, groups, found = self.about.basis.to_spectral, self.groups, []
        for target, half, mean, drawn, bad in hidden.splits():
            few = drawn[:CHECK_DRAWS]
            xbar = to_spectral(few.flatten(0, 1)).unflatten(0, few.shape[:2])
            inside = find_object(mean, self.about.is_complex)
            others = (inside, self.about, groups, hidden.missing, self.real_images)
            parts = compare(target, half, to_spectral(mean), xbar, bad[:CHECK_DRAWS], *others)
            found.append((*self._for_more_draws(*parts, checked=len(drawn)), *self._regress(target, mean, xbar)))
        return Evidence(*(torch.stack(values, 1) for values in zip(*found, strict=True)))

    def _regress(self, target: Measurement, mean: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """`Evidence.product` and `Evidence.square`. The mean of draws has their variance in addition, which is subtracted."""
        seen = target.mask * self.about.basis.to_spectral(mean)
        square = seen.square()
        if self.restorer.averages:
            square = square - (target.mask * drawn).var(0) / len(drawn)
        product, square = (part.flatten(1).double().sum(1, keepdim=True) for part in (target.ybar * seen, square))
        is_finite = product.isfinite() & square.isfinite()  # draws that are excluded may be infinite
        return torch.where(is_finite, product, 0.0), torch.where(is_finite, square, 0.0)

    def _for_more_draws(self, *parts: Tensor, checked: int) -> tuple[Tensor, ...]:
        """The mean of K draws has 1/K of their variance as an error; here K is smaller than in the restoration."""
        error, spread, noise, units, pair_error, pair_spread, *counts = parts
        if self.restorer.averages:
            more = 1 / self.restorer.options()["draws"] - 1 / checked
            error, pair_error = error + more * spread, pair_error + more * pair_spread
        return error, spread, noise, units, pair_error, pair_spread, *counts

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
        nothing = torch.zeros(len(measurement), 1)
        half = torch.zeros_like(target.mask)
        parts = compare(
            target, half, to_spectral(found.mean), drawn, found.are_bad, inside, self.about, groups, nothing
        )
        error, spread, noise_there, *_ = self._for_more_draws(*parts, checked=CHECK_DRAWS)
        entries = measurement.mask.expand_as(measurement.ybar).flatten(1).sum(1, dtype=torch.float64)
        chance = 2 * noise_there[:, 0] ** 2 / (entries / (2 if self.about.is_complex else 1)).clamp(min=1)
        shown_noise = noise_there[:, 0] * RENOISE**2  # (1 + w²) of (1 + 1/w²)
        return torch.stack([(error - noise_there)[:, 0], chance, spread[:, 0], shown_noise])


Batches = Iterable[tuple[Measurement, list[int]]]
"""Measurements and their numbers."""


def learn(checker: Checker, batches: Batches) -> Calibration:
    """A calibration from hidden units of these measurements; or `TooFewHiddenError`."""
    evidence, measured = [], []
    for measurement, indices in batches:
        if not checker.is_complete and (found := checker.check(measurement, indices)) is not None:
            evidence.append(found)
            checker.learned.update(zip(indices, found.each(), strict=True))
        if measurement.max_std > 0:
            measured.append(checker.at_measured(measurement, indices))
    return combine(checker, evidence, measured)


def combine(checker: Checker, evidence: Sequence[Evidence], measured: Sequence[Tensor]) -> Calibration:
    """From what it found for several batches. Signals that are complete need only what was found at measured entries."""
    factor, added = _at_measured(torch.cat(list(measured), 1)) if measured else (1.0, 0.0)
    groups = int(checker.groups.max()) + 1
    if measured and checker.is_complete:
        images = sum(part.shape[1] for part in measured)
        return Calibration(torch.ones(groups), factor, added, IMAGE_PRIOR, None, images, 0)
    nothing = Evidence(*[torch.zeros(1, SPLITS, groups)] * 4, *[torch.zeros(1, SPLITS, 1)] * 7)
    return fit_calibration(Evidence.cat(list(evidence)) if evidence else nothing, factor, added)


def _at_measured(found: Float[Tensor, "4 b"]) -> tuple[float, float]:
    """What the spread at measured entries is multiplied by, and the share of their noise variance that is added."""
    error, chance, spread, noise = found.sum(1).tolist()
    usual, deviation = REMAINING
    precise, vague = deviation**-2, chance / max(noise, 1e-30) ** 2
    share = (usual * precise + error / max(noise, 1e-30) / max(vague, 1e-12)) / (precise + 1 / max(vague, 1e-12))
    share = max(share, LIMITS[0] ** 2)
    has = spread / max(noise, 1e-30)
    factor = min((share / has) ** 0.5, MOST_SCALED) if has > 0 else 1.0
    return factor, max(0.0, share - factor**2 * has)
