"""Restore: from a run and measurements to posterior mean, standard deviation and one draw; and the same without a network."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from gsure.basis import Basis
from gsure.data.measurements import Measurements, Signals, open_clean
from gsure.display import bar, say
from gsure.files import record_request
from gsure.inference.cost import DRAWS
from gsure.inference.job import Choice, Job
from gsure.inference.methods import Method
from gsure.inference.restored import Restored, finish
from gsure.inference.setup import DrawsBy, choose_setup, refuse_other_than
from gsure.inference.volumes import Format, check_volumes, write_volumes
from gsure.inference.work import Work
from gsure.sampling import Spacing
from gsure.training.checkpoints import Weights
from gsure.training.model import CheckpointName, Model, open_model

__all__ = ["Restored", "restore"]


def restore(
    model: Model,
    measurements: str | Path | Measurements,
    out: str | Path | None = None,
    *,
    draws: int | None = None,
    method: Method = "auto",
    draws_by: DrawsBy = "auto",
    calibration: Choice = "auto",
    steps: int | None = None,
    eta: float | None = None,
    eta_b: float = 1.0,
    spacing: Spacing | None = None,
    seconds_per_image: float | None = None,
    checkpoint: CheckpointName = "best",
    weights: Weights | None = None,
    network: nn.Module | None = None,
    basis: Basis | None = None,
    limit: int | None = None,
    clean: str | Path | Signals | None = None,
    panels: int = 8,
    volumes: Format | None = None,
    baselines: bool = True,
    batch: int = 64,
    device: str | torch.device | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Restored:
    """Restore each measurement by several posterior samples of a model, which is a run or a denoiser.

    Results stay in memory, or go to the folders mean, std, draw and baseline of `out`, where restoring resumes if it was
    interrupted. The measurements may have other masks, accelerations and noise than the training data.
    The summary starts with a verdict: is the model better than total variation and than the Gaussian prior of the run? It
    compares PSNRs if `clean` is given, or else predictions of measured entries that are hidden from all of them.

    method          `auto` takes the mean from one call of a network that was trained for it (`mean`), and standard deviations
                    from samples: by `context` if it was trained for that too. A run that only generates restores by `moments`,
                    whose `eta` is that of DDIM, and a denoiser that allows nothing better by `ddrm`. `gaussian` is the
                    Gaussian prior of the run, in closed form
    draws_by        of `mean`: `gaussian` takes the spread of the Gaussian prior, in closed form and without network calls
    calibration     error bars are multiplied by what measured entries show that are hidden and restored: `auto` uses the
                    calibration of the run (`gsure.calibrate`), or else learns one from these measurements, as `self` does;
                    `none` leaves them raw
    draws           posterior samples of each measurement, 8 by default
    steps, eta, spacing  by default those that suit the method and what is missing; the summary has them
    seconds_per_image  chooses draws and steps, or the one that you do not give, by timing one batch; baselines take more
                    time. The folder `out` keeps the numbers, and a resumed job uses them
    weights         averaged or raw; by default those that validated best
    network, basis  your own, if the run was trained with such
    clean           clean signals behind the measurements: PSNRs are added to the summary
    volumes         also write each group as a NIfTI or .cfl file
    baselines       also restore by total variation and by the Gaussian prior, to compare
    device          such as cpu or cuda:1; by default a GPU if there is one
    """
    request = record_request("restore", locals())
    _refuse_options(draws, batch, limit, calibration, out, volumes)
    _refuse_budget(seconds_per_image, draws, steps, method, draws_by)
    loaded = open_model(model, checkpoint, basis, network, device, weights)
    setup = choose_setup(loaded, measurements, method, draws_by, steps, eta, eta_b, spacing, seed)
    signals = None if clean is None else open_clean(clean, setup.data).subset(setup.data.indices)
    n = len(setup.data) if limit is None else min(limit, len(setup.data))
    job = Job(setup, n, draws or DRAWS, batch, calibration, baselines, baselines and clean is None)
    if seconds_per_image is not None:
        if progress:
            say("Timing one batch ...")
        job = job.within(seconds_per_image, (draws, steps), out)
    if volumes is not None:
        check_volumes(setup.data.subset(np.arange(n)))
    folder = None if out is None else job.open_folder(out, request)
    with bar("restoring", n, progress) as advance:
        work = Work(job, advance)
        for line in work.describe() if progress else ():
            advance.say(line)
        found = work.run(folder)
        if found is None:
            unfinished = {"folder": str(folder), "restored": "another process has not finished"}
            return Restored({}, unfinished, folder=folder)
        summary = work.summary(found.signals, signals, folder)
    restored = Restored(found.signals, summary, found.draws, found.reported, folder)
    if folder is not None and volumes is not None:
        write_volumes(folder, work.kinds, volumes, setup.data.subset(np.arange(n)).geometry())
    return finish(restored, signals, panels)


def _refuse_budget(
    seconds: float | None, draws: int | None, steps: int | None, method: Method, draws_by: DrawsBy
) -> None:
    if seconds is None:
        return
    if not 0 < seconds < math.inf:
        raise ValueError(f"The seconds per image must be a positive number, but are {seconds}.")
    if draws is not None and steps is not None:
        raise ValueError(
            f"The seconds per image choose draws or steps, but {draws} draws and {steps} steps leave nothing to choose: "
            "omit one of the three."
        )
    if "gaussian" in (method, draws_by):
        raise ValueError(
            "The seconds per image choose the draws and steps of a sampler, and samples of the Gaussian prior need none: "
            "omit them."
        )


def _refuse_options(
    draws: int | None, batch: int, limit: int | None, calibration: Choice, out: Any, volumes: Format | None
) -> None:
    if (draws is not None and draws < 1) or batch < 1 or (limit is not None and limit < 1):
        raise ValueError(f"draws, batch and limit must be at least 1, but are {draws}, {batch} and {limit}.")
    refuse_other_than(calibration=(calibration, Choice))
    if volumes is not None:
        refuse_other_than(volumes=(volumes, Format))
    if volumes is not None and out is None:
        raise ValueError("Volumes are files: give out, the folder to write them to.")
