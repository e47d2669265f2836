"""Missing patches (the paper's CelebA experiment), pixels or channels, or noise alone: masks in signal space, V = I."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.basis import Identity
from gsure.corruption.base import DOUBLE, Corruption, Coverage, check_image
from gsure.random import Generators, uniform


@dataclass(frozen=True)
class Missing(Corruption):
    """Drops each part of an image with probability p, independently of the others. A sample may lose all parts."""

    p: float
    basis = Identity()
    has_closed_form = True
    is_binary = True

    def __post_init__(self) -> None:
        if not 0 <= self.p < 1:
            raise ValueError(f"p, the probability of dropping a part, must lie in [0, 1), but is {self.p}.")

    def check_shape(self, shape: Sequence[int]) -> None:
        check_image(self, shape)

    @abstractmethod
    def parts(self, shape: Sequence[int]) -> tuple[int, int, int]:
        """How many parts the channels, rows and columns of an image are divided into."""

    def svals(self, n: int, shape: Sequence[int], generator: Generators) -> Float[Tensor, "n _ _ _"]:
        return (uniform((n, *self.parts(shape)), generator, like=DOUBLE) >= self.p).double()

    def coverage(self, shape: Sequence[int]) -> Coverage:
        self.check_shape(shape)
        return Coverage(torch.full((1, 1, 1, 1), 1 - self.p, dtype=torch.float64))


@dataclass(frozen=True)
class Patches(Missing):
    """Drops each size x size patch with probability p, all channels together.

    >>> x = torch.zeros(2, 1, 32, 32)
    >>> Patches(p=0.4, size=4).apply(x, sigma_0=0.02, generator=torch.Generator().manual_seed(0))
    Measurement(2 of shape (1, 32, 32), 61 % kept, std up to 0.02)
    """

    size: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size < 1:
            raise ValueError(f"size, the side of a patch in pixels, must be at least 1, but is {self.size}.")

    @property
    def unit(self) -> tuple[int, ...]:
        return (self.size, self.size)

    def check_shape(self, shape: Sequence[int]) -> None:
        super().check_shape(shape)
        if shape[-2] % self.size or shape[-1] % self.size:
            raise ValueError(
                f"Patches of {self.size}x{self.size} do not tile images of {shape[-2]}x{shape[-1]}: choose a size that "
                "divides both sides, or crop."
            )

    def parts(self, shape: Sequence[int]) -> tuple[int, int, int]:
        return 1, shape[-2] // self.size, shape[-1] // self.size

    def svals(self, n: int, shape: Sequence[int], generator: Generators) -> Float[Tensor, "n 1 h w"]:
        return super().svals(n, shape, generator).repeat_interleave(self.size, 2).repeat_interleave(self.size, 3)


@dataclass(frozen=True)
class Pixels(Missing):
    """Drops each pixel with probability p, all channels together."""

    def parts(self, shape: Sequence[int]) -> tuple[int, int, int]:
        return 1, shape[-2], shape[-1]


@dataclass(frozen=True)
class Channels(Missing):
    """Drops each channel (colour, spectral band, sensor) with probability p."""

    def parts(self, shape: Sequence[int]) -> tuple[int, int, int]:
        return shape[0], 1, 1


@dataclass(frozen=True)
class Noise(Corruption):
    """Drops nothing: H = I, y = x + z. This is the only family for signals of any shape."""

    basis = Identity()
    has_closed_form = True
    is_binary = True

    def svals(self, n: int, shape: Sequence[int], generator: Generators) -> Float[Tensor, "n *ones"]:
        return torch.ones(n, *[1] * len(shape), dtype=torch.float64)

    def coverage(self, shape: Sequence[int]) -> Coverage:
        return Coverage(torch.ones(1, *[1] * len(shape), dtype=torch.float64))
