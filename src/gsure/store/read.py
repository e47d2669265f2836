"""Reading the measurement file, and the file of clean signals beside it."""

import contextlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.data import Dataset

from gsure import basis as bases
from gsure.basis import Basis, Dense
from gsure.measurement import Measurement
from gsure.noise import generators, seed_from
from gsure.store.format import FORMAT, VERSION, Holds

Index = int | slice | Sequence[int] | np.ndarray | Tensor


class Rows:
    """An array of a file, read by rows in any order."""

    def __init__(self, file: h5py.File, name: str) -> None:
        dataset = file[name]
        self.path, self.name = file.filename, name
        self.shape, self.dtype = dataset.shape, dataset.dtype
        self.row_bytes = dataset.dtype.itemsize * math.prod(dataset.shape[1:])
        self.offset = dataset.id.get_offset()
        self._descriptor: int | None = None

    def read(self, indices: np.ndarray) -> np.ndarray:
        rows = np.empty((len(indices), *self.shape[1:]), self.dtype)
        if self.offset is None:  # rewritten by another program, in chunks
            with h5py.File(self.path, "r") as file:
                for row, index in zip(rows, indices, strict=True):
                    row[...] = file[self.name][index]
            return rows
        if self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_RDONLY)
        buffer, size = rows.reshape(-1).view(np.uint8).data, self.row_bytes
        for i, index in enumerate(indices):
            if (
                os.preadv(self._descriptor, [buffer[i * size : (i + 1) * size]], self.offset + int(index) * size)
                != size
            ):
                raise ValueError(
                    f"{self.path} ends before sample {index} of {self.name}: it was cut after it was written."
                )
        return rows

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_descriptor": None}

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


class _Shard:
    """One file, opened and checked; small arrays in memory, large ones as `Rows`."""

    def __init__(self, path: Path, holds: Holds) -> None:
        self.path = path
        with _opened(path, holds) as file:
            self.header: dict[str, Any] = json.loads(file.attrs["header"])
            main = "ybar" if holds == "measurements" else "x"
            self.rows = {name: Rows(file, name) for name in (main, "mask", "pinv") if name in file}
            self.n = self.rows[main].shape[0]
            self.shape = tuple(self.rows[main].shape[1:])
            self.small = {
                name: file[name][()] for name in ("sigma_0", "scale", "group", "coverage", "V") if name in file
            }
            self.groups = [name.decode() for name in file["groups"][()]] if "groups" in file else None


@contextlib.contextmanager
def _opened(path: Path, holds: Holds) -> Iterator[h5py.File]:
    """The file, if it is one of ours, whole, and of a version that we can read."""
    try:
        file = h5py.File(path, "r")
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no file {path}.") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read as HDF5: it is truncated or of another kind ({error}).") from error
    with file:
        if file.attrs.get("format") != FORMAT:
            raise ValueError(
                f"{path} is HDF5, but not a file of gsure: make one with 'gsure corrupt' or 'gsure import'."
            )
        if (version := int(file.attrs["version"])) > VERSION:
            raise ValueError(f"{path} has format version {version}, this gsure reads up to {VERSION}: upgrade gsure.")
        if file.attrs["holds"] != holds:
            raise ValueError(f"{path} holds {file.attrs['holds']}, where {holds} are wanted.")
        yield file


class _Stored(Dataset):
    """Samples of one file or of a folder of shards, addressed as one sequence."""

    holds: Holds
    main: str

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        files = sorted(self.path.glob("*.h5")) if self.path.is_dir() else [self.path]
        if not files:
            raise ValueError(f"The folder {path} has no shards (*.h5) in it.")
        self._shards = [_Shard(file, self.holds) for file in files]
        self.header = self._shards[0].header
        self.shape = self._shards[0].shape
        for shard in self._shards[1:]:
            if shard.shape != self.shape or shard.header.get("mask_shape") != self.header.get("mask_shape"):
                raise ValueError(
                    f"{shard.path} holds samples of shape {shard.shape}, {files[0]} of {self.shape}: not one set."
                )
        self._ends = np.cumsum([shard.n for shard in self._shards])
        self.indices = np.arange(self._ends[-1])
        """Which samples of the file these are: all, or one side of a split."""

    def __len__(self) -> int:
        return len(self.indices)

    def _positions(self, index: Index) -> np.ndarray:
        if isinstance(index, int | np.integer):
            return self.indices[[range(len(self))[int(index)]]]
        return self.indices[np.asarray(index) if not isinstance(index, slice) else index]

    def _read(self, name: str, positions: np.ndarray) -> np.ndarray:
        owners = np.searchsorted(self._ends, positions, side="right")
        parts = None
        for owner in np.unique(owners):
            shard, where = self._shards[owner], owners == owner
            local = positions[where] - (self._ends[owner] - shard.n)
            if name in shard.rows:
                rows = shard.rows[name].read(local)
            else:
                small = shard.small[name]
                rows = small[local] if len(small) == shard.n else np.repeat(small, len(local), axis=0)
            if parts is None:
                parts = np.empty((len(positions), *rows.shape[1:]), rows.dtype)
            parts[where] = rows
        if parts is None:
            raise IndexError("No samples were asked for.")
        return parts

    def groups(self) -> list[str]:
        """The volume, subject or file that each sample comes from."""
        names: list[str] = []
        for shard, end in zip(self._shards, self._ends, strict=True):
            if shard.groups is None:
                names += [str(index) for index in range(end - shard.n, end)]
            else:
                names += [shard.groups[number] for number in shard.small["group"]]
        return [names[index] for index in self.indices]

    def scales(self) -> np.ndarray:
        """What each raw signal was divided by."""
        return self._read("scale", self.indices)


