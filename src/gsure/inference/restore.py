"""Restore: from a run and measurements to posterior mean, standard deviation, one draw, and the baseline without a model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from torch import Tensor

from gsure.data.chunks import Chunks, device, open_folder, write_chunk
from gsure.data.measurements import Measurements, Signals, open_clean, open_measurements
from gsure.denoiser import BaseDenoiser
from gsure.display import Bar, bar, with_error
from gsure.files import record_request, replacing
from gsure.inference.volumes import Format, check_volumes, write_volumes
from gsure.measurement import Measurement
from gsure.metrics.images import psnr
from gsure.metrics.restorations import KINDS as JUDGED
from gsure.metrics.restorations import column, mean_and_error, score_stored
from gsure.plotting import draw_panel
from gsure.posterior import Posterior
from gsure.random import Stream, generators
from gsure.restoration import ddrm
from gsure.sampling import Spacing, ddim, times
from gsure.training.model import CheckpointName, load_with_config
from gsure.training.run import DataInfo

Method = Literal["ddrm", "moments"]
KINDS = ("mean", "std", "draw", "baseline")


def restore(
    run: str | Path,
    measurements: str | Path,
    out: str | Path,
    *,
    draws: int = 8,
    method: Method = "ddrm",
    steps: int = 100,
    eta: float = 0.85,
    eta_b: float = 1.0,
    spacing: Spacing = "even",
    checkpoint: CheckpointName = "best",
    limit: int | None = None,
    clean: str | Path | None = None,
    panels: int = 8,
    volumes: Format | None = None,
    batch: int = 64,
    seed: int = 0,
    progress: bool = False,
) -> dict[str, Any]:
    """Restore each measurement by several posterior samples, into the folders mean, std, draw and baseline of `out`.

    The measurements may have other masks, accelerations and noise than the training data. `method="moments"` is more
    accurate than ddrm and several times as costly; its `eta` is that of DDIM. With `clean`, PSNRs are returned too.
    `volumes` also writes each group as a NIfTI or .cfl file. `gsure.Signals` reads the folders.
    """
    request = record_request("restore", locals())
    if draws < 1 or batch < 1 or (limit is not None and limit < 1):
        raise ValueError(f"draws, batch and limit must be at least 1, but are {draws}, {batch} and {limit}.")
    if method not in get_args(Method):
        raise ValueError(f"--method is one of {', '.join(get_args(Method))}, not {method!r}.")
    if not (0 <= eta <= 1 and 0 <= eta_b <= 1):
        raise ValueError(f"--eta and --eta-b must lie between 0 and 1, but are {eta} and {eta_b}.")
    denoiser, config, step, weights = load_with_config(run, checkpoint)
    posterior = _Draws(denoiser.to(device()), method, draws, steps, eta, eta_b, spacing, seed)
    data = _open(Path(measurements), config.data_info, denoiser, steps)
    signals = None if clean is None else open_clean(clean, data)
    if volumes is not None:
        check_volumes(config.data_info.shape, config.data_info.is_complex)
    made_of = {"step": step, "weights": weights, "fingerprint": data.fingerprint(), **posterior.options()}
    made_of |= {"batch": batch}
    folder, inputs = Path(out), {"run": str(Path(run).resolve()), "data": str(Path(measurements).resolve())}
    open_folder(folder, request, made_of, inputs)
    n = len(data) if limit is None else min(limit, len(data))
    chunks = Chunks(folder, n, max(1, batch // draws))
    with bar("restoring", n, progress) as advance:
        for number in chunks.mine():
            if not chunks.is_done(number, KINDS):
                _restore_chunk(chunks, number, posterior, data, made_of, advance)
            advance(len(chunks.indices(number)))
    if not all(chunks.is_done(number, KINDS) for number in range(len(chunks))):
        return {"folder": str(folder), "restored": "another process has not finished"}
    if volumes is not None:
        write_volumes(folder, KINDS, volumes, data.header["source"])
    return _finish(folder, n, signals, panels, {"draws": draws, "method": method})


def _restore_chunk(
    chunks: Chunks, number: int, posterior: "_Draws", data: Measurements, made_of: Mapping[str, Any], advance: Bar
) -> None:
    indices = list(chunks.indices(number))
    measurement = _in_basis(data[indices], data, posterior.denoiser)
    if warning := _warning_of_empty(measurement, indices):
        advance.say(warning)
    some = data.subset(np.array(indices))
    for kind, values in posterior.summary(measurement, indices).items():
        path = chunks.folder / kind / Chunks.name(number)
        write_chunk(path, values, some.groups(), some.scales().tolist(), made_of, data.header["complex"])


@dataclass(frozen=True)
class _Draws:
    """How draws from the posterior are made."""

    denoiser: BaseDenoiser
    method: Method
    draws: int
    steps: int
    eta: float
    eta_b: float
    spacing: Spacing
    seed: int

    def options(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in ("method", "draws", "steps", "eta", "eta_b", "spacing", "seed")}

    def summary(self, measurement: Measurement, indices: Sequence[int]) -> dict[str, Tensor]:
        """What is kept of the draws, by KINDS."""
        x = self(measurement, indices)
        return {
            "mean": x.mean(0),
            "std": x.std(0, correction=min(1, self.draws - 1)),
            "draw": x[0],
            "baseline": self.denoiser.basis.to_signal(measurement.ybar),
        }

    def __call__(self, measurement: Measurement, indices: Sequence[int]) -> Tensor:
        """(draws, b, *n) signals. All draws of all measurements go through the network as one batch."""
        denoiser = self.denoiser
        where = next(denoiser.parameters()).device
        many = Measurement.cat([measurement] * self.draws).to(where)
        generator = [
            g
            for draw in range(self.draws)
            for g in generators(self.seed, Stream.RESTORE, draw, indices=indices, device=where)
        ]
        if self.method == "ddrm":
            xbar = ddrm(denoiser, many, self.steps, self.eta, self.eta_b, self.spacing, generator=generator)
        else:
            xbar = ddim(Posterior(denoiser, many), many.shape, self.steps, self.eta, self.spacing, generator=generator)
        return denoiser.basis.to_signal(xbar).cpu().reshape(self.draws, len(indices), *xbar.shape[1:])


def _open(path: Path, data_info: DataInfo, denoiser: BaseDenoiser, steps: int) -> Measurements:
    """Measurements that the model can restore, in their own basis."""
    data = open_measurements(path, denoiser.basis)
    if data.header["basis"] != data_info.basis:
        data = open_measurements(path)
    _refuse(data, data_info, denoiser, steps)
    return data


def _warning_of_empty(measurement: Measurement, indices: Sequence[int]) -> str | None:
    empty = int((measurement.mask.flatten(1).sum(1) == 0).sum())
    if not empty:
        return None
    return f"{empty} of the measurements {indices[0]}..{indices[-1]} have no kept entry: pure generation."


def _refuse(data: Measurements, data_info: DataInfo, denoiser: BaseDenoiser, steps: int) -> None:
    mine = {"shape": data_info.shape, "basis": data_info.basis}
    theirs = {"shape": tuple(data.shape), "basis": data.header["basis"]}
    if float(data.coverage.min()) == 1:
        mine.pop("basis")  # fully sampled signals may be transformed into another basis
    for what in mine:
        if mine[what] != theirs[what]:
            raise ValueError(
                f"The model was trained on signals of {what} {mine[what]}, but {data.path} has {theirs[what]}: make a file of "
                "such measurements, or train another model."
            )
    scales = data.scales()
    low, high = float(scales.min()), float(scales.max())
    if low > 1.001 * data_info.scales[1] or 1.001 * high < data_info.scales[0]:
        raise ValueError(
            f"The model was trained on signals divided by {_range(*data_info.scales)}, but those of {data.path} were "
            f"divided by {_range(low, high)}: regenerate the file with the scale of the model."
        )
    largest = float(denoiser.schedule.sigma[-1])
    if data.max_std >= largest:
        raise ValueError(
            f"{data.path} has noise of std up to {data.max_std:.4g}, above the schedule's largest level, {largest:.4g}: such "
            "an entry carries no information; remove it from the mask."
        )
    times(denoiser.schedule, steps)  # refuses what is impossible


def _in_basis(measurement: Measurement, data: Measurements, denoiser: BaseDenoiser) -> Measurement:
    """In the basis of the model: white noise on a fully sampled signal is white noise in any."""
    if type(data.basis) is type(denoiser.basis):
        return measurement
    white = measurement.std.flatten(1)
    if not bool((measurement.mask == 1).all() and (white == white[:, :1]).all()):
        raise ValueError(
            f"{data.path} was measured in the basis {data.header['basis']}, the model works in {denoiser.basis}, and only "
            "fully sampled signals with white noise can be transformed: measure in that basis, or train another model."
        )
    ybar = denoiser.basis.to_spectral(data.basis.to_signal(measurement.ybar))
    return Measurement._trusted(ybar, measurement.mask, measurement.std)


def _range(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _finish(folder: Path, n: int, clean: Signals | None, panels: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Panels of the first samples, and what can be said of all."""
    found = {kind: Signals(folder / kind) for kind in KINDS}
    is_complex = found["mean"].header["complex"]
    summary: dict[str, Any] = {"folder": str(folder), "restored": n, **settings}
    shown = list(range(min(n, panels)))
    if shown:
        pictures = {kind: found[kind][shown] for kind in KINDS}
        if clean is not None:
            pictures["clean"] = clean[shown]
        draw_panel(folder / "panels", pictures, is_complex)
    if clean is not None:
        judged = {kind: found[kind] for kind in JUDGED}
        images = [str(index) for index in range(n)]
        scores = score_stored(judged, clean, is_complex, images, {"psnr": psnr}).by_image
        for kind in JUDGED:
            summary[f"PSNR of {kind}"] = f"{with_error(*mean_and_error(scores[column('psnr', kind)]))} dB"
    with replacing(folder / "summary.json") as temporary:
        where = None if clean is None else str(Path(clean.path).resolve())
        temporary.write_text(json.dumps(summary | {"clean": where}, indent=1))
    return summary
