"""Samples: is their law that of real signals?

Every distance stands beside its floor, what real signals get against real signals. The reference is split into two halves;
samples are compared with the second, and as many real signals of the first with the same second. So a perfect model has the
floor on average, however few the samples are and however biased a distance is on so few.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gsure.data.measurements import Signals, open_measurements
from gsure.evaluation.record import (
    command_of,
    config_of,
    held_out_of,
    is_own,
    read_plan,
    record_path,
    warn_of_training,
    write_record,
)
from gsure.evaluation.reference import Reference, features_of, features_of_reference, pixels_of
from gsure.metrics import (
    correlation_error,
    correlation_strength,
    frechet,
    jackknife,
    kid,
    precision_and_recall,
    sliced_wasserstein,
)
from gsure.metrics.features import Features, open_features
from gsure.random import generators
from gsure.training.run import Config

SAMPLES_PER_FEATURE = 10
"""Samples for each feature, below which covariances are mostly chance."""
STREAM = 2
"""Keeps the noise that samples are measured with apart from that they were drawn with."""
SLOW = 512
"""Features, above which a Fréchet distance takes too long to be repeated for a standard error."""


def evaluate_samples(
    folder: str | Path,
    *,
    reference: str | Path | None = None,
    measurements: str | Path | None = None,
    features: str = "pca-32",
    n: int | None = None,
    n_reference: int | None = None,
    held_out: bool | None = None,
    whole: bool = False,
    seed: int = 0,
    out: str | Path | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Compare the samples of a folder of `gsure sample` with a reference, a file of clean signals.

    With `measurements` instead, no clean signal is needed: the samples are measured as those were, with masks and noise of
    that file, and compared with what was measured. `features` are named in `gsure.metrics.features`. `n` and
    `n_reference` limit the numbers. `held_out` keeps to what the run did not train on (by default with measurements of the
    run's own). `whole`
    compares with all of the reference, as papers do, and not with the half of which the floor is told.
    """
    given, warnings = locals().copy(), list[str]()
    plan = read_plan(Path(folder), "sample", warnings)
    inside = Path(folder).is_dir()
    path = record_path(
        Path(folder) / "evaluation.json" if inside else Path(folder).with_suffix(".evaluation.json"), out
    )
    samples = Signals(folder)
    real = _open_reference(reference, measurements, config_of(plan), held_out, warnings)
    _refuse(samples, real, n, n_reference)

    real, first, second = _choose(real, n_reference, torch.Generator().manual_seed(seed))
    used, matched = _count(len(samples) if n is None else n, len(first), whole, warnings)
    extractor = open_features(features, real.read(second[: _most(real)]) if features.startswith("pca-") else None)
    _check_numbers(min(matched, len(second)), extractor.num_features, warnings)
    drawn, everything = _sides(extractor, samples, real, first, used, seed, progress)
    half, other = everything.take(first[:matched]), everything.take(second)
    mixed = everything.take(torch.randperm(len(real), generator=torch.Generator().manual_seed(seed)).numpy())
    floor = f"{matched:,} of one half of the reference against the {len(second):,} of the other"
    floor += "" if whole else ", with which the samples are compared too"
    record = {
        "kind": "samples",
        "of": str(Path(folder).resolve()),
        "run": plan.get("run"),
        "reference": _describe(real, len(real) if whole else len(second), measurements is not None),
        "n": used,
        "features": _describe_features(extractor),
        "seed": seed,
        "floor": floor,
        "metrics": measure(drawn, mixed if whole else other, half, other, seed),
        "warnings": warnings,
        "command": command_of(evaluate_samples, given),
    }
    return write_record(path, record)


@dataclass(frozen=True)
class Side:
    """One of two sets: its features, and its pixels."""

    features: Tensor
    pixels: Tensor

    def take(self, where: np.ndarray) -> "Side":
        return Side(self.features[where], self.pixels[where])


def _sides(
    features: Features, samples: Signals, real: Reference, first: np.ndarray, n: int, seed: int, progress: bool
) -> tuple[Side, Side]:
    """The samples, seen as the first half of the reference was; and all of the reference."""

    def read(where: np.ndarray) -> Tensor:
        return real.see(samples[where], first[where % len(first)], generators(seed, STREAM, indices=where))

    drawn = Side(features_of(features, read, n, "the samples", progress), pixels_of(read, n))
    return drawn, Side(features_of_reference(features, real, progress), pixels_of(real.read, len(real)))


