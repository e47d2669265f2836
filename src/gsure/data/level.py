"""How strong the noise is: estimates from repeated scans, from a scan without signal, or from where there is least signal.

Each has an uncertainty: the truth should lie within value ± uncertainty, three standard errors and the part of signal that the
estimate may contain.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gsure.basis import Basis, Fourier
from gsure.data.source import Spectrum

WINDOW = 4
"""Side of a cell in which local variances are computed: in coefficients, so 8 pixels of an image."""
STRIP = 64
"""Length of a cell of k-space along an axis that was not measured completely, if the other axis was."""
LOWEST = 0.1, 0.05, 0.025, 0.0125
"""Shares of the cells with the lowest local variances: the first that agrees with its lower half is used."""
FEWEST = 100
"""Entries, or cells, that an estimate needs at least."""
STANDARD_ERRORS = 3.0
UNSEEN = 0.02
"""Share of the estimate from lowest variances that may be signal too weak to be told from noise."""
CLIP = 3.0
KEPT = 0.9733
"""Values beyond three standard deviations are outliers; the others of a Gaussian of variance 1 have this variance."""
MEDIAN = 0.4549
"""Of the square of a standard normal variable."""
FLOOR = 3.0
"""Magnitudes below so many noise levels have other noise (Rician, or cut off at 0), so such cells of non-negative images are
not used. Nor are cells so near to the value where images are saturated."""
SATURATED = 0.001
"""An image is saturated if a larger share of its pixels has the largest value."""


@dataclass(frozen=True)
class Level:
    """A noise level in the units of the data."""

    value: float
    uncertainty: float
    method: str


def from_values(values: np.ndarray, method: str) -> Level:
    """The standard deviation of values that are noise alone."""
    if values.size < FEWEST:
        raise ValueError(
            f"Only {values.size} values are there to measure the noise level, but at least {FEWEST} are needed."
        )
    squares = (values.astype(np.float64) - values.mean(dtype=np.float64)) ** 2
    return _level(float(squares.mean()), float(squares.std()) / math.sqrt(values.size), 0.0, method)


def from_repeats(scans: Iterable[Sequence[np.ndarray]], masks: Iterable[np.ndarray]) -> Level:
    """From differences of consecutive scans of one thing, which drift hardly changes. Each entry counts as one sample."""
    squares = []
    for repeats, mask in zip(scans, masks, strict=True):
        some = np.stack([np.asarray(scan, np.float64) for scan in repeats])
        per_entry = (np.diff(some, axis=0) ** 2).mean(0) / 2
        squares.append(per_entry[np.broadcast_to(mask, per_entry.shape) == 1])
    pooled = np.concatenate(squares)
    if len(pooled) < FEWEST:
        raise ValueError(f"Only {len(pooled)} entries were measured repeatedly, but at least {FEWEST} are needed.")
    error = float(pooled.std()) / math.sqrt(len(pooled))
    return _level(float(pooled.mean()), error, 0.0, "differences of repeated scans")


def from_lowest(spectra: Sequence[Spectrum], basis: Basis) -> Level:
    """From the cells with the lowest local variances.

    Choosing the lowest variances makes them too low. So one half of the data chooses the cells, and the other half, whose
    noise is independent, measures the variance in them, without outliers. In signal space the halves are horizontal and
    vertical details, and diagonal ones; in k-space, the two colours of a chessboard. Signal in the cells makes the estimate
    too high: the uncertainty includes how much it changes if only the lower half of the cells are used.
    """
    if not (basis.is_signal or isinstance(basis, Fourier)):
        raise ValueError(
            f"The noise level can be estimated in the basis Fourier or in signal space, but not in {basis}: measure it, and "
            "pass it as --sigma."
        )
    white = _saturation(spectra) if basis.is_signal else math.inf
    cells = [
        cell for one in spectra for cell in (_useful_cells(one, white) if basis.is_signal else _cells_of_kspace(one))
    ]
    chooser = np.concatenate([cell[0] for cell in cells])
    entries = np.concatenate([cell[1] for cell in cells])
    ordered = entries[np.argsort(chooser)]
    found = []
    for share in LOWEST:
        lowest, lower = (
            part[~np.isnan(part)] for part in (ordered[: math.ceil(part * len(ordered))] for part in (share, share / 2))
        )
        if len(lower) < FEWEST // 2:
            break
        (variance, error), (least, least_error) = without_outliers(lowest), without_outliers(lower)
        found.append((variance, error, abs(variance - least)))
        if variance - least < math.hypot(error, least_error):
            break
    if not found:
        raise ValueError(
            f"Only {int((~np.isnan(entries)).sum())} entries can be used to estimate the noise level: measure it, and pass it "
            "as --sigma."
        )
    variance, error, bias = found[-1]
    bias += 2 * UNSEEN * variance
    if basis.is_signal:
        return _level(variance, error, bias, "lowest local variances of the image, by its diagonal details")
    level = _level(variance, error, bias, "lowest local variances of k-space")
    if any(_complete_axes(one) for one in spectra):
        return level
    return replace(
        level, uncertainty=level.value, method=f"{level.method}, an upper bound: no axis was measured completely"
    )


def _level(variance: float, error: float, bias: float, method: str) -> Level:
    """From a variance to a standard deviation, to first order."""
    if not variance > 0:
        raise ValueError(
            f"No noise is found by {method}: the values are constant there, or free of noise. Give a number as --sigma."
        )
    value = math.sqrt(variance)
    return Level(value, (STANDARD_ERRORS * error + bias) / (2 * value), method)


def without_outliers(values: np.ndarray) -> tuple[float, float]:
    """The variance of a Gaussian of mean 0, from its values within three standard deviations, and its standard error."""
    squares = values.astype(np.float64) ** 2
    variance = float(np.median(squares)) / MEDIAN
    for _ in range(20):
        variance = float(squares[squares <= CLIP**2 * variance].mean()) / KEPT
    return variance, float(squares[squares <= CLIP**2 * variance].std()) / KEPT / math.sqrt(len(squares))


def cells_of_image(one: Spectrum, window: int = WINDOW) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By cell: the mean, the mean square of horizontal and vertical Haar details, and the diagonal details.

    Details are those of complete 2 × 2 blocks; those of other blocks are NaN.
    """
    y, mask, _ = one
    kept = np.broadcast_to(mask, y.shape) == 1
    c, h, w = (y.shape[0], *(n // 2 * 2 for n in y.shape[1:]))
    blocks, whole = (a[:, :h, :w].reshape(c, h // 2, 2, w // 2, 2) for a in (y.astype(np.float64), kept))
    a, b, d, e = (np.where(whole.all((2, 4)), blocks[:, :, i, :, j], np.nan) for i in (0, 1) for j in (0, 1))
    side = min(window, max(1, min(h, w) // 8))
    mean, edges, diagonal = (
        _windows(part, side, side)
        for part in ((a + b + d + e) / 4, (a + b - d - e) ** 2 / 8 + (a - b + d - e) ** 2 / 8, (a - b - d + e) / 2)
    )
    some = ~np.isnan(edges).all(1)
    return np.nanmean(mean[some], 1), np.nanmean(edges[some], 1), diagonal[some]


def _saturation(spectra: Sequence[Spectrum]) -> float:
    """The largest value, if many pixels have it: noise is cut off there. Otherwise infinity."""
    values = [one.ybar[np.broadcast_to(one.mask, one.ybar.shape) == 1] for one in spectra]
    largest = max((float(some.max()) for some in values if some.size), default=math.inf)
    many = sum(int((some == largest).sum()) for some in values)
    return largest if many > SATURATED * sum(some.size for some in values) else math.inf


def _useful_cells(one: Spectrum, white: float) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    mean, edges, diagonal = cells_of_image(one)
    usable = edges + np.nanmean(diagonal**2, 1) > 0  # constant cells were cut off or filled in
    if one.ybar.min(initial=0.0, where=np.broadcast_to(one.mask, one.ybar.shape) == 1) >= 0:
        usable &= mean > FLOOR * np.sqrt(edges)
    usable &= mean < white - FLOOR * np.sqrt(edges)
    yield edges[usable], diagonal[usable]


def _cells_of_kspace(one: Spectrum) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    """By cell: the mean square of the values on fields of one colour, and the values on the others.

    An axis along which everything was measured is transformed: then cells outside the object hold noise alone.
    """
    y, mask, _ = one
    known, axes = np.broadcast_to(mask[:1], y[:1].shape) == 1, _complete_axes(one)
    z = y[0::2] + 1j * y[1::2]
    for axis in axes:
        z = np.fft.fftshift(np.fft.ifft(np.fft.ifftshift(z, axis), axis=axis, norm="ortho"), axis)
    sides = [STRIP if len(axes) == 1 and axis not in axes else WINDOW if axes else 2 * WINDOW for axis in (1, 2)]
    parts = np.stack([np.where(known, part, np.nan) for part in (z.real, z.imag)])
    rows, columns = np.indices(parts.shape[-2:])
    colour = (rows + columns) % 2 == 0
    for mine in (colour, ~colour):
        chooser, measured = (
            _windows(np.where(here, parts, np.nan).reshape(-1, *y.shape[1:]), *sides) for here in (mine, ~mine)
        )
        n = len(chooser) // 2  # real and imaginary part of a cell belong together
        chooser, measured = (np.concatenate([cells[:n], cells[n:]], 1) for cells in (chooser, measured))
        some = ~np.isnan(chooser).all(1) & ~np.isnan(measured).all(1)
        power = np.nanmean(chooser[some] ** 2, 1)
        yield power[power > 0], measured[some][power > 0]


def _complete_axes(one: Spectrum) -> list[int]:
    """Axes along which a line was measured completely or not at all."""
    known = np.broadcast_to(one.mask[:1], one.ybar[:1].shape) == 1
    return [axis for axis in (1, 2) if (known.all(axis) == known.any(axis)).all()]


def _windows(values: np.ndarray, height: int, width: int) -> np.ndarray:
    """The entries of each cell of height × width, as (cells, entries). What is left over at the edges is omitted."""
    c, h, w = values.shape
    height, width = min(height, h), min(width, w)
    cut = values[:, : h // height * height, : w // width * width]
    cells = cut.reshape(c, h // height, height, w // width, width).transpose(0, 1, 3, 2, 4)
    return cells.reshape(-1, height * width)
