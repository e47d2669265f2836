"""Restore: from a run and measurements to posterior mean, standard deviation and one draw; and the same without a network."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import nn

from gsure.basis import Basis
from gsure.data.chunks import Chunks, open_folder
from gsure.data.measurements import Measurements, Signals, open_clean, open_measurements
from gsure.data.memory import save
from gsure.denoiser import ResidualDenoiser
from gsure.display import bar
from gsure.files import record_request
from gsure.gaussian import Fitted
from gsure.inference.bars import Checks
from gsure.inference.calibration import (
    Choice,
    ErrorBars,
    Stored,
    describe_method,
    make_checker,
    read_calibration,
    refuse_other,
)
from gsure.inference.guard import Guard, Tally
from gsure.inference.methods import (
    ByGaussian,
    Draws,
    Method,
    OneCall,
    OneCallWithGaussian,
    Restorer,
    Sampling,
    choose_sampling,
    fitting,
    in_basis,
)
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

DrawsBy = Literal["auto", "gaussian"]
"""What gives the samples of `--method mean`: what the model was trained for, or its Gaussian prior."""


def restore(
    model: Model,
    measurements: str | Path | Measurements,
    out: str | Path | None = None,
    *,
    draws: int = 8,
    method: Method = "auto",
    draws_by: DrawsBy = "auto",
    calibration: Choice = "auto",
    steps: int | None = None,
    eta: float | None = None,
    eta_b: float = 1.0,
    spacing: Spacing | None = None,
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
                    from samples: by `context` if it was trained for that too, or else by `ddrm`. A model of another kind
                    restores by `ddrm` alone. `moments` is more accurate than ddrm and several times as costly; its `eta` is
                    that of DDIM; `gaussian` is the Gaussian prior of the run, in closed form
    draws_by        of `mean`: `gaussian` takes the spread of the Gaussian prior, in closed form and without network calls
    calibration     error bars are multiplied by what measured entries show that are hidden and restored: `auto` uses the
                    calibration of the run (`gsure.calibrate`), or else learns one from these measurements, as `self` does;
                    `none` leaves them raw
    steps, eta, spacing  by default those that suit the method and what is missing; the summary has them
    weights         averaged or raw; by default those that validated best
    network, basis  your own, if the run was trained with such
    clean           clean signals behind the measurements: PSNRs are added to the summary
    volumes         also write each group as a NIfTI or .cfl file
    baselines       also restore by total variation and by the Gaussian prior, to compare
    device          such as cpu or cuda:1; by default a GPU if there is one
    """
    request = record_request("restore", locals())
    _refuse_options(draws, batch, limit, method, eta, eta_b, out, volumes)
    loaded = open_model(model, checkpoint, basis, network, device, weights)
    data = open_for(measurements, loaded)
    asked = method
    method, drawn_by = choose_method(method, loaded)
    sampling = choose_sampling(drawn_by, float(data.coverage.min()) == 1, steps, eta, spacing)
    if drawn_by != "context":
        times(loaded.denoiser.schedule, sampling.steps, sampling.spacing)  # refuses what is impossible
    signals = None if clean is None else open_clean(clean, data)
    prior = open_stored_prior(loaded)
    posterior = make_restorer(loaded, prior, data, method, draws, sampling, eta_b, seed, draws_by)
    stored = _stored_calibration(loaded, posterior, data, calibration)
    n, at_once = len(data) if limit is None else min(limit, len(data)), max(1, batch // draws)
    if volumes is not None:
        check_volumes(data.subset(np.arange(n)))
    made_of = {"step": loaded.step, "weights": loaded.checksum, "fingerprint": data.fingerprint()}
    made_of |= {**posterior.options(), "batch": batch, "baselines": baselines}
    made_of["calibration"] = calibration if calibration == "none" else "self" if stored is None else stored.identity
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
        advance.say(describe_choice(asked, method, drawn_by, draws, sampling.steps))
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


def choose_method(method: Method, loaded: Loaded) -> tuple[Method, Method]:
    """The method that gives the mean, and the one that gives samples. `auto` takes what the model was trained for."""
    purpose = "generate" if loaded.config is None else loaded.config.settings.purpose
    can_draw: Method = "context" if purpose == "both" else "ddrm"
    if method == "auto":
        method = "ddrm" if purpose == "generate" else "mean"
    if method in ("mean", "context") and not loaded.denoiser.mask_conditioned:
        raise ValueError(
            f"--method {method} needs a mask-conditioned network, and that of this model is not: use --method ddrm, or train "
            "with --base gaussian."
        )
    if method == "context" and not isinstance(loaded.denoiser, ResidualDenoiser):
        raise ValueError("--method context needs a model of --base gaussian, which knows the noise of each entry.")
    return method, can_draw if method == "mean" else method


def describe_choice(asked: Method, method: Method, drawn_by: Method, draws: int, steps: int) -> str:
    """What restores, why, and the network calls that it costs.

    >>> describe_choice("auto", "mean", "context", 8, 20)
    'Mean: one network call, because the network is mask-conditioned. Samples: context. 162 network calls per image.'
    """
    if method == "gaussian":
        return "Mean and samples: the Gaussian prior, without network calls."
    calls = draws * steps + (1 if drawn_by == "context" else 0) + (1 if method == "mean" else 0)
    cost = f"{calls:,} network calls per image"
    if drawn_by == "moments":
        cost = f"at least {calls:,} network calls and twice as many vector-Jacobian products per image"
    if method == "mean":
        why = "one network call, because the network is mask-conditioned"
        return f"Mean: {why}. Samples: {drawn_by}. {cost}."
    why = ", because the model was not trained to restore in one call" if asked == "auto" else ""
    return f"Mean and samples: {drawn_by}{why}. {cost}."


def make_restorer(
    loaded: Loaded,
    prior: Fitted | None,
    data: Measurements,
    method: Method,
    draws: int,
    sampling: Sampling,
    eta_b: float,
    seed: int,
    draws_by: DrawsBy = "auto",
) -> Restorer:
    denoiser, drawn_by = loaded.denoiser, choose_method(method, loaded)[1]
    if method == "gaussian":
        if prior is None:
            raise ValueError("--method gaussian needs a run, which has a Gaussian prior: this is a denoiser alone.")
        return ByGaussian(prior.gaussian, denoiser.basis, draws, seed)
    some = in_basis(data[choose_judged(len(data), data.shape)], data, denoiser.basis)
    known = None if prior is None or method != "moments" else fitting(prior.gaussian, some)
    guard = Guard.of(some, denoiser.basis, data.coverage)
    steps, eta, spacing = sampling
    posterior = Draws(denoiser, drawn_by, draws, steps, eta, eta_b, spacing, seed, known, guard)
    if draws_by == "gaussian":
        if method != "mean" or prior is None or fitting(prior.gaussian, some) is None:
            raise ValueError(
                "--draws-by gaussian needs --method mean, and a run whose Gaussian prior fits these masks: omit it."
            )
        return OneCallWithGaussian(OneCall(posterior), ByGaussian(prior.gaussian, denoiser.basis, draws, seed))
    return OneCall(posterior) if method == "mean" else posterior


def _stored_calibration(loaded: Loaded, posterior: Restorer, data: Measurements, choice: Choice) -> Stored | None:
    """That of the run, if it is wanted and there is one; refused if it was made for something else."""
    if choice not in get_args(Choice):
        raise ValueError(f"--calibration is one of {', '.join(get_args(Choice))}, not {choice!r}.")
    if choice != "auto" or loaded.path is None or not (path := Run(loaded.path).calibration).exists():
        return None
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


def _refuse_options(
    draws: int, batch: int, limit: int | None, method: str, eta: float | None, eta_b: float, out: Any, volumes: Any
) -> None:
    if draws < 1 or batch < 1 or (limit is not None and limit < 1):
        raise ValueError(f"draws, batch and limit must be at least 1, but are {draws}, {batch} and {limit}.")
    if method not in get_args(Method):
        raise ValueError(f"--method is one of {', '.join(get_args(Method))}, not {method!r}.")
    if not ((eta is None or 0 <= eta <= 1) and 0 <= eta_b <= 1):
        raise ValueError(f"--eta and --eta-b must lie between 0 and 1, but are {eta} and {eta_b}.")
    if volumes is not None and volumes not in get_args(Format):
        raise ValueError(f"--volumes is one of {', '.join(get_args(Format))}, not {volumes!r}.")
    if volumes is not None and out is None:
        raise ValueError("Volumes are files: give out, the folder to write them to.")


def open_for(measurements: str | Path | Measurements, loaded: Loaded) -> Measurements:
    """Measurements that the model can restore, in their own basis."""
    denoiser = loaded.denoiser
    name = type(denoiser.basis).__name__ if loaded.config is None else loaded.config.data_info.basis
    data = open_measurements(measurements, denoiser.basis)
    if data.path is not None and data.header["basis"] != name:
        data = open_measurements(data.path)
    theirs = {"shape": tuple(data.shape), "basis": data.header["basis"]}
    mine = theirs | {"basis": name}
    if loaded.config is not None:
        mine["shape"] = loaded.config.data_info.shape
    if float(data.coverage.min()) == 1:
        del mine["basis"]  # fully sampled signals may be transformed into another basis
    for what in mine:
        if mine[what] != theirs[what]:
            raise ValueError(
                f"The model was trained on signals of {what} {mine[what]}, but {data.name} has {theirs[what]}: make a file of "
                "such measurements, or train another model."
            )
    largest = float(denoiser.schedule.sigma[-1])
    if data.max_std >= largest:
        raise ValueError(
            f"{data.name} has noise of std up to {data.max_std:.4g}, above the schedule's largest level, {largest:.4g}: such "
            "an entry carries no information; remove it from the mask."
        )
    return data
