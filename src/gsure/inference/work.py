"""The work of `restore`: all measurements by all methods, batch by batch, in memory or in files; and the verdict."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gsure.data.anscombe import transform_of
from gsure.data.chunks import Chunks, write_chunk
from gsure.data.measurements import Signals, as_complex
from gsure.data.memory import hold_signals
from gsure.display import Bar
from gsure.inference.bars import Checks, ErrorBars, spread_of
from gsure.inference.cost import describe_choice, describe_cost
from gsure.inference.guard import Tally, is_below_baseline
from gsure.inference.hidden import Checker
from gsure.inference.job import Job
from gsure.inference.methods import Estimates
from gsure.inference.restored import KINDS, SPREADS, in_words, verdict_of_images
from gsure.inference.setup import share_never_measured
from gsure.judging import Baselines, choose_judged, predict_hidden
from gsure.measurement import Measurement


class Part(NamedTuple):
    """Estimates of some of the measurements."""

    kept: dict[str, Tensor]
    """By kind."""
    draws: Tensor
    reported: Tensor
    """(draws, b): draws that were excluded, or may be below the zero-filled image."""


class Found(NamedTuple):
    """Signals by kind, and all draws if they are in memory."""

    signals: dict[str, Signals]
    draws: Tensor | None
    reported: Tensor | None = None
    """(draws, n): draws that the summary reports."""


@dataclass(frozen=True)
class Work:
    """Restores the measurements of a job by all methods, and judges the model."""

    job: Job
    advance: Bar
    unconverged: list[int] = field(default_factory=list)
    """Images of each batch for which total variation did not converge."""
    tally: Tally = field(default_factory=Tally)

    def describe(self) -> Iterator[str]:
        """What restores; and, after one batch was timed, what it costs."""
        job, setup = self.job, self.job.setup
        options = job.restorer.options()
        drawn_by, steps = options.get("drawn_by", setup.drawn_by), options.get("steps", 0)  # a Gaussian has no steps
        yield describe_choice(setup.asked, setup.method, drawn_by, setup.is_complete)
        plan = job.plan if self.bars is not None else job.plan._replace(checks=0.0)
        speed = job.speed or job.measure_speed()
        yield describe_cost(plan, speed, job.draws, steps, job.n, drawn_by, self._time_baselines())

    @cached_property
    def why_raw(self) -> str:
        """Why error bars are not calibrated; empty if they are."""
        if self.job.calibration == "none":
            return "calibration none"
        return self._bars.why_not() if self.job.draws > 1 else "one draw has no spread"

    @property
    def bars(self) -> ErrorBars | None:
        return None if self.why_raw else self._bars

    @cached_property
    def _bars(self) -> ErrorBars:
        job = self.job
        known = None if job.stored is None else job.stored.calibration
        return ErrorBars(Checker.of(job.restorer, job.setup), known, job.setup, job.at_once, self.advance)

    @property
    def kinds(self) -> tuple[str, ...]:
        raw = () if self.bars is None else ("raw_std",)
        return (*KINDS, *raw, *self.baselines.kinds)

    @cached_property
    def baselines(self) -> Baselines:
        setup = self.job.setup
        if not self.job.has_baselines:
            return Baselines(setup.basis, None, None, setup.real_images)
        some = setup.read(choose_judged(self.job.n, setup.data.shape))
        gaussian = None if setup.prior is None or setup.method == "gaussian" else setup.prior.gaussian
        if gaussian is not None:
            try:
                gaussian.mean(some[:1])
            except ValueError as error:  # other masks than those it was fitted to
                self.advance.say(str(error))
                gaussian = None
        return Baselines.choose(some, setup.about, gaussian, setup.seed, setup.real_images)

    def _time_baselines(self) -> float:
        """Seconds per image of total variation and of the Gaussian prior, from one batch."""
        some = self.job.setup.read(np.arange(min(self.job.n, self.job.at_once)))
        baselines = self.baselines  # chosen before the clock starts
        began = time.perf_counter()
        baselines(some)
        return (time.perf_counter() - began) / len(some) if len(baselines.kinds) > 1 else 0.0

    def run(self, folder: Path | None) -> Found | None:
        """Everything, in memory or in the folder; None if other processes have not finished their share."""
        if folder is None:
            return self._in_memory()
        chunks = Chunks(folder, self.job.n, self.job.at_once)
        for number in chunks.mine():
            if not chunks.is_done(number, self.kinds):
                self._write(chunks, number)
            self.advance(len(chunks.indices(number)))
        if not all(chunks.is_done(number, self.kinds) for number in range(len(chunks))):
            return None
        return Found({kind: Signals(folder / kind).subset(np.arange(self.job.n)) for kind in self.kinds}, None)

    def estimates(self, where: np.ndarray) -> Part:
        measurement = self.job.setup.read(where)
        if empty := int((measurement.mask.flatten(1).sum(1) == 0).sum()):
            self.advance.say(
                f"{empty} of the measurements {where[0]}..{where[-1]} have no measured entry: they are sampled freely."
            )
        found, others = self.job.restorer(measurement, where.tolist()), self.baselines(measurement)
        self.unconverged.append(others.unconverged)
        bars, reported = None if self.bars is None else self.bars(measurement, where.tolist(), found), found.are_bad
        if found.repeated is not None and found.excluded is not None:
            self.tally.add(where.tolist(), found.repeated, found.excluded)
            below = self._below(found, measurement, None if bars is None else bars.slope)
            self.tally.add_below(where.tolist(), below)
            reported = reported | below
        spread = spread_of(found, self.job.setup.about.is_complex)
        kept = {"mean": found.mean, "std": spread, "draw": found.draws[0]}
        if bars is not None:
            kept |= {"std": bars.std, "raw_std": spread}
        return Part(kept | others.signals, found.draws, reported)

    def _below(self, found: Estimates, measurement: Measurement, slope: Tensor | None) -> Tensor:
        """Which draws may be no better than the zero-filled image. If the mean is that of the draws, each is compared with the
        mean of the others."""
        to_spectral, n = self.job.setup.basis.to_spectral, len(found.draws)
        if self.job.restorer.averages and n == 1:
            return torch.zeros(found.draws.shape[:2], dtype=torch.bool)
        means = [(n * found.mean - x) / (n - 1) if self.job.restorer.averages else found.mean for x in found.draws]
        pairs = ((to_spectral(x), to_spectral(mean)) for x, mean in zip(found.draws, means, strict=True))
        return torch.stack([is_below_baseline(xbar, mean, measurement, slope) for xbar, mean in pairs])

    def _in_memory(self) -> Found:
        parts, data, n = list[Part](), self.job.setup.data, self.job.n
        for first in range(0, n, self.job.at_once):
            parts.append(self.estimates(np.arange(first, min(n, first + self.job.at_once))))
            self.advance(parts[-1].draws.shape[1])
        some, is_complex, made_of = data.subset(np.arange(n)), bool(data.header["complex"]), self.job.made_of
        groups, scales, offsets = some.groups(), some.scales(), some.offsets()
        found = {
            kind: hold_signals(
                torch.cat([part.kept[kind] for part in parts]),
                made_of,
                is_complex,
                groups,
                scales,
                None if kind in SPREADS else offsets,
                _describe_values(data.header, kind),
            )
            for kind in self.kinds
        }
        scale, offset = (torch.from_numpy(values).reshape(-1, *[1] * len(data.shape)) for values in (scales, offsets))
        raw = torch.cat([part.draws for part in parts], 1) * scale + offset
        reported = torch.cat([part.reported for part in parts], 1)
        if (transform := transform_of(data.header)) is not None:
            return Found(found, transform.inverse(raw), reported)
        return Found(found, as_complex(raw.flatten(0, 1), is_complex).unflatten(0, raw.shape[:2]), reported)

    def _write(self, chunks: Chunks, number: int) -> None:
        data, where = self.job.setup.data, np.array(chunks.indices(number))
        some, is_complex = data.subset(where), bool(data.header["complex"])
        scales, offsets = some.scales().tolist(), some.offsets().tolist()
        found = self.estimates(where).kept
        self.tally.write(chunks.folder / "guard" / chunks.name(number, "json"), where.tolist())
        if self.bars is not None:
            self.bars.checks.write(chunks.folder / "calibration" / chunks.name(number, "json"), where.tolist())
        for kind, values in found.items():
            path, offset = chunks.folder / kind / chunks.name(number), None if kind in SPREADS else offsets
            transform = _describe_values(data.header, kind)
            write_chunk(path, values, some.groups(), self.job.made_of, is_complex, scales, offset, transform)

    def summary(self, found: Mapping[str, Signals], clean: Signals | None, folder: Path | None) -> dict[str, Any]:
        """What a user must know: the verdict, what was done, and what is wrong."""
        job = self.job
        done: dict[str, Any] = self.verdict(found, clean) | ({} if folder is None else {"folder": str(folder)})
        done |= {"restored": job.n, **job.restorer.options()}
        if share := share_never_measured(job.setup.loaded):
            entries = f"{100 * share:.1f} % of the entries were never measured in training"
            done["extrapolation"] = f"{entries}: there, restorations and bars are guesses"
        tally = self.tally if folder is None else Tally.read(folder / "guard")
        done |= tally.summary(job.n, job.draws)
        if self.bars is None:
            return done | {"error bars": f"not calibrated: {self.why_raw}"}
        checks = self.bars.checks if folder is None else Checks.read(folder / "calibration")
        return done | self.bars.summary(job.n, job.draws, checks)

    def verdict(self, found: Mapping[str, Signals], clean: Signals | None) -> dict[str, str]:
        """By PSNR if clean signals are given, or else by hidden entries; empty without baselines."""
        job, setup = self.job, self.job.setup
        if not job.has_baselines:
            return {}
        if count := sum(self.unconverged):
            self.advance.say(f"Total variation did not converge for {count:,} of {job.n:,} images.")
        if clean is not None:
            return {"verdict": verdict_of_images(found, clean).sentence}
        where = choose_judged(job.n, setup.data.shape)

        def estimate(shown: Measurement) -> dict[str, Tensor]:
            return {"mean": job.restorer.mean(shown, where.tolist())} | self.baselines(shown).signals

        self.advance.say("Judging the model by hidden entries ...")
        groups = setup.data.subset(where).groups()
        numbers = setup.data.indices[where].tolist()
        predictions = predict_hidden(
            estimate, setup.read(where), setup.about, numbers, groups, setup.seed, setup.real_images
        )
        shares = {
            f"hidden entries, {in_words(kind)}": f"{value:.2f} dB" for kind, value in predictions.decibels().items()
        }
        if setup.is_training_data and predictions.errors:
            shares["verdict is too good"] = (
                "the model learned from most of these measurements, and also from what was hidden now; the verdict of gsure "
                "train is from measurements that were held out"
            )
            self.advance.say(f"The verdict is too good: {shares['verdict is too good']}.")
        return {"verdict": predictions.verdict().sentence} | shares


def _describe_values(header: Mapping[str, Any], kind: str) -> dict[str, Any] | None:
    """What the file of a restoration records, of `kind` mean, std, ...: the transform of the measurements, if there is one."""
    found = header.get("transform")
    return None if found is None else {**found, "std": kind in ("std", "raw_std")}
