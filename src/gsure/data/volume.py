"""Slices of medical volumes, for any format: selection, size and scaling."""

import functools
import itertools
import math
import os
from abc import abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gsure.data.geometry import Space, describe_slices
from gsure.data.problems import Problems
from gsure.data.scaling import rms_of_pairs, rms_of_samples
from gsure.data.source import (
    Sample,
    Source,
    check_size,
    check_slices,
    in_pairs,
    locate,
    refuse_nonfinite,
    resized,
    sizes,
    summary,
)


class Volume(NamedTuple):
    """The header of one volume."""

    group: str
    files: tuple[str, ...]
    shape: tuple[int, ...]
    """Three dimensions, or more. Further dimensions (time, echoes) count as more slices."""
    space: Space | None = None


class Place(NamedTuple):
    """Where a sample is."""

    volume: Volume
    at: int
    """The number of the slice."""
    further: tuple[int, ...]


@dataclass(frozen=True)
class Slices(Source):
    """Slices along `axis`. `slices` is (first, last), inclusive; by default all.

    In real slices, the range from 0 to the largest value of the volume becomes -1..1, so background is -1. If values may be
    negative (CT), `window` is the pair of values that become -1 and 1; values outside it are clipped. With `complex`, for MRI,
    the root mean square of the volume becomes about 1; real values get a zero imaginary part. `size` pads a slice with
    background to a square and resizes it (antialiased bilinear), assuming square voxels.
    """

    any_size: ClassVar[bool] = False
    """Whether volumes may differ in size, if only `raw` is used; `shape` is that of the first. Then files that cannot be read
    are no error: `problems` has them."""
    path: str | Path
    axis: int = 2
    slices: tuple[int, int] | None = None
    size: int | None = None
    complex: bool = False
    window: tuple[float, float] | None = None
    is_complex: bool = field(init=False, repr=False, compare=False)
    shape: tuple[int, int, int] = field(init=False, repr=False, compare=False)
    volumes: tuple[Volume, ...] = field(init=False, repr=False, compare=False)
    ends: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """The cumulative number of samples, up to and including each volume."""
    problems: Problems = field(init=False, repr=False, compare=False)

    @abstractmethod
    def _headers(self, problems: Problems) -> tuple[Volume, ...]:
        """Every volume that can be read, in order. The others are noted."""

    @abstractmethod
    def _plane(self, volume: Volume, at: int, further: tuple[int, ...]) -> np.ndarray:
        """Slice `at` along the axis, with values as stored, rotated as viewers show it."""

    def __post_init__(self) -> None:
        check_size(self.size)
        if self.axis not in (0, 1, 2):
            raise ValueError(f"axis must be 0, 1 or 2, but is {self.axis}.")
        check_slices(self.slices)
        if self.window is not None and (self.complex or not self.window[0] < self.window[1]):
            raise ValueError(
                f"window must be a low and a high value, and needs complex = False, but is {self.window} with complex = "
                f"{self.complex}."
            )
        problems = Problems()
        volumes = self._long_enough(self._headers(problems), problems)
        names = [volume.group for volume in volumes]
        for twice in sorted({name for name in names if names.count(name) > 1}):
            problems.add(f"{self.path} has two volumes of the name {twice}: rename one of them.")
        if not (self.any_size and volumes):
            problems.stop()
        shape = self._plane_shape(volumes[0])
        different = [volume for volume in volumes if self._plane_shape(volume) != shape]
        if different and self.size is None and not self.any_size:
            raise ValueError(
                f"Slices of {different[0].group} are {self._plane_shape(different[0])}, those of {volumes[0].group} {shape}: "
                "give size (--source.size) to make them equal, or read them separately."
            )
        height, width = (self.size, self.size) if self.size else shape
        self._set(
            is_complex=self.complex,
            shape=(2 if self.complex else 1, height, width),
            volumes=volumes,
            ends=tuple(
                itertools.accumulate(math.prod(volume.shape[3:]) * self._per_volume(volume) for volume in volumes)
            ),
            problems=problems,
        )

    def _long_enough(self, volumes: tuple[Volume, ...], problems: Problems) -> tuple[Volume, ...]:
        """The volumes that have some of the slices."""
        found = []
        for volume in volumes:
            with problems.noted():
                self._per_volume(volume)
                found.append(volume)
        return tuple(found)

    def _plane_shape(self, volume: Volume) -> tuple[int, int]:
        """Height and width of a slice after its rotation, which lets the second axis point up."""
        across, up = (length for axis, length in enumerate(volume.shape[:3]) if axis != self.axis)
        return up, across

    def _per_volume(self, volume: Volume) -> int:
        length = volume.shape[self.axis]
        first, last = self.slices or (0, length - 1)
        if first >= length:
            raise ValueError(
                f"{volume.group} has {length} slices along axis {self.axis}, so none from {first} on: start slices earlier."
            )
        return min(length, last + 1) - first

    def __len__(self) -> int:
        return self.ends[-1]

    def place(self, index: int) -> Place:
        number, within = locate(self.ends, index)
        volume = self.volumes[number]
        count, at = divmod(within, self._per_volume(volume))
        at += self.slices[0] if self.slices else 0
        further = tuple(int(i) for i in np.unravel_index(count, volume.shape[3:])) if volume.shape[3:] else ()
        return Place(volume, at, further)

    def raw(self, index: int) -> np.ndarray:
        """A slice (height, width) with values as stored, at its own size."""
        return self._plane(*self.place(index))

    def group_of(self, index: int) -> str:
        return self.place(index).volume.group

    def volume_of(self, index: int) -> str:
        return self.place(index).volume.group

    def file_of(self, index: int) -> str:
        files = self.place(index).volume.files
        return files[0] if len(files) == 1 else str(Path(files[0]).parent)

    def position_of(self, index: int) -> tuple[str, int]:
        """Samples of one position are repeated scans: the time points or echoes of a slice."""
        volume, at, _ = self.place(index)
        return volume.group, at if volume.space is None else at // volume.space.repeats

    def per_volume(self) -> int | None:
        """The number of slices of each volume, if it is the same for all."""
        counts = {self._per_volume(volume) for volume in self.volumes}
        return counts.pop() if len(counts) == 1 else None

    def geometry(self) -> dict[str, dict[str, Any]]:
        first = self.slices[0] if self.slices else 0
        return {
            one.group: describe_slices(one.space, one.shape, self.axis, first, self._per_volume(one), self.size)
            for one in self.volumes
            if one.space is not None
        }

    def _read(self, index: int) -> Sample:
        volume, at, further = self.place(index)
        low, high = self.window or (0.0, self._size(volume) if self.complex else self._largest(volume))
        plane = self._plane(volume, at, further)
        refuse_nonfinite(plane, f"Slice {at} of {volume.group}")
        part = (plane - low) / (high - low) if self.window is None else np.clip((plane - low) / (high - low), 0, 1)
        if self.size:
            part = _squared(part, self.size)
        if self.complex:
            return Sample(in_pairs(part), volume.group, float(high))
        x = (2 * part[None] - 1).astype(np.float32)
        return Sample(x, volume.group, float(high - low) / 2, float(high + low) / 2)

    def _size(self, volume: Volume) -> float:
        """The root mean square of the volume, as complex numbers."""
        return rms_of_samples(self._extremes(volume).rms, volume.group)

    def _extremes(self, volume: Volume) -> "Extremes":
        """Each process reads the complete volume once."""
        return _extremes(self, volume, tuple(os.stat(file).st_mtime_ns for file in volume.files))

    def _largest(self, volume: Volume) -> float:
        largest, smallest, _ = self._extremes(volume)
        if smallest < 0:
            raise ValueError(
                f"{volume.group} has values down to {smallest:g}: give window, the low and high value that become -1 and 1."
            )
        if largest == 0:
            raise ValueError(f"{volume.group} is zero everywhere: remove it.")
        return largest

    def _content(self) -> dict[str, Any]:
        return {
            "volumes": len(self.volumes),
            **summary(sizes(file for volume in self.volumes for file in volume.files)),
        }


