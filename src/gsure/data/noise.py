"""The noise of measured data: given as a number, per sample or per entry, or estimated."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gsure.basis import Basis
from gsure.data.array import read_beside, stored_arrays
from gsure.data.counts import Counts, choose_transform
from gsure.data.level import Level, from_lowest, from_repeats, from_values
from gsure.data.problems import Problems
from gsure.data.source import Spectra, evenly_spread

Shapes = Mapping[tuple[int, ...], Sequence[int]]
"""The samples of each shape (channels, height, width)."""
READ = 2**22
"""Values of a volume that are read to estimate its noise level, at most."""


@dataclass(frozen=True)
class Noise:
    """The standard deviation of the noise of each sample, in the units of the data."""

    std: Callable[[int], np.ndarray]
    """From the number of a sample to its noise level, (1, 1, 1), or to a map that broadcasts against it."""
    about: dict[str, Any] = field(default_factory=dict)
    """For the header of the file: the method and its uncertainty."""

    @property
    def is_map(self) -> bool:
        return math.prod(self.std(0).shape) > 1

    def describe(self, indices: Sequence[int], scales: Sequence[float]) -> dict[str, Any]:
        """For the header: the range that the model sees, that in the units of the data, and how it is known.

        `scales` are those of all samples, `indices` the samples of the file. Of noise maps, the first alone is read.
        """
        some = indices[:1] if self.is_map else indices
        raw = [self.std(index) for index in some]
        seen = [values / scales[index] for values, index in zip(raw, some, strict=True)]
        found: dict[str, Any] = {}
        for name, values in (("given", seen), ("in units of the data", raw)):
            low, high = float(min(one.min() for one in values)), float(max(one.max() for one in values))
            found[name] = low if low == high else [low, high]
        return {**found, "estimated": "method" in self.about, **self.about}


def check_options(
    sigma_0: float | str | None, has_scan: bool, gain: float | str | None, read_noise: float | None, basis: Basis
) -> None:
    """The noise must be given once. This is checked before any file is read."""
    if gain is None:
        if read_noise is not None:
            raise ValueError("--read-noise is for counts and needs --gain: give a number, or --gain estimate.")
        if (sigma_0 is None) != has_scan:
            was = "neither is" if sigma_0 is None else "both are"
            raise ValueError(
                f"The noise level is needed once, but {was} given: --sigma with a number, a file, estimate or repeats; or "
                "--noise-scan."
            )
        if not isinstance(sigma_0, str | None) and not 0 <= sigma_0 < math.inf:
            raise ValueError(f"--sigma must be a finite number of at least 0, but is {sigma_0}.")
        return
    if sigma_0 is not None or has_scan:
        raise ValueError(
            "--gain determines the noise of counts, so --sigma and --noise-scan have no effect: omit them."
        )
    if not basis.is_signal:
        raise ValueError(
            f"--gain is for counts in signal space, but the basis is {basis}: give --sigma, or --basis Identity."
        )


def to_gaussian(
    spectra: Spectra, n: int, gain: float | str | None, read_noise: float | None
) -> tuple[Spectra, dict[str, Any]]:
    """Spectra whose noise is Gaussian, and for the header what was done to counts. Their noise level is then 1."""
    if gain is None:
        return spectra, {}
    transform, how = choose_transform(gain, read_noise, spectra, n)
    return Counts(spectra, transform), {"transform": transform.record(), "counts": how}


def choose_noise(
    given: float | str | None, spectra: Spectra, basis: Basis, shapes: Shapes, path: Path, scan: Spectra | None = None
) -> Noise:
    """`given` is a number, `estimate`, `repeats`, or the name of a file or array. `scan` is a scan without signal."""
    n = sum(map(len, shapes.values()))
    if scan is not None:
        return _constant([_of_scan(scan)] * n)
    if given == "estimate":
        return _constant(_by_volume(spectra, basis, shapes))
    if given == "repeats":
        return _constant([_of_repeats(spectra, shapes)] * n)
    if not isinstance(given, str):
        level = np.full((1, 1, 1), float(given or 0.0))
        return Noise(lambda index: level)
    return _from_file(given, spectra, shapes, path)


def _constant(levels: list[Level]) -> Noise:
    """One level per sample, and what is known about the most uncertain."""
    worst = max(levels, key=lambda level: level.uncertainty / level.value)
    about = {"method": worst.method, "uncertainty": worst.uncertainty}
    values = [np.full((1, 1, 1), level.value) for level in levels]
    return Noise(lambda index: values[index], about)


def _of_scan(scan: Spectra) -> Level:
    values = [
        spectrum.ybar[np.broadcast_to(spectrum.mask, spectrum.ybar.shape) == 1]
        for spectrum in map(scan.__getitem__, range(len(scan)))
    ]
    pooled = np.concatenate(values)
    spread, inner = pooled.std(dtype=np.float64), np.median(np.abs(pooled - np.median(pooled))) / 0.6745
    if spread > 1.5 * inner:
        raise ValueError(
            f"The noise scan is not noise alone: its standard deviation is {spread:.3g}, but {inner:.3g} by the median "
            "absolute deviation. Give a scan without signal."
        )
    return from_values(pooled, "standard deviation of a scan without signal")


def _by_volume(spectra: Spectra, basis: Basis, shapes: Shapes) -> list[Level]:
    members: dict[Any, list[int]] = {}
    for shape, indices in shapes.items():
        for index in indices:
            members.setdefault((spectra.volume(index), shape), []).append(index)
    levels: dict[int, Level] = {}
    problems = Problems()
    for (_, shape), indices in members.items():
        many = max(1, READ // math.prod(shape))
        some = [spectra[indices[at]] for at in evenly_spread(many, len(indices))]
        with problems.noted(spectra.file(indices[0])):
            levels |= dict.fromkeys(indices, from_lowest(some, basis))
    problems.stop()
    return [levels[index] for index in sorted(levels)]


def _of_repeats(spectra: Spectra, shapes: Shapes) -> Level:
    """Samples of one position are repeats. Spectra that do not know positions have none."""
    position = getattr(spectra, "position", lambda index: index)
    members: dict[Any, list[int]] = {}
    for shape, indices in shapes.items():
        for index in indices:
            members.setdefault((position(index), shape), []).append(index)
    repeated = [indices for indices in members.values() if len(indices) > 1]
    if not repeated:
        raise ValueError(
            "--sigma repeats needs several scans of the same thing, but each sample here is of another: give a NIfTI file "
            "with time points, a TIFF stack or a folder of images of one scene, or use --sigma estimate."
        )
    some = [repeated[at] for at in evenly_spread(max(1, READ // spectra[0].ybar.size), len(repeated))]
    masks = (np.logical_and.reduce([spectra[index].mask for index in indices]) for indices in some)
    return from_repeats(([spectra[index].ybar for index in indices] for indices in some), masks)


def _from_file(given: str, spectra: Spectra, shapes: Shapes, path: Path) -> Noise:
    """One value per sample, or a noise map: one for all samples, or one for each."""
    n = sum(map(len, shapes.values()))
    open_maps = getattr(spectra, "open_maps", None)
    if open_maps is not None and not _is_list(given):
        maps = open_maps(given, "noise map")
        return Noise(lambda index: _checked(maps(index), given), {"map": given})
    try:
        values = read_beside(given, path)
    except ValueError as error:
        if Path(given).suffix:
            raise
        raise ValueError(f"--sigma {given} is neither a number, nor estimate, nor repeats; and {error}") from error
    if values.dtype.kind != "f":
        raise ValueError(
            f"sigma_0 in {given} is {values.dtype}: give floating-point numbers, in the units of the data."
        )
    if values.ndim == 1:
        if len(values) < n:
            raise ValueError(f"sigma_0 in {given} has shape {values.shape}: give one float for each of {n} samples.")
        return Noise(lambda index: _checked(values[index].reshape(1, 1, 1), given))
    per_sample = values.ndim > 2
    plane = values.shape[1:] if per_sample else values.shape
    fits = values.ndim <= 4 and all(
        a in (1, b) for shape in shapes for a, b in zip(plane[::-1], _channels(spectra, shape)[::-1], strict=False)
    )
    if not fits or (per_sample and len(values) < n):
        sizes = " and ".join(str(size) for size in dict.fromkeys(shape[-2:] for shape in shapes))
        remedy = ", import one size at a time" if len(shapes) > 1 else ""
        raise ValueError(
            f"The noise map {given} has shape {values.shape}, but {n} samples are {sizes}: give (H, W), (N, H, W), or one "
            f"value for each sample{remedy}."
        )
    centred: Callable[[np.ndarray], np.ndarray] = getattr(spectra, "centred_map", lambda std: std)

    def at(index: int) -> np.ndarray:
        one = values[index] if per_sample else values
        one = centred(one.reshape((1,) * (3 - one.ndim) + one.shape))
        return _checked(one.repeat(2, 0) if spectra.is_complex and len(one) > 1 else one, given)

    return Noise(at, {"map": given})


def _channels(spectra: Spectra, shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[0] // 2 if spectra.is_complex else shape[0], *shape[1:])


def _is_list(given: str) -> bool:
    return Path(given).suffix == ".npy" and len(stored_arrays(given)["array"].shape) == 1


def _checked(std: np.ndarray, given: str) -> np.ndarray:
    if not (np.isfinite(std).all() and (std >= 0).all()):
        raise ValueError(
            f"The noise levels in {given} must be finite and at least 0, but go from {np.nanmin(std):g} to "
            f"{np.nanmax(std):g}, with {int((~np.isfinite(std)).sum())} values that are NaN or infinite: set those to any "
            "number, and their mask to 0."
        )
    return std.astype(np.float64)
