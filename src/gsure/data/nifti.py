"""`nifti`: slices of NIfTI volumes (.nii, .nii.gz), one file or a folder of files; needs the package nibabel."""

import gzip
import math
import os
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gsure.data.geometry import Space
from gsure.data.problems import Problems
from gsure.data.source import DAMAGED, files_in, kept, name_in, optional, refuse_promise
from gsure.data.volume import Slices, Volume


@dataclass(frozen=True)
class Nifti(Slices):
    """Axes are as stored. A slice is rotated by 90 degrees, so that its second axis points up, as in viewers.

    An uncompressed file is read slice by slice. Compressed files cannot be read in parts, so the last few are cached in
    memory. Complex files need `complex`. The group is the file.
    """

    kind: ClassVar[str] = "nifti"

    def _headers(self, problems: Problems) -> tuple[Volume, ...]:
        volumes = []
        for file in files_in(self.path, ".nii", ".nii.gz"):
            with problems.noted():
                volumes.append(self._header(file))
        return tuple(volumes)

    def _header(self, file: str) -> Volume:
        image = load_nifti(file)
        shape = tuple(int(n) for n in image.shape)
        if len(shape) < 3 or min(shape) < 1:
            raise ValueError(
                f"{file} has shape {shape}, but a volume needs at least 3 dimensions: use the source array."
            )
        dtype = image.get_data_dtype()
        if dtype.kind not in "uifc":
            raise ValueError(f"{file} holds {dtype}, not numbers: convert its colours to gray values first.")
        if dtype.kind == "c" and not self.complex:
            raise ValueError(f"{file} holds {dtype}, not real numbers: complex numbers need the option complex.")
        refuse_promise(file, math.prod(shape) * dtype.itemsize, os.path.getsize(file), compressed=file.endswith("gz"))
        return Volume(name_in(self.path, file, ".gz", ".nii"), (file,), shape, _space(image))

    def _plane(self, volume: Volume, at: int, further: tuple[int, ...]) -> np.ndarray:
        where: list[Any] = [slice(None)] * 3
        where[self.axis] = at
        try:
            plane = np.asarray(kept(_voxels, volume.files[0])[(*where, *further)])
        except DAMAGED as error:
            raise ValueError(
                f"{volume.files[0]} cannot be read ({error}): it may be truncated, copy it again."
            ) from error
        return np.rot90(plane)


def _space(image: Any) -> Space:
    header = image.header
    codes = int(header["qform_code"]), int(header["sform_code"])
    affine = tuple(tuple(float(value) for value in row) for row in image.affine)
    problem = None if np.isfinite(image.affine).all() else "its affine has values that are NaN or infinite"
    return Space(affine, header.get_xyzt_units(), codes, tuple(map(float, header.get_zooms()[3:])), problem=problem)


def load_nifti(file: str) -> Any:
    nibabel = optional("nibabel")
    try:
        return nibabel.load(file)
    except (*DAMAGED, nibabel.filebasedimages.ImageFileError, nibabel.spatialimages.HeaderDataError) as error:
        raise ValueError(f"{file} is not a NIfTI file that can be read ({error}): check the file.") from error


def _voxels(file: str) -> Any:
    """The voxels as an array to index: a proxy that reads from the file, or all values of a compressed file."""
    proxy = load_nifti(file).dataobj
    if not file.endswith(".gz"):
        return proxy
    with gzip.open(file) as stream:  # nibabel stops before the checksum at the end
        while stream.read(2**20):
            pass
    return np.asanyarray(proxy, np.complex64 if proxy.dtype.kind == "c" else np.float32)
