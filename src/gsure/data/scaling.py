"""The size of signals: noise schedules expect a root mean square of about 1, whatever the units of a file are."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from gsure.data.source import evenly_spread

Scale = float | Literal["auto"]
"""Values are divided by a number, or by a factor that is computed for each volume."""
RULE = "upper quartile, over the samples of the volume, of the root mean square of what was measured"
"""It hardly depends on a few empty slices or spikes."""
SUITABLE = 0.1, 1.0
"""Root mean squares of real signals that are not scaled."""
READ = 32
"""Samples of a volume that are read to compute its factor, at most."""


def rms_of_samples(rms: Sequence[float], group: str) -> float:
    """The factor of a volume, from the root mean square of each of its samples.

    >>> rms_of_samples([0.0, 3.0, 4.0, 5.0, 900.0], "knee")
    5.0
    """
    size = float(np.quantile(np.asarray(rms, float), 0.75, method="lower"))
    size = size or max(rms)
    if size == 0:
        raise ValueError(f"{group} is zero everywhere: remove it, or give a scale such as 1.")
    return size


def choose_scales(read: Callable[[int], np.ndarray], groups: Sequence[str], is_complex: bool) -> np.ndarray:
    """One factor per sample, the same for all samples of a group. `read` returns the measured values of a sample.

    Real values of suitable size, such as images between -1 and 1, stay as they are.
    """
    members: dict[str, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    scales = np.ones(len(groups))
    for group, indices in members.items():
        sizes = [_rms(read(indices[at])) for at in evenly_spread(READ, len(indices))]
        size = rms_of_samples(sizes, f"Volume {group}" if len(members) > 1 else "The data")
        scales[indices] = size if is_complex or not SUITABLE[0] <= size <= SUITABLE[1] else 1.0
    return scales


def rms_of_pairs(z: np.ndarray) -> float:
    """Of the real and imaginary parts of complex values."""
    return float(np.sqrt(np.mean(np.abs(z).astype(np.float64) ** 2) / 2))


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values.astype(np.float64) ** 2)))
