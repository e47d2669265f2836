"""The quality of samples: all distances between samples and real signals, with their floor.

The floor is the distance between two sets of real signals. If the sets have the same sizes, a perfect model reaches the floor
on average, even with few samples and a biased distance.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gsure.metrics.distributions import (
    correlation_error,
    correlation_strength,
    frechet,
    jackknife,
    kid,
    precision_and_recall,
    sliced_wasserstein,
)

MAX_FEATURES_OF_JACKKNIFE = 512
"""With more features, the Fréchet distance is too slow to repeat it for a standard error."""


@dataclass(frozen=True, eq=False)
class SignalSet:
    """A set of signals, by their features and their pixels."""

    features: Float[Tensor, "n d"]
    pixels: Float[Tensor, "n p"]

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, positions: np.ndarray) -> "SignalSet":
        return SignalSet(self.features[positions], self.pixels[positions])


def compare(
    samples: SignalSet, reference: SignalSet, floor: tuple[SignalSet, SignalSet], generator: torch.Generator
) -> dict[str, dict[str, Any]]:
    """All distances between samples and a reference. `floor` has two disjoint sets of real signals.

    All sliced Wasserstein distances use the same directions, because the state of the generator does not advance.
    """

    def sliced(x: Tensor, y: Tensor) -> float:
        return sliced_wasserstein(x, y, generator.clone_state())

    table: dict[str, dict[str, Any]] = {}
    for name, of, distance in (
        ("frechet", "features", frechet),
        ("kid", "features", kid),
        ("sliced_wasserstein", "pixels", sliced),
        ("correlation", "pixels", correlation_error),
    ):
        x, y, *real = (getattr(one, of) for one in (samples, reference, *floor))
        is_slow = name == "frechet" and x.shape[1] > MAX_FEATURES_OF_JACKKNIFE
        se = None if is_slow else jackknife(distance, x, y)
        table[name] = {"value": distance(x, y), "floor": distance(*real), "se": se, "better": "lower"}
    table["correlation"]["strength"] = correlation_strength(samples.pixels, reference.pixels)
    table["correlation"]["strength_of_floor"] = correlation_strength(floor[0].pixels, floor[1].pixels)
    values = precision_and_recall(samples.features, reference.features)
    floors = precision_and_recall(floor[0].features, floor[1].features)
    n = min(len(samples), len(reference))
    for name, value, real_value in zip(("precision", "recall"), values, floors, strict=True):
        se = (value * (1 - value) / n) ** 0.5
        table[name] = {"value": value, "floor": real_value, "se": se, "better": "higher"}
    return table
