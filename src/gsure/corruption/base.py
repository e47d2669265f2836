"""A corruption family: random degradations H = U Σ Vᵀ that share V (eq:svd), and the measurement of a signal x.

Uᵀy = Σ x̄ + Uᵀz,    x̄ = Vᵀx,    Uᵀz ~ N(0, σ_0² I), because U is orthogonal: U itself is never needed.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.basis import Basis
from gsure.measurement import Measurement
from gsure.random import Generators, Seed, Stream, as_generators, keyed_generator, normal, uniform

DOUBLE = torch.empty(0, dtype=torch.float64)
"""Singular values are drawn with this dtype, whatever the dtype of the signal. `Measurement.from_svd` casts them."""


@dataclass(frozen=True, eq=False)
class Coverage:
    """E[P], at the smallest shape that broadcasts against a batch.

    `standard_error` is an upper bound on the standard error of any entry; None means that `value` is exact.
    """

    value: Float[Tensor, "1 ..."]
    standard_error: float | None = None


class Corruption(ABC):
    """A family of random degradations that share V. To add one, implement `basis` and `svals`, then run `check_corruption`."""

    has_closed_form: ClassVar[bool] = False
    """Whether `coverage` has a closed form. If not, it is estimated by Monte Carlo."""

    is_binary: ClassVar[bool] = False
    """Whether all singular values are 0 or 1, so that a measurement file need not store them."""

    @property
    @abstractmethod
    def basis(self) -> Basis:
        """V."""

    @property
    def unit(self) -> tuple[int, ...]:
        """The shape of a block of entries that are missing together, for `Objective(unit=)`; () means single entries."""
        return ()

    @property
    def cutoff(self) -> float:
        """Singular values up to this value count as zero."""
        return 0.0

    @abstractmethod
    def svals(self, n: int, shape: Sequence[int], generator: Generators) -> Float[Tensor, "n ..."]:
        """n draws of the diagonal of Σ for signals of this shape (without batch), at the smallest shape that broadcasts.

        Draw with `gsure.random`, with n as the first dimension. If there is one generator per sample, sample k then does not
        depend on the rest of its batch.
        """

    def check_shape(self, shape: Sequence[int]) -> None:
        """Raise `ValueError` if this family cannot act on signals of this shape. The default refuses empty signals."""
        if torch.Size(shape).numel() < 1:
            raise ValueError(f"A signal needs at least one entry, but shape {tuple(shape)} has none.")

    def advice(self, shape: Sequence[int]) -> str | None:
        """Which entries this family never measures and what to do about it, in a sentence; None if there are none."""
        return None

    def draws(self, shape: Sequence[int]) -> int:
        """Number of draws for the Monte Carlo `coverage`: 10,000, and fewer for large signals, down to 1,000."""
        return max(1_000, min(10_000, 2**25 // torch.Size(shape).numel()))

    def coverage(self, shape: Sequence[int]) -> Coverage:
        """E[P] by Monte Carlo, with a fixed seed. Families with a closed form override it."""
        self.check_shape(shape)
        n, at_once = self.draws(shape), max(1, 2**22 // torch.Size(shape).numel())
        generator, kept = keyed_generator(0, Stream.COVERAGE), torch.zeros(())
        for start in range(0, n, at_once):
            svals = self.svals(min(at_once, n - start), shape, generator)
            kept = kept + (svals > self.cutoff).double().sum(0, keepdim=True)
        value = kept / n
        return Coverage(value, float((value * (1 - value) / n).max().sqrt()))

    def draw_sigma(self, n: int, sigma_0: float | tuple[float, float], generator: Generators) -> Float[Tensor, " n"]:
        """σ_0 of each sample: the given number, or drawn uniformly from a pair (low, high)."""
        low, high = sigma_0 if isinstance(sigma_0, tuple) else (sigma_0, sigma_0)
        if not 0 <= low <= high < float("inf"):
            raise ValueError(
                f"sigma_0 must be a finite number of at least 0, or a pair (low, high) of such numbers, but is {sigma_0}."
            )
        if low == high:
            return torch.full((n,), low, dtype=torch.float64)
        return low + (high - low) * uniform((n,), generator, like=DOUBLE)

    def apply(
        self,
        x: Float[Tensor, "b *n"],
        sigma_0: float | tuple[float, float] | Float[Tensor, " b"],
        generator: Seed,
    ) -> Measurement:
        """The measurement of y = H x + z, with independent H and z for each sample.

        `sigma_0` is the std of z: one number, one per sample, or a pair (low, high) for `draw_sigma`.
        """
        self.check_shape(x.shape[1:])
        generator = as_generators(generator)
        sigma = sigma_0 if isinstance(sigma_0, Tensor) else self.draw_sigma(len(x), sigma_0, generator)
        svals = self.svals(len(x), x.shape[1:], generator)
        z = sigma.to(x).reshape(-1, *[1] * (x.ndim - 1)) * normal(x.shape, generator, like=x)
        return Measurement.from_svd(svals.to(x) * self.basis.to_spectral(x) + z, svals, sigma, self.cutoff)


def check_image(corruption: Corruption, shape: Sequence[int]) -> None:
    if len(shape) != 3 or min(shape) < 1:
        raise ValueError(
            f"{corruption} acts on images of shape (channels, height, width), but was given {tuple(shape)}: add the "
            "missing dimensions, of size 1."
        )


def check_complex(corruption: Corruption, shape: Sequence[int]) -> None:
    check_image(corruption, shape)
    if shape[0] % 2:
        raise ValueError(
            f"{corruption} acts on (real, imaginary) channel pairs, but was given {shape[0]} channels: "
            "add a zero imaginary channel to each real one (complex=True for the sources nifti and dicom)."
        )


def check_acceleration(R: float | int) -> None:
    if not 1 <= R < float("inf"):
        raise ValueError(f"R, the acceleration, must be a finite number of at least 1, but is {R}.")


def lowest(scores: Float[Tensor, "n m"], count: int) -> Float[Tensor, "n m"]:
    """1 at the `count` lowest scores of each row, 0 elsewhere. With uniform scores, this draws without replacement."""
    return (scores.argsort(dim=1, stable=True).argsort(dim=1) < count).double()
