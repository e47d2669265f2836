"""`cfl`: complex images or k-space of BART.

The .cfl file has the values (complex64, first dimension fastest), the .hdr file the dimensions.
"""

import itertools
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gsure.data.layout import Layout, bart_layout
from gsure.data.scaling import rms_of_pairs, rms_of_samples
from gsure.data.source import (
    Sample,
    Source,
    check_scale,
    existing,
    files_in,
    in_pairs,
    kept,
    locate,
    name_in,
    refuse_nonfinite,
    refuse_unreadable,
    sizes,
    summary,
)


@dataclass(frozen=True)
class Cfl(Source):
    """Dimensions are those of BART (READ PHS1 PHS2 COIL ...), or as `dims` names them. Height and width are the first two of
    READ, PHS1 and PHS2 that are longer than 1; a third counts slices. Files with several coils need `coil`.

    `path` is the .cfl or .hdr file, their common name without the ending (as in BART), or a folder. Values are divided by
    `scale`, by default such that the root mean square of each file is about 1. The group is the file. Transform fully sampled
    k-space to images with `bart fft -i 3`; read undersampled k-space with `gsure import`.
    """

    kind: ClassVar[str] = "cfl"
    path: str | Path
    scale: float | None = None
    dims: str | None = None
    coil: int | None = None
    is_complex: bool = field(default=True, init=False, repr=False, compare=False)
    shape: tuple[int, int, int] = field(init=False, repr=False, compare=False)
    files: tuple[str, ...] = field(init=False, repr=False, compare=False)
    ends: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """The cumulative number of samples, up to and including each file."""
    layouts: tuple[Layout, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_scale(self.scale)
        files = files_in(self.path if Path(self.path).expanduser().is_dir() else cfl_file(self.path), ".cfl")
        layouts = tuple(bart_layout(_dimensions(file), self.dims, file, images=True) for file in files)
        height, width = layouts[0].size
        for file, layout in zip(files, layouts, strict=True):
            if layout.size != (height, width):
                h, w = layout.size
                raise ValueError(
                    f"{file} has images of {h}x{w}, but {files[0]} of {height}x{width}: read them separately."
                )
            if (layout.coils > 1 and self.coil is None) or not 0 <= (self.coil or 0) < layout.coils:
                raise ValueError(
                    f"{file} has {layout.coils} coils ({layout.describe()}): choose one with coil, 0 to {layout.coils - 1}."
                )
        ends = tuple(itertools.accumulate(len(layout) for layout in layouts))
        self._set(files=files, ends=ends, layouts=layouts, shape=(2, height, width))

    def __len__(self) -> int:
        return self.ends[-1]

    def _read(self, index: int) -> Sample:
        number, at = locate(self.ends, index)
        file = self.files[number]
        scale = self.scale or kept(_Size(self.layouts[number], self.coil or 0), file)
        plane = _plane(file, self.layouts[number], self.coil or 0, at)
        refuse_nonfinite(plane, f"Image {at} of {file}")
        return Sample(in_pairs(plane / np.float32(scale)), name_in(self.path, file, ".cfl"), scale)

    def reads(self) -> list[Path]:
        return [*super().reads(), *map(Path, self.files)]

    def _content(self) -> dict[str, Any]:
        return {"dimensions": self.layouts[0].describe(), **summary(sizes(self.files))}


def mapped(path: str | Path) -> np.ndarray:
    """The values of one file in its own dimensions, memory-mapped: measured k-space, or a mask."""
    file = str(existing(cfl_file(path)))
    return np.memmap(file, np.complex64, "r", shape=_dimensions(file), order="F")


def cfl_file(path: str | Path) -> Path:
    """The path of the .cfl file, given the .cfl file, the .hdr file, or their common name without the ending."""
    path = Path(path).expanduser()
    return path.with_suffix(".cfl") if path.suffix in (".cfl", ".hdr") else path.with_name(f"{path.name}.cfl")


def _dimensions(file: str) -> tuple[int, ...]:
    """The dimensions in the header, at least two, checked against the size of the .cfl file."""
    header = existing(Path(file).with_suffix(".hdr"))
    refuse_unreadable([header])
    lines = header.read_text(errors="replace").splitlines()
    try:
        dims = tuple(int(word) for word in lines[lines.index("# Dimensions") + 1].split())
    except (ValueError, IndexError) as error:
        raise ValueError(
            f"{header} is not a header of BART, which has a line of numbers after '# Dimensions': check the file."
        ) from error
    if not dims or min(dims) < 1:
        raise ValueError(f"{header} has the dimensions {dims}, but each must be at least 1: check the file.")
    size, promised = os.path.getsize(file), 8 * math.prod(dims)
    if size != promised:
        other = {2 * promised: "complex128", promised // 2: "real float32"}.get(size)
        remedy = f"save complex64 values, not {other}" if other else "copy it again"
        raise ValueError(f"{file} has {size} bytes, but its header promises {promised} (dimensions {dims}): {remedy}.")
    return (*dims, 1, 1)[: max(len(dims), 2)]


def _plane(file: str, layout: Layout, coil: int, at: int) -> np.ndarray:
    return layout.take(kept(mapped, file).reshape(layout.shape, order="F"), at)[coil, 0]


@dataclass(frozen=True)
class _Size:
    """The scale of all images of a file. It is a dataclass because `kept` caches by equality."""

    layout: Layout
    coil: int

    def __call__(self, file: str) -> float:
        sizes = []
        for at in range(len(self.layout)):
            plane = _plane(file, self.layout, self.coil, at)
            refuse_nonfinite(plane, f"Image {at} of {file}")
            sizes.append(rms_of_pairs(plane))
        return rms_of_samples(sizes, file)
