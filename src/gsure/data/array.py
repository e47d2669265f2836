"""`array`: signals, or measured spectra, in NumPy files (.npy, memory-mapped; .npz, loaded) or in a dataset of an HDF5 file.

Signals have shape (N, height, width), (N, channels, height, width), or (N, n) for vectors, which become (1, 1, n). Unsigned
integers are intensities: the range from 0 to the maximum of the type becomes -1..1. Real floats must lie in [-1, 1]; if
they do not, set `scale`, by which values are divided. Complex values are brought to a root mean square of about 1.
"""

import math
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gsure.data.scaling import READ, rms_of_pairs, rms_of_samples
from gsure.data.source import (
    DAMAGED,
    Sample,
    Source,
    TruncatedError,
    check_scale,
    evenly_spread,
    existing,
    in_pairs,
    kept,
    refuse_nonfinite,
    refuse_promise,
    refuse_unreadable,
    sizes,
    summary,
)
from gsure.files import open_hdf5

SHAPES = {2: "(N, n)", 3: "(N, height, width)", 4: "(N, channels, height, width)"}
"""What arrays of so many dimensions are; others need names."""


@dataclass(frozen=True)
class StoredArray:
    """An array in a file: shape and type are known from the header, values are read when indexed."""

    file: str
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    def __getitem__(self, index: Any) -> np.ndarray:
        try:
            match Path(self.file).suffix.lower():
                case ".npy":
                    values = kept(_mapped, self.file)
                case ".npz":
                    values = kept(_NpzArray(self.name), self.file)
                case _:
                    values = kept(open_hdf5, self.file)[self.name]
            return _as_complex(np.asarray(values[index]))
        except DAMAGED as error:
            raise ValueError(
                f"The array {self.name!r} of {self.file} cannot be read ({error}): the file may be truncated, copy it again."
            ) from error


@dataclass(frozen=True)
class Array(Source):
    """`key` names the array if an .npz or HDF5 file has several. Values are divided by `scale` (for unsigned
    integers, `scale` is the value that becomes 1). If `scale` is given, values outside [-1, 1] are accepted.
    """

    kind: ClassVar[str] = "array"
    path: str | Path
    key: str | None = None
    scale: float | None = None
    is_complex: bool = field(init=False, repr=False, compare=False)
    shape: tuple[int, int, int] = field(init=False, repr=False, compare=False)
    array: StoredArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_scale(self.scale)
        array = choose_array(self.path, self.key, "signals", (2, 3, 4), "buifc")
        shape = array.shape
        if len(shape) == 4 and shape[-1] in (1, 3, 4) and shape[1] > 4:
            raise ValueError(
                f"The array {array.name!r} of {array.file} has shape {shape}, probably with the channels last: save "
                "np.moveaxis(array, -1, 1) instead."
            )
        channels, height, width = (1,) * (4 - len(shape)) + shape[1:]
        is_complex = array.dtype.kind == "c"
        self._set(array=array, is_complex=is_complex, shape=(channels * (1 + is_complex), height, width))

    def __len__(self) -> int:
        return self.array.shape[0]

    def _read(self, index: int) -> Sample:
        what, group = f"Sample {index} of {self.array.file}", str(index)
        raw = self.array[index].reshape(-1, *self.shape[1:])
        if raw.dtype.kind in "bu":
            scale = self.scale or float(1 if raw.dtype.kind == "b" else np.iinfo(raw.dtype).max)
            return Sample.of_intensities(raw.astype(np.float32), group, 0.0, scale)
        refuse_nonfinite(raw, what)
        if self.is_complex:
            scale = self.scale or kept(_Size(self.array), self.array.file)
            return Sample(in_pairs(raw / scale), group, scale)
        scale = self.scale or 1.0
        largest = float(np.abs(raw).max())
        if self.scale is None and largest > 1 + 1e-6:
            raise ValueError(
                f"{what} has values up to {largest:g}, but real signals must lie in [-1, 1]: set scale "
                f"(--source.scale {largest:g}) to divide by it, or scale 1 to keep the values."
            )
        return Sample((raw / scale).astype(np.float32), group, scale)

    def _content(self) -> dict[str, Any]:
        return {"array": self.array.name, "dtype": str(self.array.dtype), **summary(sizes([self.array.file]))}


@dataclass(frozen=True)
class _Size:
    """The scale of complex images. It is a dataclass because `kept` caches by equality."""

    array: StoredArray

    def __call__(self, file: str) -> float:
        some = (self.array[int(index)] for index in evenly_spread(READ, self.array.shape[0]))
        return rms_of_samples([rms_of_pairs(values) for values in some], file)


@dataclass(frozen=True)
class StoredPair:
    """Complex values whose real and imaginary parts are two arrays."""

    real: StoredArray
    imaginary: StoredArray

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.complex64)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.real.shape

    def __getitem__(self, index: Any) -> np.ndarray:
        return (self.real[index] + 1j * self.imaginary[index]).astype(self.dtype)


def choose_pair(path: str | Path, key: str) -> StoredPair:
    """The arrays REAL and IMAGINARY, from the key "REAL,IMAGINARY"."""
    arrays = stored_arrays(path)
    names = key.split(",")
    if missing := [name for name in names if name not in arrays]:
        raise ValueError(f"{path} has no array {missing[0]!r}: it holds {', '.join(arrays)}.")
    if len(names) != 2 or len({arrays[name].shape for name in names}) > 1:
        listed = " and ".join(f"{name} {arrays[name].shape}" for name in names)
        raise ValueError(f"--key {key} must name the real and the imaginary part, of one shape, but names {listed}.")
    if complexes := [name for name in names if arrays[name].dtype.kind not in "uif"]:
        raise ValueError(
            f"The array {complexes[0]!r} of {path} is {arrays[complexes[0]].dtype}, but the real and the imaginary part are "
            f"real: give --key {complexes[0]} alone."
        )
    return StoredPair(arrays[names[0]], arrays[names[1]])


