"""The work of `restore`: all measurements by all methods, batch by batch, in memory or in files; and the verdict."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gsure.basis import Basis
from gsure.data.anscombe import describe_values, transform_of
from gsure.data.chunks import Chunks, write_chunk
from gsure.data.measurements import Measurements, Signals, as_complex
from gsure.data.memory import hold_signals
from gsure.display import Bar
from gsure.gaussian import About, Fitted
from gsure.inference.calibration import ErrorBars
from gsure.inference.guard import Tally, is_below_baseline
from gsure.inference.methods import Restorer, in_basis
from gsure.inference.restored import KINDS, SPREADS, in_words, verdict_of_images
from gsure.judging import Baselines, choose_judged, predict_hidden
from gsure.measurement import Measurement


@dataclass(frozen=True)
class Work:
    """Restores measurements by all methods, and judges the model."""

    posterior: Restorer
    data: Measurements
    basis: Basis
    prior: Fitted | None
    n: int
    seed: int
    wanted: bool
    """Whether baselines other than the pseudo-inverse are."""
    advance: Bar
    bars: ErrorBars | None = None
    """Calibrated error bars; None for raw ones."""
    unconverged: list[int] = field(default_factory=list)
    """Images of each batch for which total variation did not converge."""
    tally: Tally = field(default_factory=Tally)

    @property
    def kinds(self) -> tuple[str, ...]:
        raw = () if self.bars is None else ("raw_std",)
        return (*KINDS, *raw, *self.baselines.kinds)

    def measurement(self, where: np.ndarray) -> Measurement:
        return in_basis(self.data[where], self.data, self.basis)

    @cached_property
    def about(self) -> About:
        data = self.data
        always = (data.coverage == 1).float() if self.prior is None else self.prior.always
        return About(self.basis, tuple(data.shape), bool(data.header["complex"]), always, data.unit)

    @cached_property
    def baselines(self) -> Baselines:
        if not self.wanted:
            return Baselines(self.basis, None, None, False)
        some = self.measurement(choose_judged(self.n, self.data.shape))
        gaussian = None if self.prior is None else self.prior.gaussian
        if gaussian is not None:
            try:
                gaussian.mean(some[:1])
            except ValueError as error:  # other masks than those it was fitted to
                self.advance.say(str(error))
                gaussian = None
        return Baselines.choose(some, self.about, gaussian, self.seed)

    def estimates(self, where: np.ndarray) -> tuple[dict[str, Tensor], Tensor]:
        """What is kept, by kind, and all draws."""
        measurement = self.measurement(where)
        if empty := int((measurement.mask.flatten(1).sum(1) == 0).sum()):
            self.advance.say(
                f"{empty} of the measurements {where[0]}..{where[-1]} have no measured entry: they are sampled freely."
            )
        found, others = self.posterior(measurement, where.tolist()), self.baselines(measurement)
        self.unconverged.append(others.unconverged)
        if found.repeated is not None and found.excluded is not None:
            self.tally.add(where.tolist(), found.repeated, found.excluded)
            if (gaussian := others.signals.get("gaussian")) is not None:
                self.tally.add_below(where.tolist(), self._below(found.draws, gaussian, measurement))
        kept = {"mean": found.mean, "std": found.std, "draw": found.draws[0]}
        if self.bars is not None:
            kept |= {"std": self.bars(measurement, where.tolist(), found), "raw_std": found.std}
        return kept | others.signals, found.draws

    def _below(self, draws: Tensor, gaussian: Tensor, measurement: Measurement) -> Tensor:
        """Which draws are expected to be no better than the zero-filled image, by the mean of the Gaussian."""
        to_spectral = self.basis.to_spectral
        mean = to_spectral(gaussian.to(measurement.ybar))
        return torch.stack([is_below_baseline(to_spectral(x.to(mean)), mean, measurement) for x in draws])

    def verdict(self, found: Mapping[str, Signals], clean: Signals | None) -> dict[str, str]:
        """By PSNR if clean signals are given, or else by hidden entries; empty without baselines."""
        if not self.wanted:
            return {}
        if count := sum(self.unconverged):
            self.advance.say(f"Total variation did not converge for {count:,} of {self.n:,} images.")
        if clean is not None:
            return {"verdict": verdict_of_images(found, clean).sentence}
        where = choose_judged(self.n, self.data.shape)

        def estimate(shown: Measurement) -> dict[str, Tensor]:
            return {"mean": self.posterior.mean(shown, where.tolist())} | self.baselines(shown).signals

        self.advance.say("Judging the model by hidden entries ...")
        groups = self.data.subset(where).groups()
        numbers = self.data.indices[where].tolist()
        real, some = self.baselines.real_images, self.measurement(where)
        predictions = predict_hidden(estimate, some, self.about, numbers, groups, self.seed, real)
        shares = {
            f"hidden entries, {in_words(kind)}": f"{value:.2f} dB" for kind, value in predictions.decibels().items()
        }
        return {"verdict": predictions.verdict().sentence} | shares

    def in_memory(self, at_once: int, made_of: Mapping[str, Any]) -> tuple[dict[str, Signals], Tensor]:
        parts, drawn, data = [], [], self.data
        for first in range(0, self.n, at_once):
            kept, x = self.estimates(np.arange(first, min(self.n, first + at_once)))
            parts.append(kept)
            drawn.append(x)
            self.advance(x.shape[1])
        some, is_complex = data.subset(np.arange(self.n)), bool(data.header["complex"])
        groups, scales, offsets = some.groups(), some.scales(), some.offsets()
        found = {
            kind: hold_signals(
                torch.cat([kept[kind] for kept in parts]),
                made_of,
                is_complex,
                groups,
                scales,
                None if kind in SPREADS else offsets,
                describe_values(data.header, kind),
            )
            for kind in self.kinds
        }
        scale, offset = (torch.from_numpy(values).reshape(-1, *[1] * len(data.shape)) for values in (scales, offsets))
        raw = torch.cat(drawn, 1) * scale + offset
        if (transform := transform_of(data.header)) is not None:
            return found, transform.inverse(raw)
        return found, as_complex(raw.flatten(0, 1), is_complex).unflatten(0, raw.shape[:2])

    def in_files(self, chunks: Chunks, made_of: Mapping[str, Any]) -> bool:
        """Whether all is done: several processes share the work."""
        is_complex = bool(self.data.header["complex"])
        for number in chunks.mine():
            where = np.array(chunks.indices(number))
            if not chunks.is_done(number, self.kinds):
                some = self.data.subset(where)
                scales, offsets = some.scales().tolist(), some.offsets().tolist()
                found = self.estimates(where)[0]
                self.tally.write(chunks.folder / "guard" / f"shard-{number:05d}.json", where.tolist())
                if self.bars is not None:
                    self.bars.checks.write(chunks.folder / "calibration" / f"shard-{number:05d}.json", where.tolist())
                for kind, values in found.items():
                    path, offset = chunks.folder / kind / Chunks.name(number), None if kind in SPREADS else offsets
                    transform = describe_values(self.data.header, kind)
                    write_chunk(path, values, some.groups(), made_of, is_complex, scales, offset, transform)
            self.advance(len(where))
        return all(chunks.is_done(number, self.kinds) for number in range(len(chunks)))
