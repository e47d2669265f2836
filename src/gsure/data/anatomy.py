"""`anatomy`: any number of MR slices of real heads, each deformed to another person's, to try MRI masks without MRI data.

A slice is a plane through a head, along one of its three axes. The plane is tilted, stretched, shifted and bent at random
(elastic deformation, in all three directions), so that no two samples show the same anatomy. Then a random curve changes the
contrast, a smooth field the brightness, and a smooth phase makes the image complex. Sample k depends only on (seed, split, k),
and is the same slice at every size.
"""

import functools
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from gsure.data.fields import grid, smooth_phase, waves
from gsure.data.scaling import rms_of_samples
from gsure.data.source import Sample, Source, files_in, in_pairs, name_in, optional, refuse_nonfinite, sizes, summary

Split = Literal["all", "train", "test"]
Plane = Literal["any", "sagittal", "coronal", "axial"]
"""Sorted like FRAMES, after `any`."""
FOLDER = Path(__file__).parent / "heads"
BUILT_IN: dict[Split, tuple[str, ...]] = {
    "all": ("mni152", "ds000031", "colin27"),
    "train": ("mni152", "ds000031"),  # an average of 152 people belongs to no test
    "test": ("colin27",),
}
FRAMES = np.array(
    [  # right, down and the direction of slices in the image, as (right, anterior, superior): sagittal, coronal, axial
        [[0, 1, 0], [0, 0, -1], [1, 0, 0]],
        [[1, 0, 0], [0, 0, -1], [0, 1, 0]],
        [[1, 0, 0], [0, -1, 0], [0, 0, 1]],
    ]
)
SLICES = (0.22, 0.78), (0.2, 0.84), (0.24, 0.85)
"""The part of the head that slices come from, along right, anterior and superior: without ears, face, neck and scalp."""
WHITE = 0.998
"""The quantile of the voxels that is white."""
TISSUE = 0.35, 0.6
"""The brightness of the median voxel of a head, as a share of white."""
MIRRORED = 0.5
"""How many slices are mirrored."""


@dataclass(frozen=True)
class Anatomy(Source):
    """Slices of `size` x `size`, with a root mean square of about 1. `phase` makes them complex; else they are real.

    `plane` chooses one direction; by default, slices of all three are mixed.

    `heads` is a NIfTI file, or a folder of them, of T1-weighted or other magnitude volumes. By default the heads are those in
    the package: Colin27 in the split `test`, a second person and the average MNI152 in `train`. In a folder of your own, the
    last fifth of the volumes by name, at least one, is `test`.

    >>> Anatomy(size=32)[3].x.shape
    (2, 32, 32)
    """

    kind: ClassVar[str] = "anatomy"
    heads: str | Path | None = None
    split: Split = "train"
    size: int = 96
    n: int = 10_000
    seed: int = 0
    phase: bool = True
    plane: Plane = "any"
    is_complex: bool = field(default=True, init=False, repr=False, compare=False)
    shape: tuple[int, int, int] = field(init=False, repr=False, compare=False)
    files: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.split not in get_args(Split):
            raise ValueError(f"split must be one of {', '.join(get_args(Split))}, but is {self.split!r}.")
        if self.plane not in get_args(Plane):
            raise ValueError(f"plane must be one of {', '.join(get_args(Plane))}, but is {self.plane!r}.")
        if self.size < 8 or self.n < 1 or self.seed < 0:
            raise ValueError(
                f"anatomy needs size >= 8, n >= 1 and seed >= 0, but was given size = {self.size}, n = {self.n}, seed = "
                f"{self.seed}."
            )
        self._set(shape=(2, self.size, self.size), files=_files(self.heads, self.split))

    def __len__(self) -> int:
        return self.n

    def reads(self) -> list[Path]:
        return [] if self.heads is None else [Path(self.heads).expanduser()]

    def _read(self, index: int) -> Sample:
        from gsure.random import Stream, numpy_generator  # here, because it imports torch

        rng = numpy_generator(self.seed, Stream.ANATOMY, get_args(Split).index(self.split), index)
        file = self.files[rng.integers(len(self.files))]
        head = _open(file, os.stat(file).st_mtime_ns)
        image = _slice(rng, head, self.size, self.plane)
        if self.phase:
            image = image * np.exp(1j * smooth_phase(rng, self.size))
        return Sample(in_pairs(image / np.float32(head.scale)), str(index), head.scale)

    def _content(self) -> dict[str, Any]:
        names = [name_in(Path(file).parent, file, ".npz", ".gz", ".nii") for file in self.files]
        return {"version": 1, "of": names, **summary(sizes(self.files))}