def choose_array(
    path: str | Path, key: str | None, what: str, dimensions: tuple[int, ...], kinds: str = "uifc"
) -> StoredArray:
    """The array `key` of a file, or the only one with a suitable number of dimensions and kind of numbers."""
    arrays = stored_arrays(path)
    suitable = [a.name for a in arrays.values() if len(a.shape) in dimensions and a.dtype.kind in kinds]
    listed = ", ".join(f"{a.name} {a.shape} {a.dtype}" for a in arrays.values()) or "nothing"
    shapes = [SHAPES[n] for n in dimensions if n in SHAPES] or [f"with {dimensions[0]} dimensions"]
    wanted = f"{what} must be numbers of shape {' or '.join(shapes)}"
    if key is not None and key not in arrays:
        raise ValueError(f"{path} has no array {key!r}: it holds {listed}.")
    if key is None and len(suitable) != 1:
        remedy = "choose one with key" if suitable else wanted
        raise ValueError(
            f"{path} holds {len(suitable)} arrays that could be {what}, but exactly one is needed. It holds {listed}: "
            f"{remedy}."
        )
    array = arrays[suitable[0] if key is None else key]
    if array.name not in suitable or 0 in array.shape:
        raise ValueError(f"The array {array.name!r} of {path} is {array.dtype} of shape {array.shape}, but {wanted}.")
    return array


def read_beside(name: str | Path, data: Path) -> np.ndarray:
    """All values of a .npy file, or of the array with this name in the same file as the data."""
    if Path(name).suffix == ".npy":
        return stored_arrays(name)["array"][...]
    arrays = stored_arrays(data) if data.is_file() and data.suffix not in (".npy", ".cfl", ".hdr") else {}
    if str(name) not in arrays:
        raise ValueError(
            f"{name} must be a .npy file, or the name of an array in the same .npz or HDF5 file as the data, but {data} has "
            f"{', '.join(arrays) or 'no named arrays'}."
        )
    return arrays[str(name)][...]


def stored_arrays(path: str | Path) -> dict[str, StoredArray]:
    """All arrays in the file by name. Reads only the headers."""
    path = existing(path)
    refuse_unreadable([path])
    if path.is_dir():
        raise ValueError(f"{path} is a folder, but an array is one .npy, .npz or HDF5 file: give the file.")
    try:
        match path.suffix.lower():
            case ".npy":
                with path.open("rb") as stream:
                    headers = {"array": _header(stream, path.stat().st_size, str(path))}
            case ".npz":
                with zipfile.ZipFile(path) as archive:
                    headers = {
                        one.filename.removesuffix(".npy"): _header(archive.open(one), one.file_size, str(path))
                        for one in archive.infolist()
                        if one.filename.endswith(".npy")
                    }
            case _:
                headers = _datasets(path)
    except TruncatedError:
        raise
    except DAMAGED as error:
        known = path.suffix.lower() in (".npy", ".npz", ".h5", ".hdf5")
        remedy = "check the file" if known else "save the array with numpy.save, or in MATLAB with save -v7.3"
        raise ValueError(f"{path} is not a complete .npy, .npz or HDF5 file ({error}): {remedy}.") from error
    return {name: StoredArray(str(path), name, shape, _of_values(dtype)) for name, (shape, dtype) in headers.items()}


def _of_values(dtype: np.dtype) -> np.dtype:
    """The type of the values of an array: MATLAB and ISMRMRD store complex numbers as fields real and imag."""
    return np.result_type(dtype["real"], np.complex64) if dtype.names == ("real", "imag") else dtype


def _as_complex(values: np.ndarray) -> np.ndarray:
    return values["real"] + 1j * values["imag"] if values.dtype.names == ("real", "imag") else values


def _header(stream: Any, held: int, file: str) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of an array, which is in `held` bytes of a file."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    if min(shape, default=0) < 0:
        raise ValueError(f"its header has the shape {shape}")
    if not dtype.hasobject:
        refuse_promise(file, math.prod(shape) * dtype.itemsize, held)
    return shape, dtype


def _datasets(path: Path) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    import h5py

    found: dict[str, tuple[tuple[int, ...], np.dtype]] = {}

    def note(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape is not None:
            refuse_hollow(item, str(path))
            found[name] = (item.shape, item.dtype)

    with h5py.File(path) as file:
        file.visititems(note)
    return found


def refuse_hollow(dataset: Any, file: str) -> None:
    """HDF5 can declare more values than are stored, and reading would fill the memory with zeros."""
    if not (dataset.is_virtual or dataset.external):
        refuse_promise(f"{dataset.name} of {file}", dataset.nbytes, dataset.id.get_storage_size(), compressed=True)


def _mapped(file: str) -> np.ndarray:
    return np.load(file, mmap_mode="r", allow_pickle=False)


@dataclass(frozen=True)
class _NpzArray:
    """Opens one array of an .npz file. It is a dataclass because `kept` caches by equality."""

    name: str

    def __call__(self, file: str) -> np.ndarray:
        with np.load(file, allow_pickle=False) as archive:
            return archive[self.name]
