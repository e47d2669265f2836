"""Write the measurement file. It gets its name when complete, and replaces another file only if you ask for it."""

import contextlib
import errno
import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

import gsure
from gsure.basis import Basis, Dense
from gsure.data.file import FORMAT, VERSION, Holds
from gsure.files import refuse_existing
from gsure.measurement import Measurement


class Writer:
    """Writes n samples, in order, to one file or a folder of shards.

    The file gets its final name when all samples are written. An exception in the `with` block removes it. `header` holds all
    other information as JSON: corruption, seed, source. With a basis the samples are measurements, without one they are clean
    signals. Group names are omitted if each is the position of its sample in the file. Set `has_groups` to write them anyway:
    in a chunk of a larger result, positions in the file are not positions in the result.
    """

    def __init__(
        self,
        path: str | Path,
        n: int,
        shape: Sequence[int],
        header: Mapping[str, Any],
        *,
        basis: Basis | None = None,
        mask_shape: Sequence[int] = (),
        unit: Sequence[int] = (),
        binary: bool = True,
        coverage: Tensor | None = None,
        shards: int = 1,
        has_groups: bool = False,
        force: bool = False,
    ) -> None:
        self.path, self.n, self.shape = Path(path), n, tuple(shape)
        self.holds: Holds = "signals" if basis is None else "measurements"
        self.basis, self.mask_shape, self.unit = basis, tuple(mask_shape), tuple(unit)
        self.binary, self.known_coverage = binary, coverage
        self.has_groups = has_groups
        self.header, self.force = dict(header), force
        if n < 1 or not 1 <= shards <= n:
            raise ValueError(
                f"{n} samples do not fit into {shards} shards: give a limit of at least 1, and no more shards than samples."
            )
        json.dumps(self.header)  # fails now, not at the end of the work
        refuse_existing(self.path, force)
        self.temporary = self.path.with_name(f".{self.path.name}.tmp")  # replaces that of a killed process
        self.sizes = [n // shards + (k < n % shards) for k in range(shards)]
        self.written = 0
        self._file: h5py.File | None = None

    def __enter__(self) -> "Writer":
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"The folder of {self.path} cannot be created ({error.strerror}): choose another path"
            raise OSError(error.errno, message) from error
        needed = self.n * (4 * math.prod(self.shape) + math.prod(self.mask_shape) * (1 if self.binary else 33) // 8)
        free = shutil.disk_usage(self.path.parent).free
        if needed > free:
            raise OSError(
                errno.ENOSPC,
                f"{self.path} needs {needed / 1e9:.1f} GB, but only {free / 1e9:.1f} GB are free: free some space, or choose "
                "another disk",
            )
        self._refuse_busy()
        self._remove_temporary()
        if len(self.sizes) > 1:
            self.temporary.mkdir()
        self._start_shard()  # now, because an open file shows other processes that it is in use
        return self

    def append(
        self,
        values: Measurement | Float[Tensor, "b *n"],
        groups: Sequence[str],
        scales: Sequence[float],
        sigma_0: Float[Tensor, " b"] | None = None,
        offsets: Sequence[float] | None = None,
    ) -> None:
        """Write the next samples. `sigma_0` is needed to compute Σ† from std; scale * x + offset is in raw units."""
        done = 0
        try:
            while done < len(groups):
                if self._file is None:
                    raise ValueError(
                        f"{self.path} is full: it was created for {self.n} samples. Create it with a larger n."
                    )
                take = slice(done, min(len(groups), done + self._room()))
                sigmas = None if sigma_0 is None else sigma_0[take]
                self._append_to_shard(values[take], sigmas)
                self._groups += groups[take]
                self._scales += scales[take]
                self._offsets += [0.0] * (take.stop - take.start) if offsets is None else offsets[take]
                done = take.stop
                if self._room() == 0:
                    self._finish_shard()
        except OSError as error:
            message = (
                f"{self.path} could not be written ({error}), and no part of it is left: free space, and run it again"
            )
            raise OSError(error.errno or errno.EIO, message) from error

    def _room(self) -> int:
        return self._size - self._filled

    def _start_shard(self) -> None:
        number = len([s for s in np.cumsum(self.sizes) if s <= self.written])
        self._size, self._filled = self.sizes[number], 0
        single = len(self.sizes) == 1
        self._file = h5py.File(self.temporary if single else self.temporary / f"shard-{number:05d}.h5", "w")
        n = self._size
        arrays: dict[str, tuple[tuple[int, ...], str]] = {}
        if self.basis is None:
            arrays["x"] = (self.shape, "<f4")
        else:
            arrays |= {"ybar": (self.shape, "<f4"), "mask": ((-(-math.prod(self.mask_shape) // 8),), "u1")}
        if not self.binary:
            arrays["pinv"] = (self.mask_shape, "<f4")
        self._arrays = {name: self._file.create_dataset(name, (n, *row), kind) for name, (row, kind) in arrays.items()}
        self._groups: list[str] = []
        self._scales: list[float] = []
        self._offsets: list[float] = []
        self._sigma_0: list[float] = []
        self._kept = np.zeros(self.mask_shape)
        self._max_std = 0.0

    def _append_to_shard(self, values: Any, sigma_0: Tensor | None) -> None:
        assert self._file is not None
        rows = slice(self._filled, self._filled + len(values))
        if isinstance(values, Measurement):
            assert sigma_0 is not None
            mask = values.mask.expand(len(values), *self.mask_shape)
            kept = mask.bool().numpy()
            sigma = sigma_0.reshape(-1, *[1] * len(self.mask_shape)).to(mask)
            if self.binary and ((values.std - sigma).abs() * mask > 1e-6 * sigma).any():
                raise ValueError(
                    f"{self.path} was created for singular values of 0 and 1 only, but std differs from sigma_0: set "
                    "binary=False."
                )
            self._arrays["ybar"][rows] = values.ybar.numpy()
            self._arrays["mask"][rows] = np.packbits(kept.reshape(len(kept), -1), axis=1)
            if not self.binary:
                pinv = torch.where(sigma > 0, values.std / torch.where(sigma > 0, sigma, 1.0), mask)
                self._arrays["pinv"][rows] = (pinv * mask).numpy()
            self._sigma_0 += sigma_0.tolist()
            if self.known_coverage is None:
                self._kept += mask.sum(0).numpy()
            self._max_std = max(self._max_std, float(sigma_0.max()) if self.binary else values.max_std)
        else:
            self._arrays["x"][rows] = values.numpy()
        self._filled += len(values)
        self.written += len(values)

    def _finish_shard(self) -> None:
        assert self._file is not None
        file = self._file
        first = self.written - self._size
        if self.has_groups or any(name != str(index) for index, name in enumerate(self._groups, first)):
            names = list(dict.fromkeys(self._groups))
            number = {name: k for k, name in enumerate(names)}
            file["group"] = np.array([number[name] for name in self._groups], "<i4")
            file["groups"] = np.array([name.encode() for name in names])
        file["scale"] = _one_if_equal(self._scales)
        if any(self._offsets):
            file["offset"] = _one_if_equal(self._offsets)
        header = {key: value for key, value in self.header.items() if key != "geometry"}
        known = self.header.get("geometry") or {}
        if here := {name: known[name] for name in dict.fromkeys(self._groups) if name in known}:
            file["geometry"] = json.dumps(here, ensure_ascii=False)  # an attribute holds at most 64 kB
        if self.basis is not None:
            file["sigma_0"] = _one_if_equal(self._sigma_0)
            coverage = self.known_coverage
            file["coverage"] = self._kept[None] / self._size if coverage is None else coverage.double().numpy()
            if isinstance(self.basis, Dense):
                file["V"] = self.basis.V.double().cpu().numpy()
            header = header | {
                "basis": type(self.basis).__name__,
                "mask_shape": self.mask_shape,
                "unit": self.unit,
                "max_std": self._max_std,
                "coverage": "mean of the masks" if coverage is None else "closed form",
            }
        file.attrs.update({"format": FORMAT, "version": VERSION, "holds": self.holds})
        file.attrs["header"] = json.dumps(header | {"gsure": gsure.__version__}, ensure_ascii=False)
        self._file = None
        if self.written < self.n:
            self._start_shard()
        file.close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError, RuntimeError):  # closing flushes, which fails again on a full disk
                self._file.close()
        try:
            if kind is None and self.written != self.n:
                raise ValueError(
                    f"Only {self.written} of {self.n} samples were written to {self.path}: append all of them."
                )
            if kind is None:
                refuse_existing(self.path, self.force)
                if self.path.is_dir():
                    shutil.rmtree(self.path)
                elif self.temporary.is_dir():
                    self.path.unlink(missing_ok=True)
                os.replace(self.temporary, self.path)
        finally:
            self._remove_temporary()

    def _refuse_busy(self) -> None:
        """Raise an error if another process is writing this file, and so has locked it. A killed process leaves no lock."""
        for part in self.temporary.glob("*.h5") if self.temporary.is_dir() else [self.temporary]:
            try:
                with contextlib.suppress(FileNotFoundError):
                    h5py.File(part, "r+").close()
            except BlockingIOError as error:
                raise ValueError(
                    f"Another process is writing {self.path} now: wait for it, or write elsewhere."
                ) from error
            except OSError:
                continue  # truncated, because its process was killed

    def _remove_temporary(self) -> None:
        if self.temporary.is_dir():
            shutil.rmtree(self.temporary)
        self.temporary.unlink(missing_ok=True)


def _one_if_equal(values: Sequence[float]) -> np.ndarray:
    array = np.array(values, "<f4")
    return array[:1] if (array == array[0]).all() else array
