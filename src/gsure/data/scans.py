"""Measured data as a file holds it, before coils are chosen and k-space is cropped: one `Scan` per file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from gsure.data.array import choose_array, choose_pair, read_beside
from gsure.data.cfl import cfl_file, mapped
from gsure.data.layout import Layout, array_layout, bart_layout, split_names
from gsure.data.problems import Problems
from gsure.data.source import evenly_spread, existing, files_in, refuse_unreadable
from gsure.display import percent

FORMATS = {
    "fastmri": (".h5", ".hdf5"),
    "array": (".npy", ".npz", ".h5", ".hdf5"),
    "cfl": (".cfl",),
    "ismrmrd": (".mrd",),
    "nifti": (".nii", ".nii.gz"),
    "dicom": (".dcm", ".ima"),
    "tiff": (".tif", ".tiff"),
    "images": (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp"),
}
"""Endings of files with data, by kind."""
LEFT_OUT = 0.2
"""A mask that has less than this share of the energy of k-space is probably swapped."""
LOOKED_AT, IN_HALF = 16, 0.9
"""Entries of the first dimension that are looked at, and the least share of the energy of k-space in half of its rows."""


class Plane(NamedTuple):
    """One sample as it was measured: values (coils, channels, rows, columns), and a mask that broadcasts against them."""

    values: np.ndarray
    mask: np.ndarray
    group: str


@runtime_checkable
class Scan(Protocol):
    """The samples of one file."""

    @property
    def file(self) -> str: ...
    @property
    def volume(self) -> str:
        """Samples of one volume are divided by the same number."""

    @property
    def is_complex(self) -> bool: ...
    @property
    def coils(self) -> int: ...
    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def readout(self) -> int | None:
        """The length of the readout without oversampling, if the file tells."""

    @property
    def pixel(self) -> tuple[float, float] | None:
        """Height and width of a pixel in mm, if the file tells."""

    @property
    def has_mask(self) -> bool:
        """Whether a mask says what was measured. Otherwise entries that are zero were not."""

    def describe(self) -> str:
        """Which dimension was taken for what."""

    def __len__(self) -> int: ...
    def read(self, index: int, /) -> Plane: ...


@dataclass(frozen=True)
class Mask:
    """A mask in the dimensions of the data, or, without a layout, in (N or 1, coils, channels, rows, columns)."""

    values: np.ndarray
    layout: Layout | None

    def __getitem__(self, index: int) -> np.ndarray:
        if self.layout is not None:
            return self.layout.take(self.values, index)
        return self.values[index * (len(self.values) > 1)]


@dataclass(frozen=True)
class ArrayScan:
    """An array with a layout, and its mask.

    Without a mask, entries that are zero in all coils and channels were not measured. With `group` None, each sample is its
    own group.
    """

    file: str
    values: Any
    layout: Layout
    mask: Mask | None
    group: str | None
    readout: None = None
    pixel: None = None

    @property
    def volume(self) -> str:
        return self.group or "all samples"

    @property
    def is_complex(self) -> bool:
        return self.values.dtype.kind == "c"

    @property
    def coils(self) -> int:
        return self.layout.coils

    @property
    def size(self) -> tuple[int, int]:
        return self.layout.size

    @property
    def has_mask(self) -> bool:
        return self.mask is not None

    def describe(self) -> str:
        words = self.layout.describe()
        return words if self.is_complex else words.replace(" (readout)", "").replace(" (phase)", "")

    def __len__(self) -> int:
        return len(self.layout)

    def read(self, index: int) -> Plane:
        values = self.layout.take(self.values, index)
        group = str(index) if self.group is None else self.group
        if self.mask is None:
            with np.errstate(invalid="ignore"):  # values of another byte order can be NaN
                return Plane(values, (values != 0).any((0, 1), keepdims=True), group)
        return Plane(values, self.mask[index], group)


def open_array(file: str, key: str | None, mask: str | Path | None, axes: str | None, group: str | None) -> ArrayScan:
    dimensions = (len(split_names(axes)),) if axes else (3, 4, 5, 6, 7, 8)
    if key is not None and "," in key:
        array: Any = choose_pair(file, key)
    elif Path(file).suffix == ".npy":
        array = choose_array(file, key, "spectra", (dimensions if axes else (2, *dimensions)))
    else:
        array = choose_array(file, key, "spectra", dimensions)
    layout = array_layout(array.shape, array.dtype.kind == "c", axes, file)
    if axes is None and array.dtype.kind == "c" and len(array.shape) == 3:
        refuse_samples_last(array, file)
    kept = None if mask is None else align_mask(read_mask(mask, Path(file)), layout, file)
    return ArrayScan(file, array, layout, kept, group)


def refuse_samples_last(array: Any, file: str) -> None:
    """k-space has its energy in the middle of rows and columns (or at their ends), and not of samples."""
    some = np.abs(np.nan_to_num(np.stack([array[int(k)] for k in evenly_spread(LOOKED_AT, array.shape[0])]))) ** 2
    first, last = (_share_in_half(some.sum(axes)) for axes in ((1, 2), (0, 1)))
    if first > IN_HALF and last < min(IN_HALF, first) - 0.1:
        raise ValueError(
            f"{file} has shape {array.shape} and the energy of k-space in the middle of dimension 0, but not of dimension 2: "
            "type --axes readout,phase,sample if dimension 2 counts the samples, and --axes sample,readout,phase if dimension "
            "0 does."
        )


def _share_in_half(power: np.ndarray) -> float:
    """The share in the middle half, or in the two outer quarters."""
    n = len(power)
    if n < 2:
        return 0.5
    middle = power[n // 4 : n // 4 + -(-n // 2)].sum() / max(power.sum(), 1e-300)
    return float(max(middle, 1 - middle))


def open_cfl(file: str, mask: str | Path | None, dims: str | None, group: str) -> ArrayScan:
    values = mapped(file)
    layout = bart_layout(values.shape, dims, file)
    kept = None
    if mask is not None:
        given, most = read_mask(mask, Path(file)), len(layout.shape)
        if is_cfl(mask) and all(length == 1 for length in given.shape[most:]):
            given = given.reshape(*given.shape[:most], *[1] * (most - given.ndim))
        kept = align_mask(given, layout, file)
    return ArrayScan(file, values.reshape(layout.shape, order="F"), layout, kept, group)


def is_cfl(path: str | Path) -> bool:
    return Path(path).suffix in (".cfl", ".hdr")


def read_mask(given: str | Path, data: Path) -> np.ndarray:
    """Read the mask from a .cfl or .npy file, or from an array in the same file as the data."""
    values = np.abs(mapped(cfl_file(given))) if is_cfl(given) else read_beside(given, data)
    if values.dtype.kind == "c" and not is_cfl(given):
        raise ValueError(f"The mask {given} is complex, as k-space is: check whether the two files are swapped.")
    if not np.isin(values, (0, 1)).all():
        raise ValueError(f"The mask {given} must be 0 (missing) or 1 (measured), but has other values.")
    if not values.any():
        raise ValueError(f"The mask {given} measures no entry: check whether 0 and 1 are swapped.")
    return values.astype(bool)


def align_mask(mask: np.ndarray, layout: Layout, file: str) -> Mask:
    """A mask in the dimensions of the data, or one that broadcasts from the right: (W), (H, W), (N, 1, W), (N, C, H, W)."""
    if mask.ndim == len(layout.shape) and _fits(mask.shape, layout.shape):
        return Mask(mask, layout)
    many = max(layout.coils, layout.channels)
    shape = (len(layout), *([many] if many > 1 else []), *layout.size)
    if mask.ndim <= len(shape) and _fits(mask.shape, shape[len(shape) - mask.ndim :]):
        mask = mask.reshape(*[1] * (len(shape) - mask.ndim), *mask.shape)
        mask = mask if many > 1 else mask[:, None]
        return Mask(mask[:, :, None] if layout.coils > 1 else mask[:, None], None)
    raise ValueError(
        f"The mask has shape {mask.shape}, which does not broadcast against the data of shape {layout.shape} in {file}: give "
        "a mask of shape (W,), (H, W), (N, 1, W) or the shape of the data."
    )


def _fits(mine: tuple[int, ...], theirs: tuple[int, ...]) -> bool:
    return all(a in (1, b) for a, b in zip(mine, theirs, strict=True))


def is_mask_right(scan: Scan, problems: Problems) -> bool:
    """k-space has most of its energy where the mask is 1, if there is any elsewhere. Notes a mask with 0 and 1 swapped."""
    if not (scan.has_mask and scan.is_complex):
        return True
    whole = inside = expected = 0.0
    for index in evenly_spread(LOOKED_AT // 4, len(scan)):
        with problems.noted():
            values, mask, _ = scan.read(int(index))
            power = np.abs(np.nan_to_num(values)).astype(np.float64) ** 2
            whole, inside = whole + power.sum(), inside + (power * mask).sum()
            expected += power.sum() * mask.mean()  # of white noise
    if inside >= min(LEFT_OUT * whole, expected / 2):
        return True
    problems.add(
        f"its mask leaves out {percent(float(1 - inside / whole))} of the energy of the file, as if 0 and 1 were swapped: 1 "
        "means measured. If the mask is right, set the values that were not measured to 0.",
        scan.file,
    )
    return False


def data_files(kind: str, path: Path, mask: str | Path | None) -> list[str]:
    """The file, or the files of this kind in a folder, without that of the mask. A folder must have one format."""
    path = existing(path)
    refuse_unreadable([path])
    if path.is_file():
        return [str(path)]
    refuse_mixed(kind, path)
    beside = None if mask is None else (cfl_file(mask) if is_cfl(mask) else Path(mask).expanduser()).resolve()
    return [file for file in files_in(path, *FORMATS[kind]) if Path(file).resolve() != beside]


def refuse_mixed(kind: str, folder: Path) -> None:
    """A folder with data of several formats is ambiguous: which of them is wanted?"""
    endings: dict[str, list[str]] = {}
    for file in sorted(folder.rglob("*")):
        name = file.name.lower()
        ending = next((e for es in FORMATS.values() for e in sorted(es, key=len)[::-1] if name.endswith(e)), None)
        if ending and not name.startswith("."):
            endings.setdefault(ending, []).append(file.name)
    mine = [e for e in FORMATS[kind] if e in endings]
    if others := [e for e in endings if e not in mine]:
        counted = ", ".join(f"{len(files)} {e} (such as {files[0]})" for e, files in endings.items())
        kinds = [name for name, es in FORMATS.items() if others[0] in es]
        raise ValueError(
            f"The folder {folder} mixes formats: {counted}; import {kind} reads {' and '.join(FORMATS[kind])}: move the "
            f"{others[0]} files to a folder of their own{_other_command(kinds)}."
        )


def _other_command(kinds: list[str]) -> str:
    known = ("array", "cfl", "nifti", "dicom", "tiff", "images")
    return f", and import them with gsure import {kinds[0]}" if kinds and kinds[0] in known else ""


def refuse_unlike(scans: Sequence[Scan], problems: Problems) -> None:
    """Note files that cannot be in one measurement file: real beside complex ones, and two with the same name."""
    if len({scan.is_complex for scan in scans}) > 1:
        for scan in scans:
            if not scan.is_complex:
                problems.add("it is real, but other files are complex: import them separately.", Path(scan.file).name)
    files: dict[str, list[str]] = {}
    for scan in scans:
        files.setdefault(scan.volume, []).append(scan.file)
    for volume, same in files.items():
        if len(same) > 1:
            problems.add(f"{' and '.join(same)} would both be the group {volume}: rename one of them.")
