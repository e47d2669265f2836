"""`dicom`: slices of all DICOM series in a folder; needs the package pydicom."""

import functools
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gsure.data.dicom_space import position_of, space_of
from gsure.data.problems import Problems
from gsure.data.source import DAMAGED, existing, optional, refuse_unreadable
from gsure.data.volume import Slices, Volume

HEADER = [
    "SeriesInstanceUID",
    "InstanceNumber",
    "ImagePositionPatient",
    "ImageOrientationPatient",
    "PixelSpacing",
    "SpacingBetweenSlices",
    "SliceThickness",
    "Rows",
    "Columns",
    "NumberOfFrames",
    "SamplesPerPixel",
]
LENGTHS = {"ImagePositionPatient": 3, "ImageOrientationPatient": 6, "PixelSpacing": 2}
"""How many numbers a tag has."""
NOT_DICOM = tuple(kind for kind in DAMAGED if kind is not OSError)
"""Errors for a file of another format, which is skipped. An OSError, such as missing permission, is raised."""


@dataclass(frozen=True)
class Dicom(Slices):
    """Axes are (columns, rows from the bottom, slices). Slices are sorted by position, then by instance number.

    Values are those of the modality, after rescale slope and intercept. CT values can be negative, so CT needs `window`.
    Along axis 2, a sample is one file; along the others, the last volume is cached in memory. The group is the series.
    """

    kind: ClassVar[str] = "dicom"

    def _headers(self, problems: Problems) -> tuple[Volume, ...]:
        path = existing(self.path)
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        refuse_unreadable([path, *files])
        series: dict[str, list[tuple[float, int, str, tuple[int, int]]]] = {}
        headers: dict[str, Any] = {}
        for file in files:
            header = None
            with problems.noted(), warnings.catch_warnings(action="ignore"):
                header = _header(file)
            if header is not None:
                key = (position_of(header), int(header.get("InstanceNumber") or 0), str(file))
                series.setdefault(str(header.SeriesInstanceUID), []).append((*key, (header.Columns, header.Rows)))
                headers[str(file)] = header
        if not series and not problems.found:
            raise ValueError(f"{path} has no DICOM image among its {len(files)} files: check the path.")
        volumes = []
        for uid, planes in sorted(series.items()):
            if len({shape for *_, shape in planes}) > 1:
                problems.add(
                    f"The series {uid} in {path} has slices of different sizes: move them to separate folders."
                )
                continue
            ordered = tuple(file for _, _, file, _ in sorted(planes))
            space = space_of([headers[file] for file in ordered])
            volumes.append(Volume(uid, ordered, (*planes[0][3], len(planes)), space))
        return tuple(volumes)

    def _plane(self, volume: Volume, at: int, further: tuple[int, ...]) -> np.ndarray:
        if self.axis == 2:
            return _values(volume.files[at])
        return np.rot90(np.take(_stacked(volume.files, os.getpid()), at, self.axis))


def _header(file: Path) -> Any:
    """The header of a DICOM image, or None if the file is not one."""
    pydicom = optional("pydicom")
    try:
        header = pydicom.dcmread(file, stop_before_pixels=True, specific_tags=HEADER)
        tags = {name: header.get(name) for name in HEADER}  # reading a tag decodes it
    except (*NOT_DICOM, pydicom.errors.InvalidDicomError, pydicom.errors.BytesLengthException) as error:
        if file.suffix.lower() in (".dcm", ".ima"):
            raise ValueError(f"{file} is not a DICOM file that can be read ({error}): remove it.") from error
        return None
    if any(tags[name] is None for name in ("Rows", "Columns", "SeriesInstanceUID")):
        return None
    if int(header.get("NumberOfFrames") or 1) > 1 or int(header.get("SamplesPerPixel") or 1) > 1:
        raise ValueError(
            f"{file} holds several frames or colours, which is not supported: convert it to NIfTI (dcm2niix)."
        )
    wrong = [name for name, many in LENGTHS.items() if tags[name] and np.size(tags[name]) != many]
    try:
        int(tags["InstanceNumber"] or 0)
    except ValueError:
        wrong.append("InstanceNumber")
    if wrong:
        raise ValueError(f"{file} has {wrong[0]} {tags[wrong[0]]}, which cannot be read: fix or remove it.")
    return header


def _values(file: str) -> np.ndarray:
    pydicom = optional("pydicom")
    try:
        with warnings.catch_warnings(action="ignore"):
            dataset = pydicom.dcmread(file)
            raw = dataset.pixel_array.astype(np.float32)
    except (pydicom.errors.InvalidDicomError, *DAMAGED) as error:
        raise ValueError(
            f"The pixels of {file} cannot be decoded ({str(error).rstrip('.')}): copy the file again or, if it is compressed, "
            "decompress it (gdcmconv --raw)."
        ) from error
    values = raw * float(dataset.get("RescaleSlope", 1)) + float(dataset.get("RescaleIntercept", 0))
    if dataset.get("PhotometricInterpretation") == "MONOCHROME1":
        raise ValueError(f"{file} is stored with white as 0 (MONOCHROME1), which is not supported: invert it first.")
    return values


@functools.lru_cache(maxsize=1)
def _stacked(files: tuple[str, ...], process: int) -> np.ndarray:
    """A complete series as (columns, rows from the bottom, slices): rotating a slice along axis 2 gives the stored image."""
    return np.stack([np.rot90(_values(file), -1) for file in files], 2)