class Extremes(NamedTuple):
    largest: float
    smallest: float
    rms: tuple[float, ...]
    """Of each slice, as complex numbers."""


@functools.lru_cache(maxsize=1024)
def _extremes(source: Slices, volume: Volume, modified: tuple[int, ...]) -> Extremes:
    largest, smallest, rms = 0.0, 0.0, []
    for further in np.ndindex(*volume.shape[3:]):
        for at in range(volume.shape[source.axis]):
            plane = source._plane(volume, at, further)
            refuse_nonfinite(plane, f"Slice {at} of {volume.group}")
            largest = max(largest, float(np.abs(plane).max()))
            rms.append(rms_of_pairs(plane))
            if plane.dtype.kind != "c":
                smallest = min(smallest, float(plane.min()))
    return Extremes(largest, smallest, tuple(rms))


def _squared(plane: np.ndarray, size: int) -> np.ndarray:
    """Padded with zeros to a square, then resized."""
    side = max(plane.shape)
    before = [(side - length) // 2 for length in plane.shape]
    padded = np.pad(plane, [(b, side - length - b) for b, length in zip(before, plane.shape, strict=True)])
    if plane.dtype.kind == "c":
        return resized(padded.real, size) + 1j * resized(padded.imag, size)
    return resized(padded, size)
