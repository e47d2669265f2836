"""Exact operations on centred k-space and its mask: none of them changes the std of white noise.

Arrays are (..., rows, columns), complex. All Fourier transforms are orthonormal.
"""

import numpy as np


def centre(n: int, size: int) -> slice:
    """The middle `size` of n entries; entry n // 2, the zero frequency, becomes entry size // 2.

    >>> centre(8, 5), centre(7, 4)
    (slice(2, 7, None), slice(1, 5, None))
    """
    start = n // 2 - size // 2
    return slice(start, start + size)


def crop_field_of_view(kspace: np.ndarray, size: int, axis: int) -> np.ndarray:
    """k-space of the image that is cropped to its middle `size` along an axis: inverse transform, crop, transform.

    It is exact if the mask is constant along this axis, because the transform then acts within each measured line.
    """
    lines = np.fft.fftshift(np.fft.ifft(np.fft.ifftshift(kspace, axis), axis=axis, norm="ortho"), axis)
    cropped = np.moveaxis(np.moveaxis(lines, axis, -1)[..., centre(kspace.shape[axis], size)], -1, axis)
    return np.fft.fftshift(np.fft.fft(np.fft.ifftshift(cropped, axis), axis=axis, norm="ortho"), axis)


def is_constant(mask: np.ndarray, axis: int) -> bool:
    return bool((mask == mask.take([0], axis)).all())


def resize_matrix(values: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Zero-pad or crop k-space (or a mask of its full size) around the zero frequency. The field of view stays the same."""
    for axis, m in zip((-2, -1), size, strict=True):
        n = values.shape[axis]
        if m < n:
            values = np.moveaxis(np.moveaxis(values, axis, -1)[..., centre(n, m)], -1, axis)
        elif m > n:
            before = centre(m, n).start
            widths = [(0, 0)] * values.ndim
            widths[axis] = (before, m - n - before)
            values = np.pad(values, widths)
    return values


def resize_mask(mask: np.ndarray, was: tuple[int, int], size: tuple[int, int]) -> np.ndarray:
    """The mask after `resize_matrix`: what is padded was not measured. Axes of length 1 stay so where nothing is padded."""
    for axis, n, m in zip((-2, -1), was, size, strict=True):
        if m > n or mask.shape[axis] > 1:
            shape = list(mask.shape)
            shape[axis] = n
            target = (m, mask.shape[-1]) if axis == -2 else (mask.shape[-2], m)
            mask = resize_matrix(np.broadcast_to(mask, shape), target)
    return mask


def centre_kspace(kspace: np.ndarray, image_at_first_index: bool) -> np.ndarray:
    """Centred k-space from k-space whose zero frequency is at the first index.

    With `image_at_first_index`, it is np.fft.fft2(x) of an image x; otherwise np.fft.fft2(np.fft.ifftshift(x)).
    """
    if image_at_first_index:
        for axis in (-2, -1):
            n = kspace.shape[axis]
            phase = np.exp(2j * np.pi * np.arange(n) * (n // 2) / n).astype(np.complex64)
            kspace = kspace * (phase[:, None] if axis == -2 else phase)
    return np.fft.fftshift(kspace, (-2, -1))


def energy_in_middle(image: np.ndarray) -> float:
    """The share of the energy of images in the middle half of each side."""
    rows, columns = (centre(n, max(1, n // 2)) for n in image.shape[-2:])
    power = np.abs(image.astype(np.complex128)) ** 2
    return float(power[..., rows, columns].sum() / max(power.sum(), 1e-300))


def first_virtual_coil(covariance: np.ndarray) -> np.ndarray:
    """Weights of the first virtual coil, from the coil covariance (coils, coils): the linear combination of unit norm with
    the most energy. Its largest weight is real, which fixes the phase.
    """
    weights = np.linalg.eigh(covariance)[1][:, -1]
    largest = weights[np.abs(weights).argmax()]
    return weights * largest.conj() / np.abs(largest)
