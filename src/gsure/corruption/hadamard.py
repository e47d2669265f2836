"""A single-pixel camera: it displays Hadamard patterns, only some of them, and records one number for each."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.basis import Hadamard
from gsure.corruption.base import DOUBLE, Corruption, Coverage, check_image, lowest
from gsure.random import Generators, uniform


@dataclass(frozen=True)
class HadamardPatterns(Corruption):
    """Measures round(keep H W) of the H W patterns: always the mean, and others drawn uniformly without replacement."""

    keep: float
    basis = Hadamard()
    has_closed_form = True
    is_binary = True

    def __post_init__(self) -> None:
        if not 0 < self.keep <= 1:
            raise ValueError(f"keep, the share of patterns to measure, must lie in (0, 1], but is {self.keep}.")

    def check_shape(self, shape: Sequence[int]) -> None:
        check_image(self, shape)
        height, width = shape[-2:]
        if height & (height - 1) or width & (width - 1):
            raise ValueError(
                f"Hadamard patterns have sides that are powers of two, but the images are {height}x{width}: crop or pad."
            )
        if round(self.keep * height * width) < 2 <= height * width:
            raise ValueError(
                f"keep = {self.keep:g} measures at most the mean, and never the other {height * width - 1} patterns: set keep "
                f"to at least {2 / (height * width):.2g}."
            )

    def svals(self, n: int, shape: Sequence[int], generator: Generators) -> Float[Tensor, "n 1 h w"]:
        patterns = shape[-2] * shape[-1]
        u = uniform((n, patterns), generator, like=DOUBLE)
        scores = u.masked_fill(torch.arange(patterns) == 0, -1.0)
        return lowest(scores, round(self.keep * patterns)).reshape(n, 1, *shape[-2:])

    def coverage(self, shape: Sequence[int]) -> Coverage:
        self.check_shape(shape)
        patterns = shape[-2] * shape[-1]
        value = torch.full((patterns,), (round(self.keep * patterns) - 1) / max(patterns - 1, 1), dtype=torch.float64)
        return Coverage(value.masked_fill(torch.arange(patterns) == 0, 1.0).reshape(1, 1, *shape[-2:]))