def _files(heads: str | Path | None, split: Split) -> tuple[str, ...]:
    if heads is None:
        return tuple(str(FOLDER / f"{name}.npz") for name in BUILT_IN[split])
    found = files_in(heads, ".nii", ".nii.gz")
    if split == "all":
        return found
    if len(found) < 2:
        raise ValueError(
            f"{heads} has one volume, which cannot be both training and test data: give the split all, or more volumes."
        )
    test = -(-len(found) // 5)
    return found[-test:] if split == "test" else found[:-test]


class Head(NamedTuple):
    voxels: np.ndarray
    """(right, anterior, superior), cut to the head, with one voxel of zeros around it."""
    white: float
    millimetres: np.ndarray
    """Size of a voxel, in each direction."""
    median: float
    """Of the voxels of the head, as a share of white."""
    scale: float
    """The root mean square of its slices."""

    @property
    def extent(self) -> np.ndarray:
        return self.millimetres * self.voxels.shape


@functools.lru_cache(maxsize=16)
def _open(file: str, modified: int) -> Head:
    if file.endswith(".npz"):
        with np.load(file, allow_pickle=False) as stored:
            voxels, millimetres = stored["voxels"], np.full(3, float(stored["millimetres"]))
    else:
        voxels, millimetres = _from_nifti(file)
    white = float(np.quantile(voxels[voxels > 0], WHITE))
    median = float(np.median(voxels[voxels > 0.1 * white])) / white
    unscaled = Head(voxels, white, millimetres, median, 1.0)
    squares = _tone(voxels.astype(np.float32) / white, median, sum(TISSUE) / 2) ** 2
    planes = np.concatenate([squares.sum(tuple({0, 1, 2} - {axis})) / _voxels(unscaled, axis) for axis in range(3)])
    return unscaled._replace(scale=rms_of_samples(np.sqrt(planes / 2).tolist(), file))


def _voxels(head: Head, axis: int) -> float:
    """How many voxels a slice along the axis has within a field of view of the usual size."""
    return float((1.13 * head.extent.max()) ** 2 * head.millimetres[axis] / head.millimetres.prod())


def _from_nifti(file: str) -> tuple[np.ndarray, np.ndarray]:
    """The voxels of a head, cut to what is not air, and their sizes in mm."""
    from gsure.data.nifti import load_nifti

    image = optional("nibabel").as_closest_canonical(load_nifti(file))
    if len(image.shape) != 3 or image.get_data_dtype().kind not in "uif":
        raise ValueError(
            f"{file} holds {image.get_data_dtype()} of shape {tuple(image.shape)}, but a head is one real volume of 3 "
            "dimensions: remove the file, or store one magnitude volume per file."
        )
    voxels = np.asarray(image.dataobj, np.float32)
    refuse_nonfinite(voxels, file)
    if voxels.min() < 0 or voxels.max() == 0:
        raise ValueError(
            f"{file} has values from {voxels.min():g} to {voxels.max():g}, but a magnitude image has none below 0 and some "
            "above: shift or replace it."
        )
    found = voxels > 0.1 * np.quantile(voxels[voxels > 0], WHITE)
    for axis in range(3):
        inside = np.flatnonzero(found.mean(tuple({0, 1, 2} - {axis})) > 0.01)  # noise has few bright voxels
        voxels = voxels.take(np.arange(inside[0], inside[-1] + 1), axis)
    return np.pad(voxels / voxels.max(), 1).astype(np.float16), np.asarray(image.header.get_zooms()[:3], float)


def _slice(rng: np.random.Generator, head: Head, size: int, plane: Plane) -> np.ndarray:
    """A magnitude image: one random slice, about 0..1."""
    drawn = int(rng.integers(3))
    axis = drawn if plane == "any" else get_args(Plane).index(plane) - 1
    view = head.extent.max() * rng.uniform(1.04, 1.22)
    fine = max(
        1, round(view / size / head.millimetres.min())
    )  # points per pixel and direction, so that nothing aliases
    points = _points(rng, head, axis, view, fine * size)
    values = _interpolated(head.voxels, points) / np.float32(head.white)
    pixels = values.reshape(size, fine, size, fine).mean((1, 3))
    brightness, bend = rng.uniform([TISSUE[0], -0.4], [TISSUE[1], 0.4])
    toned = _tone(pixels, head.median, brightness)
    toned = toned + np.float32(bend / 2 / np.pi) * np.sin(
        np.float32(2 * np.pi) * np.minimum(toned, 1)
    )  # still increases
    return toned * np.exp(0.12 * waves(rng, size, 1.5, 4.0, count=6))


def _tone(values: np.ndarray, median: float, brightness: float) -> np.ndarray:
    """The contrast that moves the median of a head to this brightness, and leaves black and white."""
    return np.clip(values, 0, 1.2) ** np.float32(np.log(brightness) / np.log(median))


def _points(rng: np.random.Generator, head: Head, axis: int, view: float, n: int) -> np.ndarray:
    """Where in the head each point of the image lies: (3, n, n), in voxels."""
    x, y = grid(n)
    across, down, along = FRAMES[axis] * view / 2
    across = across * (-1 if rng.random() < MIRRORED else 1)
    tilt, stretch = _rotation(rng.normal(0, 0.08, 3)), rng.uniform(0.92, 1.08, 3)
    shift = rng.uniform(-0.05, 0.05, 2)
    position = (rng.uniform(*SLICES[axis]) - 0.5) * head.extent[axis]
    frame = np.stack([across, down, along / (view / 2) * position + shift[0] * across + shift[1] * down], 1)
    frame = ((tilt * stretch) @ frame / head.millimetres[:, None]).astype(np.float32)
    bends = np.stack([waves(rng, n, 0.5, 1.6) for _ in range(3)])
    bends *= (0.008 * view / head.millimetres).astype(np.float32)[:, None, None]
    centre = (np.array(head.voxels.shape, np.float32) - 1) / 2
    straight = frame[:, 0, None, None] * x + frame[:, 1, None, None] * y
    return straight + (frame[:, 2] + centre)[:, None, None] + bends


def _rotation(angles: np.ndarray) -> np.ndarray:
    """By these angles about the three axes, in turn."""
    turned = np.eye(3)
    for axis, angle in enumerate(angles):
        a, b = (axis + 1) % 3, (axis + 2) % 3
        step = np.eye(3)
        step[[a, a, b, b], [a, b, a, b]] = np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)
        turned = step @ turned
    return turned


def _interpolated(voxels: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Trilinear. Outside of the volume is what its border holds: zero."""
    below, weights = [], []
    for at, length in zip(points, voxels.shape, strict=True):
        inside = np.clip(at, 0, np.float32(length - 1.001))
        low = inside.astype(np.int32)
        below.append(low)
        weights.append((1 - (inside - low), inside - low))
    total = np.zeros(points.shape[1:], np.float32)
    for i, j, k in np.ndindex(2, 2, 2):
        corner = voxels[below[0] + i, below[1] + j, below[2] + k].astype(np.float32)
        total += weights[0][i] * weights[1][j] * weights[2][k] * corner
    return total
