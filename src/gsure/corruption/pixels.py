"""Missing pixels: Σ_ii is 0 or 1, one for all channels of a pixel."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.basis import Identity
from gsure.corruption.base import DOUBLE, Corruption, Coverage, check_image, check_probability
from gsure.random import Generators, uniform


@dataclass(frozen=True)
class Pixels(Corruption):
    """Drops each pixel with probability p, all channels together."""

    p: float
    basis = Identity()
    has_closed_form = True
    is_binary = True

    def __post_init__(self) -> None:
        check_probability(self.p)

    def check_shape(self, shape: Sequence[int]) -> None:
        check_image(self, shape)

    def svals(self, n: int, shape: Sequence[int], generator: Generators) -> Float[Tensor, "n 1 h w"]:
        return (uniform((n, 1, *shape[-2:]), generator, like=DOUBLE) >= self.p).double()

    def coverage(self, shape: Sequence[int]) -> Coverage:
        self.check_shape(shape)
        return Coverage(torch.full((1, 1, 1, 1), 1 - self.p, dtype=torch.float64))
