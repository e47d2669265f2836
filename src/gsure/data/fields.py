"""Smooth random fields on a square, for sources that are simulated. They are the same field at every number of pixels."""

import functools

import numpy as np


@functools.lru_cache(maxsize=8)
def grid(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Column and row positions of n pixel centres, in -1..1."""
    axis = ((np.arange(n, dtype=np.float32) + 0.5) * 2 / n - 1).astype(np.float32)
    return axis[None, :], axis[:, None]


def waves(rng: np.random.Generator, n: int, shortest: float, longest: float, count: int = 24) -> np.ndarray:
    """A smooth random field of unit variance with wavelengths in a range (the image is 2 wide)."""
    wavelength, angle, phase = rng.random((3, count))
    wavelength = shortest + (longest - shortest) * wavelength
    x, y = grid(n)
    wave = (2 * np.pi / wavelength * np.exp(1j * np.pi * angle)).astype(np.complex64)
    # cos(a + b) = cos a cos b - sin a sin b turns a sum of plane waves into one matrix product.
    a, b = wave.real * x.T + np.float32(2 * np.pi) * phase.astype(np.float32), wave.imag * y
    rows, columns = np.concatenate([np.cos(b), -np.sin(b)], 1), np.concatenate([np.cos(a), np.sin(a)], 1)
    return rows @ columns.T * np.float32((2 / count) ** 0.5)


def smooth_phase(rng: np.random.Generator, n: int) -> np.ndarray:
    """The phase of a scan in radians: a random offset, shifts of the echo, and an uneven field."""
    x, y = grid(n)
    a, b, c = rng.normal(0, [0.8, 0.8, 0.6])
    return (rng.uniform(0, 2 * np.pi) + a * x + b * y + c * (x * x + y * y) + 0.5 * waves(rng, n, 0.9, 3.0)).astype(
        np.float32
    )
