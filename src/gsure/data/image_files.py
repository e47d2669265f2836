"""List the files in a folder or zip archive, and read the images among them."""

import io
import os
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gsure.data.source import DAMAGED, existing, kept, refuse_unreadable

if TYPE_CHECKING:
    from PIL.Image import Image

NOT_PIXELS = {"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "PDF", "WMF"}
"""Formats that Pillow recognises but cannot decode by itself."""
MOVING = ("GIF", "PNG", "WEBP")
"""Formats of images that can have several frames."""


def entries(path: str | Path) -> list[tuple[str, int]]:
    """Name and size of every file in a folder or zip, sorted; or of one image. Omits hidden files and those of macOS."""
    path = existing(path)
    refuse_unreadable([path])
    if path.is_file() and is_picture(path.name):
        return [(path.name, path.stat().st_size)]
    if path.is_dir():
        found = [
            (os.path.relpath(os.path.join(folder, name), path).replace(os.sep, "/"), folder, name)
            for folder, _, names in os.walk(path)
            for name in names
        ]
        files = [(name, Path(folder, file)) for name, folder, file in found if _is_shown(name)]
        listed = [(name, file.stat().st_size if file.exists() else 0) for name, file in files]  # or a link to nowhere
    else:
        try:
            with zipfile.ZipFile(path) as archive:
                listed = [(info.filename, info.file_size) for info in archive.infolist() if not info.is_dir()]
        except zipfile.BadZipFile as error:
            raise ValueError(
                f"{path} is neither a folder nor a complete zip file of images ({error}): give the folder with the images."
            ) from error
    return sorted((name, size) for name, size in listed if _is_shown(name))


def _is_shown(name: str) -> bool:
    return not any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))


def content(path: str, name: str) -> bytes:
    """The bytes of one file in a folder or zip, or of the file itself."""
    if os.path.isdir(path):
        return Path(path, name).read_bytes()
    if is_picture(path):
        return Path(path).read_bytes()
    return kept(zipfile.ZipFile, path).read(name)


def is_picture(name: str) -> bool:
    """Whether Pillow can open files with this ending."""
    from PIL import Image

    format = Image.registered_extensions().get(os.path.splitext(name)[1].lower())
    return format in Image.OPEN and format not in NOT_PIXELS


def picture(path: str, name: str) -> "tuple[Image, float]":
    """One image and the value of white. The mode is L or RGB (F for 16 bits). Transparent pixels become black."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    what = path if os.path.basename(path) == name else f"{name} in {path}"
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(content(path, name))) as opened:
            pages = getattr(opened, "n_frames", 1) if opened.format in ("TIFF", *MOVING) else 1
            is_moving = opened.format in MOVING
            image = ImageOps.exif_transpose(opened)
            image.load()
    except (*DAMAGED, SyntaxError, Image.DecompressionBombError) as error:
        reason = "it has another format" if isinstance(error, UnidentifiedImageError) else error
        raise ValueError(f"{what} cannot be read as an image ({reason}): fix or remove it.") from error
    if pages > 1 and is_moving:
        raise ValueError(f"{what} has {pages} frames: save each of them as an image.")
    if pages > 1:
        raise ValueError(f"{what} has {pages} pages: read stacks with the source tiff.")
    if image.mode.startswith("I"):
        return Image.fromarray(np.asarray(image, np.float32)), 65535.0
    if image.mode == "F":
        raise ValueError(
            f"{what} holds floating-point values, for which white is not defined: use the source tiff if it "
            "is one, or save it as an array, and use the source array."
        )
    if image.mode in ("1", "L"):
        return image.convert("L"), 255.0
    if image.has_transparency_data:
        above = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", above.size, (0, 0, 0, 255)), above)
    return image.convert("RGB"), 255.0


def pixels(image: "Image", gray: bool) -> np.ndarray:
    """Channels first; gray is the mean of the channels, as in the paper, not luminance."""
    values = np.asarray(image, np.float32)
    values = values[None] if values.ndim == 2 else np.moveaxis(values, -1, 0)
    if gray:
        values = values.mean(0, keepdims=True)
    elif len(values) == 1:
        values = values.repeat(3, 0)
    return values
