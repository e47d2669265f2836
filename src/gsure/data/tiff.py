"""`tiff`: pages of TIFF stacks, one file or a folder of files; needs the package tifffile."""

import contextlib
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from gsure.data.problems import Problems
from gsure.data.source import DAMAGED, Sample, files_in, kept, name_in, optional
from gsure.data.volume import Slices, Volume

ENDINGS = (".tif", ".tiff")
ESSENTIAL = re.compile(r"^<tifffile.TiffPage |TiffTag (25[6-9]|27[3789]|317|32[2-5]|339) @")
"""Complaints of tifffile about pages, or about tags without which the values of a page cannot be known."""
Pages = Literal["samples", "volume"]


class Stack(NamedTuple):
    """The header of one file."""

    shape: tuple[int, int, int]
    """Pages, height, width."""
    axes: str
    """As tifffile names them, such as ZYX for a volume and QYX if the file does not say."""
    dtype: np.dtype


@dataclass(frozen=True)
class Tiff(Slices):
    """Pages of gray values; axis 2 is that of the pages. A page is shown as stored.

    `pages` is "samples" if each page is a group of its own, or "volume" if the pages of a file are one group. By default, one
    file holds samples, and each of several files is a volume.
    """

    kind: ClassVar[str] = "tiff"
    pages: Pages | None = None
    stacks: tuple[Stack, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.pages not in (None, "samples", "volume"):
            raise ValueError(f"pages must be samples or volume, but is {self.pages!r}.")
        super().__post_init__()

    def _headers(self, problems: Problems) -> tuple[Volume, ...]:
        stacks: dict[str, Stack] = {}
        for file in files_in(self.path, *ENDINGS):
            with problems.noted():
                stack = _stack(file)
                if stack.dtype.kind == "c" and not self.complex:
                    raise ValueError(f"{file} holds complex numbers: they need the option complex.")
                stacks[file] = stack
        self._set(stacks=tuple(stacks.values()))
        return tuple(
            Volume(name_in(self.path, file, *ENDINGS), (file,), (width, height, n))
            for file, ((n, height, width), *_) in stacks.items()
        )

    @property
    def pages_are(self) -> Pages:
        return self.pages or ("samples" if len(self.volumes) == 1 and self.axis == 2 else "volume")

    def group_of(self, index: int) -> str:
        volume, at, _ = self.place(index)
        return f"{volume.group}-{at}" if self.pages_are == "samples" else volume.group

    def position_of(self, index: int) -> tuple[str, int]:
        """The pages of a file may be repeated scans of one scene."""
        return self.volume_of(index), 0

    def _read(self, index: int) -> Sample:
        return super()._read(index)._replace(group=self.group_of(index))

    def _plane(self, volume: Volume, at: int, further: tuple[int, ...]) -> np.ndarray:
        file = volume.files[0]
        if self.axis == 2:
            return _page(file, at)
        pages = np.stack([_page(file, k) for k in range(volume.shape[2])], 2)
        return np.rot90(np.take(np.rot90(pages, -1), at, self.axis))

    def _content(self) -> dict[str, Any]:
        counts = [stack.shape[0] for stack in self.stacks]
        taken = {"samples": "each page is a sample of its own", "volume": "the pages of a file are one volume"}
        return {
            "pages": sum(counts),
            "taken as": f"{self.pages_are}: {taken[self.pages_are]}",
            "axes": sorted({stack.axes for stack in self.stacks}),
            **super()._content(),
        }


def is_stack(file: str | os.PathLike[str]) -> bool:
    """Whether a TIFF file needs this reader: it has several pages, or values for which white is not defined."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as image:
            return getattr(image, "n_frames", 1) > 1 or image.mode == "F"
    except (*DAMAGED, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError):
        return True  # Pillow reads fewer kinds of TIFF


def _stack(file: str) -> Stack:
    with _readable(file):
        pages = kept(_Opened, file).pages_of_one_size()
    axes, shape = pages.axes, pages.shape
    if "S" in axes and shape[axes.index("S")] > 1:
        raise ValueError(
            f"{file} holds pages in {shape[axes.index('S')]} colours, but a stack is gray: convert it to gray, or save its "
            "pages as PNG and use the source images."
        )
    if "Y" not in axes or "X" not in axes or 0 in shape or pages.dtype.kind not in "buifc":
        raise ValueError(f"{file} holds {pages.dtype} of shape {shape}, not pages of numbers: check the file.")
    height, width = (int(shape[axes.index(axis)]) for axis in "YX")
    return Stack((int(np.prod(shape)) // (height * width), height, width), axes, pages.dtype)


@contextlib.contextmanager
def _readable(file: str) -> Iterator[None]:
    tifffile = optional("tifffile")
    try:
        with _complaints() as found:
            yield
        if damaged := [complaint for complaint in found if ESSENTIAL.search(complaint)]:  # tifffile would guess
            raise ValueError(damaged[0])
    except PagesDifferError as error:
        raise ValueError(f"{file} {error}") from error
    except (*DAMAGED, tifffile.TiffFileError) as error:
        raise ValueError(
            f"{file} is not a TIFF file that can be read ({error}): check the file, or copy it again."
        ) from error


class PagesDifferError(ValueError):
    """Two pages of one file have different sizes or types."""


@contextlib.contextmanager
def _complaints() -> Iterator[list[str]]:
    """Errors that tifffile logs and does not raise."""
    found: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("tifffile")
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)


class _Opened:
    """An open TIFF file. `kept` caches it by this class and the name."""

    def __init__(self, file: str) -> None:
        self.file = optional("tifffile").TiffFile(file)
        with _complaints() as found:
            len(self.file.pages)
        if found:  # tifffile would go on with the pages before
            raise ValueError(f"a page is missing, {found[0]}")

    def __del__(self) -> None:
        if hasattr(self, "file"):
            self.file.close()

    def pages_of_one_size(self) -> Any:
        """The only series of pages, as tifffile calls those of one size. Thumbnails are not pages."""
        series = [pages for pages in self.file.series if not all(page.is_reduced for page in pages.pages if page)]
        if len(series) != 1:
            found = ", ".join(f"{len(pages.pages)} of {'×'.join(map(str, pages.shape))}" for pages in series) or "none"
            raise PagesDifferError(
                f"has pages of different sizes or types ({found}): save each size in a file of its own."
            )
        return series[0]

    def page(self, at: int) -> np.ndarray:
        """Page `at` alone if each is stored by itself; otherwise all pages are read at once and cached."""
        pages = self.pages_of_one_size()
        height, width = (pages.shape[pages.axes.index(axis)] for axis in "YX")
        if len(pages.pages) * height * width == np.prod(pages.shape):
            return np.asarray(pages.pages[at].asarray()).reshape(height, width)
        return kept(_all_pages, self.file.filehandle.path).reshape(-1, height, width)[at]


def _all_pages(file: str) -> np.ndarray:
    opened = _Opened(file)
    return np.asarray(opened.pages_of_one_size().asarray())


def _page(file: str, at: int) -> np.ndarray:
    with _readable(file):
        values = kept(_Opened, file).page(at)
    return values.astype(np.complex64 if values.dtype.kind == "c" else np.float32)
