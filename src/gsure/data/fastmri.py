"""`fastmri`: single-coil volumes in fastMRI's HDF5 layout. You need your own copy: its terms forbid redistribution.

The defaults are those of the paper: slices 10 to 40, inverse Fourier transform, a central crop of 320x320 pixels, division by
7e-5. Images are complex, in two channels. The group is the volume, so that a split never separates the slices of a knee.
"""

import itertools
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from xml.etree import ElementTree

import numpy as np

from gsure.data.array import refuse_hollow
from gsure.data.scans import Plane
from gsure.data.source import (
    DAMAGED,
    Sample,
    Source,
    centre_crop,
    check_scale,
    check_size,
    check_slices,
    existing,
    files_in,
    in_pairs,
    kept,
    locate,
    name_in,
    refuse_nonfinite,
    sizes,
    summary,
    to_image,
)
from gsure.files import open_hdf5

ENDINGS = (".h5", ".hdf5")
PAPER_READOUT = 640, 320
"""Readouts of the knees of fastMRI, and what the paper keeps of them, where a file has no header."""
LEAST_KEPT = 1 / 16
"""No scanner oversamples the readout by more."""
PAPER_SLICES = 24_853
"""Number of training slices in the paper."""


@dataclass(frozen=True)
class FastMRI(Source):
    """`path` is a volume, a folder of volumes, or, with `split`, the folder that holds `singlecoil_train` and the others.
    `slices` is (first, last), inclusive; a shorter volume has fewer samples.
    """

    kind: ClassVar[str] = "fastmri"
    path: str | Path
    split: str | None = None
    slices: tuple[int, int] = (10, 40)
    size: int = 320
    scale: float = 7e-5
    is_complex: bool = field(default=True, init=False, repr=False, compare=False)
    shape: tuple[int, int, int] = field(init=False, repr=False, compare=False)
    files: tuple[str, ...] = field(init=False, repr=False, compare=False)
    ends: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """The cumulative number of samples, up to and including each file."""

    def __post_init__(self) -> None:
        check_size(self.size)
        check_scale(self.scale)
        check_slices(self.slices)
        files = files_in(self._folder, *ENDINGS)
        counts = [self._checked_count(file) for file in files]
        self._set(files=files, ends=tuple(itertools.accumulate(counts)), shape=(2, self.size, self.size))

    @property
    def _folder(self) -> Path:
        path = existing(self.path)
        return path if self.split is None else path / f"singlecoil_{self.split}"

    def _checked_count(self, file: str) -> int:
        """The number of slices to read from a volume, after checking the volume."""
        shape, mask_shape = _shapes(file)
        if mask_shape is not None:
            raise ValueError(
                f"{file} has a mask, so its k-space is undersampled (a test or challenge file): use gsure import."
            )
        if shape[0] <= self.slices[0]:
            raise ValueError(
                f"{file} has {shape[0]} slices, so none from {self.slices[0]} on: remove it, or start slices earlier."
            )
        if min(shape[1:]) < self.size:
            raise ValueError(
                f"{file} has slices of {shape[1]}x{shape[2]}, smaller than the crop of {self.size}: lower size."
            )
        return _count(shape, self.slices)

    def __len__(self) -> int:
        return self.ends[-1]

    def _read(self, index: int) -> Sample:
        number, within = locate(self.ends, index)
        file, at = self.files[number], self.slices[0] + within
        kspace = _kspace(file, at)
        refuse_nonfinite(kspace, f"The k-space of slice {at} of {file}")
        image = centre_crop(to_image(kspace), self.size, self.size)
        return Sample(in_pairs(image / np.float32(self.scale)), name_in(self._folder, file, *ENDINGS), self.scale)

    def _content(self) -> dict[str, Any]:
        starts = (0, *self.ends[:-1])
        per_folder: dict[str, int] = {}
        for file, start, end in zip(self.files, starts, self.ends, strict=True):
            folder = Path(file).parent.name
            per_folder[folder] = per_folder.get(folder, 0) + end - start
        return {"slices": per_folder, "paper_training_slices": PAPER_SLICES, **summary(sizes(self.files))}


@dataclass(frozen=True)
class FastMRIScan:
    """An undersampled volume as in fastMRI's test set: `kspace` (slices, height, width), or (slices, coils, height, width),
    and `mask` (width). `slices` is (first, last), inclusive.
    """

    file: str
    volume: str
    shape: tuple[int, ...]
    slices: tuple[int, int]
    encoding: "Encoding | None"
    is_complex: bool = True
    has_mask: bool = True

    @classmethod
    def open(cls, file: str, folder: Path, slices: tuple[int, int] | None) -> "FastMRIScan":
        shape, mask_shape = _shapes(file, (3, 4))
        fits = len(shape) == 4
        if mask_shape is not None:
            fits = len(mask_shape) in (1, 2) and all(
                m in (1, n) for m, n in zip(mask_shape[::-1], shape[::-1], strict=False)
            )
        if not fits:
            has = "no mask" if mask_shape is None else f"a mask of shape {mask_shape}"
            raise ValueError(
                f"{file} has k-space of shape {shape} and {has}, but measured volumes have a mask of shape "
                f"{shape[-1:]}: if the k-space is fully sampled, use gsure corrupt; if its zeros were not measured, use gsure "
                "import array with --key kspace."
            )
        return cls(
            file, name_in(folder, file, *ENDINGS), shape, slices or (0, shape[0] - 1), _encoding(file, shape[-1])
        )

    @property
    def coils(self) -> int:
        return self.shape[1] if len(self.shape) == 4 else 1

    @property
    def size(self) -> tuple[int, int]:
        return self.shape[-2], self.shape[-1]

    @property
    def readout(self) -> int | None:
        if self.encoding is not None:
            return round(self.shape[-2] * self.encoding.kept)
        return PAPER_READOUT[1] if self.shape[-2] == PAPER_READOUT[0] else None

    @property
    def pixel(self) -> tuple[float, float] | None:
        if self.encoding is None:
            return None
        height, width = (length / n for length, n in zip(self.encoding.field_of_view, self.size, strict=True))
        return height, width

    def describe(self) -> str:
        coils = f"dimension 1 ({self.coils}) has coils, " if len(self.shape) == 4 else ""
        rows = len(self.shape) - 2
        mask = "" if _shapes(self.file, (3, 4))[1] else "; there is no mask, so everything counts as measured"
        if padding := self.shape[-1] - len(range(*self._acquired)):
            mask += f"; {padding} columns are padding by the header, so they were not measured"
        return (
            f"dimension 0 counts slices, {coils}dimension {rows} has rows (readout), dimension {rows + 1} has columns "
            f"(phase){mask}"
        )

    @property
    def _acquired(self) -> tuple[int, int]:
        return (0, self.shape[-1]) if self.encoding is None else self.encoding.acquired

    def __len__(self) -> int:
        return _count(self.shape, self.slices)

    def read(self, index: int) -> Plane:
        values = _kspace(self.file, self.slices[0] + index)
        values = values[None, None] if values.ndim == 2 else values[:, None]
        first, after = self._acquired
        columns = np.arange(self.shape[-1])
        mask = kept(_mask, self.file) & (first <= columns) & (columns < after)
        return Plane(values, mask[None, None], self.volume)


