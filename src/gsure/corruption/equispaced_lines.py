"""MRI line masks as scanners play them out: a full centre and evenly spaced lines outside, from a random offset."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.corruption.base import DOUBLE
from gsure.corruption.columns import Columns, systematic
from gsure.random import Generators, uniform


@dataclass(frozen=True)
class EquispacedLines(Columns):
    """Keeps the central columns and every k-th of the others, k = (W - centre)/others, from a random offset.

    The total is round(W/R) in every draw, because k need not be whole: gaps are k rounded down or up (5 and 6 for R = 4 at
    W = 320, where k = 5.8). The count goes on from one side of the centre to the other as if the centre were cut out.
    """

    def svals(self, n: int, shape: Sequence[int], generator: Generators) -> Float[Tensor, "n 1 1 w"]:
        width = shape[-1]
        offset = uniform((n, 1), generator, like=DOUBLE)
        return systematic(self.probability(width), torch.arange(width).expand(n, width), offset).reshape(n, 1, 1, width)

    def probability(self, width: int) -> Float[Tensor, " w"]:
        """1 in the centre and 1/k elsewhere."""
        centre, others = self.counts(width)
        return torch.full((width,), others / max(width - centre, 1), dtype=torch.float64).masked_fill(
            self.centre(width), 1.0
        )
