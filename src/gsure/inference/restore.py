"""Restore: from a run and measurements to posterior mean, standard deviation, one draw, and the baseline without a model."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn

from gsure.basis import Basis
from gsure.data.chunks import Chunks, open_folder, write_chunk
from gsure.data.measurements import Measurements, Signals, as_complex, open_clean, open_measurements
from gsure.data.memory import hold_signals, save
from gsure.display import Bar, bar, with_error
from gsure.files import record_request, replacing
from gsure.inference.methods import Draws, Method, in_basis
from gsure.inference.volumes import Format, check_volumes, write_volumes
from gsure.metrics.images import psnr
from gsure.metrics.restorations import KINDS as JUDGED
from gsure.metrics.restorations import column, mean_and_error, score_stored
from gsure.plotting import draw_panel
from gsure.sampling import Spacing, times
from gsure.training.checkpoints import Weights
from gsure.training.model import CheckpointName, Loaded, Model, open_model

KINDS = ("mean", "std", "draw", "baseline")


@dataclass(frozen=True)
class Restored:
    """Restorations, in the units of the data; complex images are complex tensors, with half as many channels.

    With a folder, they are read from it when asked for.
    """

    signals: Mapping[str, Signals]
    """By kind (mean, std, baseline, and draw, the first one), as the model sees them."""
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
        """Like `mean`, real: the posterior standard deviation, of a complex number √E|x - mean|²."""
        return self.signals["std"].raw().abs()

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

    def __len__(self) -> int:
        return len(self.signals["mean"])


def restore(
    model: Model,
    measurements: str | Path | Measurements,
    out: str | Path | None = None,
    *,
    draws: int = 8,
    method: Method = "ddrm",
    steps: int = 100,
    eta: float = 0.85,
    eta_b: float = 1.0,
    spacing: Spacing = "even",
    checkpoint: CheckpointName = "best",
    weights: Weights | None = None,
    network: nn.Module | None = None,
    basis: Basis | None = None,
    limit: int | None = None,
    clean: str | Path | None = None,
    panels: int = 8,
    volumes: Format | None = None,
    batch: int = 64,
    device: str | torch.device | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Restored:
    """Restore each measurement by several posterior samples of a model, which is a run or a denoiser.

    Results stay in memory, or go to the folders mean, std, draw and baseline of `out`, where restoring resumes if it was
    interrupted. The measurements may have other masks, accelerations and noise than the training data.

    method          `moments` is more accurate than ddrm and several times as costly; its `eta` is that of DDIM
    weights         averaged or raw; by default those that validated best
    network, basis  your own, if the run was trained with such
    clean           clean signals behind the measurements: PSNRs are added to the summary
    volumes         also write each group as a NIfTI or .cfl file
    device          such as cpu or cuda:1; by default a GPU if there is one
    """
    request = record_request("restore", locals())
    _refuse_options(draws, batch, limit, method, eta, eta_b, out, volumes)
    loaded = open_model(model, checkpoint, basis, network, device, weights)
    posterior = Draws(loaded.denoiser, method, draws, steps, eta, eta_b, spacing, seed)
    data = _open(measurements, loaded, steps)
    signals = None if clean is None else open_clean(clean, data)
    if volumes is not None:
        check_volumes(tuple(data.shape), data.header["complex"])
    n, at_once = len(data) if limit is None else min(limit, len(data)), max(1, batch // draws)
    made_of = {"step": loaded.step, "weights": loaded.checksum, "fingerprint": data.fingerprint()}
    made_of |= {**posterior.options(), "batch": batch}
    about = {"restored": n, "draws": draws, "method": method}
    if out is None:
        with bar("restoring", n, progress) as advance:
            found, drawn = _in_memory(posterior, data, n, at_once, made_of, advance)
        return Restored(found, about | _scores(found, signals), drawn)
    folder = Path(out)
    kept = folder / "measurements.h5" if data.path is None else data.path.resolve()
    open_folder(folder, request, made_of, loaded.inputs | {"data": str(kept)})
    if data.path is None and not kept.exists():
        save(kept, data)
    with bar("restoring", n, progress) as advance:
        if not _in_files(posterior, data, Chunks(folder, n, at_once), made_of, advance):
            return Restored({}, {"folder": str(folder), "restored": "another process has not finished"}, None, folder)
    if volumes is not None:
        write_volumes(folder, KINDS, volumes)
    found = {kind: Signals(folder / kind).subset(np.arange(n)) for kind in KINDS}
    restored = Restored(found, {"folder": str(folder)} | about | _scores(found, signals), None, folder)
    _finish(folder, restored, signals, panels)
    return restored


def _refuse_options(
    draws: int, batch: int, limit: int | None, method: str, eta: float, eta_b: float, out: Any, volumes: Any
) -> None:
    if draws < 1 or batch < 1 or (limit is not None and limit < 1):
        raise ValueError(f"draws, batch and limit must be at least 1, but are {draws}, {batch} and {limit}.")
    if method not in get_args(Method):
        raise ValueError(f"--method is one of {', '.join(get_args(Method))}, not {method!r}.")
    if not (0 <= eta <= 1 and 0 <= eta_b <= 1):
        raise ValueError(f"--eta and --eta-b must lie between 0 and 1, but are {eta} and {eta_b}.")
    if volumes is not None and volumes not in get_args(Format):
        raise ValueError(f"--volumes is one of {', '.join(get_args(Format))}, not {volumes!r}.")
    if volumes is not None and out is None:
        raise ValueError("Volumes are files: give out, the folder to write them to.")


def _restored(
    posterior: Draws, data: Measurements, where: np.ndarray, advance: Bar
) -> tuple[dict[str, Tensor], Tensor]:
    """What is kept of the draws, by KINDS, and all of them."""
    measurement = in_basis(data[where], data, posterior.denoiser)
    if empty := int((measurement.mask.flatten(1).sum(1) == 0).sum()):
        advance.say(f"{empty} of the measurements {where[0]}..{where[-1]} have no kept entry: pure generation.")
    x = posterior(measurement, where.tolist())
    kept = {
        "mean": x.mean(0),
        "std": x.std(0, correction=min(1, len(x) - 1)),
        "draw": x[0],
        "baseline": posterior.denoiser.basis.to_signal(measurement.ybar.to(x)),
    }
    return kept, x


def _in_memory(
    posterior: Draws, data: Measurements, n: int, at_once: int, made_of: Mapping[str, Any], advance: Bar
) -> tuple[dict[str, Signals], Tensor]:
    parts, drawn = [], []
    for first in range(0, n, at_once):
        kept, x = _restored(posterior, data, np.arange(first, min(n, first + at_once)), advance)
        parts.append(kept)
        drawn.append(x)
        advance(x.shape[1])
    some, is_complex = data.subset(np.arange(n)), bool(data.header["complex"])
    groups, scales, offsets = some.groups(), some.scales(), some.offsets()
    found = {
        kind: hold_signals(
            torch.cat([kept[kind] for kept in parts]),
            made_of,
            is_complex,
            groups,
            scales,
            None if kind == "std" else offsets,
        )
        for kind in KINDS
    }
    scale, offset = (torch.from_numpy(values).reshape(-1, *[1] * len(data.shape)) for values in (scales, offsets))
    raw = torch.cat(drawn, 1) * scale + offset
    return found, as_complex(raw.flatten(0, 1), is_complex).unflatten(0, raw.shape[:2])


def _in_files(
    posterior: Draws,
    data: Measurements,
    chunks: Chunks,
    made_of: Mapping[str, Any],
    advance: Bar,
) -> bool:
    """Whether all is done: several processes share the work."""
    for number in chunks.mine():
        where = np.array(chunks.indices(number))
        if not chunks.is_done(number, KINDS):
            some = data.subset(where)
            scales, offsets = some.scales().tolist(), some.offsets().tolist()
            for kind, values in _restored(posterior, data, where, advance)[0].items():
                path = chunks.folder / kind / Chunks.name(number)
                is_complex = bool(data.header["complex"])
                write_chunk(
                    path, values, some.groups(), made_of, is_complex, scales, None if kind == "std" else offsets
                )
        advance(len(where))
    return all(chunks.is_done(number, KINDS) for number in range(len(chunks)))


def _open(measurements: str | Path | Measurements, loaded: Loaded, steps: int) -> Measurements:
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
    times(denoiser.schedule, steps)  # refuses what is impossible
    return data


def _scores(found: Mapping[str, Signals], clean: Signals | None) -> dict[str, str]:
    """PSNRs, if the clean signals are known."""
    if clean is None:
        return {}
    judged = {kind: found[kind] for kind in JUDGED}
    images = [str(index) for index in range(len(found["mean"]))]
    scores = score_stored(judged, clean, bool(found["mean"].header["complex"]), images, {"psnr": psnr}).by_image
    return {f"PSNR of {kind}": f"{with_error(*mean_and_error(scores[column('psnr', kind)]))} dB" for kind in JUDGED}


def _finish(folder: Path, restored: Restored, clean: Signals | None, panels: int) -> None:
    """Panels of the first samples, and what can be said of all."""
    shown = list(range(min(len(restored), panels)))
    if shown:
        pictures = {kind: restored.signals[kind][shown] for kind in KINDS}
        if clean is not None:
            pictures["clean"] = clean[shown]
        draw_panel(folder / "panels", pictures, restored.signals["mean"].header["complex"])
    with replacing(folder / "summary.json") as temporary:
        where = None if clean is None or clean.path is None else str(clean.path.resolve())
        temporary.write_text(json.dumps(restored.summary | {"clean": where}, indent=1))
