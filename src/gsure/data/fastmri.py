"""`fastmri`: single-coil volumes in fastMRI's HDF5 layout. You need your own copy: its terms forbid redistribution.

The defaults are those of the paper: slices 10 to 40, inverse Fourier transform, a central crop of 320x320 pixels, division by
7e-5. Images are complex, in two channels. The group is the volume, so that a split never separates the slices of a knee.
"""

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gsure.data.source import (
    DAMAGED,
    Sample,
    Source,
    Spectrum,
    centre_crop,
    check_scale,
    check_size,
    check_slices,
    existing,
    files_in,
    in_pairs,
    kept,
    locate,
    name_in,
    refuse_nonfinite,
    sizes,
    summary,
    to_image,
)
from gsure.files import open_hdf5

ENDINGS = (".h5", ".hdf5")
PAPER_SLICES = 24_853
"""Number of training slices in the paper."""


@dataclass(frozen=True)
class FastMRI(Source):
    """`path` is a volume, a folder of volumes, or, with `split`, the folder that holds `singlecoil_train` and the others.
    `slices` is (first, last), inclusive; a shorter volume has fewer samples.
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
    """The cumulative number of samples, up to and including each file."""

    def __post_init__(self) -> None:
        check_size(self.size)
        check_scale(self.scale)
        check_slices(self.slices)
        files = files_in(self._folder, *ENDINGS)
        counts = [self._checked_count(file) for file in files]
        self._set(files=files, ends=tuple(itertools.accumulate(counts)), shape=(2, self.size, self.size))

    @property
    def _folder(self) -> Path:
        path = existing(self.path)
        return path if self.split is None else path / f"singlecoil_{self.split}"

    def _checked_count(self, file: str) -> int:
        """The number of slices to read from a volume, after checking the volume."""
        shape, mask_shape = _shapes(file)
        if mask_shape is not None:
            raise ValueError(
                f"{file} has a mask, so its k-space is undersampled (a test or challenge file): use gsure import."
            )
        if shape[0] <= self.slices[0]:
            raise ValueError(
                f"{file} has {shape[0]} slices, so none from {self.slices[0]} on: remove it, or start slices earlier."
            )
        if min(shape[1:]) < self.size:
            raise ValueError(
                f"{file} has slices of {shape[1]}x{shape[2]}, smaller than the crop of {self.size}: lower size."
            )
        return _count(shape, self.slices)

    def __len__(self) -> int:
        return self.ends[-1]

    def _read(self, index: int) -> Sample:
        number, within = locate(self.ends, index)
        file, at = self.files[number], self.slices[0] + within
        kspace = _kspace(file, at)
        refuse_nonfinite(kspace, f"The k-space of slice {at} of {file}")
        image = centre_crop(to_image(kspace), self.size, self.size)
        return Sample(in_pairs(image / np.float32(self.scale)), name_in(self._folder, file, *ENDINGS), self.scale)

    def _content(self) -> dict[str, Any]:
        starts = (0, *self.ends[:-1])
        per_folder: dict[str, int] = {}
        for file, start, end in zip(self.files, starts, self.ends, strict=True):
            folder = Path(file).parent.name
            per_folder[folder] = per_folder.get(folder, 0) + end - start
        return {"slices": per_folder, "paper_training_slices": PAPER_SLICES, **summary(sizes(self.files))}


class FastMRISpectra:
    """Undersampled volumes as in fastMRI's test set: `kspace` (slices, height, width) and `mask` (width).

    `slices` is (first, last), inclusive. A volume that has none of them gives no samples.
    """

    is_complex = True

    def __init__(self, path: str | Path, slices: tuple[int, int] | None) -> None:
        check_slices(slices)
        self.path, self.first = existing(path), slices[0] if slices else 0
        self.files = files_in(path, *ENDINGS)
        counts: list[int] = []
        for file in self.files:
            shape, mask_shape = _shapes(file)
            if mask_shape != shape[-1:]:
                has = "no mask" if mask_shape is None else f"a mask of shape {mask_shape}"
                raise ValueError(
                    f"{file} has k-space of shape {shape} and {has}, but measured volumes have a mask of shape "
                    f"{shape[-1:]}: if the k-space is fully sampled, use gsure corrupt."
                )
            counts.append(_count(shape, slices or (0, shape[0] - 1)))
        self.ends = tuple(itertools.accumulate(counts))
        if not self.ends[-1]:
            raise ValueError(f"No volume in {path} has slices in the range {slices}: choose another range.")

    def __len__(self) -> int:
        return self.ends[-1]

    def volume(self, index: int) -> str:
        return name_in(self.path, self.files[locate(self.ends, index)[0]], *ENDINGS)

    def __getitem__(self, index: int) -> Spectrum:
        number, within = locate(self.ends, index)
        file = self.files[number]
        mask = kept(_mask, file)
        ybar = in_pairs(_kspace(file, self.first + within))
        return Spectrum(ybar * mask, mask[None, None], name_in(self.path, file, *ENDINGS))


def _count(shape: tuple[int, ...], slices: tuple[int, int]) -> int:
    return max(0, min(shape[0], slices[1] + 1) - slices[0])


def _shapes(file: str) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """The shapes of k-space and mask of a volume, from its header. The second is None if there is no mask."""
    try:
        with open_hdf5(file) as volume:
            held = list(volume)
            if "kspace" not in held:
                raise ValueError(f"{file} has no dataset kspace, only {held}: it is not a fastMRI volume.")
            shape, dtype = volume["kspace"].shape, volume["kspace"].dtype
            mask_shape = volume["mask"].shape if "mask" in held else None
    except (KeyError, RuntimeError, AttributeError) as error:
        raise ValueError(f"{file} is damaged, or not a fastMRI volume ({error}): check the file.") from error
    if len(shape) != 3 or dtype.kind != "c":
        raise ValueError(
            f"kspace of {file} has shape {shape} and type {dtype}, but single-coil volumes are complex and of shape "
            "(slices, height, width): convert it."
        )
    return shape, mask_shape


def _kspace(file: str, at: int) -> np.ndarray:
    try:
        with open_hdf5(file) as volume:
            return volume["kspace"][at]
    except DAMAGED as error:
        raise ValueError(
            f"Slice {at} of {file} cannot be read ({error}): the file may be truncated, copy it again."
        ) from error


def _mask(file: str) -> np.ndarray:
    with open_hdf5(file) as volume:
        return np.asarray(volume["mask"]).astype(bool)
