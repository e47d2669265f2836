"""Calibrate: the right size of error bars, and which errors are usual, from measurements that a model did not learn from."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gsure.basis import Basis
from gsure.data.measurements import Measurements
from gsure.data.scaling import evenly_spread
from gsure.display import bar
from gsure.files import record_request
from gsure.inference.bars import Calibrator, Checker, combine
from gsure.inference.calibration import describe_data, describe_method, make_checker, write_calibration
from gsure.inference.choice import DrawsBy, choose_method, make_restorer, open_for
from gsure.inference.methods import Method, Restorer, choose_sampling, in_basis
from gsure.inference.stopping import IMAGES, Stop, choose_stop
from gsure.judging import LEVEL, LEVELS, Evidence, Reliability
from gsure.judging.calibration import SPLITS
from gsure.judging.verdict import MIN_UNITS
from gsure.measurement import Measurement
from gsure.sampling import Spacing
from gsure.training.checkpoints import Weights
from gsure.training.model import CheckpointName, Loaded, open_model
from gsure.training.prior import open_stored_prior
from gsure.training.run import Run

DRAWS = 4
"""Draws of each restoration with hidden units, for the reliability curve."""


def calibrate(
    run: str | Path | Run,
    measurements: str | Path | Measurements | None = None,
    *,
    method: Method = "auto",
    draws_by: DrawsBy = "auto",
    draws: int = 8,
    steps: int | None = None,
    eta: float | None = None,
    eta_b: float = 1.0,
    spacing: Spacing | None = None,
    checkpoint: CheckpointName = "best",
    weights: Weights | None = None,
    network: nn.Module | None = None,
    basis: Basis | None = None,
    limit: int = 64,
    batch: int = 64,
    device: str | torch.device | None = None,
    seed: int = 0,
    progress: bool = False,
) -> dict[str, Any]:
    """Compare the spread of posterior samples with the error on measured entries that are hidden, and store the result.

    `restore` then multiplies its error bars by the stored factors, and says if measurements look unlike these. No clean data
    is needed. The measurements should be like those that you will restore, and the model must not have learned from them: by
    default they are those that training held out. `limit` of them are used. The other arguments are those of `restore`;
    give the same ones there. If samples are drawn by `context`, hidden entries also choose the noise level at which they stop
    for the mean. Writes RUN/calibration.json, and returns a summary.
    """
    request = record_request("calibrate", locals())
    if limit < 1 or batch < 1 or draws < 2:
        raise ValueError(
            f"limit and batch must be at least 1, and draws at least 2, but are {limit}, {batch} and {draws}."
        )
    loaded = open_model(run, checkpoint, basis, network, device, weights)
    if loaded.config is None or loaded.path is None or not Run(loaded.path).exists():
        raise ValueError("A calibration is stored in the folder of a run: give a run, not a denoiser or a checkpoint.")
    data, which = _open(measurements, loaded)
    method, drawn_by = choose_method(method, loaded)
    sampling = choose_sampling(drawn_by, float(data.coverage.min()) == 1, steps, eta, spacing)
    prior = open_stored_prior(loaded)
    posterior = make_restorer(loaded, prior, data, method, draws, sampling, eta_b, seed, draws_by)
    checker = make_checker(posterior, data, loaded.denoiser.basis, prior, seed)
    stop = _choose_stop(posterior, method, checker, data, min(limit, IMAGES), max(1, batch // draws))
    calibrator, reliability = _learn(checker, data, limit, max(1, batch // (SPLITS * DRAWS)), progress)
    path, calibration = Run(loaded.path).calibration, calibrator.calibration
    about = describe_data(data) | {"measurements": data.name, "fingerprint": data.fingerprint()}
    curve = None if reliability is None else reliability.as_dict()
    write_calibration(
        path,
        calibration,
        describe_method(posterior, loaded.checksum),
        about,
        {"stop": None if stop is None else stop.step, "reliability": curve, "request": request},
    )
    said = {
        "calibration": str(path),
        "measurements": f"{calibration.images:,} of {which}",
        "hidden units": calibration.units,
        **{key: value for key, value in posterior.options().items() if key in ("method", "drawn_by")},
        "factors of missing entries": f"{float(calibration.factors.min()):.2f} to {float(calibration.factors.max()):.2f}",
        "factor of measured entries": round(calibration.measured, 3),
        "share of their noise that is added": round(calibration.added, 3),
    }
    if stop is not None:
        said["mean"] = stop.describe(method, sampling.steps)
    if reliability is not None:
        at = LEVELS.index(LEVEL)
        inside, frame = (100 * reliability.curve(part)[at] for part in ("object", "frame"))
        said[f"{100 * LEVEL:.0f} % intervals cover"] = (
            f"{inside:.1f} % of hidden entries inside the object, {frame:.1f} % of all (other measurements than those of the "
            "factors)"
        )
    return said


def _choose_stop(
    posterior: Restorer, method: Method, checker: Checker, data: Measurements, limit: int, at_once: int
) -> Stop | None:
    """Of `context`; None for other methods, and if nothing can be hidden."""
    drawing = posterior.sampler
    if drawing is None or drawing.method != "context":
        return None
    positions = evenly_spread(limit, len(data))

    def batches() -> Iterator[tuple[Measurement, list[int]]]:
        for first in range(0, len(positions), at_once):
            where = positions[first : first + at_once]
            yield in_basis(data[where], data, checker.about.basis), data.indices[where].tolist()

    return choose_stop(drawing, method, checker.about, batches(), checker.real_images)


def _open(measurements: str | Path | Measurements | None, loaded: Loaded) -> tuple[Measurements, str]:
    """What to calibrate on, and a name for it. Of the training data, only what was held out."""
    assert loaded.config is not None
    config = loaded.config
    data = open_for(config.data if measurements is None else measurements, loaded)
    if measurements is not None and data.location != config.data:
        return data, data.name
    if config.settings.held_out == 0:
        raise ValueError(
            f"The model learned from all of {data.name} (--held-out 0): give other measurements, because errors on these are "
            "smaller than on new ones."
        )
    return data.split(config.settings.held_out, config.settings.seed)[1], f"{data.name}, held out from training"


def _learn(
    checker: Checker, data: Measurements, limit: int, at_once: int, progress: bool
) -> tuple[Calibrator, Reliability | None]:
    """The calibration by all measurements, and the reliability of one half with the factors of the other half."""
    positions = evenly_spread(limit, len(data))
    halves, evidence, measured = np.array_split(positions, 2), list[Evidence](), list[Tensor]()
    reliability: Reliability | None = None
    with bar("calibrating", len(positions), progress) as advance:
        for half in halves:
            first = combine(evidence, measured) if _units(evidence) >= MIN_UNITS else None
            if first is not None:
                reliability = Reliability(DRAWS)
            for start in range(0, len(half), at_once):
                where = half[start : start + at_once]
                measurement: Measurement = in_basis(data[where], data, checker.about.basis)
                indices = data.indices[where].tolist()
                if (hidden := checker.restore(measurement, indices, DRAWS)) is not None:
                    evidence.append(checker.evidence(hidden))
                    if first is not None and reliability is not None:
                        Calibrator(checker, first).reliability(hidden, reliability)
                if measurement.max_std > 0:
                    measured.append(checker.at_measured(measurement, indices))
                advance(len(where))
    return Calibrator(checker, combine(evidence, measured)), reliability


def _units(evidence: list[Evidence]) -> float:
    return sum((float(part.units.sum()) for part in evidence), 0.0)
