"""The vectors in which a Gaussian is fitted: blocks of W entries with one mask for all blocks.

| coordinates | a block is | for |
|---|---|---|
| `Entries` | the whole signal | small signals, masks in any basis |
| `Rows` | a row of the image, as a spectrum along the other axis | line masks, which do not vary along one axis |

Complex images are complex vectors. If the images are real, entries k and -k of their Fourier transform are conjugates: then
the vectors are real and have as many entries, and a measured entry k also tells entry -k.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from gsure.basis import Basis, mirrored
from gsure.measurement import Measurement


class Vectors(NamedTuple):
    """Measured vectors, zero where missing; the mask; and the variance of the noise (of a complex entry, of both parts)."""

    values: Shaped[Tensor, "b r w"]
    mask: Float[Tensor, "b w"]
    variance: Float[Tensor, "b w"]


class Coordinates(ABC):
    """How measurements become vectors, and vectors signals."""

    shape: tuple[int, ...]
    """Of a signal, without batch."""
    pairs: bool
    """Whether channels are (real, imaginary) pairs."""
    real_images: bool
    """Whether the imaginary part of images is known to be zero."""

    @abstractmethod
    def vectors(self, measurement: Measurement) -> Vectors: ...

    @abstractmethod
    def spectral(self, vectors: Shaped[Tensor, "b r w"]) -> Float[Tensor, "b *n"]:
        """x̄, laid out as in a measurement."""

    @abstractmethod
    def signals(self, vectors: Shaped[Tensor, "b r w"]) -> Float[Tensor, "b *n"]:
        """x."""

    def entries_of(self, mask: Float[Tensor, "1 ..."]) -> Float[Tensor, " w"]:
        """The entries of a block that a mask of spectra keeps."""
        nothing, std = mask.new_zeros(1, *self.shape), mask.new_ones([1] * mask.ndim)
        return self.vectors(Measurement._trusted(nothing, mask, std)).mask[0]

    @property
    @abstractmethod
    def blocks(self) -> int:
        """R, the number of blocks."""

    @property
    @abstractmethod
    def neighbours(self) -> int:
        """Blocks that follow each other in an image; 1 if a block has no neighbours."""

    @property
    @abstractmethod
    def mirror(self) -> Int[Tensor, " w"]:
        """For each entry of a block of a complex image, the one that is its conjugate if the image is real."""

    @abstractmethod
    def header(self) -> dict[str, Any]:
        """What a file says of it."""

    def flipped(self, values: Shaped[Tensor, "*r w"]) -> Shaped[Tensor, "*r w"]:
        """The vectors of the images mirrored along the axis of the masks."""
        other = self.mirror.to(values.device)
        if not self.real_images:
            return values[..., other]
        here = torch.arange(len(other), device=values.device)
        return torch.where(here < other, -values, values)  # the imaginary parts change their sign

    @property
    def is_complex(self) -> bool:
        """Whether the vectors are."""
        return self.pairs and not self.real_images

    def _packed(self, values: Tensor, mask: Float[Tensor, "b w"], std: Float[Tensor, "b w"]) -> Vectors:
        if not self.pairs:
            return Vectors(values, mask, std**2)
        if not self.real_images:
            return Vectors(values, mask, 2 * std**2)
        return pack_hermitian(Vectors(values, mask, std**2), self.mirror)


@dataclass(frozen=True)
class Entries(Coordinates):
    """All entries of the signal are one block."""

    basis: Basis
    shape: tuple[int, ...]
    pairs: bool = False
    real_images: bool = False

    def vectors(self, measurement: Measurement) -> Vectors:
        ybar = measurement.ybar
        values = (as_complex(ybar) if self.pairs else ybar).reshape(len(ybar), 1, -1)
        step = 2 if self.pairs else 1
        mask, std = (part.expand_as(ybar)[:, ::step].flatten(1) for part in (measurement.mask, measurement.std))
        return self._packed(values, mask, std)

    def spectral(self, vectors: Shaped[Tensor, "b r w"]) -> Float[Tensor, "b *n"]:
        if self.real_images:
            vectors = unpack_hermitian(vectors, self.mirror)
        if not self.pairs:
            return vectors.reshape(len(vectors), *self.shape)
        return as_pairs(vectors.reshape(len(vectors), self.shape[0] // 2, *self.shape[1:]))

    def signals(self, vectors: Shaped[Tensor, "b r w"]) -> Float[Tensor, "b *n"]:
        return self.basis.to_signal(self.spectral(vectors))

    def header(self) -> dict[str, Any]:
        named = {"pairs": self.pairs, "real_images": self.real_images}
        return {"structure": "entries", "shape": list(self.shape), **named}

    @property
    def blocks(self) -> int:
        return 1

    @property
    def neighbours(self) -> int:
        return 1

    @property
    def mirror(self) -> Int[Tensor, " w"]:
        pairs, height, width = self.shape[0] // 2, *self.shape[1:]
        plane = mirrored(height)[:, None] * width + mirrored(width)
        return (torch.arange(pairs)[:, None] * height * width + plane.flatten()).flatten()


@dataclass(frozen=True)
class Rows(Coordinates):
    """Rows of a complex image: `axis`, -2 or -1, is the one along which the mask does not vary; a row is a spectrum along the
    other.
    """

    shape: tuple[int, ...]
    axis: int = -2
    real_images: bool = False
    pairs = True

    def vectors(self, measurement: Measurement) -> Vectors:
        rows = self.spectra(measurement.ybar)
        mask, std = (
            self._across(part).expand(len(rows), rows.shape[-1]) for part in (measurement.mask, measurement.std)
        )
        return self._packed(rows, mask, std)

    def spectra(self, xbar: Float[Tensor, "b *n"]) -> Shaped[Tensor, "b r w"]:
        """Each row of the image as a spectrum."""
        return centred(torch.fft.ifft, as_complex(xbar), self.axis).movedim(self.axis, 2).flatten(1, 2)

    def spectral(self, vectors: Shaped[Tensor, "b r w"]) -> Float[Tensor, "b *n"]:
        return as_pairs(centred(torch.fft.fft, self._rows(vectors), self.axis))

    def signals(self, vectors: Shaped[Tensor, "b r w"]) -> Float[Tensor, "b *n"]:
        return as_pairs(centred(torch.fft.ifft, self._rows(vectors), -3 - self.axis))

    def _across(self, part: Float[Tensor, "_ _ _ _"]) -> Float[Tensor, "_ w"]:
        """A mask or std, which may not vary along the axis."""
        first = part[:, :1].narrow(self.axis, 0, 1)
        if part.shape != first.shape and not bool((part == first).all()):
            along = "rows" if self.axis == -2 else "columns"
            raise ValueError(
                f"The Gaussian prior was fitted to masks that do not vary along {along} of k-space, but these masks or their "
                "noise do: it cannot restore them. Use another method."
            )
        return first[:, 0].select(self.axis, 0)

    def header(self) -> dict[str, Any]:
        named = {"axis": self.axis, "real_images": self.real_images}
        return {"structure": "rows", "shape": list(self.shape), **named}

    def _rows(self, vectors: Tensor) -> Tensor:
        if self.real_images:
            vectors = unpack_hermitian(vectors, self.mirror)
        return vectors.unflatten(1, (self.shape[0] // 2, self.neighbours)).movedim(2, self.axis)

    @property
    def _width(self) -> int:
        return self.shape[-3 - self.axis]

    @property
    def blocks(self) -> int:
        return self.shape[0] // 2 * self.neighbours

    @property
    def neighbours(self) -> int:
        return self.shape[self.axis]

    @property
    def mirror(self) -> Int[Tensor, " w"]:
        return mirrored(self._width)


def as_complex(x: Float[Tensor, "b c h w"]) -> Shaped[Tensor, "b p h w"]:
    return torch.complex(x[:, 0::2], x[:, 1::2])


def as_pairs(z: Shaped[Tensor, "b p h w"]) -> Float[Tensor, "b c h w"]:
    return torch.stack([z.real, z.imag], 2).flatten(1, 2)


def centred(transform: Callable[..., Tensor], z: Tensor, axis: int) -> Tensor:
    shifted = transform(torch.fft.ifftshift(z, axis), dim=axis, norm="ortho")
    return torch.fft.fftshift(shifted, axis)


def pack_hermitian(vectors: Vectors, mirror: Int[Tensor, " w"]) -> Vectors:
    """Complex spectra of real signals as real vectors of the same length and norm: √2 Re z_k at k, √2 Im z_k at -k.

    `variance` is that of one part. Where both z_k and z_-k were measured, their mean has half the noise; with unequal noise,
    each counts by its precision.
    """
    values, mask, variance = vectors
    other = mirror.to(values.device)
    here = torch.arange(len(other), device=values.device)
    theirs, total = variance[:, other], variance + variance[:, other]
    share = torch.where(total > 0, theirs / torch.where(total > 0, total, 1.0), 0.5)  # of z_k in the mean of both
    share = torch.where(mask[:, other] > 0, mask * share, mask)
    mean = share[:, None] * values + share[:, None, other] * values[..., other].conj()
    alone = here == other  # its own mirror image: real, and no √2
    packed = torch.where(alone, mean.real, 2**0.5 * torch.where(here > other, mean.real, -mean.imag))
    spread = share**2 * variance + share[:, other] ** 2 * theirs
    return Vectors(packed, (mask + mask[:, other]).clamp(max=1), 2 * spread)


def unpack_hermitian(vectors: Float[Tensor, "b r w"], mirror: Int[Tensor, " w"]) -> Shaped[Tensor, "b r w"]:
    """The complex spectra that `pack_hermitian` packed."""
    other = mirror.to(vectors.device)
    here = torch.arange(len(other), device=vectors.device)
    alone, first = here == other, here > other
    turned = vectors[..., other]
    real, imaginary = torch.where(first, vectors, turned), torch.where(first, turned, -vectors)
    zero = torch.zeros_like(vectors)
    return torch.complex(torch.where(alone, vectors, real / 2**0.5), torch.where(alone, zero, imaginary / 2**0.5))


def with_conjugates(measurement: Measurement, basis: Basis) -> Measurement:
    """If images are real, an entry k also tells entry -k; where both were measured, their mean by precision has less noise."""
    ybar, mask, std = measurement.ybar, measurement.mask, measurement.std
    precision = (mask / std.clamp(min=1e-6) ** 2).expand(len(ybar), *torch.broadcast_shapes(mask.shape, std.shape)[1:])
    both = precision + basis.conjugates(precision)
    sign = torch.tensor([1.0, -1.0]).to(ybar).repeat(ybar.shape[1] // 2).reshape(1, -1, *[1] * (ybar.ndim - 2))
    share = torch.where(both > 0, precision / both.clamp(min=1e-30), 0.0)
    mean = share * ybar + sign * basis.conjugates(share) * basis.conjugates(ybar)
    return Measurement._trusted(mean, (both > 0).to(ybar), both.clamp(min=1e-30).rsqrt() * (both > 0))
