"""What a corruption family is: random degradations H = U Σ Vᵀ that share V (eq:svd), and how one turns x into a measurement.

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
from gsure.random import Generators, normal, uniform

DOUBLE = torch.empty(0, dtype=torch.float64)
"""Singular values are drawn like this, whatever the signal is; `Measurement.from_svd` casts them in one place."""


@dataclass(frozen=True, eq=False)
class Coverage:
    """E[P], at the smallest shape that broadcasts against a batch; `standard_error` is an upper bound for that of any entry.

    A standard error of None means a closed form.
    """

    value: Float[Tensor, "1 ..."]
    standard_error: float | None = None


class Corruption(ABC):
    """A family of random degradations that share V. To add one, write `basis` and `svals` and run `check_corruption` on it."""

    has_closed_form: ClassVar[bool] = False
    """Whether `coverage` is exact, and costs nothing."""

    is_binary: ClassVar[bool] = False
    """Whether singular values are just 0 and 1, so that no file need keep them."""

    @property
    @abstractmethod
    def basis(self) -> Basis:
        """V."""

    @property
    def unit(self) -> tuple[int, ...]:
        """The trailing block of mask entries that are dropped together; () means one by one. For `Objective(unit=)`."""
        return ()

    @property
    def cutoff(self) -> float:
        """Singular values up to it count as zero."""
        return 0.0

    @abstractmethod
    def svals(self, n: int, shape: Sequence[int], generator: Generators) -> Float[Tensor, "n ..."]:
        """n draws of the diagonal of Σ for signals of this shape (without batch), at the smallest shape that broadcasts.

        Draw through `gsure.random`, with n as the first dimension: then sample k does not depend on its batch when
        there is one generator per sample.
        """

    def check_shape(self, shape: Sequence[int]) -> None:
        """Refuse signals that this family cannot act on; unless overridden, those without any entries."""
        if torch.Size(shape).numel() < 1:
            raise ValueError(f"A signal needs at least one entry, but shape {tuple(shape)} has none.")

    def advice(self, shape: Sequence[int]) -> str | None:
        """A sentence on entries that this family never measures and what to do about it; None if there are none."""
        return None

    def draws(self, shape: Sequence[int]) -> int:
        """How many draws the Monte-Carlo `coverage` takes: 10,000, and for large signals fewer, down to 1,000."""
        return max(1_000, min(10_000, 2**25 // torch.Size(shape).numel()))

    def coverage(self, shape: Sequence[int]) -> Coverage:
        """E[P] by Monte Carlo, from a fixed seed; families with a closed form override it."""
        self.check_shape(shape)
        n, at_once = self.draws(shape), max(1, 2**22 // torch.Size(shape).numel())
        generator, kept = torch.Generator().manual_seed(0), torch.zeros(())
        for start in range(0, n, at_once):
            svals = self.svals(min(at_once, n - start), shape, generator)
            kept = kept + (svals > self.cutoff).double().sum(0, keepdim=True)
        value = kept / n
        return Coverage(value, float((value * (1 - value) / n).max().sqrt()))

    def draw_sigma(self, n: int, sigma_0: float | tuple[float, float], generator: Generators) -> Float[Tensor, " n"]:
        """σ_0 of each sample: the number given, or uniform on a pair (low, high)."""
        low, high = sigma_0 if isinstance(sigma_0, tuple) else (sigma_0, sigma_0)
        if not 0 <= low <= high < float("inf"):
            raise ValueError(
                f"sigma_0 must be a finite number of at least 0, or a pair (low, high) of such, but is {sigma_0}."
            )
        if low == high:
            return torch.full((n,), low, dtype=torch.float64)
        return low + (high - low) * uniform((n,), generator, like=DOUBLE)

    def apply(
        self,
        x: Float[Tensor, "b *n"],
        sigma_0: float | tuple[float, float] | Float[Tensor, " b"],
        generator: Generators,
    ) -> Measurement:
        """The measurement of y = H x + z, with a new H and z for each sample.

        `sigma_0` is the std of z: one number, one for each sample, or a pair (low, high) for `draw_sigma`.
        """
        self.check_shape(x.shape[1:])
        sigma = sigma_0 if isinstance(sigma_0, Tensor) else self.draw_sigma(len(x), sigma_0, generator)
        svals = self.svals(len(x), x.shape[1:], generator)
        z = sigma.to(x).reshape(-1, *[1] * (x.ndim - 1)) * normal(x.shape, generator, like=x)
        return Measurement.from_svd(svals.to(x) * self.basis.to_spectral(x) + z, svals, sigma, self.cutoff)


def check_image(corruption: Corruption, shape: Sequence[int]) -> None:
    """Refuse what is not (channels, height, width)."""
    if len(shape) != 3 or min(shape) < 1:
        raise ValueError(
            f"{corruption} acts on images of shape (channels, height, width), but was given {tuple(shape)}: add the "
            "missing dimensions, of size 1."
        )


def check_complex(corruption: Corruption, shape: Sequence[int]) -> None:
    """Refuse what is not (channel pairs, height, width)."""
    check_image(corruption, shape)
    if shape[0] % 2:
        raise ValueError(
            f"{corruption} acts on (real, imaginary) channel pairs, but was given {shape[0]} channels: "
            "add a zero imaginary channel to each real one (for nifti and dicom, --source.complex true)."
        )


def check_probability(p: float) -> None:
    """Refuse a probability of dropping that is none, or that drops everything."""
    if not 0 <= p < 1:
        raise ValueError(f"p is the probability to drop, in [0, 1), but is {p}.")


def lowest(scores: Float[Tensor, "n m"], count: int) -> Float[Tensor, "n m"]:
    """1 at the `count` lowest scores of each row: with uniform scores, a draw without replacement."""
    return (scores.argsort(dim=1, stable=True).argsort(dim=1) < count).double()
