"""The error bars of `restore`: calibrated by hidden measured units, which also tell whether measurements look familiar."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gsure.basis import Basis
from gsure.data.chunks import read_records, write_records
from gsure.data.source import evenly_spread
from gsure.display import Bar
from gsure.inference.guard import mean_and_std
from gsure.inference.hidden import CHECK_DRAWS, Batches, Checker, Hidden, learn
from gsure.inference.methods import Estimates
from gsure.inference.setup import Setup
from gsure.judging import Calibration, Evidence, Reliability, find_object, relative_to_phase, split_units
from gsure.judging.calibration import IMAGE_PRIOR, SPLITS, TooFewHiddenError
from gsure.judging.verdict import MIN_UNITS
from gsure.measurement import Measurement

SELF_IMAGES = 16
"""Measurements from which a calibration is learned, if the run has none."""
SHOWN = 8
"""Measurements that the summary names."""


class Bars(NamedTuple):
    """Calibrated standard deviations, and what the own hidden units of each measurement say."""

    std: Float[Tensor, "b *n"]
    kappa: Float[Tensor, " b"]
    chi_squared: Float[Tensor, " b"]
    """NaN if nothing could be hidden."""
    slope: Float[Tensor, " b"]
    """`Evidence.slope`; 1 if nothing could be hidden."""


@dataclass(frozen=True)
class Calibrator:
    """Turns estimates into calibrated ones."""

    checker: Checker
    calibration: Calibration

    def __call__(self, measurement: Measurement, indices: Sequence[int], found: Estimates) -> Bars:
        evidence = self.checker.check(measurement, indices) if self.calibration.units else None
        kappa = slope = torch.ones(len(measurement))
        chi_squared = torch.full((len(measurement),), torch.nan)
        if evidence is not None:
            kappa, chi_squared = self.calibration.kappa(evidence), self.calibration.chi_squared(evidence)
            slope = evidence.slope()
        is_complex, together = self.checker.about.is_complex, self.calibration.together
        scaled = self.scale(found.draws, measurement, together * kappa)
        raw, corrected = (std_of(draws, found.mean, found.are_bad, is_complex) for draws in (found.draws, scaled))
        ratio = torch.where(raw > 0, corrected / torch.where(raw > 0, raw, 1.0), 1.0)
        noise = noise_in_image(measurement, self.checker.about.basis)
        std = ((spread_of(found, is_complex) * ratio).square() + self.calibration.added * noise).sqrt()
        return Bars(std, kappa, chi_squared, slope)

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
        for k, (target, _, mean, drawn, bad) in enumerate(hidden.splits()):
            others = [j for j in range(SPLITS) if j != k]
            kappa = self.calibration.kappa(Evidence(*(values[:, others] for values in tuple(evidence))))
            hides = target.mask.expand_as(target.ybar)
            error = about.basis.to_signal(hides * (target.ybar - about.basis.to_spectral(mean)))
            shown = Measurement._trusted(target.ybar, 1 - target.mask, target.std)
            scaled = about.basis.to_spectral(self.scale(drawn, shown, kappa).flatten(0, 1))
            scaled = about.basis.to_signal(hides.repeat(len(drawn), *[1] * (hides.ndim - 1)) * scaled)
            std = std_of(scaled.unflatten(0, drawn.shape[:2]), mean, bad, about.is_complex)
            frame = (hides if about.basis.is_signal else torch.ones_like(mean)) * (hides.flatten(1).sum(1) > 0).reshape(
                -1, *[1] * (mean.ndim - 1)
            )
            std = (std**2 + noise_in_image(target, about.basis)).sqrt()
            if about.is_complex:
                frame, std = frame[:, 0::2], std[:, 0::2]
                error = relative_to_phase(error, mean)[:, 0::2]
            into.count(error, std, find_object(mean, about.is_complex), frame)


def spread_of(found: Estimates, is_complex: bool) -> Float[Tensor, "b *n"]:
    """Standard deviations: of complex images along the phase of the mean, where magnitudes change, and across it.

    In closed form, real and imaginary part count as independent.
    """
    if not is_complex:
        return found.std
    if not found.is_exact:
        return std_of(found.draws, found.mean, found.are_bad, is_complex)
    re, im = found.mean[:, 0::2].square(), found.mean[:, 1::2].square()
    share = torch.where(re + im > 0, re / (re + im).clamp(min=1e-30), 1.0)
    first, second = found.std[:, 0::2].square(), found.std[:, 1::2].square()
    along, across = share * first + (1 - share) * second, (1 - share) * first + share * second
    return torch.stack([along, across], 2).flatten(1, 2).sqrt()


def std_of(
    draws: Float[Tensor, "draws b *n"], mean: Float[Tensor, "b *n"], is_bad: Bool[Tensor, "draws b"], is_complex: bool
) -> Float[Tensor, "b *n"]:
    """Of draws, as `spread_of`."""
    return mean_and_std(relative_to_phase(draws, mean) if is_complex else draws, is_bad)[1]


def noise_in_image(measurement: Measurement, basis: Basis) -> Float[Tensor, "b *n"]:
    """The variance of the noise of measured entries; spread evenly over the image, if masks are not in signal space."""
    variance = (measurement.mask * measurement.std**2).expand_as(measurement.ybar)
    if basis.is_signal:
        return variance
    return variance.flatten(1).mean(1).reshape(-1, *[1] * (variance.ndim - 1)).expand_as(variance)


@dataclass
class Checks:
    """κ and χ² of each measurement, by its position in its file."""

    kappa: dict[int, float] = field(default_factory=dict)
    chi_squared: dict[int, float] = field(default_factory=dict)

    def add(self, where: Sequence[int], bars: Bars) -> None:
        for values, found in ((self.kappa, bars.kappa), (self.chi_squared, bars.chi_squared)):
            values.update(dict(zip(where, found.tolist(), strict=True)))

    def write(self, path: Path, where: Sequence[int]) -> None:
        write_records(path, {k: {"kappa": self.kappa[k], "chi_squared": _finite(self.chi_squared[k])} for k in where})

    @staticmethod
    def read(folder: Path) -> "Checks":
        """What all processes found."""
        records = read_records(folder)
        kappa = {k: float(values["kappa"]) for k, values in records.items()}
        chi_squared = {k: values["chi_squared"] for k, values in records.items()}
        return Checks(kappa, {k: torch.nan if value is None else float(value) for k, value in chi_squared.items()})

    def of(self, n: int) -> tuple[Tensor, Tensor]:
        """κ and χ² of the first n measurements."""
        where = range(n)
        return torch.tensor([self.kappa[k] for k in where]), torch.tensor([self.chi_squared[k] for k in where])


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


@dataclass
class ErrorBars:
    """Calibrated error bars of `restore`, learned when they are first needed."""

    checker: Checker
    stored: Calibration | None
    """Of the run; None to learn from the measurements."""
    setup: Setup
    at_once: int
    advance: Bar
    checks: Checks = field(default_factory=Checks)
    trouble: str = ""
    """Why nothing could be learned."""

    @property
    def _is_of_noise(self) -> bool:
        """Whether noise is added and nothing is hidden, as for complete signals."""
        return self.checker.is_complete if self.stored is None else self.stored.units == 0

    @property
    def _by(self) -> str:
        return "noise that is added to" if self._is_of_noise else "hidden entries of"

    @property
    def some(self) -> np.ndarray:
        return evenly_spread(SELF_IMAGES, len(self.setup.data))

    def why_not(self) -> str:
        """Why these measurements cannot be calibrated; empty if they can."""
        if self.stored is not None or (self.checker.is_complete and self.setup.data.max_std > 0):
            return ""
        some, about = self.setup.read(self.some), self.checker.about
        hidden = split_units(some, about, self.some.tolist(), self.checker.seed, self.checker.real_images)
        if hidden is None:
            return "no measured units can be hidden"
        units = int(sum(float(h.sum()) for h in hidden) / np.prod(about.unit or [1]))
        return "" if units >= MIN_UNITS else f"only {units} measured units can be hidden, {MIN_UNITS} are needed"

    @cached_property
    def calibrator(self) -> Calibrator:
        if self.stored is not None:
            return Calibrator(self.checker, self.stored)
        self.advance.say(f"Calibrating error bars by {self._by} {len(self.some)} measurements ...")
        try:
            found = learn(self.checker, self._batches())
        except TooFewHiddenError as error:  # hidden units there were, but no good draws
            self.trouble = str(error)
            found = Calibration(torch.ones(int(self.checker.groups.max()) + 1), 1.0, 0.0, IMAGE_PRIOR, None, 0, 0)
        return Calibrator(self.checker, replace(found, usual=None))  # they cannot tell what is unusual about themselves

    def _batches(self) -> Batches:
        for first in range(0, len(self.some), self.at_once):
            where = self.some[first : first + self.at_once]
            yield self.setup.read(where), where.tolist()

    def __call__(self, measurement: Measurement, where: Sequence[int], found: Estimates) -> Bars:
        bars: Bars = self.calibrator(measurement, list(where), found)
        self.checks.add(where, bars)
        return bars

    def summary(self, n: int, draws: int, checks: Checks) -> dict[str, Any]:
        """What a user must know: what was done, what it cost, and whether the measurements look unfamiliar."""
        if self.stored is None:
            said = f"calibrated by {self._by} {len(self.some)} of these measurements"
        else:
            said = f"calibrated by {self._by} {self.stored.images:,} measurements (gsure calibrate)"
        if self._is_of_noise:
            return {"error bars": self.trouble or said}
        kappa, chi_squared = checks.of(n)
        return {
            "error bars": self.trouble or f"{said}, and for each measurement by its own",
            "correction per measurement": f"× {float(kappa.min()):.2f} to {float(kappa.max()):.2f}",
            "cost of calibration": f"{SPLITS * CHECK_DRAWS} more draws per measurement, beside {draws} ({SPLITS} splits with "
            f"{CHECK_DRAWS} draws)",
        } | familiarity(self.stored, chi_squared)


def familiarity(calibration: Calibration | None, chi_squared: Tensor) -> dict[str, Any]:
    """Whether measurements look like those of the calibration, as a summary has it."""
    together = None if calibration is None else calibration.times_worse_together(chi_squared)
    if calibration is None or together is None:
        return {"familiarity": "unknown: gsure calibrate RUN measures what is usual"}
    worse, is_unfamiliar = together
    if is_unfamiliar:
        said = (
            "These measurements do not look like the training data: hidden entries are predicted "
            f"{worse:.1f} times worse than usual."
        )
    else:
        said = f"as the training data: the error on hidden entries is {worse:.2f} times the usual one"
    done: dict[str, Any] = {"familiarity": said}
    which = calibration.unfamiliar(chi_squared).nonzero().flatten().tolist()
    if which:
        times = calibration.times_worse(chi_squared)
        named = [f"{k} ({float(times[k]):.1f} times)" for k in which[:SHOWN]]
        more = f" and {len(which) - SHOWN:,} more" if len(which) > SHOWN else ""
        done["unfamiliar measurements"] = f"{len(which):,} of {len(chi_squared):,}: {', '.join(named)}{more}"
    return done
