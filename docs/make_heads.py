"""Makes the heads in src/gsure/data/heads/ from volumes of package registries, which docs/sources/anatomy.md names.

    python docs/make_heads.py VOLUMES OUT

VOLUMES is a folder with the files that `HEADS` names. Each head is oriented (right, anterior, superior), cut to the head,
freed of the noise around it and of the face below the eyes, averaged to cubic voxels of `SPACING` mm, and stored as 8-bit
values, of which 1 in 500 is white. The signal fades towards a cut.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np
from scipy import ndimage

SPACING = 1.5
LEVELS = 127
"""The scans have about 7 bits above their noise, and files with fewer values are smaller."""


@dataclass(frozen=True)
class Head:
    file: str
    noise: float
    """The share of the largest intensity below which a voxel outside of the head is noise."""
    height: float | None = None
    """Millimetres to keep below the top of the head; None keeps all."""
    front: float | None = None
    """Millimetres to keep before the back of the head: a cut through the bridge of the nose."""


HEADS = {
    "mni152": Head("mni_icbm152_t1_tal_nlin_sym_09a_converted.nii.gz", noise=0.02),
    "colin27": Head("ch2.nii.gz", noise=0.12, height=172.0),
    "ds000031": Head("ds000031_sub-01_ses-006_run-001_T1w.nii.gz", noise=0.08, height=165.0, front=214.0),
}


def make_head(head: Head, folder: Path) -> np.ndarray:
    """The head as uint8 (right, anterior, superior), a voxel of nothing around it."""
    image = nibabel.as_closest_canonical(nibabel.load(folder / head.file))
    voxels = np.asarray(image.dataobj, np.float32)
    mask = _inside(voxels, head.noise)
    voxels = np.where(mask, voxels, 0)
    millimetres = np.asarray(image.header.get_zooms()[:3], float)
    voxels = voxels[_kept(mask, millimetres, head)]
    blurred = ndimage.gaussian_filter(voxels, 0.35 * SPACING / millimetres)  # of half the width of the new voxels
    small = np.clip(ndimage.zoom(blurred, millimetres / SPACING, order=1), 0, None)
    white = np.quantile(small[small > 0], 0.998)
    small = np.clip(small / white, 0, 1)
    if head.height is not None:
        small = small * _fading(small.shape[2], 30)
    if head.front is not None:
        small = small * _fading(small.shape[1], 8)[::-1, None]
    return np.pad(np.round(small * LEVELS).astype(np.uint8), 1)


def _fading(length: int, millimetres: float) -> np.ndarray:
    """The signal near the edge of a coil: from nothing to all of it, within so many millimetres."""
    part = np.clip((np.arange(length) + 0.5) * SPACING / millimetres, 0, 1)
    return np.sin(np.pi / 2 * part) ** 2


def _inside(voxels: np.ndarray, noise: float) -> np.ndarray:
    """The largest connected part that is not noise, and what it encloses."""
    found = ndimage.gaussian_filter(voxels, 1) > noise * np.quantile(voxels, 0.998)
    parts, n = ndimage.label(found)
    largest = 1 + int(np.argmax(ndimage.sum_labels(found, parts, np.arange(1, n + 1))))
    mask = ndimage.binary_closing(np.pad(parts == largest, 8), iterations=6)[8:-8, 8:-8, 8:-8]
    for axis in range(3):  # slice by slice, because the neck lets the outside in
        mask = np.stack([ndimage.binary_fill_holes(plane) for plane in np.moveaxis(mask, axis, 0)], axis)
    return mask


def _kept(mask: np.ndarray, millimetres: np.ndarray, head: Head) -> tuple[slice, ...]:
    """The bounding box of the head, without the face."""
    (left, right), (back, front), (bottom, top) = (
        (int(found[0]), int(found[-1]) + 1)
        for found in (np.flatnonzero(mask.any(tuple({0, 1, 2} - {axis}))) for axis in range(3))
    )
    if head.height is not None:
        bottom = max(bottom, top - round(head.height / millimetres[2]))
    if head.front is not None:
        front = min(front, back + round(head.front / millimetres[1]))
    return slice(left, right), slice(back, front), slice(bottom, top)


def main(volumes: str, out: str) -> None:
    Path(out).mkdir(parents=True, exist_ok=True)
    for name, head in HEADS.items():
        np.savez_compressed(Path(out) / f"{name}.npz", voxels=make_head(head, Path(volumes)), millimetres=SPACING)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
