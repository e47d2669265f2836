"""Images that are counts, transformed such that their noise has standard deviation 1; and the gain, if nobody knows it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gsure.data.anscombe import Anscombe
from gsure.data.level import STANDARD_ERRORS, cells_of_image, without_outliers
from gsure.data.source import Spectra, Spectrum, evenly_spread
from gsure.display import number, with_error

BINS = 24
"""Points of the mean-variance curve."""
UNKNOWN = 0.5
"""Relative uncertainty above which an estimated gain is refused."""
FLAT = 0.1
"""Share of the cells of each bin, those with the weakest edges, whose variance is measured."""
CELLS = 60
"""Cells of a bin that are used at least, if they are not more than half of it."""
FEWEST = 20
"""Details that a point of the curve needs at least."""
SIDE = 2
"""Side of a cell in blocks of 2 × 2 pixels."""
READ = 64
"""Samples that are read to estimate the gain, at most."""
FEW_COUNTS, LOOKED_AT = 2, 8
"""Counts below which noise is not Gaussian; and samples that are looked at to see how many pixels have so few."""


@dataclass(frozen=True)
class Counts:
    """Spectra in signal space as f(z), for the transform f."""

    spectra: Spectra
    transform: Anscombe

    @property
    def is_complex(self) -> bool:
        return False

    def __len__(self) -> int:
        return len(self.spectra)

    def volume(self, index: int) -> str:
        return self.spectra.volume(index)

    def file(self, index: int) -> str:
        return self.spectra.file(index)

    def report(self) -> list[str]:
        gain, read_noise = number(self.transform.gain), number(self.transform.read_noise)
        line = f"counts: transformed to noise of standard deviation 1, with gain {gain} and read noise {read_noise}"
        some = [self.spectra[int(index)] for index in evenly_spread(LOOKED_AT, len(self))]
        counted = np.concatenate([z[np.broadcast_to(mask, z.shape) == 1] for z, mask, _ in some]) / self.transform.gain
        few = float((counted < FEW_COUNTS).mean()) if len(counted) else 0.0
        warning = (
            f"warning: {100 * few:.0f} % of the pixels are below {FEW_COUNTS} counts, where the transformed noise is weaker "
            "than 1 and not Gaussian: check the gain"
        )
        return [*self.spectra.report(), line, *([warning] if few > 0.5 else [])]

    def header(self, size: tuple[int, int]) -> dict[str, Any]:
        return self.spectra.header(size)

    def __getitem__(self, index: int) -> Spectrum:
        ybar, mask, group = self.spectra[index]
        self.transform.refuse_negative(ybar, f"Sample {index}, of group {group},")
        return Spectrum((self.transform.forward(ybar) * mask).astype(np.float32), mask, group)


@dataclass(frozen=True)
class Curve:
    """variance = gain · mean + read_noise², fitted to the local means and variances of images.

    An uncertainty is three standard errors, and how much the value changes if only the flatter half of the cells are used.
    """

    gain: float
    gain_uncertainty: float
    offset: float
    offset_uncertainty: float

    def record(self) -> dict[str, Any]:
        return {
            "method": "mean-variance curve",
            "fitted gain": with_error(self.gain, self.gain_uncertainty),
            "variance at mean 0": with_error(self.offset, self.offset_uncertainty),
        }


def choose_transform(
    gain: float | str, read_noise: float | None, spectra: Spectra, n: int
) -> tuple[Anscombe, dict[str, Any]]:
    """The transform, and how its numbers were found."""
    if spectra.is_complex:
        raise ValueError("Counts are real, but these values are complex: give --sigma instead of --gain.")
    if not isinstance(gain, str):
        transform = Anscombe(float(gain), float(read_noise or 0.0))
        return transform, {"method": "given"}
    if gain != "estimate":
        raise ValueError(f"--gain is a number or estimate, not {gain!r}.")
    curve = fit_curve([spectra[int(index)] for index in evenly_spread(READ, n)], read_noise)
    if curve.gain <= 0:
        raise ValueError(
            f"The variance of these images does not grow with their mean (by {curve.gain:.3g}): they are not counts. Give "
            "--sigma instead of --gain."
        )
    if curve.gain_uncertainty > UNKNOWN * curve.gain:
        raise ValueError(
            f"The gain cannot be estimated: the mean-variance curve gives {with_error(curve.gain, curve.gain_uncertainty)}. "
            "Give --gain and --read-noise from the data sheet of the camera, or from a photon transfer curve."
        )
    if curve.offset < -curve.offset_uncertainty:
        raise ValueError(
            f"The variance of these images would be zero at a value of {-curve.offset / curve.gain:.4g}, so they have a black "
            "level of at least that: subtract the black level of the camera, or give --gain and --read-noise."
        )
    found = Anscombe(curve.gain, max(curve.offset, 0.0) ** 0.5 if read_noise is None else float(read_noise))
    return found, curve.record()


def fit_curve(spectra: Sequence[Spectrum], read_noise: float | None = None) -> Curve:
    """A line through the variances of flat cells, in bins of equal numbers of cells by their mean.

    Edges choose the cells and diagonal details measure the variance: for counts, these are uncorrelated.
    """
    cells = [cells_of_image(one, SIDE) for one in spectra]
    means, edges, details = (np.concatenate([cell[k] for cell in cells]) for k in range(3))
    noisy = edges + np.nanmean(details**2, 1) > 0  # empty background has no variance
    (gain, offset, gain_error, offset_error), (flatter, lower, *_) = (
        _line(*_points(means[noisy], edges[noisy], details[noisy], share), read_noise) for share in (1.0, 0.5)
    )
    return Curve(
        gain,
        STANDARD_ERRORS * gain_error + abs(gain - flatter),
        offset,
        STANDARD_ERRORS * offset_error + abs(offset - lower),
    )


def _points(
    means: np.ndarray, edges: np.ndarray, details: np.ndarray, share: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, variance and its standard error, by bin; from a share of the cells that would be used."""
    points = []
    for part in np.array_split(np.argsort(means), BINS):
        many = min(len(part) // 2, max(CELLS, int(FLAT * len(part))))
        flat = part[np.argsort(edges[part])][: max(1, round(share * many))]
        values = details[flat][~np.isnan(details[flat])]
        if len(values) >= FEWEST:
            points.append((float(means[flat].mean()), *without_outliers(values)))
    m, variance, error = np.array(points).reshape(-1, 3).T
    good = (error > 0) & (variance > 0)
    if good.sum() < 4 or np.ptp(m[good]) < 0.1 * abs(m[good]).max():
        raise ValueError(
            "The gain cannot be estimated: the images have too few flat regions of different brightness. Give --gain and "
            "--read-noise from the data sheet of the camera, or from a photon transfer curve."
        )
    return m[good], variance[good], error[good]


def _line(
    m: np.ndarray, variance: np.ndarray, error: np.ndarray, read_noise: float | None
) -> tuple[float, float, float, float]:
    """Gain, variance at mean 0, and their standard errors, by Huber's regression: texture raises some points far above.

    A low variance must not get a large weight by chance, so weights are those of the line itself.
    """
    design = np.stack([m, np.ones_like(m)], 1)
    if read_noise is not None:
        design, variance = design[:, :1], variance - read_noise**2
    relative = float(np.median(error / np.abs(variance)))
    fitted, lowest = variance, 0.05 * float(np.median(np.abs(variance)))
    for step in range(50):
        scale = relative * np.maximum(fitted, lowest)
        trust = 1 if step < 4 else np.minimum(1, scale / np.maximum(np.abs(variance - fitted), 1e-300))
        weight = np.sqrt(trust) / scale
        rows = design * weight[:, None]
        solution = np.linalg.lstsq(rows, variance * weight, rcond=None)[0]
        fitted = design @ solution
    misfit = float(((weight * (variance - fitted)) ** 2).sum()) / max(1, len(m) - design.shape[1])
    errors = np.sqrt(np.diag(np.linalg.inv(rows.T @ rows)) * max(1.0, misfit))
    if read_noise is not None:
        return float(solution[0]), read_noise**2, float(errors[0]), 0.0
    return float(solution[0]), float(solution[1]), float(errors[0]), float(errors[1])
