"""Which calibration `restore` uses: that of the run, or one from the measurements themselves; and the file of a run."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gsure.basis import Basis
from gsure.data.measurements import Measurements
from gsure.data.scaling import evenly_spread
from gsure.display import Bar
from gsure.files import read_json, replacing
from gsure.gaussian import About, Fitted
from gsure.inference.bars import CHECK_DRAWS, Bars, Batches, Calibrator, Checker, Checks, learn
from gsure.inference.methods import Estimates, Restorer, in_basis
from gsure.judging import Calibration, split_units
from gsure.judging.calibration import IMAGE_PRIOR, SPLITS
from gsure.judging.verdict import MIN_UNITS
from gsure.measurement import Measurement

Choice = Literal["auto", "self", "none"]

FORMAT, VERSION = "gsure calibration", 1
SELF_IMAGES = 16
"""Measurements from which a calibration is learned, if the run has none."""
SIMILAR = {"share of measured entries": 1.5, "largest noise": 2.0}
"""Factors by which these may differ from the data of a calibration."""
SHOWN = 8
"""Measurements that the summary names."""


def make_checker(posterior: Restorer, data: Measurements, basis: Basis, prior: Fitted | None, seed: int) -> Checker:
    always = (data.coverage == 1).float() if prior is None else prior.always
    about = About(basis, tuple(data.shape), bool(data.header["complex"]), always, data.unit)
    real = prior is not None and prior.gaussian.real_images
    return Checker(posterior, about, data.mask_shape, real, seed)


class Stored(NamedTuple):
    """The calibration of a run, and what it was made of."""

    calibration: Calibration
    made_of: dict[str, Any]
    data: dict[str, Any]
    identity: str
    stop: int | None = None
    """Of `context`: the step at whose noise level conditional means are averaged."""


def describe_data(data: Measurements) -> dict[str, Any]:
    return {
        "shape": list(data.shape),
        "basis": data.header["basis"],
        "shape of masks": list(data.mask_shape),
        "unit of masks": list(data.unit),
        "share of measured entries": round(float(data.coverage.mean()), 6),
        "largest noise": float(f"{data.max_std:.6g}"),
    }


def describe_method(posterior: Restorer, checksum: int) -> dict[str, Any]:
    """What a calibration depends on; the number of draws only if the mean is that of the draws."""
    options = {key: value for key, value in posterior.options().items() if key != "seed"}
    if not posterior.averages:
        del options["draws"]
    return {**options, "weights": checksum}


def write_calibration(
    path: Path, calibration: Calibration, made_of: Mapping[str, Any], data: Mapping[str, Any], others: Mapping[str, Any]
) -> None:
    """`others` is what a reader may want to know, such as the request and the reliability curve."""
    record = {
        "format": FORMAT,
        "version": VERSION,
        "method": dict(made_of),
        "data": dict(data),
        "factors": [round(value, 6) for value in calibration.factors.tolist()],
        "measured": calibration.measured,
        "added": calibration.added,
        "image_prior": calibration.image_prior,
        "usual": calibration.usual,
        "images": calibration.images,
        "units": calibration.units,
        **others,
    }
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(record, indent=1, ensure_ascii=False))


def read_calibration(path: Path) -> Stored:
    record = read_json(path)
    if record.get("format") != FORMAT or record.get("version") != VERSION:
        raise ValueError(f"{path} is not a calibration of this version of gsure: run gsure calibrate again.")
    try:
        usual = record["usual"]
        calibration = Calibration(
            torch.tensor([float(value) for value in record["factors"]]),
            float(record["measured"]),
            float(record["added"]),
            float(record["image_prior"]),
            None if usual is None else (float(usual[0]), float(usual[1])),
            int(record["images"]),
            int(record["units"]),
        )
        stop = record.get("stop")
        stored = Stored(
            calibration, dict(record["method"]), dict(record["data"]), "", None if stop is None else int(stop)
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ValueError(f"{path} is damaged: delete it, or run gsure calibrate again.") from error
    positive = [*calibration.factors.tolist(), calibration.measured, calibration.image_prior]
    numbers = [*positive, calibration.added, *(calibration.usual or ())]
    if not np.isfinite(numbers).all() or min(positive) <= 0 or calibration.added < 0:
        raise ValueError(f"{path} is damaged: its factors are not positive. Delete it, or run gsure calibrate again.")
    steps = stored.made_of.get("steps")
    if stored.stop is not None and not (isinstance(steps, int) and 0 <= stored.stop < steps):
        raise ValueError(f"{path} is damaged: it stops at step {stored.stop} of {steps}. Run gsure calibrate again.")
    content = json.dumps(
        [record.get(key) for key in ("factors", "measured", "added", "image_prior", "usual", "method", "data", "stop")]
    )
    return stored._replace(identity=hashlib.sha256(content.encode()).hexdigest()[:16])


def refuse_other(path: Path, stored: Stored, made_of: Mapping[str, Any], data: Measurements) -> None:
    """A calibration is for one method with its options, and for similar data."""
    mine = json.loads(json.dumps(dict(made_of)))
    changed = [(key, stored.made_of.get(key), mine.get(key)) for key in {**stored.made_of, **mine}]
    now = describe_data(data)
    changed += [(key, stored.data.get(key), now[key]) for key in now]
    differences = [
        f"{key} was {before}, now {after}" for key, before, after in changed if not _is_similar(key, before, after)
    ]
    if differences:
        raise ValueError(
            f"{path} was made for another method or other data: {'; '.join(differences)}. Run gsure calibrate again, learn "
            "from these measurements with --calibration self, or turn it off with --calibration none."
        )


def _is_similar(key: str, before: Any, after: Any) -> bool:
    if key in SIMILAR and isinstance(before, int | float) and before > 0 and after > 0:
        return 1 / SIMILAR[key] <= after / before <= SIMILAR[key]
    return before == after


@dataclass
class ErrorBars:
    """Calibrated error bars of `restore`, learned when they are first needed."""

    checker: Checker
    stored: Calibration | None
    """Of the run; None to learn from the measurements."""
    data: Measurements
    basis: Basis
    at_once: int
    advance: Bar
    checks: Checks = field(default_factory=Checks)
    trouble: str = ""
    """Why nothing could be learned."""

    @property
    def some(self) -> np.ndarray:
        return evenly_spread(SELF_IMAGES, len(self.data))

    def _read(self, where: np.ndarray) -> Measurement:
        return in_basis(self.data[where], self.data, self.basis)

    def why_not(self) -> str:
        """Why these measurements cannot be calibrated; empty if they can."""
        if self.stored is not None:
            return ""
        indices = self.some.tolist()
        hidden = split_units(self._read(self.some), self.checker.about, indices, self.checker.seed)
        if hidden is None:
            return "no measured units can be hidden"
        units = int(sum(float(h.sum()) for h in hidden) / np.prod(self.checker.about.unit or [1]))
        return "" if units >= MIN_UNITS else f"only {units} measured units can be hidden, {MIN_UNITS} are needed"

    @cached_property
    def calibrator(self) -> Calibrator:
        if self.stored is not None:
            return Calibrator(self.checker, self.stored)
        self.advance.say(f"Calibrating error bars by hidden entries of {len(self.some)} measurements ...")
        try:
            found = learn(self.checker, self._batches())
        except ValueError as error:  # hidden units there were, but no good draws
            self.trouble = str(error)
            found = Calibration(torch.ones(int(self.checker.groups.max()) + 1), 1.0, 0.0, IMAGE_PRIOR, None, 0, 0)
        return Calibrator(self.checker, replace(found, usual=None))  # they cannot tell what is unusual about themselves

    def _batches(self) -> Batches:
        for first in range(0, len(self.some), self.at_once):
            where = self.some[first : first + self.at_once]
            yield self._read(where), where.tolist()

    def __call__(self, measurement: Measurement, where: Sequence[int], found: Estimates) -> Tensor:
        """Calibrated standard deviations."""
        bars: Bars = self.calibrator(measurement, list(where), found)
        self.checks.add(where, bars)
        return bars.std

    def summary(self, n: int, draws: int, checks: Checks) -> dict[str, Any]:
        """What a user must know: what was done, what it cost, and whether the measurements look unfamiliar."""
        own = "and for each measurement by its own"
        if self.stored is None:
            said = f"calibrated by hidden entries of {len(self.some)} of these measurements, {own}"
        else:
            said = f"calibrated by hidden entries of {self.stored.images:,} measurements (gsure calibrate), {own}"
        said = self.trouble or said
        kappa, chi_squared = checks.of(n)
        done: dict[str, Any] = {"error bars": said}
        done["correction per measurement"] = f"× {float(kappa.min()):.2f} to {float(kappa.max()):.2f}"
        done["cost of calibration"] = (
            f"{SPLITS * CHECK_DRAWS} more draws per measurement, beside {draws} ({SPLITS} splits with {CHECK_DRAWS} draws)"
        )
        return done | familiarity(self.stored, chi_squared)


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
