"""A Gaussian prior of signals, x̄ ~ N(μ, C): its posterior given a measurement is known in closed form."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.measurement import Measurement
from gsure.random import Seed


class Gaussian(ABC):
    """The first model of every run. It denoises at any noise level, per entry: the noise of a measurement is its std."""

    @abstractmethod
    def mean(self, measurement: Measurement) -> Float[Tensor, "b *n"]:
        """E[x̄ | ȳ]."""

    @abstractmethod
    def std(self, measurement: Measurement) -> Float[Tensor, "b *n"]:
        """The posterior standard deviation of each entry of the signal x."""

    @abstractmethod
    def draw(self, measurement: Measurement, generator: Seed) -> Float[Tensor, "b *n"]:
        """One draw of x̄ from p(x̄ | ȳ) for each measurement."""

    @abstractmethod
    def centred(self, measurement: Measurement) -> "Gaussian":
        """N(0, C), whose `mean` is linear in ȳ with symmetric positive gains: for linear algebra with C.

        What depends on a measurement beyond this, such as a phase reference, stays that of `measurement`, sample by sample.
        """

    @property
    def real_images(self) -> bool:
        """Whether complex images were found to have no imaginary part: then entry -k is the conjugate of entry k."""
        return False

    @property
    def relative_error(self) -> float:
        """Of `mean`, if that is iterative; 0 is up to rounding."""
        return 0.0

    @abstractmethod
    def to(self, device: torch.device | str) -> "Gaussian": ...

    @abstractmethod
    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and JSON from which it can be made again."""
