"""`gsure restore` as it comes, against DDRM at its best settings: a table for docs/results.

    python bench/restore.py --case NAME RUN MEASUREMENTS CLEAN [--case ...] [--n N] [--calibrate]
    python bench/restore.py --brains NAME RUN NPZ TRACK SEED R [--brains ...] [--n N] [--calibrate]

Each --case or --brains is a row. MEASUREMENTS are those of signals that the run has not seen, and CLEAN the signals behind
them, which only judge. --brains measures the test images of `bench/first_run.py` at acceleration R. TRACK is real or phase.
SEED is that of the run. --calibrate first runs `gsure calibrate` on a copy of the run.

The reference is DDRM with η = 1, 50 steps of quadratic spacing and 8 draws, which are not calibrated. PSNR is that of the
mean, in dB; ± is the standard error over images, for a difference that of paired differences. Calls are network calls per
image, with all that a command does. A draw is below zero-filled if its PSNR is smaller than that of the zero-filled image.
Coverage is that of 90 % intervals inside the object.
"""

import argparse
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import first_run
import numpy as np
import torch
from torch import Tensor

import gsure
from gsure.data.measurements import Measurements, Signals
from gsure.data.memory import hold_signals
from gsure.inference.restored import measure_coverage
from gsure.judging import LEVEL, LEVELS
from gsure.metrics import psnr

REFERENCE = {"method": "ddrm", "eta": 1.0, "spacing": "quadratic", "steps": 50, "draws": 8, "calibration": "none"}
REFERENCE["baselines"] = False  # a verdict would take more network calls
HEADER = (
    "images | zero-filled | Gaussian | DDRM | auto | auto - DDRM | calls: DDRM, auto | draws below zero-filled: DDRM | auto | "
    "of these not reported | others reported | coverage, raw | calibrated | in the worst image"
)


class Case(NamedTuple):
    name: str
    run: Path
    data: Measurements
    clean: Signals


class Result(NamedTuple):
    mean: Tensor
    """PSNR of each image; so are the others."""
    zero_filled: Tensor
    gaussian: Tensor | None
    calls: float
    below: int
    unreported: int
    falsely_reported: int
    draws: int
    coverage: dict[str, float]
    worst: float | None


def restore(case: Case, **options: object) -> Result:
    """PSNRs by image, network calls, draws below the zero-filled image, and coverage."""
    data, n = case.data, len(case.data)
    with counted(case.run) as calls:
        restored = gsure.restore(case.run, data, **options)
    is_complex, clean = bool(data.header["complex"]), case.clean[np.arange(n)]
    found = {kind: psnr(signals[np.arange(n)], clean, is_complex) for kind, signals in restored.signals.items()}
    draws = torch.stack([psnr(x, clean, is_complex) for x in as_the_model_sees(restored.draws, data)])
    is_below = ~(draws >= found["baseline"])
    coverage = measure_coverage(restored, case.clean)
    return Result(
        found["mean"],
        found["baseline"],
        found.get("gaussian"),
        sum(calls) / n,
        int(is_below.sum()),
        int((is_below & ~restored.reported_draws).sum()),
        int((~is_below & restored.reported_draws).sum()),
        is_below.numel(),
        {name: one.curve("object")[LEVELS.index(LEVEL)] for name, one in coverage.items()},
        coverage["calibrated"].worst if "calibrated" in coverage else None,
    )


@contextmanager
def counted(run: Path) -> Iterator[list[int]]:
    """The number of images in each call of the network."""
    kind, calls = type(gsure.load(run).network), []

    def count(module: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if type(module) is kind:
            calls.append(len(inputs[0]))

    hook = torch.nn.modules.module.register_module_forward_pre_hook(count)
    try:
        yield calls
    finally:
        hook.remove()


def as_the_model_sees(draws: Tensor, data: Measurements) -> Tensor:
    """(draws, n, channels, height, width), from the units of the data."""
    if data.header["complex"]:
        draws = torch.view_as_real(draws).movedim(-1, 3).flatten(2, 3)
    scale, offset = (
        torch.from_numpy(values).reshape(-1, *[1] * len(data.shape)) for values in (data.scales(), data.offsets())
    )
    return (draws - offset) / scale


def brains(name: str, run: str, npz: str, track: str, seed: str, acceleration: str) -> Case:
    generator = torch.Generator().manual_seed(int(seed))
    _, (x, measurement) = first_run.read_brains(Path(npz), track == "phase", generator)
    if float(acceleration) != first_run.ACCELERATION:
        measurement = gsure.corruption.Lines(R=float(acceleration)).apply(x, first_run.SIGMA, generator)
    data = first_run.in_memory(measurement)
    scale = torch.from_numpy(data.scales()).reshape(-1, 1, 1, 1)
    return Case(name, Path(run), data, hold_signals(x / scale, {"seed": int(seed)}, True))


def files(name: str, run: str, measurements: str, clean: str) -> Case:
    return Case(name, Path(run), gsure.open(measurements), Signals(clean))


def line(case: Case, calibrate: bool) -> str:
    with tempfile.TemporaryDirectory() as folder:
        if calibrate:
            run = Path(shutil.copytree(case.run, Path(folder) / "run", ignore=shutil.ignore_patterns("*.png", ".lock")))
            gsure.calibrate(run)
            case = case._replace(run=run)
        ours, reference = restore(case), restore(case, **REFERENCE)
    cells = [
        case.name,
        str(len(case.data)),
        in_decibels(ours.zero_filled),
        "–" if ours.gaussian is None else in_decibels(ours.gaussian),
        in_decibels(reference.mean),
        in_decibels(ours.mean),
        in_decibels(ours.mean - reference.mean),
        f"{reference.calls:.0f}, {ours.calls:.0f}",
        *(f"{result.below} of {result.draws}" for result in (reference, ours)),
        str(ours.unreported),
        str(ours.falsely_reported),
        *(f"{100 * ours.coverage[kind]:.1f} %" if kind in ours.coverage else "–" for kind in ("raw", "calibrated")),
        "–" if ours.worst is None else f"{100 * ours.worst:.0f} %",
    ]
    return f"| {' | '.join(cells)} |"


def in_decibels(values: Tensor) -> str:
    """Mean and standard error."""
    return f"{float(values.mean()):.2f} ± {float(values.std() / len(values) ** 0.5):.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--case", nargs=4, action="append", default=[], metavar=("NAME", "RUN", "MEASUREMENTS", "CLEAN")
    )
    names = ("NAME", "RUN", "NPZ", "TRACK", "SEED", "R")
    parser.add_argument("--brains", nargs=6, action="append", default=[], metavar=names)
    parser.add_argument("--n", type=int, default=32, help="restore the first so many images")
    parser.add_argument("--calibrate", action="store_true")
    options = parser.parse_args(arguments)
    cases = [*(files(*given) for given in options.case), *(brains(*given) for given in options.brains)]
    print(f"| case | {HEADER} |\n|{'---|' * (HEADER.count('|') + 2)}")
    for case in cases:
        first = np.arange(min(options.n, len(case.data)))
        print(line(case._replace(data=case.data.subset(first)), options.calibrate), flush=True)


if __name__ == "__main__":
    main()