class Measurements(_Stored):
    """A measurement file as a sequence and a torch `Dataset`: `data[3:5]` is a `Measurement` of two samples.

    For a `DataLoader`, `collate_fn=gsure.Measurement.cat`; simpler and faster is `batches`.
    """

    holds = "measurements"
    main = "ybar"

    def __init__(self, path: str | Path, basis: Basis | None = None) -> None:
        super().__init__(path)
        self.basis = basis or self._basis()
        self.mask_shape = tuple(self.header["mask_shape"])
        self.unit = tuple(self.header["unit"])
        self.max_std = max(float(shard.header["max_std"]) for shard in self._shards)

    def _basis(self) -> Basis:
        name = self.header["basis"]
        if name == "Dense":
            return Dense(torch.from_numpy(self._shards[0].small["V"]))
        known = getattr(bases, name, None)
        if known is None:
            raise ValueError(
                f"{self.path} was made in the basis {name!r}, which is not one of gsure's: pass open(path, basis=...)."
            )
        return known()

    @property
    def coverage(self) -> Float[Tensor, "1 ..."]:
        """E[P], as the corruption knows it in closed form, or else the mean of all masks of the file."""
        weights = [shard.n / self._ends[-1] for shard in self._shards]
        return torch.from_numpy(
            sum(w * shard.small["coverage"] for w, shard in zip(weights, self._shards, strict=True))
        )

    def __getitem__(self, index: Index) -> Measurement:
        positions = self._positions(index)
        ybar = torch.from_numpy(self._read("ybar", positions))
        bits = np.unpackbits(self._read("mask", positions), axis=1, count=math.prod(self.mask_shape))
        mask = torch.from_numpy(bits).float().reshape(-1, *self.mask_shape)
        std = torch.from_numpy(self._read("sigma_0", positions)).reshape(-1, *[1] * len(self.shape))
        if "pinv" in self._shards[0].rows:
            std = std * torch.from_numpy(self._read("pinv", positions))
        return Measurement._trusted(ybar, mask, std)

    def batches(
        self, size: int, steps: int, generator: torch.Generator, start: int = 0, rank: int = 0, processes: int = 1
    ) -> Iterator[Measurement]:
        """Shuffled batches, those of the steps start..steps-1; with the generator in the same state, another start continues.

        Process `rank` of several gets its share of each batch.
        """
        for indices in self.order(size, steps, seed_from(generator), start, rank, processes):
            yield self[indices]

    def order(
        self, size: int, steps: int, seed: int, start: int = 0, rank: int = 0, processes: int = 1
    ) -> Iterator[np.ndarray]:
        """The positions that `batches` reads: a fresh permutation for each pass, one pass following on the other."""
        if size < 1 or start < 0 or not 0 <= rank < processes:
            raise ValueError(
                f"Batches need size >= 1, start >= 0 and 0 <= rank < processes, but size {size}, start {start}, rank {rank} "
                f"and {processes} processes were given."
            )
        permutations: dict[int, np.ndarray] = {}

        def at(positions: np.ndarray) -> np.ndarray:
            epochs, within = np.divmod(positions, len(self))
            for epoch in np.unique(epochs):
                if epoch not in permutations:
                    (fresh,) = generators(seed, indices=[int(epoch)])
                    permutations[int(epoch)] = torch.randperm(len(self), generator=fresh).numpy()
            for old in [epoch for epoch in permutations if epoch < epochs.min()]:
                del permutations[old]
            return np.array([permutations[int(epoch)][i] for epoch, i in zip(epochs, within, strict=True)])

        for step in range(start, steps):
            yield at(np.arange(step * size, (step + 1) * size))[rank::processes]

    def split(self, held_out: float, seed: int = 0) -> tuple["Measurements", "Measurements"]:
        """The measurements to train on and those held out; a group is never on both sides."""
        if not 0 < held_out < 1:
            raise ValueError(f"held_out is a share between 0 and 1, but is {held_out}.")
        groups = np.array(self.groups())
        names = np.unique(groups)
        if len(names) < 2:
            raise ValueError(
                f"All {len(self)} samples of {self.path} are of one group, {str(names[0])!r}: it cannot be split by group."
            )
        shuffled = names[torch.randperm(len(names), generator=torch.Generator().manual_seed(seed)).numpy()]
        chosen = np.isin(groups, shuffled[: max(1, round(held_out * len(names)))])
        sides = []
        for side in (~chosen, chosen):
            part = object.__new__(Measurements)
            part.__dict__ = {**self.__dict__, "indices": self.indices[side]}
            sides.append(part)
        return sides[0], sides[1]

    def __repr__(self) -> str:
        return (
            f"Measurements({len(self)} of shape {self.shape}, {self.basis}, std up to {self.max_std:.3g}, {self.path})"
        )


class Signals(_Stored):
    """A file of clean signals, aligned by index with a measurement file: for oracles and evaluation only."""

    holds = "signals"
    main = "x"

    def __getitem__(self, index: Index) -> Float[Tensor, "b *n"]:
        return torch.from_numpy(self._read("x", self._positions(index)))


def open(path: str | Path, basis: Basis | None = None) -> Measurements:  # gsure.open
    """The measurements of a file or of a folder of shards; give the basis if it is one of your own."""
    return Measurements(path, basis)


def holds(path: str | Path) -> Holds:
    """Whether a file (or a folder's first shard) holds measurements or clean signals."""
    path = Path(path)
    first = next(iter(sorted(path.glob("*.h5"))), path) if path.is_dir() else path
    try:
        with _opened(first, "measurements"):
            return "measurements"
    except ValueError as error:
        if "holds signals" in str(error):
            return "signals"
        raise
