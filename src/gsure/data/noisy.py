"""Images that were measured with noise, and perhaps in part: image files, TIFF stacks, NIfTI and DICOM, in signal space.

A pixel was not measured if it is NaN, or 0 in the mask.
"""

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from gsure.data.array import choose_array
from gsure.data.dicom import Dicom
from gsure.data.image_files import entries, is_picture, picture
from gsure.data.images import Images
from gsure.data.layout import NARROW
from gsure.data.nifti import Nifti
from gsure.data.problems import Problems
from gsure.data.scans import refuse_mixed
from gsure.data.source import Spectrum, existing, in_pairs
from gsure.data.tiff import ENDINGS, Pages, Tiff, is_stack

IMAGE_KINDS = ("images", "tiff", "nifti", "dicom")
OPTIONS = {
    "images": set(),
    "tiff": {"slices", "axis", "pages"},
    "nifti": {"slices", "axis"},
    "dicom": {"slices", "axis"},
}
Maps = Callable[[int], np.ndarray]
"""From the number of a sample to an array that broadcasts against it."""


@runtime_checkable
class RawSource(Protocol):
    """A source whose values can be read as stored."""

    def __len__(self) -> int: ...
    def raw(self, index: int, /) -> np.ndarray: ...
    def group_of(self, index: int, /) -> str: ...
    def volume_of(self, index: int, /) -> str: ...
    def file_of(self, index: int, /) -> str: ...
    def position_of(self, index: int, /) -> tuple[str, int]: ...
    def per_volume(self) -> int | None: ...
    def geometry(self) -> dict[str, dict[str, Any]]: ...
    def fingerprint(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class NoisyImages:
    """What `gsure.convert` reads: ȳ is the image itself. `options` are those of the source."""

    kind: str
    source: RawSource
    options: Mapping[str, Any]
    mask: Maps | None = None

    @functools.cached_property
    def is_complex(self) -> bool:
        return self.source.raw(0).dtype.kind == "c"

    def __len__(self) -> int:
        return len(self.source)

    def volume(self, index: int) -> str:
        return self.source.volume_of(index)

    def file(self, index: int) -> str:
        return self.source.file_of(index)

    def position(self, index: int) -> tuple[str, int]:
        """Samples of one position are repeated scans of one thing."""
        return self.source.position_of(index)

    def open_maps(self, file: str | Path, what: str) -> Maps:
        return open_maps(file, replace(self, mask=None), what)

    def report(self) -> list[str]:
        found = self._about
        pages = [f"pages: {found['pages']}, taken as {found['taken as']}"] if "pages" in found else []
        volumes = (
            f"slices of {found['volumes']} volumes along axis" if found.get("volumes", 1) > 1 else "slices along axis"
        )
        what = f"{volumes} {self.options.get('axis', 2)}" if "volumes" in found and not pages else "images"
        masked = " or are 0 in the mask" if self.mask is not None else ""
        return [
            f"{what}: {len(self):,} samples, in signal space; pixels that are NaN{masked} were not measured",
            *pages,
            *self._warn_of_narrow_pages(),
        ]

    def _warn_of_narrow_pages(self) -> list[str]:
        height, width = self.source.raw(0).shape[-2:]
        if self.kind != "tiff" or width * NARROW > min(len(self), height):
            return []
        return [
            f"warning: pages of {height} × {width} are narrow: if the last dimension of your array counts the images, save "
            "np.moveaxis(array, -1, 0) instead"
        ]

    def header(self, size: tuple[int, int]) -> dict[str, Any]:
        return {"geometry": self.source.geometry(), "source": self._about}

    @property
    def _about(self) -> dict[str, Any]:
        """How the files were read."""
        found = self.source.fingerprint()
        return {key: found[key] for key in ("pages", "taken as", "axes", "volumes", "files", "sha256") if key in found}

    def __getitem__(self, index: int) -> Spectrum:
        values = np.asarray(self.source.raw(index))
        if (values.dtype.kind == "c") != self.is_complex:
            one, others = ("real", "complex") if self.is_complex else ("complex", "real")
            raise ValueError(f"{self.file(index)} is {one}, but the first file is {others}: import them separately.")
        ybar = in_pairs(values) if values.dtype.kind == "c" else values.reshape(-1, *values.shape[-2:])
        measured = ~np.isnan(ybar).any(0, keepdims=True)
        if self.mask is not None:
            kept = self.mask(index)
            if np.isnan(kept).any():
                raise ValueError("The mask has values that are NaN: set them to 0 (not measured) or 1 (measured).")
            measured = measured & (kept != 0)
        return Spectrum(np.where(measured, ybar, 0).astype(np.float32), measured, self.source.group_of(index))


class _TiffOfAnySize(Tiff):
    any_size = True


class _NiftiOfAnySize(Nifti):
    any_size = True


class _DicomOfAnySize(Dicom):
    any_size = True


OF_ANY_SIZE = {"tiff": _TiffOfAnySize, "nifti": _NiftiOfAnySize, "dicom": _DicomOfAnySize}


def open_noisy(
    kind: str,
    path: Path,
    mask: str | Path | None = None,
    slices: tuple[int, int] | None = None,
    axis: int | None = None,
    pages: Pages | None = None,
    *,
    problems: Problems,
) -> NoisyImages:
    """Images of one kind, with a mask that is an image, a stack, a volume or an array. Files that cannot be read are noted."""
    if existing(path).is_dir():
        refuse_mixed(kind, existing(path))
    kind = _kind_of_images(existing(path)) if kind == "images" else kind
    given = {"slices": slices, "axis": axis, "pages": pages}
    options = {name: value for name, value in given.items() if value is not None}
    if useless := sorted(set(options) - OPTIONS[kind]):
        raise ValueError(f"--{useless[0]} has no effect for {kind} {path}: omit it.")
    images = NoisyImages(kind, _open(kind, path, options, problems), options)
    if mask is None:
        return images
    with problems.noted():
        maps = images.open_maps(mask, "mask")
        _refuse_mask(maps, len(images), mask)
        return replace(images, mask=maps)
    return images


def _open(kind: str, path: Path, options: Mapping[str, Any], problems: Problems) -> RawSource:
    if kind == "images":
        names = [name for name, _ in entries(path) if is_picture(name)]
        good: dict[float, list[str]] = {}
        for name in names:
            with problems.noted():
                good.setdefault(picture(str(path), name)[1], []).append(name)
        if not good:
            problems.stop()
        if len(good) > 1:
            listed = ", ".join(f"{len(some)} up to {white:.0f} (such as {some[0]})" for white, some in good.items())
            problems.add(
                f"{path} mixes images whose white has different values, {listed}: move them to separate folders."
            )
        return Images(path, skip_bad=sum(map(len, good.values())) < len(names), **options)
    slices = OF_ANY_SIZE[kind](path, complex=True, **options)
    problems.extend(slices.problems)
    return slices


def _kind_of_images(path: Path) -> str:
    """Whether these are TIFF stacks, or images that Pillow reads. A folder must not hold both."""
    names = [name for name, _ in entries(path) if is_picture(name) or name.lower().endswith(ENDINGS)]
    stacks = [name for name in names if name.lower().endswith(ENDINGS)]
    folder = path if path.is_dir() else path.parent
    has_stacks = (path.is_dir() or bool(stacks)) and any(is_stack(folder / name) for name in stacks)
    if has_stacks and len(stacks) < len(names):
        other = next(name for name in names if name not in stacks)
        raise ValueError(
            f"{path} mixes formats: {stacks[0]} is a TIFF stack and {other} is not: move them to separate folders."
        )
    return "tiff" if has_stacks else "images"


def open_maps(file: str | Path, images: NoisyImages, what: str) -> Maps:
    """One map for all samples, or one for each: from a .npy, an image, a TIFF stack, a NIfTI volume, or a folder of these."""
    read, n = _planes(Path(file).expanduser(), images)
    if n not in (1, len(images), images.source.per_volume()):
        raise ValueError(
            f"The {what} {file} holds {n} images for {len(images)} samples: give one for all, or one for each."
        )

    def at(index: int) -> np.ndarray:
        plane = np.asarray(read(index % n))
        plane = plane.reshape((1,) * (3 - plane.ndim) + plane.shape)
        shape = images[index].ybar.shape
        if any(mine not in (1, theirs) for mine, theirs in zip(plane.shape, shape, strict=True)):
            raise ValueError(
                f"The {what} {file} has images of shape {plane.shape[-2:]}, but the samples are {shape[-2:]}: make them equal."
            )
        return plane

    at(0)
    return at


def _planes(file: Path, images: NoisyImages) -> tuple[Maps, int]:
    """How to read plane k, and how many there are."""
    if file.suffix == ".npy":
        array = choose_array(file, None, "a map", (2, 3, 4), "buif")
        if len(array.shape) == 2:
            return (lambda index: array[...]), 1
        return (lambda index: array[index]), array.shape[0]
    problems = Problems()
    name, options = file.name.lower(), {key: images.options[key] for key in ("slices", "axis") if key in images.options}
    if name.endswith((".nii", ".nii.gz")):
        source = _open("nifti", file, options, problems)
    elif images.kind == "dicom" and file.is_dir():
        source = _open("dicom", file, options, problems)
    else:
        is_tiff = name.endswith(ENDINGS)
        kind = "tiff" if is_tiff else _kind_of_images(existing(file))
        source = _open(kind, file, options if is_tiff else {"gray": True} if kind == "images" else {}, problems)
    problems.stop()
    return source.raw, len(source)


def _refuse_mask(maps: Maps, n: int, file: str | os.PathLike[str]) -> None:
    if not any(maps(index).any() for index in range(min(n, 8))):
        raise ValueError(f"The mask {file} measures no pixel: 0 means not measured. Check whether it is inverted.")
