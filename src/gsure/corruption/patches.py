"""Missing patches, the paper's CelebA experiment: Σ_ii is 0 or 1, and one for a whole patch."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.basis import Identity
from gsure.corruption.base import DOUBLE, Corruption, Coverage, check_image, check_probability
from gsure.random import Generators, uniform


@dataclass(frozen=True)
class Patches(Corruption):
    """Drops each size x size patch with probability p, all channels together.

    >>> x = torch.zeros(2, 1, 32, 32)
    >>> Patches(p=0.4, size=4).apply(x, sigma_0=0.02, generator=torch.Generator().manual_seed(0))
    Measurement(2 of shape (1, 32, 32), 61 % kept, std up to 0.02)
    """

    p: float
    size: int = 4
    basis = Identity()
    has_closed_form = True
    is_binary = True

    def __post_init__(self) -> None:
        check_probability(self.p)
        if self.size < 1:
            raise ValueError(f"A patch has at least one pixel a side, but size is {self.size}.")

    @property
    def unit(self) -> tuple[int, ...]:
        return (self.size, self.size)

    def check_shape(self, shape: Sequence[int]) -> None:
        check_image(self, shape)
        if shape[-2] % self.size or shape[-1] % self.size:
            raise ValueError(
                f"Patches of {self.size}x{self.size} do not tile images of {shape[-2]}x{shape[-1]}: choose a size that "
                "divides both sides, or crop."
            )

    def svals(self, n: int, shape: Sequence[int], generator: Generators) -> Float[Tensor, "n 1 h w"]:
        u = uniform((n, 1, shape[-2] // self.size, shape[-1] // self.size), generator, like=DOUBLE)
        return (u >= self.p).double().repeat_interleave(self.size, 2).repeat_interleave(self.size, 3)

    def coverage(self, shape: Sequence[int]) -> Coverage:
        self.check_shape(shape)
        return Coverage(torch.full((1, 1, 1, 1), 1 - self.p, dtype=torch.float64))
