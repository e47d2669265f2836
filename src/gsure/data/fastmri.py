"""`fastmri`: single-coil volumes in fastMRI's HDF5 layout. fastMRI may not be passed on; this reads your own copy.

As in the paper: slices 10 to 40, inverse Fourier transform, the central 320x320 of the image, divided by 7e-5; complex, in
two channels. The group is the volume, so that a split never parts the slices of a knee.
"""

import bisect
import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gsure.data.source import (
    DAMAGED,
    Sample,
    Source,
    centre_crop,
    check_scale,
    check_size,
    existing,
    files_in,
    in_pairs,
    name_in,
    refuse_nonfinite,
    sizes,
    summary,
    to_image,
)
from gsure.files import open_hdf5

PAPER_SLICES = 24_853
"""What the paper counts for training."""


@dataclass(frozen=True)
class FastMRI(Source):
    """`path` is a volume, a folder of volumes, or, with `split`, the folder that holds `singlecoil_train` and the others.
    `slices` are the first and the last, both included; a volume that ends earlier gives fewer.
    """

    kind: ClassVar[str] = "fastmri"
    path: str | Path
    split: str | None = None
    slices: tuple[int, int] = (10, 40)
    size: int = 320
    scale: float = 7e-5
    is_complex: bool = field(default=True, init=False, repr=False, compare=False)
    shape: tuple[int, int, int] = field(init=False, repr=False, compare=False)
    files: tuple[str, ...] = field(init=False, repr=False, compare=False)
    ends: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """How many samples there are up to and including each file."""

    def __post_init__(self) -> None:
        check_size(self.size)
        check_scale(self.scale)
        if not 0 <= self.slices[0] <= self.slices[1]:
            raise ValueError(f"slices must be a first and a last, counted from 0, but are {self.slices}.")
        files = files_in(self._folder, ".h5", ".hdf5")
        counts = [self._count(file) for file in files]
        self._set(files=files, ends=tuple(itertools.accumulate(counts)), shape=(2, self.size, self.size))

    @property
    def _folder(self) -> Path:
        path = existing(self.path)
        return path if self.split is None else path / f"singlecoil_{self.split}"

    def _count(self, file: str) -> int:
        """How many slices of this volume are wanted, from its header."""
        try:
            with open_hdf5(file) as volume:
                held = list(volume)
                shape: tuple[int, ...] = volume["kspace"].shape if "kspace" in held else ()
        except (KeyError, RuntimeError, AttributeError) as error:
            raise ValueError(f"{file} is damaged, or not a fastMRI volume: {error}") from error
        if "kspace" not in held:
            raise ValueError(f"{file} has no dataset kspace, only {held}: it is not a fastMRI volume.")
        if "mask" in held:
            raise ValueError(
                f"{file} has a mask, so its k-space is not complete (a test or challenge file): use gsure import."
            )
        if len(shape) != 3:
            raise ValueError(
                f"kspace of {file} has shape {shape}, but single-coil volumes are (slices, height, width)."
            )
        if shape[0] <= self.slices[0]:
            raise ValueError(
                f"{file} has {shape[0]} slices, so none from {self.slices[0]} on: remove it, or start slices earlier."
            )
        if min(shape[1:]) < self.size:
            raise ValueError(
                f"{file} has slices of {shape[1]}x{shape[2]}, smaller than the crop: lower size ({self.size})."
            )
        return min(shape[0], self.slices[1] + 1) - self.slices[0]

    def __len__(self) -> int:
        return self.ends[-1]

    def _read(self, index: int) -> Sample:
        import h5py

        number = bisect.bisect_right(self.ends, index)
        at = self.slices[0] + index - (self.ends[number - 1] if number else 0)
        file = self.files[number]
        try:
            with h5py.File(file) as volume:
                kspace = volume["kspace"][at]
        except DAMAGED as error:
            raise ValueError(f"Slice {at} of {file} cannot be read, the file may be cut short: {error}.") from error
        refuse_nonfinite(kspace, f"The k-space of slice {at} of {file}")
        image = centre_crop(to_image(kspace), self.size, self.size)
        return Sample(in_pairs(image / np.float32(self.scale)), name_in(self._folder, file, ".h5", ".hdf5"), self.scale)

    def _content(self) -> dict[str, Any]:
        starts = (0, *self.ends[:-1])
        per_folder: dict[str, int] = {}
        for file, start, end in zip(self.files, starts, self.ends, strict=True):
            folder = Path(file).parent.name
            per_folder[folder] = per_folder.get(folder, 0) + end - start
        return {"slices": per_folder, "paper_training_slices": PAPER_SLICES, **summary(sizes(self.files))}
