"""Distances between distributions, estimated from samples.

All except KID are positive on finite samples even if the distributions are equal. Compare them with the floor: the distance
between two sets of real signals. If the sets have the same sizes, a perfect model reaches the floor on average, even with few
samples and a biased distance.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

BLOCKS = 10
"""Number of blocks of the jackknife."""
MAX_FEATURES_OF_JACKKNIFE = 512
"""With more features, the Fréchet distance is too slow to repeat it for a standard error."""


class _Given(nn.Identity):
    """Passes precomputed features through, because torchmetrics expects a network."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features


def frechet(x: Float[Tensor, "m d"], reference: Float[Tensor, "n d"]) -> float:
    """Fréchet distance between Gaussians fitted to two sets of features: |μ-ν|² + tr(C + D - 2 (C D)^½).

    >>> features = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    >>> round(frechet(features + torch.tensor([3.0, 0.0, 4.0]), features), 3)
    25.0
    """
    from torchmetrics.image.fid import FrechetInceptionDistance  # takes seconds to import

    distance = FrechetInceptionDistance(_Given(x.shape[1]), normalize=True)
    distance.update(reference.double(), real=True)
    distance.update(x.double(), real=False)
    return float(distance.compute())


def kid(x: Float[Tensor, "m d"], reference: Float[Tensor, "n d"], largest: int = 1000) -> float:
    """Kernel distance (Bińkowski et al., 2018): squared MMD with the kernel (f·g/d + 1)³.

    Averages over disjoint blocks of at most `largest` samples. It is unbiased: for equal distributions it is zero on average,
    so it may be negative.
    """
    from torchmetrics.image.kid import poly_mmd

    n = min(len(x), len(reference))
    if n < 2:
        raise ValueError(f"KID needs at least two samples of each kind, but was given {n}: use more.")
    size = n // -(-n // largest)
    pairs = zip(x[:n].double().split(size), reference[:n].double().split(size), strict=True)
    return float(torch.stack([poly_mmd(real, drawn) for drawn, real in pairs if len(real) == size]).mean())


def sliced_wasserstein(
    x: Float[Tensor, "m *n"], reference: Float[Tensor, "k *n"], generator: torch.Generator, slices: int = 256
) -> float:
    """Root mean square, over random directions, of the Wasserstein-2 distance of the two sets along them."""
    n = min(len(x), len(reference))
    x, reference = x[:n].flatten(1), reference[:n].flatten(1)
    directions = torch.randn(x.shape[1], slices, generator=generator, dtype=x.dtype)
    directions = directions / torch.linalg.vector_norm(directions, dim=0)
    gaps = (x @ directions).sort(0).values - (reference @ directions).sort(0).values
    return float(gaps.double().square().mean().sqrt())


def correlation_error(x: Float[Tensor, "m *n"], reference: Float[Tensor, "k *n"]) -> float:
    """Root mean square error of the correlations between entries. Entries that are constant in the reference are omitted.

    A mask-blind network makes correlations too weak. `correlation_strength` gives the direction of the error.

    >>> g = torch.Generator().manual_seed(0)
    >>> y = torch.randn(20_000, 1, generator=g)
    >>> two, alone = torch.cat([y, y], 1), torch.randn(20_000, 2, generator=g)
    >>> round(correlation_error(alone, two), 1), round(correlation_error(two, two), 1)
    (1.0, 0.0)
    """
    mine, real = _off_diagonal(x, reference)
    return float((mine - real).square().mean().sqrt())


def correlation_strength(x: Float[Tensor, "m *n"], reference: Float[Tensor, "k *n"]) -> float:
    """Least-squares ratio of the correlations to those of the reference: below 1 they are too weak."""
    mine, real = _off_diagonal(x, reference)
    return float((mine * real).sum() / real.square().sum())


def _off_diagonal(x: Tensor, reference: Tensor) -> tuple[Tensor, Tensor]:
    x, reference = x.flatten(1).double(), reference.flatten(1).double()
    varies = reference.std(0) > 1e-6 * reference.std()
    if int(varies.sum()) < 2:
        raise ValueError(
            f"Correlations need at least two entries that vary in the reference, but it has {int(varies.sum())}: use another."
        )
    pairs = torch.triu_indices(int(varies.sum()), int(varies.sum()), offset=1)
    mine, real = (_correlations(values[:, varies])[pairs[0], pairs[1]] for values in (x, reference))
    return mine, real


def _correlations(x: Tensor) -> Tensor:
    """The correlation with a constant is 0."""
    centred = x - x.mean(0)
    norms = torch.linalg.vector_norm(centred, dim=0)
    scaled = centred / torch.where(norms > 0, norms, 1.0)
    return scaled.mT @ scaled


def precision_and_recall(
    x: Float[Tensor, "m d"], reference: Float[Tensor, "n d"], neighbours: int = 3
) -> tuple[float, float]:
    """Share of x inside the support of the reference, and vice versa (Kynkäänniemi et al., 2019).

    The support of a set is the union of balls around its points that reach to their k-th nearest neighbours.
    """
    n = min(len(x), len(reference))
    if n <= neighbours:
        raise ValueError(f"Precision and recall need more than {neighbours} samples, but were given {n}: use more.")
    x, reference = x[:n].double(), reference[:n].double()
    return _share_within(x, reference, neighbours), _share_within(reference, x, neighbours)


def _share_within(points: Tensor, balls: Tensor, neighbours: int, at_once: int = 1024) -> float:
    radii = [
        torch.cdist(part, balls).kthvalue(neighbours + 1, 1).values for part in balls.split(at_once)
    ]  # the nearest is the point itself
    radius = torch.cat(radii)
    inside = [(torch.cdist(part, balls) <= radius).any(1) for part in points.split(at_once)]
    return float(torch.cat(inside).double().mean())


def jackknife(
    distance: Callable[[Tensor, Tensor], float], x: Float[Tensor, "m *n"], reference: Float[Tensor, "k *n"]
) -> float:
    """Standard error of a distance by the jackknife, leaving out a tenth of both sets at a time."""

    def without(block: int, values: Tensor) -> Tensor:
        return values[torch.arange(len(values)) % BLOCKS != block]

    values = [distance(without(block, x), without(block, reference)) for block in range(BLOCKS)]
    return float(torch.tensor(values, dtype=torch.float64).var(correction=0).mul(BLOCKS - 1).sqrt())


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
