"""The paper's MRI mask: the central 120/R of 320 columns of k-space and 200/R others at random."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.corruption.base import DOUBLE, lowest
from gsure.corruption.columns import Columns
from gsure.random import Generators, uniform


@dataclass(frozen=True)
class Lines(Columns):
    """Keeps the central columns and others drawn uniformly without replacement; other widths in the paper's proportions.

    >>> coverage = Lines(R=4).coverage((2, 320, 320)).value
    >>> round(float(1 / coverage[0, 0, 0, 0]), 3), float(coverage[0, 0, 0, 160])
    (5.8, 1.0)
    """

    def counts(self, width: int) -> tuple[int, int]:
        """How many central and how many other columns are kept: 120/320 and 200/320 of W/R, each rounded."""
        return round(120 / 320 * width / self.R), round(200 / 320 * width / self.R)

    def svals(self, n: int, shape: Sequence[int], generator: Generators) -> Float[Tensor, "n 1 1 w"]:
        width = shape[-1]
        scores = uniform((n, width), generator, like=DOUBLE).masked_fill(self.centre(width), -1.0)
        return lowest(scores, sum(self.counts(width))).reshape(n, 1, 1, width)

    def probability(self, width: int) -> Float[Tensor, " w"]:
        """1 in the centre and others / (W - centre) elsewhere: 1/5.8 for R = 4 at W = 320."""
        centre, others = self.counts(width)
        return torch.full((width,), others / max(width - centre, 1), dtype=torch.float64).masked_fill(
            self.centre(width), 1.0
        )
