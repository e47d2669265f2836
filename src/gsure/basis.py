"""Orthogonal bases V, in which every degradation of a family is diagonal: H = U Σ Vᵀ (eq:svd) with one V for all H.

    x̄ = Vᵀ x  is `to_spectral`,    x = V x̄  is `to_signal`.

Signals are (b, *n) for `Identity` and `Dense`, and images (b, channels, height, width) for the others.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from gsure.random import Stream, keyed_generator


class Basis(ABC):
    """An orthogonal basis. To add one, implement the two methods and run `check_basis` on it."""

    is_signal: ClassVar[bool] = False
    """Whether spectral entries are signal entries, so that a mask can be shown as an image beside the signal."""

    @abstractmethod
    def to_spectral(self, x: Float[Tensor, "b *n"]) -> Float[Tensor, "b *n"]:
        """x̄ = Vᵀ x."""

    @abstractmethod
    def to_signal(self, xbar: Float[Tensor, "b *n"]) -> Float[Tensor, "b *n"]:
        """x = V x̄."""

    def conjugates(self, values: Shaped[Tensor, "b *n"]) -> Shaped[Tensor, "b *n"]:
        """The values, such as those of a mask, at the entries that say the same if images are real: here, each its own."""
        return values


@dataclass(frozen=True)
class Identity(Basis):
    """V = I: missing pixels, patches or channels, and denoising."""

    is_signal: ClassVar[bool] = True

    def to_spectral(self, x: Float[Tensor, "b *n"]) -> Float[Tensor, "b *n"]:
        return x

    def to_signal(self, xbar: Float[Tensor, "b *n"]) -> Float[Tensor, "b *n"]:
        return xbar


@dataclass(frozen=True)
class Fourier(Basis):
    """Centred orthonormal 2-D Fourier transform of complex images in (real, imaginary) channel pairs: MRI (eq:mri-svd).

    A unitary transform of complex images is orthogonal on the pairs, so white noise stays white, with equal std in both parts.
    """

    def to_spectral(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        return _centred(torch.fft.fft2, x)

    def to_signal(self, xbar: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        return _centred(torch.fft.ifft2, xbar)

    def conjugates(self, values: Shaped[Tensor, "b _ _ _"]) -> Shaped[Tensor, "b _ _ _"]:
        """Those at -k for each frequency k, along the axes that have more than one."""
        rows, columns = (mirrored(size).to(values.device) for size in values.shape[-2:])
        return values[..., rows, :][..., columns]


def mirrored(n: int) -> Int[Tensor, " n"]:
    """Where frequency -k is, for each k of a centred Fourier transform.

    >>> mirrored(4).tolist(), mirrored(5).tolist(), mirrored(1).tolist()
    ([0, 3, 2, 1], [4, 3, 2, 1, 0], [0])
    """
    return (2 * (n // 2) - torch.arange(n)) % n


def _centred(transform: Callable[..., Tensor], x: Tensor) -> Tensor:
    if x.shape[1] % 2:
        raise ValueError(
            f"Fourier acts on (real, imaginary) channel pairs, but was given {x.shape[1]} channels: "
            "add a zero imaginary channel to each real one."
        )
    z = torch.view_as_complex(x.unflatten(1, (-1, 2)).movedim(2, -1).contiguous())
    z = torch.fft.fftshift(transform(torch.fft.ifftshift(z, (-2, -1)), norm="ortho"), (-2, -1))
    return torch.view_as_real(z).movedim(-1, 2).flatten(1, 2)


@dataclass(frozen=True)
class Hartley(Basis):
    """Two-dimensional Hartley transform (Re F - Im F) x / √n, real and its own inverse: blur.

    Each basis vector lies in the span of the cosine and sine of one frequency, where HᵀH of a circular convolution acts
    as multiplication by |ĥ|². So HᵀH is diagonal here for every kernel, symmetric or not, with singular values |ĥ|. (The
    separable product of 1-D Hartley transforms mixes frequencies of different |ĥ|, so it does not diagonalise HᵀH.)
    """

    def to_spectral(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        z = torch.fft.fft2(x, norm="ortho")
        return z.real - z.imag

    def to_signal(self, xbar: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        return self.to_spectral(xbar)


class Separable(Basis):
    """x̄ = A x Bᵀ, with orthogonal matrices A and B of one family for the columns and rows of an image."""

    @abstractmethod
    def matrix(self, n: int) -> Float[Tensor, "n n"]:
        """The orthogonal matrix for signals of length n, one basis vector per row."""

    def to_spectral(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        return self.matrix(x.shape[-2]).to(x) @ x @ self.matrix(x.shape[-1]).to(x).mT

    def to_signal(self, xbar: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        return self.matrix(xbar.shape[-2]).to(xbar).mT @ xbar @ self.matrix(xbar.shape[-1]).to(xbar)


@dataclass(frozen=True)
class Cosine(Separable):
    """Orthonormal 2-D DCT-II."""

    def matrix(self, n: int) -> Float[Tensor, "n n"]:
        return _cosine(n)


@functools.cache
def _cosine(n: int) -> Tensor:
    k, i = torch.arange(n, dtype=torch.float64)[:, None], torch.arange(n, dtype=torch.float64)
    rows = torch.cos(torch.pi * k * (2 * i + 1) / (2 * n)) * (2 / n) ** 0.5
    rows[0] /= 2**0.5
    return rows


@dataclass(frozen=True)
class Hadamard(Separable):
    """Orthonormal 2-D Walsh-Hadamard transform, slowest patterns (fewest sign changes) first: single-pixel cameras."""

    def matrix(self, n: int) -> Float[Tensor, "n n"]:
        return _walsh(n)


@functools.cache
def _walsh(n: int) -> Tensor:
    if n < 1 or n & (n - 1):
        raise ValueError(f"Hadamard needs sizes that are powers of two, but was given {n}: crop or pad, or use Cosine.")
    rows = torch.ones(1, 1, dtype=torch.float64)
    while len(rows) < n:
        rows = torch.cat([torch.cat([rows, rows], 1), torch.cat([rows, -rows], 1)])
    sign_changes = (rows.diff(dim=1) != 0).sum(1)
    return rows[sign_changes.argsort()] / n**0.5


@dataclass(frozen=True, eq=False)
class Dense(Basis):
    """Any orthogonal matrix V, acting on flattened signals. Its columns are the right singular vectors of every H.

    >>> angle = torch.tensor(0.3)
    >>> basis = Dense(torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).reshape(2, 2))
    >>> check_basis(basis, (2,))
    """

    V: Float[Tensor, "n n"]

    def __post_init__(self) -> None:
        if self.V.ndim != 2 or self.V.shape[0] != self.V.shape[1]:
            raise ValueError(f"V must be a square matrix, but has shape {tuple(self.V.shape)}.")
        error = float(
            (self.V.double().mT @ self.V.double() - torch.eye(len(self.V), dtype=torch.float64, device=self.V.device))
            .abs()
            .max()
        )
        if not error < 100 * torch.finfo(self.V.dtype).eps * len(self.V) ** 0.5:
            raise ValueError(
                f"V must be orthogonal, but VᵀV differs from the identity by {error:.2g}: "
                "use the V of torch.linalg.svd, or orthogonalise with torch.linalg.qr."
            )

    @staticmethod
    def from_operators(H: Float[Tensor, "*k m n"], tolerance: float = 1e-4) -> "Dense":
        """The V that operators H = U Σ Vᵀ share: one matrix, or a stack of them. Refused if they do not share one.

        All HᵀH are diagonal in V, if they commute. The eigenvectors of a random mixture of them are then nearly such a V;
        small rotations make it exact. `tolerance` is the largest share of HᵀH (in the Frobenius norm) that may remain off the
        diagonal. `Measurement.from_operators` turns what was measured with these operators into measurements.

        >>> H = torch.tensor([[[1.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, -1.0]]])  # a sum, or a difference
        >>> (Dense.from_operators(H).V.abs() * 2**0.5).round()
        tensor([[1., 1.],
                [1., 1.]], dtype=torch.float64)
        """
        if H.ndim not in (2, 3) or not H.is_floating_point():
            raise ValueError(
                f"H must be a real matrix (m, n) or a stack of them (k, m, n), but is {H.dtype} of "
                f"shape {tuple(H.shape)}."
            )
        stack = (H[None] if H.ndim == 2 else H).double()
        gram = stack.mT @ stack
        sizes = gram.flatten(1).norm(dim=1)
        if not sizes.isfinite().all() or not (sizes > 0).all():
            raise ValueError(f"Operator {int((~(sizes > 0)).long().argmax())} is zero, or not finite: remove it.")
        generator = keyed_generator(0, Stream.SHARED_BASIS)
        mixture = torch.rand(len(gram), generator=generator, dtype=torch.float64) / sizes.cpu()
        V = torch.linalg.eigh((mixture.to(gram)[:, None, None] * gram).sum(0)).eigenvectors.flip(1)
        for _ in range(5):
            V = _rotated(V, gram)
        rotated = V.mT @ gram @ V
        apart = (rotated - torch.diag_embed(rotated.diagonal(dim1=1, dim2=2))).flatten(1).norm(dim=1) / sizes
        if float(apart.max()) > tolerance:
            raise ValueError(
                f"These operators share no V: in the best common one, {float(apart.max()):.2g} of HᵀH of operator "
                f"{int(apart.argmax())} is off the diagonal ({float(apart.median()):.2g} in the median), more than "
                f"{tolerance:g}. The method needs operators whose HᵀH commute, such as masks in one basis, or blurs on a "
                "grid."
            )
        return Dense(V)

    def __repr__(self) -> str:
        return f"Dense({len(self.V)} × {len(self.V)})"

    def to_spectral(self, x: Float[Tensor, "b *n"]) -> Float[Tensor, "b *n"]:
        return (x.flatten(1) @ self.V.to(x)).reshape(x.shape)

    def to_signal(self, xbar: Float[Tensor, "b *n"]) -> Float[Tensor, "b *n"]:
        return (xbar.flatten(1) @ self.V.to(xbar).mT).reshape(xbar.shape)


def _rotated(V: Float[Tensor, "n n"], gram: Float[Tensor, "k n n"]) -> Float[Tensor, "n n"]:
    """V after the small rotations that make all VᵀGV more diagonal, to first order in their off-diagonal entries."""
    rotated = V.mT @ gram @ V
    diagonal = rotated.diagonal(dim1=1, dim2=2)
    differences = diagonal[:, :, None] - diagonal[:, None, :]
    total = (differences**2).sum(0)
    angles = -(rotated * differences).sum(0) / torch.where(total > 0, total, 1.0)
    angles = torch.where(total > 1e-12 * total.max(), angles.clamp(-0.1, 0.1), 0.0)
    return V @ torch.linalg.matrix_exp(angles)


def check_basis(basis: Basis, shape: Sequence[int]) -> None:
    """Check all that the method relies on, on signals of this shape (without batch); a `ValueError` lists what fails.

    The tolerance is 1e-6, so that a matrix stored in float32 passes.
    """
    generator = keyed_generator(0, Stream.CHECK_BASIS)
    x, y = (torch.randn(3, *shape, generator=generator, dtype=torch.float64) for _ in range(2))
    given = x.clone()
    try:
        xbar, ybar = basis.to_spectral(x), basis.to_spectral(y)
        back = basis.to_signal(xbar)
        single = basis.to_spectral(x.float())
        claims = {
            "keep the shape": xbar.shape == x.shape == back.shape,
            "keep the dtype": xbar.dtype == back.dtype == x.dtype and single.dtype == torch.float32,
            "leave its argument unchanged": x.equal(given),
            "transform each sample independently": _close(basis.to_spectral(x[1:2]), xbar[1:2]),
            "be linear": _close(basis.to_spectral(2 * x - 3 * y), 2 * xbar - 3 * ybar),
            "be inverted by to_signal": _close(back, x),
            "invert to_signal": _close(basis.to_spectral(basis.to_signal(x)), x),
            "keep lengths": _close(xbar.flatten(1).norm(dim=1), x.flatten(1).norm(dim=1)),
            "have to_signal as its adjoint": _close(
                (xbar * y).flatten(1).sum(1), (x * basis.to_signal(y)).flatten(1).sum(1)
            ),
        }
    except (RuntimeError, TypeError, IndexError) as error:
        raise ValueError(f"{basis} cannot transform signals of shape {tuple(shape)}: {error}") from error
    failed = [claim for claim, holds in claims.items() if not holds]
    if failed:
        raise ValueError(
            f"{basis} is not an orthogonal basis for signals of shape {tuple(shape)}; "
            f"to_spectral does not: {'; '.join(failed)}."
        )


def _close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-6, atol=1e-6)
