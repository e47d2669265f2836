"""`idx`: MNIST, Fashion-MNIST and similar datasets in IDX files, gzipped or not."""

import gzip
import math
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gsure.data.source import DAMAGED, Sample, Source, check_size, existing, kept, resized, sizes, summary


@dataclass(frozen=True)
class Idx(Source):
    """One file of images. Bytes 0..255 become -1..1. `size` resizes images (antialiased bilinear). A gzipped file is
    decompressed into memory (47 MB for MNIST); an uncompressed one is memory-mapped.
    """

    kind: ClassVar[str] = "idx"
    path: str | Path
    size: int | None = None
    is_complex: bool = field(default=False, init=False, repr=False, compare=False)
    shape: tuple[int, int, int] = field(init=False, repr=False, compare=False)
    n: int = field(init=False, repr=False, compare=False)
    file: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_size(self.size)
        path = existing(self.path)
        if path.is_dir():
            found = ", ".join(sorted(p.name for p in path.glob("*idx3*"))) or "none"
            raise ValueError(f"{path} is a folder, but idx reads one file: give the file (here: {found}).")
        n, height, width = _dimensions(str(path))
        if self.size and height != width:
            raise ValueError(f"{path} has images of {height}x{width}, but only square ones can be resized: omit size.")
        self._set(file=str(path), n=n, shape=(1, self.size or height, self.size or width))

    def __len__(self) -> int:
        return self.n

    def _read(self, index: int) -> Sample:
        plane = kept(_images, self.file)[index]
        if self.size:
            plane = resized(plane, self.size)
        return Sample.of_intensities(plane[None], str(index), 0.0, 255.0)

    def _content(self) -> dict[str, Any]:
        return summary(sizes([self.file]))


def _is_gzipped(file: str) -> bool:
    with open(file, "rb") as stream:
        return stream.read(2) == b"\x1f\x8b"


def _dimensions(file: str) -> tuple[int, int, int]:
    try:
        with gzip.open(file) if _is_gzipped(file) else open(file, "rb") as stream:
            header = stream.read(16)
    except DAMAGED as error:
        raise ValueError(f"{file} is not a complete gzip file: {error}.") from error
    if len(header) < 4 or header[:2] != b"\0\0" or header[2:4] == b"\0\0":
        raise ValueError(f"{file} is not an IDX file: it starts with {header[:4].hex() or 'nothing'}, not 00000803.")
    if len(header) < 16 or header[2:4] != b"\x08\x03":
        raise ValueError(
            f"{file} is an IDX file of type {header[2]:#04x} with {header[3]} dimensions, but images are bytes (0x08) with 3: "
            "give the file of images, not of labels."
        )
    n, height, width = struct.unpack(">3I", header[4:])
    return n, height, width


def _images(file: str) -> np.ndarray:
    shape = _dimensions(file)
    try:
        if _is_gzipped(file):
            with gzip.open(file) as stream:
                data = np.frombuffer(stream.read(), np.uint8)
        else:
            data = np.memmap(file, np.uint8, "r")
    except DAMAGED as error:
        raise ValueError(f"{file} is not a complete gzip file: {error}.") from error
    if data.size != 16 + math.prod(shape):
        raise ValueError(
            f"{file} has {data.size} bytes, but its header promises {16 + math.prod(shape)}: copy it again."
        )
    return data[16:].reshape(shape)