@dataclass(frozen=True)
class Encoding:
    """What the ISMRMRD header of a volume says."""

    field_of_view: tuple[float, float]
    """Of k-space, in mm."""
    kept: float
    """The part of the readout that is not oversampling."""
    acquired: tuple[int, int]
    """The first column that was acquired, and the first after them. Columns outside are padding, whatever the mask says."""


def _encoding(file: str, columns: int) -> Encoding | None:
    """Read the header, if the file has one."""
    with open_hdf5(file) as volume:
        if "ismrmrd_header" not in volume:
            return None
        text = volume["ismrmrd_header"][()]
    try:
        first = ElementTree.fromstring(text).find("{*}encoding")
        encoded, recon = (
            [float(first.findtext(f"{{*}}{space}/{{*}}fieldOfView_mm/{{*}}{axis}", "")) for axis in "xy"]  # type: ignore[union-attr]
            for space in ("encodedSpace", "reconSpace")
        )
        part = min(1.0, recon[0] / encoded[0])
        if not (part > LEAST_KEPT and all(map(math.isfinite, encoded))):
            raise ValueError(f"{recon[0]:g} of {encoded[0]:g} mm")
        limits = first.find("{*}encodingLimits/{*}kspace_encoding_step_1")  # type: ignore[union-attr]
        start, stop = 0, columns
        if limits is not None:
            start = columns // 2 - int(limits.findtext("{*}center", ""))
            stop = start + int(limits.findtext("{*}maximum", "")) + 1
        if max(0, start) >= min(columns, stop):
            raise ValueError(f"columns {start} to {stop - 1} of {columns}")
    except (ElementTree.ParseError, AttributeError, ValueError, TypeError, ZeroDivisionError) as error:
        raise ValueError(
            f"The ismrmrd_header of {file} has no field of view or no limits that make sense ({error}): fix it, or delete it "
            "from the file."
        ) from error
    return Encoding((encoded[0], encoded[1]), part, (max(0, start), min(columns, stop)))


def _count(shape: tuple[int, ...], slices: tuple[int, int]) -> int:
    return max(0, min(shape[0], slices[1] + 1) - slices[0])


def _shapes(file: str, dimensions: tuple[int, ...] = (3,)) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """The shapes of k-space and mask of a volume, from its header. The second is None if there is no mask."""
    try:
        with open_hdf5(file) as volume:
            held = list(volume)
            if "kspace" not in held:
                raise ValueError(f"{file} has no dataset kspace, only {held}: it is not a fastMRI volume.")
            shape, dtype = volume["kspace"].shape, volume["kspace"].dtype
            refuse_hollow(volume["kspace"], file)
            mask_shape = volume["mask"].shape if "mask" in held else None
    except (KeyError, RuntimeError, AttributeError) as error:
        raise ValueError(f"{file} is damaged, or not a fastMRI volume ({error}): check the file.") from error
    if len(shape) not in dimensions or dtype.kind != "c" or 0 in shape:
        wanted = "(slices, height, width)" + (" or (slices, coils, height, width)" if 4 in dimensions else "")
        remedy = (
            "convert it" if 4 in dimensions or len(shape) != 4 else "choose one coil with gsure import fastmri --coil"
        )
        raise ValueError(
            f"kspace of {file} has shape {shape} and type {dtype}, but volumes are complex and of shape {wanted}: {remedy}."
        )
    return shape, mask_shape


def _kspace(file: str, at: int) -> np.ndarray:
    try:
        with open_hdf5(file) as volume:
            return volume["kspace"][at]
    except DAMAGED as error:
        raise ValueError(
            f"Slice {at} of {file} cannot be read ({error}): the file may be truncated, copy it again."
        ) from error


def _mask(file: str) -> np.ndarray:
    """(1 or height, 1 or width); all ones if there is none."""
    with open_hdf5(file) as volume:
        mask = np.asarray(volume["mask"]) if "mask" in volume else np.ones(1)
    if not np.isin(mask, (0, 1)).all() or not mask.any():
        raise ValueError(f"The mask of {file} must be 0 (missing) or 1 (measured), and 1 somewhere: check the file.")
    return mask.astype(bool).reshape(-1, mask.shape[-1])
