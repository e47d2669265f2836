"""Calibrate: the right size of error bars, and which errors are usual, from measurements that a model did not learn from."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gsure.basis import Basis
from gsure.data.measurements import Measurements
from gsure.data.source import evenly_spread
from gsure.display import bar
from gsure.files import record_request
from gsure.inference.bars import Calibrator
from gsure.inference.calibration_file import describe_data, describe_method, write_calibration
from gsure.inference.hidden import Checker, combine
from gsure.inference.methods import Method, Restorer
from gsure.inference.setup import DrawsBy, Setup, choose_setup, open_for
from gsure.inference.stopping import IMAGES, Stop, choose_stop
from gsure.judging import LEVEL, LEVELS, Calibration, Evidence, Reliability
from gsure.judging.calibration import SPLITS
from gsure.judging.verdict import MIN_UNITS
from gsure.measurement import Measurement
from gsure.sampling import Spacing
from gsure.training.checkpoints import Weights
from gsure.training.model import CheckpointName, Loaded, open_model
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
    setup = choose_setup(loaded, data, method, draws_by, steps, eta, eta_b, spacing, seed)
    restorer = setup.restorer(draws)
    stop = _choose_stop(setup, restorer, min(limit, IMAGES), max(1, batch // draws))
    at_once = max(1, batch // (SPLITS * DRAWS))
    calibration, reliability = _learn(setup, Checker.of(restorer, setup), limit, at_once, progress)
    curve = None if reliability is None else reliability.as_dict()
    about = describe_data(data) | {"measurements": data.name, "fingerprint": data.fingerprint()}
    others = {"stop": None if stop is None else stop.step, "reliability": curve, "request": request}
    path = Run(loaded.path).calibration
    write_calibration(path, calibration, describe_method(restorer, loaded.checksum), about, others)
    said = {"calibration": str(path), "measurements": f"{calibration.images:,} of {which}"}
    said |= _describe(calibration, restorer)
    if stop is not None:
        said["mean"] = stop.describe(setup.method, setup.sampling.steps)
    return said | ({} if reliability is None else _describe_coverage(reliability))


def _describe(calibration: Calibration, restorer: Restorer) -> dict[str, Any]:
    return {
        "hidden units": calibration.units,
        **{key: value for key, value in restorer.options().items() if key in ("method", "drawn_by")},
        "factors of missing entries": f"{float(calibration.factors.min()):.2f} to {float(calibration.factors.max()):.2f}",
        "factor of all missing entries together": round(calibration.together, 3),
        "factor of measured entries": round(calibration.measured, 3),
        "share of their noise that is added": round(calibration.added, 3),
    }


def _describe_coverage(reliability: Reliability) -> dict[str, str]:
    inside, frame = (100 * reliability.curve(part)[LEVELS.index(LEVEL)] for part in ("object", "frame"))
    words = f"{inside:.1f} % of hidden entries inside the object, {frame:.1f} % of all"
    return {f"{100 * LEVEL:.0f} % intervals cover": f"{words} (other measurements than those of the factors)"}


def _choose_stop(setup: Setup, restorer: Restorer, limit: int, at_once: int) -> Stop | None:
    """Of `context`; None for other methods, and if nothing can be hidden."""
    drawing = restorer.sampler
    if drawing is None or drawing.method != "context":
        return None
    batches = _batches(setup, evenly_spread(limit, len(setup.data)), at_once)
    return choose_stop(drawing, setup.method, setup.about, batches, setup.real_images)


def _batches(setup: Setup, positions: np.ndarray, at_once: int) -> Iterator[tuple[Measurement, list[int]]]:
    """Measurements with their numbers."""
    for first in range(0, len(positions), at_once):
        where = positions[first : first + at_once]
        yield setup.read(where), setup.data.indices[where].tolist()


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
    setup: Setup, checker: Checker, limit: int, at_once: int, progress: bool
) -> tuple[Calibration, Reliability | None]:
    """The calibration by all measurements, and the reliability of one half with the factors of the other half."""
    evidence, measured = list[Evidence](), list[Tensor]()
    first: Calibrator | None = None
    reliability: Reliability | None = None
    positions = evenly_spread(limit, len(setup.data))
    with bar("calibrating", len(positions), progress) as advance:
        for half in np.array_split(positions, 2):
            if sum(float(part.units.sum()) for part in evidence) >= MIN_UNITS:
                first, reliability = Calibrator(checker, combine(checker, evidence, measured)), Reliability(DRAWS)
            for measurement, indices in _batches(setup, half, at_once):
                hidden = None if checker.is_complete else checker.restore(measurement, indices, DRAWS)
                if hidden is not None:
                    evidence.append(checker.evidence(hidden))
                    if first is not None and reliability is not None:
                        first.reliability(hidden, reliability)
                if measurement.max_std > 0:
                    measured.append(checker.at_measured(measurement, indices))
                advance(len(measurement))
    return combine(checker, evidence, measured), reliability
