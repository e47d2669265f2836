"""Nothing but noise: H = I, y = x + z."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.basis import Identity
from gsure.corruption.base import Corruption, Coverage
from gsure.random import Generators


@dataclass(frozen=True)
class Noise(Corruption):
    """Drops nothing. The one family for signals of any shape."""

    basis = Identity()
    has_closed_form = True
    is_binary = True

    def svals(self, n: int, shape: Sequence[int], generator: Generators) -> Float[Tensor, "n *ones"]:
        return torch.ones(n, *[1] * len(shape), dtype=torch.float64)

    def coverage(self, shape: Sequence[int]) -> Coverage:
        return Coverage(torch.ones(1, *[1] * len(shape), dtype=torch.float64))
