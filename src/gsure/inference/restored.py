"""What `restore` gives: restorations by kind, a summary of them, and scores if clean signals are known."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gsure.data.measurements import Signals
from gsure.display import with_error
from gsure.files import replacing
from gsure.judging import LEVEL, LEVELS, Reliability, Verdict, difference_of_scores, half_width, judge_differences
from gsure.metrics.images import mean_of_groups, psnr
from gsure.metrics.restorations import column, mean_and_error, score_stored
from gsure.plotting import draw_panel
from gsure.plotting.curves import draw_reliability

AT_ONCE = 64
"""Images that are read at once."""
KINDS = ("mean", "std", "draw")
"""Beside them stand the kinds of `Baselines`."""
SPREADS = ("std", "raw_std")
"""Standard deviations, which are no estimates of a signal."""


@dataclass(frozen=True)
class Restored:
    """Restorations, in the units of the data; complex images are complex tensors, with half as many channels.

    With a folder, they are read from it when asked for.
    """

    signals: Mapping[str, Signals]
    """By kind, as the model sees them: mean, std, raw_std, draw (the first one), baseline, total_variation and gaussian."""
    summary: dict[str, Any]
    """What was done, and how good it is if that is known."""
    all_draws: Tensor | None = None
    reported_draws: Tensor | None = None
    """(draws, n), of restorations in memory: True for draws that the summary reports as wrong, or as probably farther from the
    truth than the zero-filled image."""
    folder: Path | None = None

    @property
    def mean(self) -> Tensor:
        """(n, channels, height, width): the posterior mean."""
        return self.signals["mean"].raw()

    @property
    def std(self) -> Tensor:
        """Like `mean`, real: posterior standard deviation. Of complex numbers it is that along the phase of the mean, which is
        the standard deviation of the magnitude; of counts it is found by the delta method."""
        return self.signals["std"].raw(mean=self.signals["mean"]).real

    @property
    def raw_std(self) -> Tensor:
        """Like `std`, before the calibration; the same if there was none."""
        return self.signals[self._raw].raw(mean=self.signals["mean"]).real

    @property
    def _raw(self) -> str:
        return "raw_std" if "raw_std" in self.signals else "std"

    def half_width(self, level: float = LEVEL) -> Tensor:
        """Half of the intervals that claim to contain the true value with this probability: mean ± half_width."""
        return half_width(level, independent_draws(self.summary)) * self.std

    @property
    def baseline(self) -> Tensor:
        """Like `mean`: zero-filled, or the pseudo-inverse, without a model."""
        return self.signals["baseline"].raw()

    @property
    def draws(self) -> Tensor:
        """(draws, n, channels, height, width): posterior samples. A folder keeps the first one only."""
        if self.all_draws is not None:
            return self.all_draws
        return self.signals["draw"].raw()[None]

    @property
    def verdict(self) -> str:
        """Whether the model is better than no model, in one sentence."""
        return self.summary["verdict"]

    def __len__(self) -> int:
        return len(self.signals["mean"])

    def __repr__(self) -> str:
        """Without the values, which are long."""
        count = f"{len(self)} restorations" if self.signals else "unfinished restorations"
        where = "in memory" if self.folder is None else f"in {self.folder}"
        return f"Restored({count} {where}, verdict={self.summary.get('verdict')!r})"


def scores_in_words(found: Mapping[str, Signals], clean: Signals | None) -> dict[str, str]:
    """PSNRs, if the clean signals are known."""
    if clean is None:
        return {}
    scores = psnr_of_images(found, clean)
    return {f"PSNR of {in_words(kind)}": f"{with_error(*mean_and_error(values))} dB" for kind, values in scores.items()}


def independent_draws(summary: Mapping[str, Any]) -> int | None:
    """From how many draws standard deviations were computed; None if they are those of a Gaussian in closed form."""
    is_exact = "gaussian" in (summary.get("method"), summary.get("drawn_by"))
    return None if is_exact else int(summary["draws"])


def measure_coverage(restored: "Restored", clean: Signals | None) -> dict[str, Reliability]:
    """How often the intervals contain the clean values, calibrated and raw; empty if that is not known."""
    draws = independent_draws(restored.summary)
    if clean is None or draws == 1:
        return {}
    kinds = {"calibrated": "std"} if restored._raw == "raw_std" else {}
    found = {name: Reliability(draws) for name in (*kinds, "raw")}
    is_complex, n = bool(clean.header["complex"]), len(restored)
    for first in range(0, n, AT_ONCE):
        where = slice(first, min(n, first + AT_ONCE))
        for name, reliability in found.items():
            std = restored.signals[kinds.get(name, restored._raw)][where]
            reliability.add(restored.signals["mean"][where], std, clean[where], is_complex)
    return found


def coverage_in_words(found: Mapping[str, Reliability]) -> dict[str, str]:
    at, said = LEVELS.index(LEVEL), {}
    for name, one in found.items():
        inside, frame = (100 * one.curve(part)[at] for part in ("object", "frame"))
        words = f"{inside:.1f} % inside the object, {frame:.1f} % of the frame"
        worst = f"; at least {100 * one.worst:.0f} % of the object in each" if name == "calibrated" else ""
        said[f"{100 * LEVEL:.0f} % intervals cover" + (", raw" if name == "raw" else "")] = words + worst
    return said


def in_words(kind: str) -> str:
    return kind.replace("_", " ")


def psnr_of_images(found: Mapping[str, Signals], clean: Signals) -> dict[str, Tensor]:
    """PSNR of each image, by kind of estimate."""
    judged = {kind: signals for kind, signals in found.items() if kind not in SPREADS}
    images = [str(index) for index in range(len(found["mean"]))]
    scores = score_stored(judged, clean, bool(found["mean"].header["complex"]), images, {"psnr": psnr}).by_image
    return {kind: scores[column("psnr", kind)] for kind in judged}


def verdict_of_images(found: Mapping[str, Signals], clean: Signals) -> Verdict:
    """By PSNR, paired by volume; by image, if there is only one volume."""
    scores, volumes = psnr_of_images(found, clean), found["mean"].groups()
    groups = torch.from_numpy(np.unique(volumes, return_inverse=True)[1]) if len(set(volumes)) > 1 else None
    usable = torch.stack(list(scores.values())).isfinite().all(0)  # an empty image has no PSNR
    means = {kind: mean_of_groups(torch.where(usable, values, 0.0), groups) for kind, values in scores.items()}
    others = {kind: values for kind, values in means.items() if kind not in ("mean", "draw")}
    return judge_differences({kind: difference_of_scores(means["mean"], values) for kind, values in others.items()})


def finish(restored: Restored, clean: Signals | None, panels: int) -> Restored:
    """With scores, if the clean signals are known; a folder gets panels of the first samples, and what can be said of all."""
    coverage = measure_coverage(restored, clean)
    summary = restored.summary | scores_in_words(restored.signals, clean) | coverage_in_words(coverage)
    restored = replace(restored, summary=summary)
    if restored.folder is not None:
        _draw_panels(restored.folder, restored, clean, panels)
        _write_summary(restored.folder, summary, clean, coverage)
    return restored


def _draw_panels(folder: Path, restored: Restored, clean: Signals | None, panels: int) -> None:
    shown = list(range(min(len(restored), panels)))
    if shown:
        pictures = {kind: signals[shown] for kind, signals in restored.signals.items()}
        if clean is not None:
            pictures["clean"] = clean[shown]
        mean = restored.signals["mean"]
        draw_panel(folder / "panels", pictures, mean.header["complex"], mean.black)


def _write_summary(
    folder: Path, summary: Mapping[str, Any], clean: Signals | None, coverage: Mapping[str, Reliability]
) -> None:
    if coverage:
        curves = {name: one.as_dict() for name, one in coverage.items()}
        with replacing(folder / "reliability.json") as temporary:
            temporary.write_text(json.dumps(curves, indent=1))
        draw_reliability(folder / "reliability.png", curves)
    with replacing(folder / "summary.json") as temporary:
        where = None if clean is None or clean.path is None else str(clean.path.resolve())
        temporary.write_text(json.dumps(dict(summary) | {"clean": where}, indent=1))
