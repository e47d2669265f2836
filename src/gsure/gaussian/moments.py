"""Second moments of measurements: what a Gaussian is made of, however much of each sample is missing.

Two entries that are sometimes measured together show how they are correlated:

    C_ij = Σ ȳ_i ȳ_j* / #{i and j measured} - μ_i μ_j*,    less the mean variance of the noise where i = j.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from gsure.gaussian.blocks import Blocks
from gsure.gaussian.coordinates import Coordinates, Vectors

MAX_UNSEEN = 0.02
"""Largest share of pairs of entries that may never have been measured together."""


class Moments:
    """Sums over measurements, from which covariances of windows of up to `window` blocks can be made."""

    def __init__(self, coordinates: Coordinates, width: int, window: int = 1) -> None:
        self.coordinates, self.window = coordinates, window
        kind = torch.complex64 if coordinates.is_complex else torch.float32
        blocks = coordinates.blocks
        self.products = [torch.zeros(blocks, width, width, dtype=kind) for _ in range(window)]
        """Of each block with the block that follows `lag` blocks later."""
        self.sums = torch.zeros(blocks, width, dtype=kind)
        self.pairs, self.counts = torch.zeros(width, width), torch.zeros(width)
        self.noise = torch.zeros(width)
        self.n = 0

    def add(self, vectors: Vectors) -> None:
        values, mask, variance = vectors
        mask = mask.float()
        self.pairs += mask.mT @ mask
        self.counts += mask.sum(0)
        self.noise += (mask * variance).sum(0)
        self.sums += values.sum(0)
        columns = values.movedim(0, 2).to(self.sums.dtype)  # r, w, b
        for lag, products in enumerate(self.products):
            last = len(columns) - lag
            products[:last] += columns[:last] @ columns[lag:].mH
        self.n += len(values)

    @property
    def unseen(self) -> int:
        """Pairs of entries that were never measured together."""
        return int((self.pairs == 0).sum()) // 2

    @property
    def shows_signal(self) -> bool:
        """Whether there is more power than the noise explains."""
        power = self.products[0].diagonal(dim1=1, dim2=2).real.sum() - len(self.sums) * self.noise.sum()
        return float(power) > 0

    @property
    def is_determined(self) -> bool:
        return 2 * self.unseen <= MAX_UNSEEN * self.pairs.numel()

    def mean(self, symmetric: bool = False) -> Shaped[Tensor, "r w"]:
        sums, counts = self.sums, self.counts
        if symmetric:
            sums, counts = sums + self.coordinates.flipped(sums), counts + self._moved(counts)
        return sums / counts.clamp(min=1)

    def _moved(self, counts: Tensor) -> Tensor:
        """Of the mirrored images: in real vectors, both parts stay where they are."""
        if self.coordinates.real_images:
            return counts
        mirror = self.coordinates.mirror
        return counts[..., mirror] if counts.ndim == 1 else counts[mirror][:, mirror]

    def covariances(self, smoothing: Sequence[int] = (1,), symmetric: bool = False) -> list[Tensor]:
        """For each lag, (r, w, w), smoothed over neighbouring blocks by this kernel."""
        mean, found = self.mean(symmetric), []
        if not self.shows_signal:
            raise ValueError(
                "The second moments show no signal: the stated noise, std, is as large as all that was measured. Check std."
            )
        for lag, summed in enumerate(self.products):
            products, pairs = summed, self.pairs
            if symmetric:
                flipped = self.coordinates.flipped(products)
                products = products + self.coordinates.flipped(flipped.mT).mT
                pairs = pairs + self._moved(pairs)
            last = len(products) - lag
            covariance = products / pairs.clamp(min=1)
            covariance[:last] -= mean[:last, :, None] * mean[lag:, None, :].conj()
            covariance *= pairs > 0
            if lag == 0:
                covariance -= (self.noise / self.counts.clamp(min=1)).diag()
            found.append(_smoothed(covariance, smoothing, self.coordinates.neighbours, lag))
        return found

    def blocks(
        self,
        window: int = 1,
        smoothing: Sequence[int] = (1,),
        floor: float = 1e-3,
        symmetric: bool = False,
        chosen: Int[Tensor, " k"] | None = None,
    ) -> Blocks:
        """The Gaussian, or some of its blocks only. Eigenvalues below `floor` times their mean are raised to it."""
        neighbours, r = self.coordinates.neighbours, self.coordinates.blocks
        mean, found = self.mean(symmetric), self.covariances(smoothing, symmetric)
        rows = torch.arange(r) if chosen is None else chosen
        width = mean.shape[1]
        joint = torch.zeros(len(rows), window * width, window * width, dtype=mean.dtype)
        for a in range(window):
            for b in range(a, window):
                lag, first = b - a, rows + a - window // 2
                inside = (first >= 0) & (first + lag < r)
                inside &= first.div(neighbours, rounding_mode="floor") == rows // neighbours
                inside &= (first + lag).div(neighbours, rounding_mode="floor") == rows // neighbours
                block = found[lag][first.clamp(0, r - 1)] * inside[:, None, None]
                joint[:, a * width : (a + 1) * width, b * width : (b + 1) * width] = block
                joint[:, b * width : (b + 1) * width, a * width : (a + 1) * width] = block.mH
        return Blocks(mean, _positive(joint, floor), window, neighbours, rows)


def _smoothed(covariance: Tensor, kernel: Sequence[int], neighbours: int, lag: int) -> Tensor:
    """Weighted means over neighbouring blocks of the same image."""
    if len(kernel) == 1 or neighbours == 1:
        return covariance
    images = covariance.unflatten(0, (-1, neighbours))[:, : neighbours - lag]
    radius, n = len(kernel) // 2, neighbours - lag
    total, weights = torch.zeros_like(images), torch.zeros(n)
    for offset, weight in zip(range(-radius, radius + 1), kernel, strict=True):
        low, high = max(0, -offset), min(n, n - offset)
        total[:, low:high] += weight * images[:, low + offset : high + offset]
        weights[low:high] += weight
    result = covariance.clone().unflatten(0, (-1, neighbours))
    result[:, :n] = total / weights[:, None, None]
    return result.flatten(0, 1)


def _positive(covariance: Shaped[Tensor, "r v v"], floor: float) -> Shaped[Tensor, "r v v"]:
    """With eigenvalues of at least a share of their mean: moments of few samples can have negative ones."""
    values, vectors = torch.linalg.eigh((covariance + covariance.mH) / 2)
    lowest = floor * values.mean(1, keepdim=True).clamp(min=1e-12)
    return (vectors * torch.maximum(values, lowest)[:, None]) @ vectors.mH
