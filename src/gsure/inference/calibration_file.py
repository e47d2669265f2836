"""RUN/calibration.json: written by `calibrate`, read by `restore`, and refused where it was made for something else."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from gsure.data.measurements import Measurements
from gsure.files import read_json, replacing
from gsure.inference.methods import Restorer
from gsure.judging import Calibration

FORMAT, VERSION = "gsure calibration", 2
SIMILAR = {"share of measured entries": 1.5, "largest noise": 2.0}
"""Factors by which these may differ from the data of a calibration."""


class Stored(NamedTuple):
    """The calibration of a run, and what it was made of."""

    calibration: Calibration
    made_of: dict[str, Any]
    data: dict[str, Any]
    identity: str
    stop: int | None = None
    """Of `context`: the step at whose noise level conditional means are averaged."""


def describe_data(data: Measurements) -> dict[str, Any]:
    return {
        "shape": list(data.shape),
        "basis": data.header["basis"],
        "shape of masks": list(data.mask_shape),
        "unit of masks": list(data.unit),
        "share of measured entries": round(float(data.coverage.mean()), 6),
        "largest noise": float(f"{data.max_std:.6g}"),
    }


def describe_method(posterior: Restorer, checksum: int) -> dict[str, Any]:
    """What a calibration depends on; the number of draws only if the mean is that of the draws."""
    options = {key: value for key, value in posterior.options().items() if key != "seed"}
    if not posterior.averages:
        del options["draws"]
    return {**options, "weights": checksum}


def write_calibration(
    path: Path, calibration: Calibration, made_of: Mapping[str, Any], data: Mapping[str, Any], others: Mapping[str, Any]
) -> None:
    """`others` is what a reader may want to know, such as the request and the reliability curve."""
    record = {
        "format": FORMAT,
        "version": VERSION,
        "method": dict(made_of),
        "data": dict(data),
        "factors": [round(value, 6) for value in calibration.factors.tolist()],
        "measured": calibration.measured,
        "added": calibration.added,
        "image_prior": calibration.image_prior,
        "usual": calibration.usual,
        "images": calibration.images,
        "units": calibration.units,
        "together": calibration.together,
        **others,
    }
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(record, indent=1, ensure_ascii=False))


def read_calibration(path: Path) -> Stored:
    record = read_json(path)
    if record.get("format") != FORMAT or record.get("version") != VERSION:
        raise ValueError(f"{path} is not a calibration of this version of gsure: run gsure calibrate again.")
    try:
        usual = record["usual"]
        calibration = Calibration(
            torch.tensor([float(value) for value in record["factors"]]),
            float(record["measured"]),
            float(record["added"]),
            float(record["image_prior"]),
            None if usual is None else (float(usual[0]), float(usual[1])),
            int(record["images"]),
            int(record["units"]),
            float(record["together"]),
        )
        stop = record.get("stop")
        stored = Stored(
            calibration, dict(record["method"]), dict(record["data"]), "", None if stop is None else int(stop)
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ValueError(f"{path} is damaged: delete it, or run gsure calibrate again.") from error
    positive = [*calibration.factors.tolist(), calibration.measured, calibration.image_prior, calibration.together]
    numbers = [*positive, calibration.added, *(calibration.usual or ())]
    if not np.isfinite(numbers).all() or min(positive) <= 0 or calibration.added < 0:
        raise ValueError(f"{path} is damaged: its factors are not positive. Delete it, or run gsure calibrate again.")
    steps = stored.made_of.get("steps")
    if stored.stop is not None and not (isinstance(steps, int) and 0 <= stored.stop < steps):
        raise ValueError(f"{path} is damaged: it stops at step {stored.stop} of {steps}. Run gsure calibrate again.")
    keys = ("factors", "measured", "added", "image_prior", "usual", "together", "method", "data", "stop")
    content = json.dumps([record.get(key) for key in keys])
    return stored._replace(identity=hashlib.sha256(content.encode()).hexdigest()[:16])


def refuse_other(path: Path, stored: Stored, made_of: Mapping[str, Any], data: Measurements) -> None:
    """A calibration is for one method with its options, and for similar data."""
    mine = json.loads(json.dumps(dict(made_of)))
    keys = [key for key in ("method", "drawn_by") if stored.made_of.get(key) != mine.get(key)]
    keys = keys or list({**stored.made_of, **mine})  # options of another method differ too, which says nothing more
    changed = [(key, stored.made_of.get(key), mine.get(key)) for key in keys]
    now = describe_data(data)
    changed += [(key, stored.data.get(key), now[key]) for key in now]
    differences = [
        f"{key} was {before}, now {after}" for key, before, after in changed if not _is_similar(key, before, after)
    ]
    if differences:
        raise ValueError(
            f"{path} was made for another method or other data: {'; '.join(differences)}. Run gsure calibrate again, learn "
            "from these measurements with calibration self, or turn it off with calibration none."
        )


def _is_similar(key: str, before: Any, after: Any) -> bool:
    if key == "share of measured entries" and before == 1 and after != 1:
        return False  # complete signals teach nothing about missing entries
    if key in SIMILAR and isinstance(before, int | float) and before > 0 and after > 0:
        return 1 / SIMILAR[key] <= after / before <= SIMILAR[key]
    return before == after
