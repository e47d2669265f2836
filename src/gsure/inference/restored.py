"""What `restore` gives: restorations by kind, a summary of them, and scores if clean signals are known."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gsure.data.measurements import Signals
from gsure.display import with_error
from gsure.files import replacing
from gsure.judging import Verdict, difference_of_scores, judge_differences
from gsure.metrics.images import mean_of_groups, psnr
from gsure.metrics.restorations import column, mean_and_error, score_stored
from gsure.plotting import draw_panel

KINDS = ("mean", "std", "draw")
"""Beside them stand the kinds of `Baselines`."""


@dataclass(frozen=True)
class Restored:
    """Restorations, in the units of the data; complex images are complex tensors, with half as many channels.

    With a folder, they are read from it when asked for.
    """

    signals: Mapping[str, Signals]
    """By kind, as the model sees them: mean, std, draw (the first one), baseline, total_variation and gaussian."""
    summary: dict[str, Any]
    """What was done, and how good it is if that is known."""
    all_draws: Tensor | None = None
    folder: Path | None = None

    @property
    def mean(self) -> Tensor:
        """(n, channels, height, width): the posterior mean."""
        return self.signals["mean"].raw()

    @property
    def std(self) -> Tensor:
        """Like `mean`, real: posterior standard deviation, of complex numbers √E|x - mean|², of counts by the delta method."""
        return self.signals["std"].raw(mean=self.signals["mean"]).abs()

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


def scores_in_words(found: Mapping[str, Signals], clean: Signals | None) -> dict[str, str]:
    """PSNRs, if the clean signals are known."""
    if clean is None:
        return {}
    scores = psnr_of_images(found, clean)
    return {f"PSNR of {in_words(kind)}": f"{with_error(*mean_and_error(values))} dB" for kind, values in scores.items()}


def in_words(kind: str) -> str:
    return kind.replace("_", " ")


def psnr_of_images(found: Mapping[str, Signals], clean: Signals) -> dict[str, Tensor]:
    """PSNR of each image, by kind of estimate."""
    judged = {kind: signals for kind, signals in found.items() if kind != "std"}
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


def finish(folder: Path, restored: Restored, clean: Signals | None, panels: int) -> None:
    """Panels of the first samples, and what can be said of all."""
    shown = list(range(min(len(restored), panels)))
    if shown:
        pictures = {kind: signals[shown] for kind, signals in restored.signals.items()}
        if clean is not None:
            pictures["clean"] = clean[shown]
        draw_panel(folder / "panels", pictures, restored.signals["mean"].header["complex"])
    with replacing(folder / "summary.json") as temporary:
        where = None if clean is None or clean.path is None else str(clean.path.resolve())
        temporary.write_text(json.dumps(restored.summary | {"clean": where}, indent=1))
