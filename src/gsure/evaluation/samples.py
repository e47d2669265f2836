"""Evaluate samples: how far is their distribution from that of real signals?

Every distance has a floor, the distance between real signals and other real signals. To compute it, the reference is split
into two halves. The samples, and the same number of real signals of the first half, are compared with the second half.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gsure.data.measurements import Measurements, Signals, open_measurements
from gsure.evaluation import record as records
from gsure.evaluation.reference import Reference, features_of, features_of_reference, pixels_of
from gsure.files import Request, record_request
from gsure.metrics.distributions import SignalSet, compare
from gsure.metrics.features import Features, open_features
from gsure.random import Stream, generators, keyed_generator
from gsure.training.settings import Config

MIN_SAMPLES_PER_FEATURE = 10
"""With fewer, the estimated covariances are mostly noise."""
MIN_SIGNALS_OF_PCA, MAX_ENTRIES_OF_PCA = 1000, 10**8
"""Principal components are fitted to signals with at most 10⁸ entries in total, but to at least 1000 signals."""


def evaluate_samples(
    samples: str | Path | Signals,
    *,
    reference: str | Path | Signals | None = None,
    measurements: str | Path | Measurements | None = None,
    features: str = "pca-32",
    n: int | None = None,
    n_reference: int | None = None,
    held_out: bool | None = None,
    full_reference: bool = False,
    seed: int = 0,
    out: str | Path | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Compare samples of a model (the folder of `gsure sample`, or what it returned) with a reference, clean signals.

    With `measurements` instead, you need no clean signals: the samples are measured with the masks and the noise of that file,
    and compared with its measurements. `gsure.metrics.features` lists the names of `features`. `n` and `n_reference` limit the
    number of samples and of reference signals. `held_out` compares only with data that the run was not trained on, which is
    the default for the run's own measurements. `full_reference` compares with the full reference, as papers do, and not with
    half of it. The result is also written to `out`, by default to the folder of the samples.
    """
    request, warnings = record_request("evaluate_samples", locals()), list[str]()
    folder = samples.path if isinstance(samples, Signals) else Path(samples)
    made: Request = {"made_of": {}, "inputs": {}}
    path = None if out is None else records.record_path(Path(out), out)
    if folder is not None:
        made = records.read_request(folder, "sample", warnings)
        beside = folder.with_suffix(".evaluation.json")
        path = records.record_path(folder / "evaluation.json" if folder.is_dir() else beside, out)
    samples = samples if isinstance(samples, Signals) else Signals(samples)
    real = _open_reference(reference, measurements, records.config_of(made["inputs"]), held_out, warnings)
    _refuse(samples, real, n, n_reference)
    real, first, second = _choose(real, n_reference, seed)
    used, matched = _count(len(samples) if n is None else n, len(first), full_reference, warnings)
    extractor = open_features(features, real.read(second[: _most(real)]) if features.startswith("pca-") else None)
    _check_numbers(min(matched, len(second)), extractor.num_features, warnings)
    drawn, everything = _signal_sets(extractor, samples, real, first, used, seed, progress)
    against = _shuffled(len(real), seed) if full_reference else second
    halves = everything[first[:matched]], everything[second]
    record = {
        "kind": "samples",
        "of": samples.location,
        "run": made["inputs"].get("run"),
        "reference": _describe(real, len(against), measurements is not None),
        "n": used,
        "features": _describe_features(extractor),
        "seed": seed,
        "floor": f"{matched:,} of one half of the reference against the {len(second):,} of the other"
        + ("" if full_reference else ", with which the samples are compared too"),
        "metrics": compare(drawn, everything[against], halves, keyed_generator(seed, Stream.SLICES)),
        "warnings": warnings,
        "request": request,
    }
    return record if path is None else records.write_record(path, record)


def _signal_sets(
    features: Features, samples: Signals, real: Reference, first: np.ndarray, n: int, seed: int, progress: bool
) -> tuple[SignalSet, SignalSet]:
    """The samples, measured like the first half of the reference, and the full reference."""

    def read(where: np.ndarray) -> Tensor:
        x = samples[where]
        noise = generators(seed, Stream.MEASURE_SAMPLES, indices=where, device=x.device)
        return real.see(x, first[where % len(first)], noise)

    drawn = SignalSet(features_of(features, read, n, "the samples", progress), pixels_of(read, n))
    return drawn, SignalSet(features_of_reference(features, real, progress), pixels_of(real.read, len(real)))


