"""`array`: signals in NumPy files (.npy, mapped into memory; .npz, read whole) or in a dataset of an HDF5 file.

Shapes (N, height, width), (N, channels, height, width), or (N, n) for vectors, which become (1, 1, n). Bytes, and other
unsigned integers, are intensities: 0..maximum of the type becomes -1..1. Real floats must lie in [-1, 1] already, and
complex ones should be of order one; if they are not, `scale` says what to divide by.
"""

import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gsure.data.source import (
    DAMAGED,
    Sample,
    Source,
    check_scale,
    existing,
    in_pairs,
    kept,
    refuse_nonfinite,
    sizes,
    summary,
)


@dataclass(frozen=True)
class Array(Source):
    """`key` names the array in an .npz or HDF5 file that holds several; `scale` divides (for unsigned integers, it is the
    value that becomes 1). With a scale given, values beyond [-1, 1] are accepted.
    """

    kind: ClassVar[str] = "array"
    path: str | Path
    key: str | None = None
    scale: float | None = None
    is_complex: bool = field(init=False, repr=False, compare=False)
    shape: tuple[int, int, int] = field(init=False, repr=False, compare=False)
    n: int = field(init=False, repr=False, compare=False)
    dtype: str = field(init=False, repr=False, compare=False)
    file: str = field(init=False, repr=False, compare=False)
    name: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_scale(self.scale)
        path = existing(self.path)
        if path.is_dir():
            raise ValueError(f"{path} is a folder, but an array is one .npy, .npz or HDF5 file: give the file.")
        arrays = _arrays(path)
        suitable = [name for name, (shape, dtype) in arrays.items() if 2 <= len(shape) <= 4 and dtype.kind in "buifc"]
        listed = ", ".join(f"{name} {shape} {dtype}" for name, (shape, dtype) in arrays.items()) or "nothing"
        if self.key is not None and self.key not in arrays:
            raise ValueError(f"{path} has no array {self.key!r}: it holds {listed}.")
        if self.key is None and len(suitable) != 1:
            raise ValueError(
                f"{path} holds {len(suitable)} arrays that could be signals, not one: it holds {listed}; name one by key."
            )
        name = self.key if self.key is not None else suitable[0]
        shape, dtype = arrays[name]
        if name not in suitable or 0 in shape:
            raise ValueError(
                f"The array {name!r} of {path} is {dtype} of shape {shape}: signals are numbers of shape (N, height, width), "
                "(N, channels, height, width) or (N, n)."
            )
        if len(shape) == 4 and shape[-1] in (1, 3, 4) and shape[1] > 4:
            raise ValueError(
                f"The array {name!r} of {path} has shape {shape}, with channels last as it seems: save "
                "np.moveaxis(array, -1, 1) instead."
            )
        channels, height, width = (1,) * (4 - len(shape)) + shape[1:]
        is_complex = dtype.kind == "c"
        self._set(
            is_complex=is_complex,
            shape=(channels * (1 + is_complex), height, width),
            n=shape[0],
            dtype=str(dtype),
            file=str(path),
            name=name,
        )

    def __len__(self) -> int:
        return self.n

    def _read(self, index: int) -> Sample:
        group = str(index)
        try:
            raw = np.asarray(_opened(self.file, self.name)[index])
        except DAMAGED as error:
            raise ValueError(
                f"Sample {index} of {self.file} cannot be read, the file may be cut short: {error}"
            ) from error
        raw = raw.reshape(-1, *self.shape[1:])
        if raw.dtype.kind in "bu":
            scale = self.scale or float(1 if raw.dtype.kind == "b" else np.iinfo(raw.dtype).max)
            return Sample((raw * (2 / scale) - 1).astype(np.float32), group, 1.0 if self.scale is None else scale)
        refuse_nonfinite(raw, f"Sample {index} of {self.file}")
        scale = self.scale or 1.0
        if self.is_complex:
            return Sample(in_pairs(raw / scale), group, scale)
        largest = float(np.abs(raw).max())
        if self.scale is None and largest > 1 + 1e-6:
            raise ValueError(
                f"Sample {index} of {self.file} has values up to {largest:g}, but real signals lie in [-1, 1]: give scale "
                f"(--source.scale {largest:g}) to divide by, or scale 1 to take the values as they are."
            )
        return Sample((raw / scale).astype(np.float32), group, scale)

    def _content(self) -> dict[str, Any]:
        return {"array": self.name, "dtype": self.dtype, **summary(sizes([self.file]))}


def _arrays(path: Path) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Name, shape and type of each array in the file, from headers alone."""
    try:
        match path.suffix.lower():
            case ".npy":
                with path.open("rb") as stream:
                    return {"array": _header(stream)}
            case ".npz":
                with zipfile.ZipFile(path) as archive:
                    members = [name for name in archive.namelist() if name.endswith(".npy")]
                    return {name.removesuffix(".npy"): _header(archive.open(name)) for name in members}
    except DAMAGED as error:
        raise ValueError(f"{path} is not a NumPy file, or is damaged: {error}") from error
    import h5py

    found: dict[str, tuple[tuple[int, ...], np.dtype]] = {}

    def note(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape is not None:
            found[name] = (item.shape, item.dtype)

    try:
        with h5py.File(path) as file:
            file.visititems(note)
    except OSError as error:
        raise ValueError(f"{path} is neither .npy, .npz nor a whole HDF5 file: {error}") from error
    return found


def _header(stream: Any) -> tuple[tuple[int, ...], np.dtype]:
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    return shape, dtype


def _opened(file: str, name: str) -> Any:
    match Path(file).suffix.lower():
        case ".npy":
            return kept(_mapped, file)
        case ".npz":
            return kept(_NpzArray(name), file)
    return kept(_hdf5, file)[name]


def _mapped(file: str) -> np.ndarray:
    return np.load(file, mmap_mode="r", allow_pickle=False)


def _hdf5(file: str) -> Any:
    import h5py

    return h5py.File(file)


@dataclass(frozen=True)
class _NpzArray:
    """Opens one array of an .npz; equal for equal names, as `kept` needs."""

    name: str

    def __call__(self, file: str) -> np.ndarray:
        with np.load(file, allow_pickle=False) as archive:
            return archive[self.name]
