"""MRI line masks: they keep complete columns of the centred Fourier transform, and always the central ones.

Of W columns, acceleration R keeps W/R. As in the paper, 3/8 of them are in the centre (at W = 320, 120/R central columns and
200/R others). The families differ in how they choose the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gsure.basis import Fourier
from gsure.corruption.base import DOUBLE, Corruption, Coverage, check_acceleration, check_complex, lowest
from gsure.random import Generators, uniform

SPREAD = 0.25
"""Standard deviation of the Gaussian density, as a share of the width. The outermost columns have e^-2 of the peak."""


@dataclass(frozen=True)
class Columns(Corruption):
    """Keeps about one in R columns."""

    R: float | int
    basis = Fourier()
    has_closed_form = True
    is_binary = True

    def __post_init__(self) -> None:
        check_acceleration(self.R)

    def counts(self, width: int) -> tuple[int, int]:
        """The number of central columns and of other columns to keep, round(W/R) in total."""
        centre = round(120 / 320 * width / self.R)
        return centre, round(width / self.R) - centre

    def check_shape(self, shape: Sequence[int]) -> None:
        check_complex(self, shape)
        centre, others = self.counts(shape[-1])
        if others < 1 and centre < shape[-1]:
            raise ValueError(
                f"R = {self.R:g} keeps {centre} central and {others} other columns of {shape[-1]}, so most would never be "
                "measured: use a smaller R or wider images."
            )

    def centre(self, width: int) -> Bool[Tensor, " w"]:
        """The columns that are always kept: those around W//2, where the centred Fourier transform has the mean."""
        count, _ = self.counts(width)
        column = torch.arange(width) - (width // 2 - count // 2)
        return (column >= 0) & (column < count)

    def probability(self, width: int) -> Float[Tensor, " w"]:
        """The probability to keep each column: 1 in the centre and others / (W - centre) elsewhere, unless overridden."""
        centre, others = self.counts(width)
        elsewhere = torch.full((width,), others / max(width - centre, 1), dtype=torch.float64)
        return elsewhere.masked_fill(self.centre(width), 1.0)

    def coverage(self, shape: Sequence[int]) -> Coverage:
        self.check_shape(shape)
        return Coverage(self.probability(shape[-1]).reshape(1, 1, 1, -1))


@dataclass(frozen=True)
class Lines(Columns):
    """The paper's mask: the central columns, and others drawn uniformly without replacement.

    Widths other than 320 have the same proportions. R = 4 keeps a column outside the centre with probability 1/5.8:

    >>> coverage = Lines(R=4).coverage((2, 320, 320)).value
    >>> round(float(1 / coverage[0, 0, 0, 0]), 3), float(coverage[0, 0, 0, 160])
    (5.8, 1.0)
    """

    def counts(self, width: int) -> tuple[int, int]:
        """The number of central columns and of other columns to keep: 120/320 and 200/320 of W/R, each rounded."""
        return round(120 / 320 * width / self.R), round(200 / 320 * width / self.R)

    def svals(self, n: int, shape: Sequence[int], generator: Generators) -> Float[Tensor, "n 1 1 w"]:
        width = shape[-1]
        scores = uniform((n, width), generator, like=DOUBLE).masked_fill(self.centre(width), -1.0)
        return lowest(scores, sum(self.counts(width))).reshape(n, 1, 1, width)


@dataclass(frozen=True)
class GaussianLines(Columns):
    """Keeps the central columns and others with probability proportional to a Gaussian, round(W/R) in total.

    The outermost column has the lowest coverage, about a quarter of that in `Lines`: 1/52 for R = 8 at W = 320, 1/24 for
    R = 4.
    """

    def svals(self, n: int, shape: Sequence[int], generator: Generators) -> Float[Tensor, "n 1 1 w"]:
        width = shape[-1]
        order = uniform((n, width), generator, like=DOUBLE).argsort(dim=1, stable=True)
        offset = uniform((n, 1), generator, like=DOUBLE)
        return systematic(self.probability(width), order, offset).reshape(n, 1, 1, width)

    def probability(self, width: int) -> Float[Tensor, " w"]:
        """min(1, c g), where g is Gaussian outside the centre and infinite in it, and c makes the total round(W/R)."""
        centre, others = self.counts(width)
        if centre + others == width:
            return torch.ones(width, dtype=torch.float64)
        distance = torch.arange(width, dtype=torch.float64) - width // 2
        density = torch.exp(-0.5 * (distance / (SPREAD * width)) ** 2).masked_fill(self.centre(width), torch.inf)
        # Columns for which c g would exceed 1 are certain, and the others share the rest. This takes at most W rounds.
        certain = density.isinf()
        while True:
            share = density * (centre + others - certain.sum()) / density[~certain].sum()
            more = certain | (share >= 1)
            if more.equal(certain):
                return share.masked_fill(certain, 1.0)
            certain = more


@dataclass(frozen=True)
class EquispacedLines(Columns):
    """Keeps the central columns and every k-th of the others, k = (W - centre)/others, from a random offset, as scanners do.

    If k is not an integer, gaps are k rounded down or up (5 and 6 for R = 4 at W = 320, where k = 5.8), so that every draw
    keeps round(W/R) columns. The columns left and right of the centre are counted as if they were adjacent.
    """

    def svals(self, n: int, shape: Sequence[int], generator: Generators) -> Float[Tensor, "n 1 1 w"]:
        width = shape[-1]
        offset = uniform((n, 1), generator, like=DOUBLE)
        return systematic(self.probability(width), torch.arange(width).expand(n, width), offset).reshape(n, 1, 1, width)


def systematic(
    probability: Float[Tensor, " w"], order: Int[Tensor, "n w"], offset: Float[Tensor, "n 1"]
) -> Float[Tensor, "n w"]:
    """Keep each column with its own probability, and always as many as the sum of the probabilities.

    This is systematic sampling (Madow, 1949). Lay intervals as long as the probabilities end to end, in the given order. Keep
    those that contain one of the points offset + integer, with an offset uniform on [0, 1). Neighbours in this order are
    seldom kept together.
    """
    passed = (probability[order].cumsum(1) + offset).floor()
    kept = passed.diff(dim=1, prepend=torch.zeros_like(offset)) > 0
    return torch.zeros_like(passed).scatter(1, order, kept.double())
