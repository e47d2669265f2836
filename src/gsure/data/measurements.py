"""Samples as a sequence: measurements, and signals such as the clean ones behind them or those that a model made.

They come from one file, a folder of shards, or arrays in memory.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.data import Dataset

from gsure.basis import Basis, Cosine, Dense, Fourier, Hadamard, Hartley, Identity
from gsure.data.anscombe import transform_of
from gsure.data.file import Holds, Shard, open_shard, shard_files
from gsure.data.geometry import select
from gsure.data.source import evenly_spread
from gsure.measurement import Measurement
from gsure.random import Stream, keyed_generator

Index = int | slice | Sequence[int] | np.ndarray | Tensor
S = TypeVar("S", bound="Stored")
FINGERPRINT_SAMPLES = 64
"""Reading all of a file may take long."""
BASES = {basis.__name__: basis for basis in (Identity, Fourier, Hartley, Cosine, Hadamard)}


class Stored(Dataset):
    """Samples of one file, of a folder of shards, or of arrays in memory, addressed as one sequence."""

    holds: Holds

    def __init__(self, path: str | Path) -> None:
        if not isinstance(path, str | PathLike):
            raise TypeError(
                f"The path of a file of {self.holds} is needed here, but a {type(path).__name__} was given: turn arrays into "
                "measurements with gsure.from_arrays(y, mask, sigma)."
            )
        self._open(Path(path), [open_shard(file, self.holds) for file in shard_files(Path(path))])

    @classmethod
    def in_memory(cls: type[S], shard: Shard) -> S:
        stored = object.__new__(cls)
        stored._open(None, [shard])
        return stored

    def _open(self, path: Path | None, shards: Sequence[Shard]) -> None:
        self.path, self._shards = path, shards
        first = shards[0]
        self.header, self.shape = first.header, first.shape
        for shard in shards[1:]:
            for what in ("shape", "basis", "mask_shape", "unit", "complex"):
                mine, theirs = (s.shape if what == "shape" else s.header.get(what) for s in (first, shard))
                if mine != theirs:
                    raise ValueError(
                        f"{first.path} has {what} {mine}, but {shard.path} {theirs}: they are not one set."
                    )
            if first.rows.keys() != shard.rows.keys():
                raise ValueError(
                    f"Only one of {first.path} and {shard.path} has singular values: they are not one set."
                )
        self._ends = np.cumsum([shard.n for shard in shards])
        self.indices = np.arange(self._ends[-1])
        """Which samples of the file these are: all, or one side of a split."""

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def total(self) -> int:
        """The number of samples in the file, of which these may be a part."""
        return int(self._ends[-1])

    @property
    def location(self) -> str | None:
        """The full path, as records keep it."""
        return None if self.path is None else str(self.path.resolve())

    @property
    def name(self) -> str:
        """For messages."""
        return f"the {self.holds} in memory" if self.path is None else str(self.path)

    def subset(self: S, chosen: np.ndarray) -> S:
        """Those at these positions, or where this is true."""
        part = object.__new__(type(self))
        part.__dict__ = {**self.__dict__, "indices": self.indices[chosen]}
        return part

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
        if parts.dtype.kind == "f" and not np.isfinite(parts).all():
            raise ValueError(f"{self.name} is damaged: {name} has values that are NaN or infinite. Regenerate it.")
        return parts

    def groups(self) -> list[str]:
        """The volume, subject or file that each sample comes from."""
        names = self._all_groups()
        return [names[index] for index in self.indices]

    def _all_groups(self) -> list[str]:
        names: list[str] = []
        for shard, end in zip(self._shards, self._ends, strict=True):
            names += shard.groups or [str(index) for index in range(end - shard.n, end)]
        return names

    def geometry(self) -> dict[str, dict[str, Any]]:
        """Where the samples of each group are in space, as `gsure.data.geometry` describes it."""
        known = {name: one for shard in self._shards for name, one in shard.header.get("geometry", {}).items()}
        return select(known, self._all_groups(), self.indices) if known else {}

    def scales(self) -> np.ndarray:
        """What to multiply each sample by to have it in raw units, before its offset is added."""
        return self._read("scale", self.indices)

    def offsets(self) -> np.ndarray:
        return self._read("offset", self.indices)

    @property
    def black(self) -> float:
        """What a black pixel of a real image is: -1, or 0 if raw values were only divided by a scale."""
        some = self.indices[:1]
        is_divided = len(some) and self._read("offset", some)[0] == 0 and self._read("scale", some)[0] != 1
        return 0.0 if is_divided else -1.0

    def fingerprint(self) -> str:
        """Identifies what the file holds: from how it was made, how much there is, and the values of some samples."""
        some = self._positions(evenly_spread(FINGERPRINT_SAMPLES, len(self)))
        made = {key: self.header[key] for key in ("source", "corruption", "sigma_0", "seed")}
        made |= {"transform": transform} if (transform := self.header.get("transform")) else {}
        digest = hashlib.sha256(json.dumps([made, list(self.shape), self.groups()], sort_keys=True).encode())
        digest.update(self._read("ybar" if self.holds == "measurements" else "x", some).tobytes())
        return digest.hexdigest()[:16]


class Measurements(Stored):
    """A measurement file as a sequence and a torch `Dataset`: `data[3:5]` is a `Measurement` of two samples.

    For a `DataLoader`, `collate_fn=gsure.Measurement.cat`; simpler and faster is `batches`.
    """

    holds = "measurements"

    def __init__(self, path: str | Path, basis: Basis | None = None) -> None:
        super().__init__(path)
        self._set_basis(basis)

    @classmethod
    def in_memory(cls, shard: Shard, basis: Basis | None = None) -> "Measurements":
        data = super().in_memory(shard)
        data._set_basis(basis)
        return data

    def _set_basis(self, basis: Basis | None) -> None:
        self._refuse_other_V(basis)
        self.basis = basis or self._basis()
        self.mask_shape = tuple(self.header["mask_shape"])
        self.unit = tuple(self.header["unit"])
        self.max_std = max(float(shard.header["max_std"]) for shard in self._shards)

    def _refuse_other_V(self, basis: Basis | None) -> None:
        """The V of a `Dense` basis must agree in all shards and with the one given."""
        known = [shard.small["V"] for shard in self._shards if "V" in shard.small]
        if isinstance(basis, Dense):
            known.append(basis.V.double().cpu().numpy())
        if any(V.shape != known[0].shape or not np.allclose(V, known[0], atol=1e-5) for V in known[1:]):
            raise ValueError(
                f"{self.name} was measured in another Dense basis: its V differs from the one that is given."
            )

    def _basis(self) -> Basis:
        name = self.header["basis"]
        if name == "Dense" and "V" in self._shards[0].small:
            return Dense(torch.from_numpy(self._shards[0].small["V"]))
        if name not in BASES:
            raise ValueError(
                f"{self.name} was made in the basis {name!r}, which is not one of gsure's: pass open(path, basis=...)."
            )
        return BASES[name]()

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
        self, size: int, steps: int, generator: int | torch.Generator, start: int = 0, rank: int = 0, processes: int = 1
    ) -> Iterator[Measurement]:
        """Shuffled batches, those of the steps start..steps-1. The order depends on the seed, or on the one that the generator
        was made with, and not on what has been drawn from it since: `start=k` continues where step k was.

        Process `rank` of several gets its share of each batch.
        """
        seed = generator.initial_seed() if isinstance(generator, torch.Generator) else generator
        return (self[indices] for indices in self.order(size, steps, seed, start, rank, processes))

    def order(
        self, size: int, steps: int, seed: int, start: int = 0, rank: int = 0, processes: int = 1
    ) -> Iterator[np.ndarray]:
        """The positions that `batches` reads: a fresh permutation for each pass, one pass following on the other."""
        if start < 0 or not 0 <= rank < processes <= size:
            raise ValueError(
                f"Batches need start >= 0 and 0 <= rank < processes <= size, but size {size}, start {start}, rank {rank} "
                f"and {processes} processes were given."
            )
        permutations: dict[int, np.ndarray] = {}

        def at(positions: np.ndarray) -> np.ndarray:
            epochs, within = np.divmod(positions, len(self))
            for epoch in np.unique(epochs):
                if epoch not in permutations:
                    fresh = keyed_generator(seed, Stream.BATCH_ORDER, int(epoch))
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
                f"All {len(self)} samples of {self.name} are of one group, {str(names[0])!r}: it cannot be split by group; "
                "--held-out 0 trains on all."
            )
        shuffled = names[torch.randperm(len(names), generator=keyed_generator(seed, Stream.SPLIT)).numpy()]
        chosen = np.isin(groups, shuffled[: min(len(names) - 1, max(1, round(held_out * len(names))))])
        return self.subset(~chosen), self.subset(chosen)

    def __repr__(self) -> str:
        return (
            f"Measurements({len(self)} of shape {self.shape}, {self.basis}, std up to {self.max_std:.3g}, {self.name})"
        )


class Signals(Stored):
    """Signals, such as the clean ones behind measurements, or those that a model made: `signals[3:5]` is a tensor of two.

    Values are as the model sees them; `raw` has them in the units of the data.
    """

    holds = "signals"

    def __getitem__(self, index: Index) -> Float[Tensor, "b *n"]:
        return torch.from_numpy(self._read("x", self._positions(index)))

    def raw(self, index: Index = slice(None), mean: "Signals | None" = None) -> Tensor:
        """In the units of the raw data; complex images as complex numbers.

        If the values were transformed because they are counts, the transform is undone. Standard deviations then need the
        `mean` that they belong to: they are multiplied by the slope of the inverse there (delta method).
        """
        where = self._positions(index)
        x = self._read("x", where)
        scale, offset = (self._read(name, where).reshape(-1, *[1] * (x.ndim - 1)) for name in ("scale", "offset"))
        values = torch.from_numpy(x * scale + offset)
        if (transform := transform_of(self.header)) is None:
            return as_complex(values, bool(self.header["complex"]))
        if not self.header["transform"].get("std"):
            return transform.inverse(values)
        if mean is None:
            raise ValueError(f"{self.name} holds standard deviations of transformed counts: give raw the mean, too.")
        return values * transform.slope(torch.from_numpy(mean._read("x", where) * scale))


def open_clean(clean: str | Path | Signals, data: Measurements) -> Signals:
    """The clean signals behind measurements, if they can be those."""
    clean = clean if isinstance(clean, Signals) else Signals(clean)
    made = [{key: file.header[key] for key in ("source", "corruption", "seed")} for file in (clean, data)]
    if len(clean) != data.total or clean.shape != data.shape or made[0] != made[1]:
        raise ValueError(
            f"{clean.name} holds {len(clean)} signals of shape {clean.shape}, {data.name} {data.total} measurements of shape "
            f"{data.shape}: they are not of one run of gsure corrupt."
        )
    return clean


def open_measurements(data: str | Path | Measurements, basis: Basis | None = None) -> Measurements:
    """The measurements of a file or of a folder of shards; give the basis if it is one of your own.

    Measurements that are open already are returned as they are.
    """
    return data if isinstance(data, Measurements) else Measurements(data, basis)


def as_complex(x: Float[Tensor, "b c *n"], is_complex: bool = True) -> Tensor:
    """(real, imaginary) channel pairs as complex numbers, in half as many channels.

    >>> as_complex(torch.tensor([[[1.0], [2.0]]]))
    tensor([[[1.+2.j]]])
    """
    return torch.complex(x[:, 0::2], x[:, 1::2]) if is_complex else x
