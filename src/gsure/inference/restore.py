"""Restore: from a run and measurements to posterior mean, standard deviation and one draw; and the same without a network."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import nn

from gsure.basis import Basis
from gsure.data.chunks import Chunks, open_folder
from gsure.data.measurements import Measurements, Signals, open_clean, open_measurements
from gsure.data.memory import save
from gsure.display import bar
from gsure.files import record_request
from gsure.inference.bars import Checks
from gsure.inference.calibration import (
    SELF_IMAGES,
    Choice,
    ErrorBars,
    Stored,
    describe_method,
    make_checker,
    read_calibration,
    refuse_other,
)
from gsure.inference.choice import DrawsBy, choose_method, make_restorer, open_for
from gsure.inference.cost import (
    DRAWS,
    Speed,
    describe_choice,
    describe_cost,
    fit_budget,
    make_plan,
    stored_budget,
    time_batch,
)
from gsure.inference.guard import Tally
from gsure.inference.methods import Method, Restorer, Sampling, choose_sampling, in_basis
from gsure.inference.restored import Restored, coverage_in_words, finish, measure_coverage, scores_in_words
from gsure.inference.volumes import Format, check_volumes, write_volumes
from gsure.inference.work import Work
from gsure.judging import choose_judged
from gsure.sampling import Spacing, times
from gsure.training.checkpoints import Weights
from gsure.training.model import CheckpointName, Loaded, Model, open_model
from gsure.training.prior import open_stored_prior
from gsure.training.run import Run

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
    clean: str | Path | None = None,
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
    _refuse_options(draws, batch, limit, method, eta, eta_b, out, volumes)
    _refuse_budget(seconds_per_image, draws, steps, method, draws_by)
    loaded = open_model(model, checkpoint, basis, network, device, weights)
    data = open_for(measurements, loaded)
    asked = method
    method, drawn_by = choose_method(method, loaded)
    sampling = choose_sampling(drawn_by, float(data.coverage.min()) == 1, steps, eta, spacing)
    if drawn_by != "context":
        times(loaded.denoiser.schedule, sampling.steps, sampling.spacing)  # refuses what is impossible
    signals = None if clean is None else open_clean(clean, data)
    prior = open_stored_prior(loaded)
    n = len(data) if limit is None else min(limit, len(data))
    speed: Speed | None = None

    def make(draws: int, sampling: Sampling) -> Restorer:
        return make_restorer(loaded, prior, data, method, draws, sampling, eta_b, seed, draws_by)

    def measure_speed(draws: int) -> Speed:
        few = in_basis(data[np.arange(min(n, max(1, batch // draws)))], data, loaded.denoiser.basis)
        return time_batch(make(draws, sampling), few, draws)

    judged = len(choose_judged(n, data.shape)) if baselines and clean is None else 0
    learned_from = 0 if calibration == "auto" and _has_calibration(loaded) else min(SELF_IMAGES, len(data))
    if seconds_per_image is not None:
        budget = stored_budget(out)
        if budget is None:
            speed = measure_speed(draws or DRAWS)
            plan = make_plan(n, calibration != "none", learned_from, judged, method, drawn_by)
            most_steps = loaded.denoiser.schedule.T
            budget = fit_budget(seconds_per_image, speed, plan, sampling.steps, most_steps, (draws, steps))
        draws = budget.draws if draws is None else draws
        sampling = sampling._replace(steps=budget.steps if steps is None else steps)
    draws = DRAWS if draws is None else draws
    posterior = make(draws, sampling)
    stored = _stored_calibration(loaded, posterior, data, calibration)
    posterior = posterior if stored is None else posterior.stop_at(stored.stop)
    at_once = max(1, batch // draws)
    if volumes is not None:
        check_volumes(data.subset(np.arange(n)))
    made_of: dict[str, Any] = {"step": loaded.step, "weights": loaded.checksum, "fingerprint": data.fingerprint()}
    made_of |= {**posterior.options(), "batch": batch, "baselines": baselines}
    made_of["calibration"] = calibration if calibration == "none" else "self" if stored is None else stored.identity
    if seconds_per_image is not None:
        made_of["seconds_per_image"] = float(seconds_per_image)
    done: dict[str, Any] = {"restored": n, **posterior.options()}
    done |= _extrapolation(loaded)
    others = None if done["method"] == "gaussian" else prior
    with bar("restoring", n, progress) as advance:
        bars, why_not = None, "--calibration none" if calibration == "none" else "one draw has no spread"
        if calibration != "none" and draws > 1:
            checker = make_checker(posterior, data, loaded.denoiser.basis, prior, seed)
            known = None if stored is None else stored.calibration
            bars = ErrorBars(checker, known, data, loaded.denoiser.basis, at_once, advance)
            why_not = bars.why_not()
        bars = None if why_not else bars
        work = Work(posterior, data, loaded.denoiser.basis, others, n, seed, baselines, advance, bars)
        if progress:
            drawn_by, steps = done.get("drawn_by", drawn_by), done.get("steps", 0)  # a Gaussian has no steps
            plan = make_plan(n, bars is not None, learned_from, judged, method, drawn_by)
            advance.say(describe_choice(asked, method, drawn_by))
            advance.say(describe_cost(plan, speed or measure_speed(draws), draws, steps, n, drawn_by))
        raw = {"error bars": f"not calibrated: {why_not}"}
        if out is None:
            found, drawn = work.in_memory(at_once, made_of)
            done |= work.tally.summary(n, draws)
            done |= raw if bars is None else bars.summary(n, draws, bars.checks)
            restored = Restored(found, work.verdict(found, signals) | done | scores_in_words(found, signals), drawn)
            return replace(restored, summary=restored.summary | coverage_in_words(measure_coverage(restored, signals)))
        folder = Path(out)
        kept = folder / "measurements.h5" if data.path is None else data.path.resolve()
        open_folder(folder, request, made_of, loaded.inputs | {"data": str(kept)})
        if data.path is None and not kept.exists():
            save(kept, data)
        if not work.in_files(Chunks(folder, n, at_once), made_of):
            return Restored({}, {"folder": str(folder), "restored": "another process has not finished"}, None, folder)
        found = {kind: Signals(folder / kind).subset(np.arange(n)) for kind in work.kinds}
        done |= Tally.read(folder / "guard").summary(n, draws)
        done |= raw if bars is None else bars.summary(n, draws, Checks.read(folder / "calibration"))
        verdict = work.verdict(found, signals)
    if volumes is not None:
        write_volumes(folder, work.kinds, volumes, data.subset(np.arange(n)).geometry())
    restored = Restored(found, verdict | {"folder": str(folder)} | done | scores_in_words(found, signals), None, folder)
    coverage = measure_coverage(restored, signals)
    restored = replace(restored, summary=restored.summary | coverage_in_words(coverage))
    finish(folder, restored, signals, panels, coverage)
    return restored


def _has_calibration(loaded: Loaded) -> bool:
    return loaded.path is not None and Run(loaded.path).calibration.exists()


def _stored_calibration(loaded: Loaded, posterior: Restorer, data: Measurements, choice: Choice) -> Stored | None:
    """That of the run, if it is wanted and there is one; refused if it was made for something else."""
    if choice not in get_args(Choice):
        raise ValueError(f"--calibration is one of {', '.join(get_args(Choice))}, not {choice!r}.")
    if choice != "auto" or loaded.path is None or not _has_calibration(loaded):
        return None
    path = Run(loaded.path).calibration
    stored = read_calibration(path)
    refuse_other(path, stored, describe_method(posterior, loaded.checksum), data)
    return stored


def _extrapolation(loaded: Loaded) -> dict[str, str]:
    """What no training measurement covered, so that nothing was learned there; empty if there is none, or it is unknown."""
    try:
        coverage = (
            None if loaded.config is None else open_measurements(loaded.config.data, loaded.denoiser.basis).coverage
        )
    except (OSError, ValueError):  # the data of the run is gone
        return {}
    share = 0.0 if coverage is None else float((coverage == 0).float().mean())
    said = (
        f"{100 * share:.1f} % of the entries were never measured in training: there, restorations and bars are guesses"
    )
    return {"extrapolation": said} if share > 0 else {}


def _refuse_budget(
    seconds: float | None, draws: int | None, steps: int | None, method: Method, draws_by: DrawsBy
) -> None:
    if seconds is None:
        return
    if not 0 < seconds < math.inf:
        raise ValueError(f"--seconds-per-image must be a positive number of seconds, but is {seconds}.")
    if draws is not None and steps is not None:
        raise ValueError(
            f"--seconds-per-image chooses draws or steps, but --draws {draws} and --steps {steps} leave nothing to choose: "
            "omit one of the three."
        )
    if "gaussian" in (method, draws_by):
        raise ValueError(
            "--seconds-per-image chooses the draws and steps of a sampler, and samples of the Gaussian prior need none: "
            "omit it."
        )


def _refuse_options(
    draws: int | None,
    batch: int,
    limit: int | None,
    method: str,
    eta: float | None,
    eta_b: float,
    out: Any,
    volumes: Any,
) -> None:
    if (draws is not None and draws < 1) or batch < 1 or (limit is not None and limit < 1):
        raise ValueError(f"draws, batch and limit must be at least 1, but are {draws}, {batch} and {limit}.")
    if method not in get_args(Method):
        raise ValueError(f"--method is one of {', '.join(get_args(Method))}, not {method!r}.")
    if not ((eta is None or 0 <= eta <= 1) and 0 <= eta_b <= 1):
        raise ValueError(f"--eta and --eta-b must lie between 0 and 1, but are {eta} and {eta_b}.")
    if volumes is not None and volumes not in get_args(Format):
        raise ValueError(f"--volumes is one of {', '.join(get_args(Format))}, not {volumes!r}.")
    if volumes is not None and out is None:
        raise ValueError("Volumes are files: give out, the folder to write them to.")
