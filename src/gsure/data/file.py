"""One file of the store: what marks it as ours, checked in full when it is opened, and read by rows in any order."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import h5py
import numpy as np

from gsure.files import open_hdf5

FORMAT = "gsure"
VERSION = 3
Holds = Literal["measurements", "signals"]
HEADER = {"complex", "corruption", "gsure", "seed", "sigma_0", "source"}
"""What every header has; that of measurements has more."""
TYPES: dict[str, Any] = {"complex": bool, "corruption": dict, "source": dict, "basis": str, "max_std": int | float}
TYPES |= {"mask_shape": list, "unit": list}


@runtime_checkable
class Rows(Protocol):
    """An array of which some rows can be read."""

    def read(self, indices: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class RowsInMemory:
    values: np.ndarray

    def read(self, indices: np.ndarray) -> np.ndarray:
        return self.values[indices]


class RowsInFile:
    """An array of an HDF5 file, read by rows in any order."""

    def __init__(self, dataset: h5py.Dataset) -> None:
        self.path, self.name = dataset.file.filename, dataset.name
        self.shape, self.dtype = dataset.shape, dataset.dtype
        self.row_bytes = dataset.dtype.itemsize * math.prod(dataset.shape[1:])
        self.offset = dataset.id.get_offset()
        self._descriptor: int | None = None

    def read(self, indices: np.ndarray) -> np.ndarray:
        rows = np.empty((len(indices), *self.shape[1:]), self.dtype)
        if self.offset is None:  # rewritten by another program, in chunks
            with open_hdf5(self.path) as file:
                for row, index in zip(rows, indices, strict=True):
                    row[...] = file[self.name][index]
            return rows
        if self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_RDONLY)
        buffer, size = rows.reshape(-1).view(np.uint8).data, self.row_bytes
        for i, index in enumerate(indices):
            row = buffer[i * size : (i + 1) * size]
            if os.preadv(self._descriptor, [row], self.offset + int(index) * size) != size:
                raise ValueError(f"{self.path} was truncated after it was opened: regenerate or copy it again.")
        return rows

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_descriptor": None}

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


@dataclass(frozen=True)
class Shard:
    """One file, or what would be one: large arrays by rows, small ones in memory. `path` is None for arrays in memory."""

    path: Path | None
    n: int
    shape: tuple[int, ...]
    header: Mapping[str, Any]
    rows: Mapping[str, Rows]
    """ybar and mask, and pinv if singular values are not just 0 and 1; or x."""
    small: Mapping[str, np.ndarray]
    """scale and offset; sigma_0, coverage and V of measurements."""
    groups: Sequence[str] | None = None


def open_shard(path: Path, holds: Holds) -> Shard:
    """A file, checked in full."""
    with open_hdf5(path) as file:
        if (found := marked(file, path)) != holds:
            remedy = "give the file that gsure corrupt, import or save wrote, not that of --clean"
            if holds == "signals":
                remedy = "give the file that --clean of gsure corrupt wrote, or a folder of gsure sample or restore"
            raise ValueError(f"{path} holds {found}, but {holds} are needed here: {remedy}.")
        return _Reader(path, file, holds).shard()


@dataclass(frozen=True)
class _Reader:
    path: Path
    file: h5py.File
    holds: Holds

    def shard(self) -> Shard:
        header = self._header()
        main = "ybar" if self.holds == "measurements" else "x"
        n, shape = len(self._dataset(main)), tuple(self.file[main].shape[1:])
        expected: dict[str, tuple[tuple[int, ...], str]] = {main: (shape, "<f4")}
        if self.holds == "measurements":
            mask_shape = tuple(header["mask_shape"])
            expected["mask"] = ((-(-math.prod(mask_shape) // 8),), "u1")
            if "pinv" in self.file:
                expected["pinv"] = (mask_shape, "<f4")
        rows = {name: self._rows(name, (n, *row), kind) for name, (row, kind) in expected.items()}
        small = {"scale": self._values("scale", n), "offset": np.zeros(1, "<f4")}
        if "offset" in self.file:
            small["offset"] = self._values("offset", n, lowest=-math.inf)
        if self.holds == "measurements":
            small["sigma_0"] = self._values("sigma_0", n)
            small["coverage"] = self._coverage(mask_shape)
        if "V" in self.file:
            small["V"] = self._dataset("V")[()]
        return Shard(self.path, n, shape, header, rows, small, self._groups(n))

    def _damaged(self, what: str) -> ValueError:
        return ValueError(f"{self.path} is damaged: {what}. Regenerate it.")

    def _header(self) -> dict[str, Any]:
        try:
            header = json.loads(self.file.attrs["header"])
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise self._damaged("its header is not JSON, or missing") from error
        more = {"basis", "coverage", "mask_shape", "max_std", "unit"} if self.holds == "measurements" else set()
        if not isinstance(header, dict) or (missing := sorted((HEADER | more) - header.keys())):
            raise self._damaged(f"its header lacks {', '.join(missing) if isinstance(header, dict) else 'everything'}")
        wrong = [name for name, kind in TYPES.items() if name in header and not isinstance(header[name], kind)]
        if wrong:
            raise self._damaged(f"{wrong[0]} in its header is {header[wrong[0]]!r}")
        return header | self._geometry()

    def _geometry(self) -> dict[str, Any]:
        if "geometry" not in self.file:
            return {}
        try:
            geometry = json.loads(self._dataset("geometry")[()])
        except (TypeError, ValueError, RecursionError) as error:
            raise self._damaged("its geometry is not JSON") from error
        if not isinstance(geometry, dict) or not all(isinstance(entry, dict) for entry in geometry.values()):
            raise self._damaged("its geometry is not an object for each group")
        return {"geometry": geometry}

    def _dataset(self, name: str) -> h5py.Dataset:
        if not isinstance(self.file.get(name), h5py.Dataset):
            raise self._damaged(f"it has no array {name}")
        return self.file[name]

    def _rows(self, name: str, shape: tuple[int, ...], kind: str) -> RowsInFile:
        array = self._dataset(name)
        if array.shape != shape or array.dtype != np.dtype(kind):
            raise self._damaged(f"{name} is {array.dtype} {array.shape}, where {np.dtype(kind)} {shape} is wanted")
        return RowsInFile(array)

    def _values(self, name: str, n: int, lowest: float = 0.0) -> np.ndarray:
        values = self._dataset(name)[()]
        if values.shape not in ((1,), (n,)) or not np.isfinite(values).all() or (values < lowest).any():
            raise self._damaged(f"{name} is not one number of at least 0, or one per sample")
        return values

    def _coverage(self, mask_shape: tuple[int, ...]) -> np.ndarray:
        coverage = self._dataset("coverage")[()]
        fits = coverage.ndim == len(mask_shape) + 1 and all(
            a in (1, b) for a, b in zip(coverage.shape, (1, *mask_shape), strict=True)
        )
        if not fits or not ((coverage >= 0) & (coverage <= 1)).all():
            raise self._damaged(
                f"its coverage, of shape {coverage.shape}, is not a probability for masks of {mask_shape}"
            )
        return coverage

    def _groups(self, n: int) -> list[str] | None:
        if "group" not in self.file:
            return None
        numbers, names = self._dataset("group")[()], [name.decode() for name in self._dataset("groups")[()]]
        if numbers.shape != (n,) or numbers.min() < 0 or numbers.max() >= len(names):
            raise self._damaged("its groups do not fit its samples")
        return [names[number] for number in numbers]


def marked(file: h5py.File, path: Path) -> Holds:
    """What the file holds, if it is one of ours and of a version that we can read."""
    version, held = file.attrs.get("version"), file.attrs.get("holds")
    if file.attrs.get("format") != FORMAT or held not in ("measurements", "signals"):
        raise ValueError(f"{path} is HDF5, but not a file of gsure: make one with 'gsure corrupt' or 'gsure import'.")
    if version != VERSION:
        raise ValueError(
            f"{path} has format version {version}, but this gsure reads version {VERSION} only: regenerate it."
        )
    return held


def holds(path: str | Path) -> Holds:
    """Whether a file (or a folder's first shard) holds measurements or clean signals."""
    first = shard_files(Path(path))[0]
    with open_hdf5(first) as file:
        return marked(file, first)


def shard_files(path: Path) -> list[Path]:
    files = sorted(path.glob("*.h5")) if path.is_dir() else [path]
    if not files:
        is_run = (path / "config.yaml").exists()
        what = "is a run: give the run first, and then the measurements" if is_run else "has no shards (*.h5) in it"
        raise ValueError(f"The folder {path} {what}.")
    return files
