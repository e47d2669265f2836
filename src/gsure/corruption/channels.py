"""Missing channels: colours, spectral bands, sensors."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.basis import Identity
from gsure.corruption.base import DOUBLE, Corruption, Coverage, check_image, check_probability
from gsure.random import Generators, uniform


@dataclass(frozen=True)
class Channels(Corruption):
    """Drops each channel with probability p, independently of the others: a sample may lose all of them."""

    p: float
    basis = Identity()
    has_closed_form = True
    is_binary = True

    def __post_init__(self) -> None:
        check_probability(self.p)

    def check_shape(self, shape: Sequence[int]) -> None:
        check_image(self, shape)

    def svals(self, n: int, shape: Sequence[int], generator: Generators) -> Float[Tensor, "n c 1 1"]:
        return (uniform((n, shape[0], 1, 1), generator, like=DOUBLE) >= self.p).double()

    def coverage(self, shape: Sequence[int]) -> Coverage:
        self.check_shape(shape)
        return Coverage(torch.full((1, 1, 1, 1), 1 - self.p, dtype=torch.float64))
