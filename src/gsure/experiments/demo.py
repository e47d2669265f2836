"""Demo: the whole workflow on built-in data, from corrupted signals to an HTML page.

It corrupts signals and trains models of the same settings: on measurements with gsure, on clean signals (the oracle) and, to
compare samples, on measurements as if they were clean (naive). It generates and restores signals, and evaluates everything on
signals that no model saw. If you interrupt it, call it again to resume.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from gsure.data.chunks import open_folder
from gsure.data.sources import open_source
from gsure.display import say
from gsure.evaluation import evaluate_restorations, evaluate_samples
from gsure.evaluation.diagnose import diagnose
from gsure.experiments.chain import measure_once, train_for, train_once
from gsure.files import record_request
from gsure.inference.restore import restore
from gsure.inference.sample import sample
from gsure.report import write_report

Kind = Literal["digits", "mri"]
FILES = ("train", "train-clean", "test", "test-clean")
SAMPLES = 180
"""Of each model: as many as half of the test digits, with which they are compared."""
MIN_SAMPLES = 40
"""The Fréchet distance needs more samples than features, and the demos use up to 32 features."""
OURS = "gsure"
OTHERS: dict[str, Literal["clean", "naive"]] = {"oracle": "clean", "naive": "naive"}
"""What the other models are trained on. The naive one is for samples."""


@dataclass(frozen=True)
class Demo:
    """The data, its corruption, and how long models train. All else is what `train` and `restore` choose."""

    source: str
    train_on: Mapping[str, Any]
    test_on: Mapping[str, Any]
    corruption: Mapping[str, Any]
    sigma: float
    minutes: float
    """Time budget of the first model. The others do as many steps."""
    restored: int
    features: str | None = None
    """What compares samples. Without it, the demo only restores: samples of a few minutes of training are poor."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from those that fit the data."""


DEMOS = {
    "digits": Demo(
        source="digits",
        train_on={"split": "train"},
        test_on={"split": "test"},
        corruption={"name": "patches", "p": 0.4, "size": 2},
        sigma=0.02,
        minutes=0.75,
        restored=16,
        features="digits",
        changes={"purpose": "generate"},  # samples are what digits show best; they also restore, by `moments`
    ),
    "mri": Demo(
        source="anatomy",  # the test slices are those of another person
        train_on={"size": 64, "n": 3000, "plane": "axial"},  # one direction, as a scan has
        test_on={"size": 64, "n": 16, "plane": "axial", "split": "test", "seed": 1},
        corruption={"name": "lines", "R": 4.0},
        sigma=0.05,  # 0.01 of the largest magnitude
        minutes=2.5,
        restored=16,
    ),
}


def demo(
    kind: Kind = "digits",
    out: str | Path = "demo",
    *,
    n: int = SAMPLES,
    steps: int | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Compute everything that is missing in `out`, and write the page out/report.html.

    `n` is the number of samples of each model. `steps` sets the number of training steps, for a quick look or a better model;
    by default, the first model does as many as fit into its time budget, and the others do as many as the first.
    """
    request = record_request("demo", locals())
    if kind not in get_args(Kind):
        raise ValueError(f"There is no demo {kind!r}: choose {' or '.join(get_args(Kind))}.")
    if n < MIN_SAMPLES:
        raise ValueError(f"The demo compares up to 32 features, so n must be at least {MIN_SAMPLES}, but is {n}.")
    if steps is not None and steps < 1:
        raise ValueError(f"steps must be at least 1, but is {steps}.")
    chosen, folder = DEMOS[kind], Path(out)
    open_folder(folder, request, {"kind": kind, "steps": steps})  # raises an error if the folder holds anything else
    runs, (data, clean, test, truth) = folder / "runs", (folder / "data" / f"{name}.h5" for name in FILES)
    for options, file, signals in ((chosen.train_on, data, clean), (chosen.test_on, test, truth)):
        source = open_source(chosen.source, **options)
        measure_once(source, file, signals, chosen.corruption, chosen.sigma, progress)
    names = (OURS, *OTHERS) if chosen.features else (OURS, "oracle")
    _train(chosen, names, runs, data, clean, steps, progress)
    if chosen.features is not None:
        _generate(chosen.features, names, folder, truth, n, progress)
    for name in (OURS, "oracle"):
        place = folder / "restored" / name
        restore(runs / name, test, place, limit=chosen.restored, clean=truth, progress=progress)
        evaluate_restorations(place, clean=truth)
    if chosen.features is not None:
        diagnose(runs / OURS, reference_run=runs / "oracle", clean=clean, force=True, progress=progress)
    return write_report(folder, force=True)


def _generate(features: str, names: Sequence[str], folder: Path, truth: Path, n: int, progress: bool) -> None:
    for name in names:
        drawn = folder / "samples" / name
        sample(folder / "runs" / name, n, drawn, sampler="dpm++", steps=15, spacing="quadratic", progress=progress)
        evaluate_samples(drawn, reference=truth, features=features, progress=progress)


def _train(
    chosen: Demo, names: Sequence[str], runs: Path, data: Path, clean: Path, steps: int | None, progress: bool
) -> None:
    """The first model finds out how many steps fit into the minutes. The others differ in what they learn from."""
    budget = {"minutes": chosen.minutes} if steps is None else {"steps": steps}
    for number, name in enumerate(names, start=1):
        if progress:
            say(f"Model {number} of {len(names)}: {name}")
        if name == OURS:
            settings = train_for(data, runs / name, {**chosen.changes, **budget}, clean, progress)
        else:
            imputing = settings.impute_at if settings.purpose == "both" else ()  # else only incomplete data needs it
            other = replace(settings, train_on=OTHERS[name], impute_at=imputing)
            train_once(data, runs / name, other, clean, progress)
