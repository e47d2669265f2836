"""Restore: from a run and measurements to posterior mean, standard deviation and one draw; and the same without a network."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn

from gsure.basis import Basis
from gsure.data.anscombe import describe_values, transform_of
from gsure.data.chunks import Chunks, open_folder, write_chunk
from gsure.data.measurements import Measurements, Signals, as_complex, open_clean, open_measurements
from gsure.data.memory import hold_signals, save
from gsure.denoiser import ResidualDenoiser
from gsure.display import Bar, bar, with_error
from gsure.files import record_request, replacing
from gsure.gaussian import About, Fitted
from gsure.inference.guard import Guard, Tally
from gsure.inference.methods import (
    ByGaussian,
    Draws,
    Method,
    OneCall,
    Restorer,
    Sampling,
    choose_sampling,
    fitting,
    in_basis,
)
from gsure.inference.volumes import Format, check_volumes, write_volumes
from gsure.judging import Baselines, Verdict, choose_judged, difference_of_scores, judge_differences, predict_hidden
from gsure.measurement import Measurement
from gsure.metrics.images import mean_of_groups, psnr
from gsure.metrics.restorations import column, mean_and_error, score_stored
from gsure.plotting import draw_panel
from gsure.sampling import Spacing, times
from gsure.training.checkpoints import Weights
from gsure.training.model import CheckpointName, Loaded, Model, open_model
from gsure.training.prior import open_stored_prior

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


def restore(
    model: Model,
    measurements: str | Path | Measurements,
    out: str | Path | None = None,
    *,
    draws: int = 8,
    method: Method = "auto",
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
    data = _open(measurements, loaded)
    method, drawn_by = choose_method(method, loaded)
    sampling = choose_sampling(drawn_by, float(data.coverage.min()) == 1, steps, eta, spacing)
    if drawn_by != "context":
        times(loaded.denoiser.schedule, sampling.steps, sampling.spacing)  # refuses what is impossible
    signals = None if clean is None else open_clean(clean, data)
    prior = open_stored_prior(loaded)
    posterior = _make_restorer(loaded, prior, data, method, draws, sampling, eta_b, seed)
    n, at_once = len(data) if limit is None else min(limit, len(data)), max(1, batch // draws)
    if volumes is not None:
        check_volumes(data.subset(np.arange(n)))
    made_of = {"step": loaded.step, "weights": loaded.checksum, "fingerprint": data.fingerprint()}
    made_of |= {**posterior.options(), "batch": batch, "baselines": baselines}
    done: dict[str, Any] = {"restored": n, **posterior.options()}
    others = None if done["method"] == "gaussian" else prior
    with bar("restoring", n, progress) as advance:
        work = _Work(posterior, data, loaded.denoiser.basis, others, n, seed, baselines, advance)
        if out is None:
            found, drawn = work.in_memory(at_once, made_of)
            done |= work.tally.summary(n, draws)
            return Restored(found, work.verdict(found, signals) | done | _scores(found, signals), drawn)
        folder = Path(out)
        kept = folder / "measurements.h5" if data.path is None else data.path.resolve()
        open_folder(folder, request, made_of, loaded.inputs | {"data": str(kept)})
        if data.path is None and not kept.exists():
            save(kept, data)
        if not work.in_files(Chunks(folder, n, at_once), made_of):
            return Restored({}, {"folder": str(folder), "restored": "another process has not finished"}, None, folder)
        found = {kind: Signals(folder / kind).subset(np.arange(n)) for kind in work.kinds}
        done |= Tally.read(folder / "guard").summary(n, draws)
        verdict = work.verdict(found, signals)
    if volumes is not None:
        write_volumes(folder, work.kinds, volumes, data.subset(np.arange(n)).geometry())
    restored = Restored(found, verdict | {"folder": str(folder)} | done | _scores(found, signals), None, folder)
    _finish(folder, restored, signals, panels)
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


def _make_restorer(
    loaded: Loaded,
    prior: Fitted | None,
    data: Measurements,
    method: Method,
    draws: int,
    sampling: Sampling,
    eta_b: float,
    seed: int,
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
    return OneCall(posterior) if method == "mean" else posterior


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


@dataclass(frozen=True)
class _Work:
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
    unconverged: list[int] = field(default_factory=list)
    """Images of each batch for which total variation did not converge."""
    tally: Tally = field(default_factory=Tally)

    @property
    def kinds(self) -> tuple[str, ...]:
        return (*KINDS, *self.baselines.kinds)

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
        return {"mean": found.mean, "std": found.std, "draw": found.draws[0]} | others.signals, found.draws

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
                None if kind == "std" else offsets,
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
                for kind, values in found.items():
                    path, offset = chunks.folder / kind / Chunks.name(number), None if kind == "std" else offsets
                    transform = describe_values(self.data.header, kind)
                    write_chunk(path, values, some.groups(), made_of, is_complex, scales, offset, transform)
            self.advance(len(where))
        return all(chunks.is_done(number, self.kinds) for number in range(len(chunks)))


def _open(measurements: str | Path | Measurements, loaded: Loaded) -> Measurements:
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


def _scores(found: Mapping[str, Signals], clean: Signals | None) -> dict[str, str]:
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


def _finish(folder: Path, restored: Restored, clean: Signals | None, panels: int) -> None:
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
