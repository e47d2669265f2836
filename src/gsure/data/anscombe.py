"""Counts: the generalised Anscombe transform and its exact unbiased inverse.

A camera or detector records z = gain · Poisson(λ) + N(0, read_noise²), so the noise depends on the signal. With
s = read_noise/gain,

    f(z) = 2 √max(z/gain + 3/8 + s², 0)

has noise of standard deviation close to 1 for any λ (from about 2 counts on within a few per cent). Training and restoration
see f(z)/scale. A restoration D estimates E[f(z) | λ], and f⁻¹(D) would be biased. The exact unbiased inverse maps
E[f(z) | λ] to gain · λ (Mäkitalo and Foi 2013, doi:10.1109/TIP.2012.2202675). It is tabulated here by summing over the Poisson
distribution; above `LARGEST` counts, its expansion D²/4 - 1/8 - s² is exact to 1e-6. Below E[f(z) | 0] it is 0.
"""

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

LARGEST = 200.0
"""Counts up to which the inverse is a table."""
OUTLIER = 6.0
"""Multiples of the read noise below zero that counts may have."""


@dataclass(frozen=True)
class Anscombe:
    gain: float
    """What one count adds to the data."""
    read_noise: float
    """Standard deviation of the Gaussian noise, in the units of the data."""

    def __post_init__(self) -> None:
        if not 0 < self.gain < float("inf") or not 0 <= self.read_noise < float("inf"):
            raise ValueError(
                f"The gain must be above 0 and the read noise at least 0, but they are {self.gain} and {self.read_noise}."
            )

    @property
    def s(self) -> float:
        return self.read_noise / self.gain

    def refuse_negative(self, z: np.ndarray, what: str) -> None:
        if (lowest := float(z.min(initial=0.0))) < -OUTLIER * self.read_noise:
            noise = f"read noise of {self.read_noise:g}" if self.read_noise else "no read noise"
            raise ValueError(
                f"{what} has values down to {lowest:g}, which counts with {noise} cannot have: subtract the black level of "
                "the camera, correct --read-noise, or give --sigma for data that are not counts."
            )

    def forward(self, z: np.ndarray) -> np.ndarray:
        return 2 * np.sqrt(np.maximum(z / self.gain + 3 / 8 + self.s**2, 0))

    def inverse(self, D: Tensor) -> Tensor:
        """From an estimate of E[f(z)] to gain · λ."""
        expected, counts = _table(self.s)
        D64 = D.double()
        within = torch.as_tensor(np.interp(D64.numpy(), expected, counts))
        return (self.gain * torch.where(expected[-1] < D64, D64**2 / 4 - 1 / 8 - self.s**2, within)).to(D)

    def slope(self, D: Tensor) -> Tensor:
        """Derivative of the inverse, by which a standard deviation is multiplied (delta method)."""
        expected, counts = _table(self.s)
        D64 = D.double()
        at = np.clip(np.searchsorted(expected, D64.numpy()), 1, len(expected) - 1)
        steps = np.diff(counts) / np.diff(expected)
        within = torch.as_tensor(steps[at - 1])
        return (self.gain * torch.where(expected[-1] < D64, D64 / 2, within)).to(D)

    def record(self) -> dict[str, Any]:
        return {"name": "anscombe", **asdict(self)}


def transform_of(header: Mapping[str, Any]) -> Anscombe | None:
    """The transform that a file records; None if its values were not transformed."""
    found = header.get("transform")
    if found is None:
        return None
    try:
        if found["name"] == "anscombe":
            return Anscombe(float(found["gain"]), float(found["read_noise"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"The transform {found} in the header of a file is damaged: regenerate it.") from error
    raise ValueError(f"The transform {found['name']!r} is not known to this version of gsure: update it.")


@functools.lru_cache(maxsize=16)
def _table(s: float) -> tuple[np.ndarray, np.ndarray]:
    """E[f(z) | λ] for λ from 0 to `LARGEST`, and λ, in units of counts."""
    counts = np.r_[0, np.geomspace(1e-4, 1, 400), np.linspace(1, LARGEST**0.5, 1600)[1:] ** 2]
    k = np.arange(int(LARGEST + 12 * LARGEST**0.5) + 1)
    log_factorial = np.r_[0, np.cumsum(np.log(k[1:]))]
    with np.errstate(divide="ignore", invalid="ignore"):
        log_pmf = np.where(k == 0, 0, k * np.log(counts)[:, None]) - counts[:, None] - log_factorial
    return np.exp(log_pmf) @ _given_count(k, s), counts


def _given_count(k: np.ndarray, s: float) -> np.ndarray:
    """E[f(k + s n)] for standard normal n: the trapezoidal rule, fine enough for the kink at 0."""
    if s == 0:
        return 2 * np.sqrt(k + 3 / 8)
    n = np.linspace(-9, 9, 4001)
    weight = np.exp(-(n**2) / 2)
    values = 2 * np.sqrt(np.maximum(k[:, None] + s * n + 3 / 8 + s**2, 0))
    return values @ (weight / weight.sum())
