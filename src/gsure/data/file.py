"""One file of the store: what marks it as ours, checked in full when it is opened, and read by rows in any order."""

import json
import math
import os
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np

from gsure.files import open_hdf5

FORMAT = "gsure"
VERSION = 2
Holds = Literal["measurements", "signals"]
HEADER = {"complex", "corruption", "gsure", "seed", "sigma_0", "source"}
"""What every header has; that of measurements has more."""


TYPES: dict[str, Any] = {"complex": bool, "corruption": dict, "source": dict, "basis": str, "max_std": int | float}
TYPES |= {"mask_shape": list, "unit": list}


class Rows:
    """An array of a file, read by rows in any order."""

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


class Shard:
    """A file, opened and checked: large arrays as `Rows`, small ones in memory."""

    def __init__(self, path: Path, holds: Holds) -> None:
        self.path = path
        with open_hdf5(path) as file:
            if (found := marked(file, path)) != holds:
                raise ValueError(f"{path} holds {found}, where {holds} are wanted.")
            self.header = self._header(file, holds)
            main = "ybar" if holds == "measurements" else "x"
            self.n, self.shape = len(self._dataset(file, main)), tuple(file[main].shape[1:])
            expected: dict[str, tuple[tuple[int, ...], str]] = {main: (self.shape, "<f4")}
            if holds == "measurements":
                mask_shape = tuple(self.header["mask_shape"])
                expected["mask"] = ((-(-math.prod(mask_shape) // 8),), "u1")
                if "pinv" in file:
                    expected["pinv"] = (mask_shape, "<f4")
            self.rows = {name: self._rows(file, name, *row) for name, row in expected.items()}
            self.small = {"scale": self._values(file, "scale")}
            if holds == "measurements":
                self.small["sigma_0"] = self._values(file, "sigma_0")
                self.small["coverage"] = self._coverage(file, mask_shape)
            if "V" in file:
                self.small["V"] = self._dataset(file, "V")[()]
            self.groups = self._groups(file)

    def damaged(self, what: str) -> ValueError:
        return ValueError(f"{self.path} is damaged: {what}. Regenerate it.")

    def _header(self, file: h5py.File, holds: Holds) -> dict[str, Any]:
        try:
            header = json.loads(file.attrs["header"])
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise self.damaged("its header is not JSON, or missing") from error
        wanted = HEADER | ({"basis", "coverage", "mask_shape", "max_std", "unit"} if holds == "measurements" else set())
        if not isinstance(header, dict) or (missing := sorted(wanted - header.keys())):
            raise self.damaged(f"its header lacks {', '.join(missing) if isinstance(header, dict) else 'everything'}")
        wrong = [name for name, kind in TYPES.items() if name in header and not isinstance(header[name], kind)]
        if wrong:
            raise self.damaged(f"{wrong[0]} in its header is {header[wrong[0]]!r}")
        return header

    def _dataset(self, file: h5py.File, name: str) -> h5py.Dataset:
        if not isinstance(file.get(name), h5py.Dataset):
            raise self.damaged(f"it has no array {name}")
        return file[name]

    def _rows(self, file: h5py.File, name: str, row: tuple[int, ...], kind: str) -> Rows:
        array = self._dataset(file, name)
        if array.shape != (self.n, *row) or array.dtype != np.dtype(kind):
            raise self.damaged(
                f"{name} is {array.dtype} {array.shape}, where {np.dtype(kind)} {(self.n, *row)} is wanted"
            )
        return Rows(array)

    def _values(self, file: h5py.File, name: str) -> np.ndarray:
        values = self._dataset(file, name)[()]
        if values.shape not in ((1,), (self.n,)) or not np.isfinite(values).all() or (values < 0).any():
            raise self.damaged(f"{name} is not one number of at least 0, or one per sample")
        return values

    def _coverage(self, file: h5py.File, mask_shape: tuple[int, ...]) -> np.ndarray:
        coverage = self._dataset(file, "coverage")[()]
        fits = coverage.ndim == len(mask_shape) + 1 and all(
            a in (1, b) for a, b in zip(coverage.shape, (1, *mask_shape), strict=True)
        )
        if not fits or not ((coverage >= 0) & (coverage <= 1)).all():
            raise self.damaged(
                f"its coverage, of shape {coverage.shape}, is not a probability for masks of {mask_shape}"
            )
        return coverage

    def _groups(self, file: h5py.File) -> list[str] | None:
        if "group" not in file:
            return None
        numbers, names = self._dataset(file, "group")[()], [name.decode() for name in self._dataset(file, "groups")[()]]
        if numbers.shape != (self.n,) or numbers.min() < 0 or numbers.max() >= len(names):
            raise self.damaged("its groups do not fit its samples")
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
