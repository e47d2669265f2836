"""Error bars of the right size, without clean data: hide measured units, restore, and compare the error with the spread.

The error of the mean on a hidden unit, less the noise of its measurement, should be as large as the spread of the draws there.
Two levels of correction follow from it:

    factors   for each group of units (a line of k-space, a patch), from many measurements
    κ         for each measurement, from its own hidden units; shrunk towards 1 if they are few

Errors of different units are correlated: they add up inside of the object, and cancel outside. Few units are hidden at once,
and so say little of that. With n hidden units, the energy in the object is n D + n (n - 1) F, where F is that of a pair of
units. D and F of errors and of spreads are found from pairs of hidden units, and correct the bars of all missing units
together.

If masks are in a transform domain, the hidden part of the error is compared in the image, inside of the object. With the
hidden part v of a spectral vector and the object's pixels O, ‖O V v‖² = Σ_i v_i (Vᵀ O V v)_i divides its energy among units.
Of complex images, O also takes the part along the phase of the mean: error bars are those of magnitudes.

Bars that are corrected this way are right on average. They do not show where a restoration is wrong.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gsure.gaussian import About
from gsure.judging.coverage import relative_to_phase
from gsure.judging.verdict import MIN_UNITS
from gsure.measurement import Measurement, draw_hidden
from gsure.random import Stream, generators

SPLITS = 4
"""Every measured unit outside the centre is hidden in one of so many restorations."""
MAX_GROUPS, RINGS = 512, 64
"""Each unit is a group; if there are more units than this, rings around the centre are."""
GROUP_PRIOR, IMAGE_PRIOR = 20.0, 8.0
"""The factor of a group is shrunk towards that of all units, as if it had so many more units with that factor; κ likewise. The
numbers come from the data (`_prior_units`), and are these if there are too few groups or measurements for it."""
TOGETHER_PRIOR, JACKKNIFE = 0.2, 8
"""Standard deviation, a priori, of log `Calibration.together`; and the number of subsets that give its standard error."""
FEWEST = 8
"""Of groups or measurements, to tell how much they differ."""
LIMITS = 0.1, 10.0
"""Range of the factors and of κ. A smaller one would only say that the noise hides the error."""
SAMPLE_LIMIT, SET_LIMIT = 3.5, 4.0
"""Standard deviations by which log χ² of a measurement, and the mean of a set, may exceed what is usual."""
SLOPE_PRIOR = 2.0
"""Units for which a slope of 1 counts."""
LARGEST_USUAL = 1.15
"""A set is not called unfamiliar if its error on hidden entries is at most so many times the usual one."""


class TooFewHiddenError(ValueError):
    """Too few units could be hidden."""


class Evidence(NamedTuple):
    """Sums over the hidden units of each measurement, by split and group of units."""

    error: Float[Tensor, "b splits g"]
    """Squared error of the mean, which includes the noise of the hidden entries."""
    spread: Float[Tensor, "b splits g"]
    """Variance of the draws."""
    noise: Float[Tensor, "b splits g"]
    units: Float[Tensor, "b splits g"]
    pair_error: Float[Tensor, "b splits 1"]
    """The part of the error that comes from pairs of units, between two halves of the hidden ones."""
    pair_spread: Float[Tensor, "b splits 1"]
    pairs: Float[Tensor, "b splits 1"]
    """Number of these pairs, counted in both orders."""
    hidden: Float[Tensor, "b splits 1"]
    """Number of hidden units; if entries k and -k say the same, of such pairs."""
    missing: Float[Tensor, "b splits 1"]
    """Number of missing units, likewise."""
    product: Float[Tensor, "b splits 1"]
    """Inner product of the hidden entries and the mean there."""
    square: Float[Tensor, "b splits 1"]
    """Squared norm of the mean there."""

    @staticmethod
    def cat(parts: Sequence["Evidence"]) -> "Evidence":
        return Evidence(*(torch.cat(values) for values in zip(*parts, strict=True)))

    def __getitem__(self, index: Any) -> "Evidence":  # type: ignore[override]
        return Evidence(*(values[index] for values in tuple(self)))

    def slope(self) -> Float[Tensor, " b"]:
        """What the mean must be multiplied by to predict the hidden entries best; shrunk towards 1 if they are few.

        It is far below 1 if the restoration invents.
        """
        units, product, square = (values.sum((1, 2)) for values in (self.units, self.product, self.square))
        own = torch.where(square > 0, product / torch.where(square > 0, square, 1.0), 1.0)
        return (units * own + SLOPE_PRIOR) / (units + SLOPE_PRIOR)

    def each(self) -> list["Evidence"]:
        """Of one measurement each."""
        return [Evidence(*(values[k : k + 1] for values in tuple(self))) for k in range(len(self.error))]

    def splits(self, index: slice) -> "Evidence":
        return Evidence(*(values[:, index] for values in tuple(self)))


def group_units(mask_shape: Sequence[int], unit: Sequence[int]) -> Int[Tensor, "1 ..."]:
    """The number of the group of each mask entry.

    >>> group_units((1, 1, 4), ()).flatten().tolist(), group_units((1, 2, 4), (2, 2))[0, 0].tolist()
    ([0, 1, 2, 3], [[0, 0, 1, 1], [0, 0, 1, 1]])
    """
    block = ([1] * len(mask_shape) + list(unit))[-len(mask_shape) :]
    sizes = [size // side for size, side in zip(mask_shape, block, strict=True)]
    total = int(np.prod(sizes))
    numbers = torch.arange(total).reshape(1, *sizes)
    if total > MAX_GROUPS:
        axes = [(torch.arange(size) - size // 2) / max(1, size // 2) for size in sizes[-2:]]
        distance = torch.stack(torch.meshgrid(*axes, indexing="ij")).square().sum(0).sqrt()
        rings = (distance / max(float(distance.max()), 1e-12) * (RINGS - 1e-3)).long()
        numbers = rings.expand(1, *sizes).clone()
    for dim, side in enumerate(block, start=1):
        numbers = numbers.repeat_interleave(side, dim)
    return numbers


def split_units(
    measurement: Measurement,
    about: About,
    indices: Sequence[int],
    seed: int,
    real_images: bool = False,
    parts: int = SPLITS,
) -> list[Float[Tensor, "b ..."]] | None:
    """Which units to hide in each of the parts: together they are all measured ones outside the centre.

    None if nothing can be hidden. `indices` number the measurements, so that the result does not depend on the batch.
    """
    if measurement.mask[0].numel() == 1 or bool((about.always == 1).all()):
        return None
    partner = about.basis.conjugates if real_images else None
    up_to = [
        draw_hidden(
            measurement,
            k / parts,
            generators(seed, Stream.CALIBRATION_HIDDEN, indices=indices, device=measurement.ybar.device),
            about.unit,
            about.always,
            partner,
        )
        for k in range(parts + 1)
    ]  # of the same random numbers, so that each contains the one before it
    return [more - less for less, more in itertools.pairwise(up_to)]


def count_units(mask: Float[Tensor, "b ..."], about: About, real_images: bool) -> Float[Tensor, "b 1"]:
    """Of the entries that are 1. If entries k and -k say the same, both are one unit."""
    if real_images:
        mask = ((mask + about.basis.conjugates(mask)) > 0).to(mask) / 2
    return mask.flatten(1).double().sum(1, keepdim=True) / int(np.prod(about.unit or [1]))


def compare(
    target: Measurement,
    half: Float[Tensor, "b ..."],
    mean: Float[Tensor, "b *n"],
    draws: Float[Tensor, "draws b *n"],
    is_bad: Bool[Tensor, "draws b"] | None,
    inside: Float[Tensor, "b ..."],
    about: About,
    groups: Int[Tensor, "1 ..."],
    missing: Float[Tensor, "b 1"],
    real_images: bool = False,
) -> tuple[Tensor, ...]:
    """The fields of `Evidence`, of one split. `target` has the hidden entries, of which `half` are one half; all others are
    spectral.

    `inside` is 1 for the pixels of the object. Noise is spread evenly over the image, if masks are not in signal space: that
    is exact for Fourier and Hadamard. A measurement with fewer than two good draws tells nothing.
    """
    basis, mask = about.basis, target.mask
    x = basis.to_signal(mean)
    number, count = groups.expand(1, *mean.shape[1:]).flatten(), int(groups.max()) + 1

    def by_group(values: Tensor) -> Tensor:
        values = values.expand(len(mean), *mean.shape[1:]).flatten(1).double()
        return values.new_zeros(len(mean), count).index_add(1, number, values)

    def shown(signal: Tensor) -> Tensor:
        """What error bars are for: the object, and of complex images what changes their magnitude."""
        if not about.is_complex:
            return inside * signal
        along = relative_to_phase(signal, x)
        along[:, 1::2] = 0.0
        return inside * relative_to_phase(along, conjugate(x))

    def energy(v: Tensor) -> tuple[Tensor, Tensor]:
        """By group, and the part of it that comes from pairs of units in different halves."""
        v, one = mask * v, half * mask * v
        seen = basis.to_spectral(shown(basis.to_signal(v)))
        if basis.is_signal:  # units are apart
            return by_group(v * seen), torch.zeros(len(v), 1, dtype=torch.float64)
        other = basis.to_spectral(shown(basis.to_signal(one)))
        return by_group(v * seen), 2 * ((v - one) * other).flatten(1).double().sum(1, keepdim=True)

    good = torch.ones(draws.shape[:2]) if is_bad is None else (~is_bad).float()
    weight, enough = good.reshape(*good.shape, *[1] * (mean.ndim - 1)), (good.sum(0) >= 2).double()[:, None]
    draws = torch.where(weight > 0, draws, 0.0)
    centre = draws.sum(0) / weight.sum(0).clamp(min=1)
    each = [energy(w * (draw - centre)) for w, draw in zip(weight, draws, strict=True)]
    freedom = (good.sum(0).double()[:, None] - 1).clamp(min=1)
    spread, pair_spread = (torch.stack(list(values)).sum(0) / freedom for values in zip(*each, strict=True))
    error, pair_error = energy(target.ybar - mean)
    pixels = inside if basis.is_signal else inside.flatten(1).mean(1).reshape(-1, *[1] * (mean.ndim - 1))
    noise = by_group(mask * target.std**2 * pixels) / (2 if about.is_complex else 1)
    entries = int(np.prod(about.unit or [1])) * (mean[0].numel() // mask[0].numel())
    units = by_group(mask) / entries
    both = [count_units(part.expand(len(mean), *part.shape[1:]), about, real_images) for part in (mask * half, mask)]
    pairs = 2 * both[0] * (both[1] - both[0])
    found = (error, spread, noise, units, pair_error, pair_spread, pairs, both[1], missing)
    return tuple(enough * part for part in found)


def conjugate(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
    return torch.stack([x[:, 0::2], -x[:, 1::2]], 2).flatten(1, 2)


@dataclass(frozen=True)
class Calibration:
    """What was learned from hidden units of many measurements."""

    factors: Float[Tensor, " g"]
    """What the spread of a missing entry is multiplied by, for each group of units."""
    measured: float
    """The same for measured entries."""
    added: float
    """What is added to the variance of measured entries, as a share of the variance of their noise."""
    image_prior: float
    """κ² of a measurement is that of its own units, and this many units of κ² = 1."""
    usual: tuple[float, float] | None
    """Mean and standard deviation of log χ² over measurements; None for fewer than FEWEST."""
    images: int
    units: int
    together: float = 1.0
    """What the spread of all missing entries of a measurement is multiplied by too, because their errors add up."""

    def expected(self, evidence: Evidence) -> Float[Tensor, " b"]:
        return (self.factors.double() ** 2 * evidence.spread).sum((1, 2))

    def kappa(self, evidence: Evidence) -> Float[Tensor, " b"]:
        """κ of each measurement: κ² is error over prediction on its own hidden units, shrunk towards 1 if they are few."""
        units = evidence.units.sum((1, 2))
        expected = self.expected(evidence)
        error = (evidence.error - evidence.noise).sum((1, 2))
        own = torch.where(expected > 0, error / torch.where(expected > 0, expected, 1.0), 1.0)
        squared = (units * own.clamp(min=0) + self.image_prior) / (units + self.image_prior)
        return squared.sqrt().clamp(*LIMITS)

    def chi_squared(self, evidence: Evidence) -> Float[Tensor, " b"]:
        """Squared error over its expectation, noise included, on the hidden units; NaN if none could be hidden."""
        expected = self.expected(evidence) + evidence.noise.sum((1, 2))
        return evidence.error.sum((1, 2)) / torch.where(expected > 0, expected, torch.nan)

    def times_worse(self, chi_squared: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
        """The error on hidden entries over the usual one; NaN if that is not known."""
        if self.usual is None:
            return torch.full_like(chi_squared, torch.nan)
        return (chi_squared.log() - self.usual[0]).mul(0.5).exp()

    def unfamiliar(self, chi_squared: Float[Tensor, " b"]) -> Bool[Tensor, " b"]:
        """Which measurements are predicted worse than almost all of those that the calibration has seen."""
        if self.usual is None:
            return torch.zeros_like(chi_squared, dtype=torch.bool)
        mean, std = self.usual
        return chi_squared.log() > mean + SAMPLE_LIMIT * std * (1 + 1 / self.images) ** 0.5

    def times_worse_together(self, chi_squared: Float[Tensor, " b"]) -> tuple[float, bool] | None:
        """The same for a set of measurements, and whether it is unfamiliar; None if it cannot be said."""
        known = chi_squared[chi_squared.isfinite() & (chi_squared > 0)].log()
        if self.usual is None or not len(known):
            return None
        mean, std = self.usual
        more = float(known.mean()) - mean
        worse = float(np.exp(more / 2))
        return worse, more > SET_LIMIT * std * (1 / len(known) + 1 / self.images) ** 0.5 and worse > LARGEST_USUAL


def fit_calibration(evidence: Evidence, measured: float = 1.0, added: float = 0.0) -> Calibration:
    """From many measurements; or `TooFewHiddenError`."""
    units = int(evidence.units.sum())
    if units < MIN_UNITS:
        raise TooFewHiddenError(
            f"Error bars cannot be calibrated: only {units} of the measured units could be hidden, and at least {MIN_UNITS} "
            "are needed. Give more measurements, or use calibration none."
        )
    together = _together(evidence)
    first = Calibration(_factors(evidence), measured, added, IMAGE_PRIOR, None, len(evidence.error), units, together)
    halves = [evidence.splits(slice(start, None, 2)) for start in (0, 1)]
    log = first.chi_squared(evidence).log()
    log = log[log.isfinite()]
    if len(log) < FEWEST:
        return first
    found = [first.chi_squared(half) for half in halves]
    image_prior = _prior_units(found, evidence.units.sum((1, 2)), IMAGE_PRIOR)
    return replace(first, image_prior=image_prior, usual=(float(log.mean()), float(log.std())), images=len(log))


def _factors(evidence: Evidence) -> Float[Tensor, " g"]:
    error, spread, noise, units = (values.sum((0, 1)) for values in tuple(evidence)[:4])
    overall = (error - noise).sum() / spread.sum().clamp(min=1e-30)
    halves = []
    for start in (0, 1):
        half = [values[start::2].sum((0, 1)) for values in tuple(evidence)[:4]]
        expected = overall.clamp(min=0) * half[1] + half[2]
        halves.append(half[0] / torch.where(expected > 0, expected, torch.nan))
    prior = _prior_units(halves, units, GROUP_PRIOR)
    each = torch.where(units > 0, spread / units.clamp(min=1e-30), spread.sum() / units.sum())
    each = torch.where(each > 0, each, 1.0)
    squared = (error - noise + prior * each * overall) / (spread + prior * each)
    return squared.clamp(min=0).sqrt().clamp(*LIMITS)


def _together(evidence: Evidence) -> float:
    """`Calibration.together`; 1 if too little is known.

    The logarithm is shrunk towards 0 by its standard error, from subsets of the measurements.
    """
    of_units, of_pairs = (evidence.error, evidence.spread, evidence.noise), (evidence.pair_error, evidence.pair_spread)
    counts = (evidence.pairs, evidence.hidden, evidence.missing)
    sums = torch.stack([values.sum((1, 2)) for values in (*of_units, *of_pairs, *counts)])
    hidden = evidence.hidden.sum(2)
    sums = torch.cat([sums, (hidden * (hidden - 1)).clamp(min=0).sum(1)[None]])

    def logarithm(which: Tensor) -> float:
        error, spread, noise, pair_error, pair_spread, pairs, count, missing, within = sums[:, which].sum(1).tolist()
        if min(pairs, spread, count) <= 0 or error <= noise:
            return 0.0
        others = missing / SPLITS / int(which.sum()) - 1
        full = []
        for total, pair in ((error - noise, pair_error / pairs), (spread, pair_spread / pairs)):
            full.append((total - within * pair) / count + others * pair)
        if min(full) <= 0:
            return math.nan
        return math.log(full[0] / full[1] * spread / (error - noise)) / 2

    n = len(evidence.error)
    number = torch.arange(n) % JACKKNIFE
    found = logarithm(torch.ones(n, dtype=torch.bool))
    without = [logarithm(number != k) for k in range(JACKKNIFE)] if n >= JACKKNIFE else [math.nan]
    if not np.isfinite([found, *without]).all():
        return 1.0
    error = float(np.std(without)) * (JACKKNIFE - 1) ** 0.5
    return math.exp(found * TOGETHER_PRIOR**2 / (TOGETHER_PRIOR**2 + error**2))


def _prior_units(halves: Sequence[Float[Tensor, " k"]], units: Float[Tensor, " k"], few: float) -> float:
    """How many units the average counts for, beside the own units of a group or measurement.

    It follows from how well χ² of one half of the units predicts that of the other half: from the correlation of the
    logarithms, less its standard error.
    """
    logs = torch.stack(list(halves)).log()
    known = logs.isfinite().all(0)
    if int(known.sum()) < FEWEST:
        return few
    r = float(torch.corrcoef(logs[:, known])[0, 1]) - int(known.sum()) ** -0.5
    r = min(max(r, 0.005), 0.99) if np.isfinite(r) else 0.005
    own = 2 * r / (1 + r)  # of both halves together (Spearman and Brown)
    return float(units[known].mean()) * (1 - own) / own
