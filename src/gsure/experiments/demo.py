"""Demo: the whole workflow on built-in data, from corrupted signals to an HTML page.

It corrupts signals and trains three models: on clean signals (the oracle), on measurements as if they were clean (naive), and
on measurements with gsure. It generates and restores signals, and evaluates everything on signals that no model saw. If you
interrupt it, call it again to resume.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from gsure.data.chunks import open_folder
from gsure.data.sources import open_source
from gsure.display import say
from gsure.evaluation import evaluate_restorations, evaluate_samples
from gsure.evaluation.diagnose import diagnose
from gsure.experiments.chain import measure_once, resolve, train_once
from gsure.files import record_request
from gsure.inference.restore import restore
from gsure.inference.sample import sample
from gsure.report import write_report

Kind = Literal["digits", "mri"]
FILES = ("train", "train-clean", "test", "test-clean")
MIN_SAMPLES = 40
"""The Fréchet distance needs more samples than features, and the demos use up to 32 features."""
MODELS = {"oracle": "clean", "naive": "naive", "gsure": "measurements"}
"""What each model is trained on."""


@dataclass(frozen=True)
class Demo:
    """The data, its corruption, and how long models train."""

    source: str
    train_on: Mapping[str, Any]
    test_on: Mapping[str, Any]
    corruption: Mapping[str, Any]
    sigma: float
    preset: str
    changes: Mapping[str, Any]
    features: str
    restored: int = 32
    restoring: Mapping[str, Any] = field(default_factory=dict)
    """Options of `restore` that suit the corruption."""


DEMOS = {
    "digits": Demo(
        source="digits",
        train_on={"split": "train"},
        test_on={"split": "test"},
        corruption={"name": "patches", "p": 0.4, "size": 2},
        sigma=0.02,
        preset="digits",
        changes={  # the last two speed up learning: with so few steps, they halve the distance of the samples
            "steps": 800,
            "checkpoint_every": 400,  # each validates, which costs as much as 60 steps on all held-out digits
            "validate_on": 72,
            "picture_every": 800,
            "weighting": "eps",
            "predicts": "v",
        },
        features="digits",
        restoring={
            "method": "ddrm",
            "steps": 25,
            "eta": 1.0,
            "spacing": "quadratic",
        },  # quick, and not worse than 50 steps with the defaults
    ),
    "mri": Demo(
        source="anatomy",  # the test slices are those of another person
        train_on={"size": 64, "n": 3000},
        test_on={"size": 64, "n": 1000, "split": "test", "seed": 1},
        corruption={"name": "lines", "R": 4.0},
        sigma=0.05,
        preset="phantom32",
        changes={  # 2 x 2 pixels become channels; few steps need a short EMA, and few slices a larger held-out share
            "patch": 2,
            "steps": 600,
            "checkpoint_every": 300,
            "picture_every": 600,
            "ema": 0.99,
            "held_out": 0.05,
        },
        features="pca-16",
        restored=16,
        restoring={"method": "ddrm", "steps": 50, "eta": 1.0, "spacing": "quadratic"},
    ),
}


def demo(
    kind: Kind = "digits", out: str | Path = "demo", *, n: int = 500, steps: int | None = None, progress: bool = False
) -> dict[str, Any]:
    """Compute everything that is missing in `out`, and write the page out/report.html.

    `n` is the number of samples of each model. `steps` sets the number of training steps, for a quick look or a better model.
    """
    request = record_request("demo", locals())
    if kind not in get_args(Kind):
        raise ValueError(f"There is no demo {kind!r}: choose {' or '.join(get_args(Kind))}.")
    if n < MIN_SAMPLES:
        raise ValueError(f"The demo compares up to 32 features, so n must be at least {MIN_SAMPLES}, but is {n}.")
    if steps is not None and steps < 1:
        raise ValueError(f"steps must be at least 1, but is {steps}.")
    chosen, folder = DEMOS[kind], Path(out)
    if steps is not None:
        chosen = replace(chosen, changes={**chosen.changes, "steps": steps})
    open_folder(folder, request, {"kind": kind})  # raises an error if the folder holds anything else
    runs, (data, clean, test, truth) = folder / "runs", (folder / "data" / f"{name}.h5" for name in FILES)
    for options, file, signals in ((chosen.train_on, data, clean), (chosen.test_on, test, truth)):
        source = open_source(chosen.source, **options)
        measure_once(source, file, signals, chosen.corruption, chosen.sigma, progress)
    for number, (name, train_on) in enumerate(MODELS.items(), start=1):
        if progress:
            say(f"Model {number} of {len(MODELS)}: {name}, trained on {train_on}")
        train_once(
            data, runs / name, resolve(chosen.preset, {**chosen.changes, "train_on": train_on}, data), clean, progress
        )
    for name in MODELS:
        drawn = folder / "samples" / name
        sample(runs / name, n, drawn, sampler="dpm++", steps=15, spacing="quadratic", progress=progress)
        evaluate_samples(drawn, reference=truth, features=chosen.features, progress=progress)
    for name in ("oracle", "gsure"):
        place = folder / "restored" / name
        options = {"limit": chosen.restored, "clean": truth, "progress": progress}
        restore(runs / name, test, place, **options, **chosen.restoring)
        evaluate_restorations(place, clean=truth)
    diagnose(runs / "gsure", reference_run=runs / "oracle", clean=clean, force=True, progress=progress)
    return write_report(folder, force=True)
