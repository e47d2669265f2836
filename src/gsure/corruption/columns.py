"""What the three families of MRI line masks share: whole columns of the centred Fourier transform, the central ones always.

Of W columns, acceleration R keeps W/R: 3/8 of them in the centre, as the paper does (120/R of 320 central columns and 200/R
others), the rest elsewhere. Families differ in how they choose the rest.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gsure.basis import Fourier
from gsure.corruption.base import Corruption, Coverage, check_complex


@dataclass(frozen=True)
class Columns(Corruption):
    """Keeps about one of R columns."""

    R: float | int
    basis = Fourier()
    has_closed_form = True
    is_binary = True

    def __post_init__(self) -> None:
        if not 1 <= self.R < float("inf"):
            raise ValueError(f"R is the acceleration, a finite number of at least 1, but is {self.R}.")

    def counts(self, width: int) -> tuple[int, int]:
        """How many central and how many other columns are kept, round(W/R) in total."""
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
        """Which columns are always kept: those around W//2, where the centred Fourier transform has its mean."""
        count, _ = self.counts(width)
        column = torch.arange(width) - (width // 2 - count // 2)
        return (column >= 0) & (column < count)

    @abstractmethod
    def probability(self, width: int) -> Float[Tensor, " w"]:
        """The chance of each column to be kept."""

    def coverage(self, shape: Sequence[int]) -> Coverage:
        self.check_shape(shape)
        return Coverage(self.probability(shape[-1]).reshape(1, 1, 1, -1))


def systematic(
    probability: Float[Tensor, " w"], order: Int[Tensor, "n w"], offset: Float[Tensor, "n 1"]
) -> Float[Tensor, "n w"]:
    """Keeps each column with its own probability, and in total always their sum (systematic sampling; Madow, 1949).

    Lay intervals as long as the probabilities end to end, in the given order, and keep those that hold one of the points
    offset + whole number, offset uniform on [0, 1). Neighbours in this order shun each other.
    """
    passed = (probability[order].cumsum(1) + offset).floor()
    kept = passed.diff(dim=1, prepend=torch.zeros_like(offset)) > 0
    return torch.zeros_like(passed).scatter(1, order, kept.double())
