"""`images`: a folder (including subfolders) or a zip of images in any format that Pillow reads."""

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from gsure.data.image_files import entries, is_picture, picture, pixels
from gsure.data.source import Sample, Source, check_size, existing, summary

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class Images(Source):
    """Black to white becomes -1..1. `crop` is the side of a central square crop. `size` then resizes the crop (antialiased
    bilinear); without `crop`, it resizes the largest central square. `gray` takes the mean of the channels; by default, images
    are gray if the first one is. `skip_bad` decodes every image at the start and skips those that cannot be read; otherwise an
    unreadable image is an error.
    """

    kind: ClassVar[str] = "images"
    path: str | Path
    size: int | None = None
    crop: int | None = None
    gray: bool | None = None
    group: Literal["file", "folder"] = "file"
    skip_bad: bool = False
    is_complex: bool = field(default=False, init=False, repr=False, compare=False)
    shape: tuple[int, int, int] = field(init=False, repr=False, compare=False)
    files: tuple[str, ...] = field(init=False, repr=False, compare=False)
    skipped: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_size(self.size)
        check_size(self.crop)
        if self.group not in ("file", "folder"):
            raise ValueError(f"group must be file or folder, but is {self.group!r}.")
        path = str(existing(self.path))
        names = [name for name, _ in entries(path) if is_picture(name)]
        bad = {name for name in names if not _is_readable(path, name)} if self.skip_bad else set()
        good = tuple(name for name in names if name not in bad)
        if not names:
            raise ValueError(
                f"{path} has no file with the ending of an image (links to folders are not followed): check the path."
            )
        if not good:
            raise ValueError(f"{path} has no image that can be read ({len(bad)} are broken): check the path.")
        self._set(path=path, files=good, skipped=tuple(sorted(bad)))
        first, _ = self._cut(good[0])
        is_gray = first.mode != "RGB" if self.gray is None else self.gray
        self._set(shape=(1 if is_gray else 3, first.height, first.width))

    def __len__(self) -> int:
        return len(self.files)

    def _cut(self, name: str) -> "tuple[Image, float]":
        """The image, cropped and resized, and the value of white."""
        from PIL.Image import Resampling

        try:
            image, white = picture(str(self.path), name)
        except ValueError as error:
            raise ValueError(f"{error} You can also skip such files with skip_bad.") from error
        side = self.crop or (min(image.size) if self.size else None)
        if side:
            if side > min(image.size):
                raise ValueError(
                    f"{name} in {self.path} is {_size(image)}, smaller than the crop of {side}: lower crop."
                )
            left, top = (image.width - side) // 2, (image.height - side) // 2
            image = image.crop((left, top, left + side, top + side))
        if self.size:
            image = image.resize((self.size, self.size), Resampling.BILINEAR)
        return image, white

    def _checked(self, index: int) -> "tuple[Image, float]":
        name = self.files[index]
        image, white = self._cut(name)
        if (image.height, image.width) != self.shape[1:]:
            raise ValueError(
                f"{name} in {self.path} is {_size(image)}, but {self.files[0]} is {self.shape[1]}x{self.shape[2]}: give size "
                "or crop (--source.size, --source.crop) to make them equal."
            )
        if self.gray is None and self.shape[0] == 1 and image.mode == "RGB":
            raise ValueError(
                f"{name} in {self.path} has colours, but {self.files[0]} has none: set gray to true or false."
            )
        return image, white

    def _read(self, index: int) -> Sample:
        image, white = self._checked(index)
        return Sample.of_intensities(pixels(image, gray=self.shape[0] == 1), self.group_of(index), 0.0, white)

    def group_of(self, index: int) -> str:
        name = self.files[index]
        return name if self.group == "file" else str(PurePosixPath(name).parent)

    def volume_of(self, index: int) -> str:
        return "all images"

    def file_of(self, index: int) -> str:
        return self.files[index]

    def position_of(self, index: int) -> tuple[str, int]:
        """The images of a folder may be repeated scans of one scene."""
        return str(PurePosixPath(self.files[index]).parent), 0

    def per_volume(self) -> int | None:
        return None

    def raw(self, index: int) -> np.ndarray:
        """(channels, height, width), with values as stored, at its own size and, without `gray`, in its own channels."""
        image, _ = self._cut(self.files[index])
        return pixels(image, gray=image.mode != "RGB" if self.gray is None else self.gray)

    def _content(self) -> dict[str, Any]:
        known = dict(entries(str(self.path)))
        return {"skipped": len(self.skipped), **summary((name, known[name]) for name in self.files)}


def _is_readable(path: str, name: str) -> bool:
    try:
        picture(path, name)
    except ValueError:
        return False
    return True


def _size(image: "Image") -> str:
    return f"{image.height}x{image.width}"
