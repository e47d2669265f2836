"""MRI line masks that thin out towards high frequencies: columns drawn with a Gaussian density around the centre."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.corruption.base import DOUBLE
from gsure.corruption.columns import Columns, systematic
from gsure.random import Generators, uniform

SPREAD = 0.25
"""Standard deviation of the density, as a share of the width: the outermost columns then still get e^-2 of the peak."""


@dataclass(frozen=True)
class GaussianLines(Columns):
    """Keeps the central columns and others with probability proportional to a Gaussian, round(W/R) in total.

    The least covered column, the outermost, has about a quarter of the coverage that `Lines` gives it: 1/52 for R = 8 at
    W = 320, 1/24 for R = 4.
    """

    def svals(self, n: int, shape: Sequence[int], generator: Generators) -> Float[Tensor, "n 1 1 w"]:
        width = shape[-1]
        order = uniform((n, width), generator, like=DOUBLE).argsort(dim=1, stable=True)
        offset = uniform((n, 1), generator, like=DOUBLE)
        return systematic(self.probability(width), order, offset).reshape(n, 1, 1, width)

    def probability(self, width: int) -> Float[Tensor, " w"]:
        """min(1, c g) with the Gaussian g, infinite in the centre, and the c that makes the total round(W/R)."""
        centre, others = self.counts(width)
        if centre + others == width:
            return torch.ones(width, dtype=torch.float64)
        distance = torch.arange(width, dtype=torch.float64) - width // 2
        density = torch.exp(-0.5 * (distance / (SPREAD * width)) ** 2).masked_fill(self.centre(width), torch.inf)
        # Where c g would exceed 1 the column is certain, and the others share the rest: at most W rounds.
        certain = density.isinf()
        while True:
            share = density * (centre + others - certain.sum()) / density[~certain].sum()
            more = certain | (share >= 1)
            if more.equal(certain):
                return share.masked_fill(certain, 1.0)
            certain = more