def measure(samples: Side, reference: Side, half: Side, other: Side, seed: int) -> dict[str, dict[str, Any]]:
    """All distances of the samples from the reference; for the floor, of one half of the real signals from the other."""

    def sliced(x: Tensor, y: Tensor) -> float:
        return sliced_wasserstein(x, y, torch.Generator().manual_seed(seed))

    table: dict[str, dict[str, Any]] = {}
    for name, of, distance in (
        ("frechet", "features", frechet),
        ("kid", "features", kid),
        ("sliced_wasserstein", "pixels", sliced),
        ("correlation", "pixels", correlation_error),
    ):
        x, y, z, w = (getattr(side, of) for side in (samples, reference, half, other))
        se = None if name == "frechet" and x.shape[1] > SLOW else jackknife(distance, x, y)
        table[name] = {"value": distance(x, y), "floor": distance(z, w), "se": se, "better": "lower"}
    table["correlation"]["strength"] = correlation_strength(samples.pixels, reference.pixels)
    table["correlation"]["strength_of_floor"] = correlation_strength(half.pixels, other.pixels)
    values = precision_and_recall(samples.features, reference.features)
    floors = precision_and_recall(half.features, other.features)
    n = min(len(samples.features), len(reference.features))
    for name, value, floor in zip(("precision", "recall"), values, floors, strict=True):
        se = (value * (1 - value) / n) ** 0.5
        table[name] = {"value": value, "floor": floor, "se": se, "better": "higher"}
    return table


def _open_reference(
    clean: str | Path | None,
    measurements: str | Path | None,
    config: Config | None,
    held_out: bool | None,
    warnings: list[str],
) -> Reference:
    if (clean is None) == (measurements is None):
        raise ValueError(
            "Samples are compared with clean signals or with measurements: give --reference or --measurements."
        )
    real = (
        Reference.clean(Signals(clean))
        if clean is not None
        else Reference.measured(open_measurements(str(measurements)))
    )
    own = config is not None and is_own(real.path, real.header, len(real), config)
    if held_out is None:
        held_out = measurements is not None and own and config is not None and config.settings.held_out > 0
    if held_out:
        if config is None or not own:
            raise ValueError(
                f"--held-out needs the run and its own data, but {real.path} is not that, or the run is gone."
            )
        return real.part(held_out_of(config))
    warn_of_training(real.path, real.header, len(real), config, warnings)
    return real


def _choose(real: Reference, n: int | None, generator: torch.Generator) -> tuple[Reference, np.ndarray, np.ndarray]:
    """As many as are wanted, and the positions of their halves."""
    if n is not None and n < len(real):
        real = real.part(np.sort(torch.randperm(len(real), generator=generator).numpy()[:n]))
    if len(real) < 2:
        raise ValueError(
            f"A reference of {len(real)} has no two halves, of which the floor is told: take more signals."
        )
    return real, *real.halves(generator)


def _refuse(samples: Signals, real: Reference, n: int | None, n_reference: int | None) -> None:
    if tuple(samples.shape) != real.shape or samples.header["complex"] != real.header["complex"]:
        kinds = ["complex" if header["complex"] else "real" for header in (samples.header, real.header)]
        raise ValueError(
            f"The samples are {kinds[0]}, of shape {tuple(samples.shape)}, but those of {real.path} {kinds[1]}, of shape "
            f"{real.shape}: give a reference of such signals as the model makes."
        )
    if min(1 if n is None else n, 1 if n_reference is None else n_reference) < 1:
        raise ValueError(f"--n and --n-reference must be at least 1, but are {n} and {n_reference}.")
    if n is not None and n > len(samples):
        raise ValueError(
            f"--n {n:,} samples are asked for, but there are {len(samples):,}: draw more, or ask for fewer."
        )


def _count(n: int, half: int, whole: bool, warnings: list[str]) -> tuple[int, int]:
    """How many samples are used, and how many real signals stand for them in the floor."""
    if n <= half or whole:
        return n, min(n, half)
    warnings.append(f"Only {half:,} of the {n:,} samples were used: half of the reference has no more.")
    return half, half


def _most(real: Reference) -> int:
    """How many signals principal components are fitted to: as many as fit into memory."""
    return max(1000, 10**8 // max(1, torch.Size(real.shape).numel()))


def _check_numbers(n: int, dimension: int, warnings: list[str]) -> None:
    if n <= dimension:
        raise ValueError(
            f"{n:,} samples, or real signals in half of the reference, are too few for {dimension:,} features: their "
            f"covariance would be singular. Take more (better {SAMPLES_PER_FEATURE * dimension:,}), or fewer features, such as "
            f"pca-{max(1, n // SAMPLES_PER_FEATURE)}."
        )
    if n < SAMPLES_PER_FEATURE * dimension:
        warnings.append(
            f"{n:,} of each kind are few for {dimension:,} features ({SAMPLES_PER_FEATURE * dimension:,} would do): covariances of so few "
            "are uncertain, and the Fréchet distance is biased upwards. Compare with its floor, and only at equal numbers."
        )


def _describe(real: Reference, n: int, measured: bool) -> dict[str, Any]:
    holds = "measurements" if measured else "signals"
    return {"path": str(real.path.resolve()), "holds": holds, "n": n, "of": len(real), "fingerprint": real.fingerprint}


def _describe_features(features: Features) -> dict[str, Any]:
    own = {"name": features.name, "dimension": features.num_features, "fingerprint": features.fingerprint}
    return own | {key: value for key, value in features.about.items() if key not in own}