def _open_reference(
    clean: str | Path | Signals | None,
    measurements: str | Path | Measurements | None,
    config: Config | None,
    held_out: bool | None,
    warnings: list[str],
) -> Reference:
    if (clean is None) == (measurements is None):
        raise ValueError(
            "Samples are compared with clean signals or with measurements: give either --reference or --measurements."
        )
    if measurements is not None:
        real = Reference.measured(open_measurements(measurements))
    else:
        assert clean is not None
        real = Reference.clean(clean if isinstance(clean, Signals) else Signals(clean))
    own = config is not None and records.is_own(real.location, real.header, len(real), config)
    if held_out is None:
        held_out = measurements is not None and own and config is not None and config.settings.held_out > 0
    if held_out:
        if config is None or not own:
            raise ValueError(
                f"--held-out needs the run and its own data, but the run is gone, or {real.name} is other data: omit it."
            )
        return real.part(records.held_out_of(config))
    records.warn_of_training(real.name, real.location, real.header, len(real), config, warnings)
    return real


def _choose(real: Reference, n: int | None, seed: int) -> tuple[Reference, np.ndarray, np.ndarray]:
    """At most n signals of the reference, and the positions of their halves."""
    generator = keyed_generator(seed, Stream.REFERENCE_HALVES)
    if n is not None and n < len(real):
        real = real.part(np.sort(torch.randperm(len(real), generator=generator).numpy()[:n]))
    if len(real) < 2:
        raise ValueError(f"A reference of {len(real)} cannot be split into two halves for the floor: use more signals.")
    return real, *real.halves(generator)


def _shuffled(n: int, seed: int) -> np.ndarray:
    """All positions in random order, because some distances use only the first of them."""
    return torch.randperm(n, generator=keyed_generator(seed, Stream.REFERENCE_ORDER)).numpy()


def _refuse(samples: Signals, real: Reference, n: int | None, n_reference: int | None) -> None:
    if tuple(samples.shape) != real.shape or samples.header["complex"] != real.header["complex"]:
        kinds = ["complex" if header["complex"] else "real" for header in (samples.header, real.header)]
        raise ValueError(
            f"The samples are {kinds[0]} signals of shape {tuple(samples.shape)}, but {real.name} has {kinds[1]} signals of "
            f"shape {real.shape}: give a reference of the same kind."
        )
    if min(1 if n is None else n, 1 if n_reference is None else n_reference) < 1:
        raise ValueError(f"--n and --n-reference must be at least 1, but are {n} and {n_reference}.")
    if n is not None and n > len(samples):
        raise ValueError(f"--n asks for {n:,} samples, but there are {len(samples):,}: draw more, or ask for fewer.")


def _count(n: int, half: int, full_reference: bool, warnings: list[str]) -> tuple[int, int]:
    """The number of samples to use, and of real signals that replace them for the floor."""
    if n <= half or full_reference:
        return n, min(n, half)
    warnings.append(f"Only {half:,} of the {n:,} samples were used, as many as half of the reference has.")
    return half, half


def _most(real: Reference) -> int:
    return max(MIN_SIGNALS_OF_PCA, MAX_ENTRIES_OF_PCA // max(1, torch.Size(real.shape).numel()))


def _check_numbers(n: int, dimension: int, warnings: list[str]) -> None:
    enough = MIN_SAMPLES_PER_FEATURE * dimension
    if n <= dimension:
        raise ValueError(
            f"{n:,} samples, or real signals in half of the reference, are too few for {dimension:,} features: their "
            f"covariance would be singular. Use more (better {enough:,}), or fewer features, such as "
            f"pca-{max(1, n // MIN_SAMPLES_PER_FEATURE)}."
        )
    if n < enough:
        warnings.append(
            f"{n:,} of each kind are few for {dimension:,} features (use at least {enough:,}): their covariances are "
            "uncertain, and the Fréchet distance is biased upwards. Compare it with its floor, and only at equal numbers."
        )


def _describe(real: Reference, n: int, measured: bool) -> dict[str, Any]:
    holds = "measurements" if measured else "signals"
    return {"path": real.location, "holds": holds, "n": n, "of": len(real), "fingerprint": real.fingerprint}


def _describe_features(features: Features) -> dict[str, Any]:
    own = {"name": features.name, "dimension": features.num_features, "fingerprint": features.fingerprint}
    return own | {key: value for key, value in features.about.items() if key not in own}
