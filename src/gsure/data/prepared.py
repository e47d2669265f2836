"""From scans to spectra: one coil, centred k-space, no readout oversampling, one matrix; and what was done, in words."""

import functools
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gsure.data.kspace import (
    centre_kspace,
    crop_field_of_view,
    energy_in_middle,
    first_virtual_coil,
    is_constant,
    resize_mask,
    resize_matrix,
)
from gsure.data.preparation import Preparation
from gsure.data.scans import Plane, Scan
from gsure.data.source import Spectrum, evenly_spread, in_pairs, locate, refuse_nonfinite, to_image
from gsure.display import number, percent

READ = 16
"""Slices of a volume that are read to compute its virtual coil, and of a folder to find the image, at most."""


FEW_ZEROS = 0.01
"""Values that are measured and exactly zero, at most, as a share."""
OUTSIDE = 0.8
"""Rows of noise keep their share of the energy in a crop. With less than this part of it, the object is elsewhere."""


class Prepared:
    """The samples of all scans, prepared: `Spectra` to write."""

    def __init__(self, scans: Sequence[Scan], preparation: Preparation) -> None:
        self.scans, self.preparation = scans, preparation
        self.ends = tuple(itertools.accumulate(len(scan) for scan in scans))
        self.is_complex = scans[0].is_complex and preparation.combine != "rss"
        self._virtuals: dict[int, tuple[np.ndarray, float]] = {}
        self._energies: dict[tuple[int, int], np.ndarray] = {}
        self._zeros: dict[bool, dict[tuple[str, int], float]] = {False: {}, True: {}}

    def __len__(self) -> int:
        return self.ends[-1]

    def volume(self, index: int) -> str:
        return self.scans[locate(self.ends, index)[0]].volume

    def file(self, index: int) -> str:
        return self.scans[locate(self.ends, index)[0]].file

    def __getitem__(self, index: int) -> Spectrum:
        at, within = locate(self.ends, index)
        scan = self.scans[at]
        plane = _measured(scan.read(within))
        refuse_nonfinite(plane.values, f"Sample {within} of {scan.file}")  # before a transform spreads them
        self._count_zeros(scan, within, plane)
        values, mask, group = self._chosen(at, self._centred(plane))
        if scan.is_complex:
            values, mask = self._resized(scan, values, mask)
        if self.preparation.combine == "rss":
            values, mask = _root_sum_of_squares(values, mask, scan.file)
        values, mask = values[0], mask[0]
        if not self.is_complex:
            return Spectrum(values.astype(np.float32), mask, group)
        return Spectrum(in_pairs(values), mask if len(mask) == 1 else mask.repeat(2, 0), group)

    def _count_zeros(self, scan: Scan, within: int, plane: Plane) -> None:
        """The share of entries that are zero in all coils: of those that the mask has, or, without a mask, of all."""
        empty = (plane.values == 0).all((0, 1))
        kept = np.broadcast_to(plane.mask.any((0, 1)), empty.shape)
        share = float((empty & kept).sum() / max(1, kept.sum())) if scan.has_mask else 1 - float(kept.mean())
        self._zeros[scan.has_mask][scan.file, within] = share

    def _resized(self, scan: Scan, values: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """After the readout crop and in the wanted matrix."""
        rows, matrix = self.preparation.readout(scan), self.preparation.matrix
        if rows < values.shape[-2]:
            if not is_constant(mask, -2):
                other = "" if scan.readout else ", or name the other dimension readout (--axes, --dims)"
                raise ValueError(
                    f"The mask of {scan.file} varies along the readout (the rows), so the field of view cannot be cropped "
                    f"along it from {values.shape[-2]} to {rows}: type --readout-crop none{other}."
                )
            whole, values, mask = values, crop_field_of_view(values, rows, -2), mask[..., :1, :]
            energies = self._energies.setdefault(scan.size, np.zeros(2))
            energies += [np.vdot(whole, whole).real, np.vdot(values, values).real]
        if matrix is None:
            return values, mask
        size = values.shape[-2], values.shape[-1]
        wanted = matrix[0], matrix[1]
        return resize_matrix(values, wanted), resize_mask(mask, size, wanted)

    def _centred(self, plane: Plane) -> Plane:
        if not self.preparation.uncentred:
            return plane
        mask = np.fft.fftshift(np.broadcast_to(plane.mask, (*plane.mask.shape[:2], *plane.values.shape[-2:])), (-2, -1))
        for axis, length in zip((-2, -1), plane.mask.shape[-2:], strict=True):
            mask = mask.take([0], axis) if length == 1 else mask
        return Plane(centre_kspace(plane.values, self.image_at_first_index), mask, plane.group)

    def centred_map(self, std: np.ndarray) -> np.ndarray:
        """A noise map in the order of the data that was given, in the order of the spectra."""
        return np.fft.fftshift(std, (-2, -1)) if self.preparation.uncentred else std

    def _chosen(self, at: int, plane: Plane) -> Plane:
        """One coil, or for a root sum of squares all of them: (1 or coils, channels, rows, columns)."""
        values, mask, group = plane
        if self.preparation.combine is None:
            coil = self.preparation.coil or 0
            return Plane(values[coil, None], mask[coil if len(mask) > 1 else 0, None], group)
        if not (mask == mask[:1]).all():
            file = self.scans[at].file
            raise ValueError(f"The mask of {file} differs between coils, which cannot be combined: type --coil K.")
        if self.preparation.combine == "first-virtual":
            values = np.tensordot(self._virtual(at)[0].conj(), values, 1)[None].astype(values.dtype)
        return Plane(values, mask[:1], group)

    def _virtual(self, at: int) -> tuple[np.ndarray, float]:
        """The first virtual coil of a volume, and its share of the energy."""
        if at in self._virtuals:
            return self._virtuals[at]
        scan = self.scans[at]
        covariance = np.zeros((scan.coils, scan.coils), np.complex128)
        for index in evenly_spread(READ, len(scan)):
            values = _measured(scan.read(int(index))).values
            refuse_nonfinite(values, f"Sample {index} of {scan.file}")
            flat = values.reshape(scan.coils, -1).astype(np.complex128)
            covariance += flat @ flat.conj().T
        weights = first_virtual_coil(covariance)
        share = (weights.conj() @ covariance @ weights).real / max(np.trace(covariance).real, 1e-300)
        self._virtuals[at] = weights, float(share)
        return self._virtuals[at]

    @functools.cached_property
    def image_at_first_index(self) -> bool:
        """Of uncentred k-space: whether the image is whole as np.fft.ifft2 gives it, not split over the four corners."""
        shares = []
        for at in evenly_spread(READ, len(self)):
            scan, within = locate(self.ends, int(at))
            image = np.fft.ifft2(_measured(self.scans[scan].read(within)).values)
            shares.append(energy_in_middle(image) - energy_in_middle(np.fft.fftshift(image, (-2, -1))))
        return float(np.nanmean(shares)) >= 0

    def sizes(self) -> list[dict[str, Any]]:
        """Each change of matrix and pixel size, for the header of the file."""
        found: list[dict[str, Any]] = []
        for scan in self.scans:
            before = self.preparation.readout(scan), scan.size[1]
            after = self.preparation.matrix or before
            factor = [n / m for n, m in zip(before, after, strict=True)]
            entry: dict[str, Any] = {
                "k-space": list(scan.size),
                "without oversampling": list(before),
                "matrix": list(after),
                "pixel size times": factor,
            }
            if scan.pixel is not None:
                entry["pixel size in mm"] = [round(p * f, 6) for p, f in zip(scan.pixel, factor, strict=True)]
            if entry not in found:
                found.append(entry)
        return found

    def header(self, size: tuple[int, int]) -> dict[str, Any]:
        return {"pixel size": [change for change in self.sizes() if change["matrix"] == list(size)]}

    def report(self) -> list[str]:
        """How the files were taken and what was done, a line each."""
        lines: dict[str, list[str]] = {}
        for scan in self.scans:
            lines.setdefault(f"{'k-space' if scan.is_complex else 'values'}: {scan.describe()}", []).append(scan.file)
        several = len(lines) > 1
        said = [f"{line} ({_names(files)})" if several else line for line, files in lines.items()]
        return [*said, *self._report_zeros(), *self._report_coils(), *self._report_sizes()]

    def _report_zeros(self) -> list[str]:
        lines = []
        without, measured = (list(self._zeros[has_mask].values()) for has_mask in (False, True))
        if without and (share := sum(without) / len(without)) > 0:
            lines.append(
                f"mask: none is given, so entries that are zero were not measured, {percent(share)} (give --mask if a "
                "zero can be a measured value)"
            )
        if self.is_complex and measured and (share := sum(measured) / len(measured)) > FEW_ZEROS:
            lines.append(
                f"warning: {percent(share)} of the entries that the mask measures are exactly zero, which noise never "
                "is: check the mask"
            )
        return lines

    def _report_coils(self) -> list[str]:
        lines = []
        if self.preparation.uncentred:
            how = "np.fft.fft2(x)" if self.image_at_first_index else "np.fft.fft2(np.fft.ifftshift(x))"
            lines.append(f"uncentred: centred as k-space {how} of an image x, whose object is then in the middle")
        if self.preparation.coil is not None:
            lines.append(f"coils: coil {self.preparation.coil} only")
        if self.preparation.combine == "first-virtual":
            shares = [self._virtual(at)[1] for at in range(len(self.scans))]
            held = " to ".join(dict.fromkeys(f"{100 * share:.0f} %" for share in (min(shares), max(shares))))
            lines.append(
                f"coils: the first virtual coil of each volume, with {held} of the energy. Its noise level is that of a coil "
                "if the noise of the coils is uncorrelated and equal"
            )
        if self.preparation.combine == "rss":
            lines.append(
                "coils: root sum of squares of the coil images, real, in the basis Identity. Its noise is Gaussian with the "
                "noise level of a coil only where the signal is well above the noise"
            )
        return lines

    def _report_sizes(self) -> list[str]:
        lines = []
        for size in self.sizes():
            raw, before, after = size["k-space"], size["without oversampling"], size["matrix"]
            if before != raw:
                all_energy, held = self._energies.get((raw[0], raw[1]), np.ones(2))
                share = held / max(all_energy, 1e-300)
                lines.append(
                    f"readout: cropped from {raw[0]} to {before[0]} rows of {raw[1]} columns, which is exact and keeps the "
                    f"noise level and {100 * share:.0f} % of the energy (--readout-crop none keeps all rows)"
                )
                if share < OUTSIDE * before[0] / raw[0]:
                    lines.append(
                        "warning: most of the energy is outside the crop, as if the image were shifted by half the field of "
                        "view; type --readout-crop none, or shift the image before you import it"
                    )
            if after != before:
                words = [
                    f"{'padded' if m > n else 'cropped'} from {n} to {m} {name}"
                    for n, m, name in zip(before, after, ("rows", "columns"), strict=True)
                    if n != m
                ]
                factor = " × ".join(number(f) for f in size["pixel size times"])
                mm = size.get("pixel size in mm")
                exactly = f", to {' × '.join(number(p) for p in mm)} mm" if mm else ""
                padded = ". What is padded counts as not measured" if "padded" in " ".join(words) else ""
                lines.append(f"matrix: k-space {' and '.join(words)}; pixel sizes change by {factor}{exactly}{padded}")
        return lines


def _measured(plane: Plane) -> Plane:
    """Zero where nothing was measured."""
    return plane._replace(values=np.where(plane.mask, plane.values, plane.values.dtype.type(0)))


def _names(files: Sequence[str]) -> str:
    first = Path(files[0]).name
    return first if len(files) == 1 else f"{first} and {len(files) - 1} more"


def _root_sum_of_squares(values: np.ndarray, mask: np.ndarray, file: str) -> tuple[np.ndarray, np.ndarray]:
    if not mask.all():
        raise ValueError(
            f"{file} has entries that were not measured (or that --matrix pads), but a root sum of squares needs fully "
            "sampled k-space: type --combine first-virtual or --coil K."
        )
    images = np.sqrt((np.abs(to_image(values)) ** 2).sum(0, keepdims=True))
    return images, np.ones((1, 1, 1, 1), bool)
