"""A Gaussian prior of signals, x̄ ~ N(μ, C): its posterior given a measurement is known in closed form."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from gsure.measurement import Measurement
from gsure.random import Seed

EstimateAndPhase = tuple[Float[Tensor, "k *n"], Shaped[Tensor, "k p h w"] | None]
"""E[x̄ | ...], and the phase reference of each image, of modulus 1, if the Gaussian uses one."""


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

    def mean_and_phase(
        self, measurement: Measurement
    ) -> tuple[Float[Tensor, "b *n"], Shaped[Tensor, "b p h w"] | None]:
        """E[x̄ | ȳ], and the phase reference of each image, of modulus 1, if this Gaussian uses one."""
        return self.mean(measurement), None

    def given(self, measurement: Measurement) -> "Given":
        """Prepared to see the missing entries of these measurements too, at several noise levels in turn.

        Neighbours are not used: where all entries are seen, they would add little.
        """
        return SolvedAnew(self.single, measurement)

    @abstractmethod
    def denoise(self, ybar: Float[Tensor, "b *n"], sigma: Float[Tensor, " b"]) -> Float[Tensor, "b *n"]:
        """E[x̄ | x̄ + sigma · noise = ȳ], where nothing is missing: quicker than `mean`."""

    def denoise_and_phase(
        self, ybar: Float[Tensor, "b *n"], sigma: Float[Tensor, " b"]
    ) -> tuple[Float[Tensor, "b *n"], Shaped[Tensor, "b p h w"] | None]:
        return self.denoise(ybar, sigma), None

    @property
    @abstractmethod
    def variances(self) -> Float[Tensor, " k"]:
        """Eigenvalues of C, or some of them, as variances of real numbers."""

    def expected_error(self, sigma: Float[Tensor, " t"]) -> Float[Tensor, " t"]:
        """E(E[x̄_i | x̄ + sigma · noise] - x̄_i)², averaged over entries: what the Wiener filter leaves."""
        values, noise = self.variances.double(), sigma.double()[:, None] ** 2
        return (values * noise / (values + noise).clamp(min=1e-30)).mean(1)

    @property
    def single(self) -> "Gaussian":
        """The same without neighbours, if it uses any: less exact, and quick where much was measured."""
        return self

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


class Given(ABC):
    """What `Gaussian.given` makes of b measurements."""

    @abstractmethod
    def mean_and_phase(self, missing: Float[Tensor, "k *n"], level: float) -> EstimateAndPhase:
        """E[x̄ | ȳ, missing entries with noise of std `level`], and the phase reference.

        `missing` has a value for each entry; those of measured entries are not used. Sample j belongs to measurement j mod b.
        """


@dataclass(frozen=True, eq=False)
class SolvedAnew(Given):
    """For any Gaussian: each level is a measurement of its own, in which nothing is missing."""

    gaussian: Gaussian
    measurement: Measurement

    def mean_and_phase(self, missing: Float[Tensor, "k *n"], level: float) -> EstimateAndPhase:
        return self.gaussian.mean_and_phase(filled(self.measurement, missing, level))


def filled(measurement: Measurement, missing: Float[Tensor, "k *n"], level: float) -> Measurement:
    """The measurements, repeated, with these values at this noise where entries are missing."""
    times = len(missing) // len(measurement)
    ybar, mask = measurement.ybar.repeat(times, *[1] * (missing.ndim - 1)), _repeated(measurement.mask, times)
    std = torch.where(mask == 1, _repeated(measurement.std, times), missing.new_full((), level))
    return Measurement._trusted(torch.where(mask == 1, ybar, missing), missing.new_ones([1] * missing.ndim), std)


def _repeated(part: Tensor, times: int) -> Tensor:
    return part if len(part) == 1 else part.repeat(times, *[1] * (part.ndim - 1))
