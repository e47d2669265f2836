"""Sources of clean or raw signals, read one at a time by index, and the functions that all readers share.

Creating a source lists files and reads headers; pixels are read only when a sample is indexed. A source holds names, sizes
and options, never an open file, so that it can be copied to worker processes.
"""

import bisect
import dataclasses
import functools
import hashlib
import importlib
import os
import struct
import tokenize
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

T = TypeVar("T")
DAMAGED = (
    *(OSError, ValueError, EOFError, LookupError, TypeError, AttributeError, RuntimeError),
    *(ArithmeticError, AssertionError, MemoryError),
    *(struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
"""Exceptions that readers of other formats raise for damaged files. RuntimeError can also mean an encrypted archive."""


class Sample(NamedTuple):
    """One signal: float32 (channels, height, width), real in [-1, 1], or complex as (real, imaginary) channel pairs."""

    x: np.ndarray
    group: str
    """The volume, subject or file that it comes from. Splits and metrics treat a group as a unit."""
    scale: float = 1.0
    offset: float = 0.0
    """The raw signal is scale * x + offset."""

    @staticmethod
    def of_intensities(values: np.ndarray, group: str, low: float, high: float) -> "Sample":
        """Map the range low..high to -1..1."""
        scale, offset = (high - low) / 2, (high + low) / 2
        return Sample(np.ascontiguousarray((values - offset) / scale, np.float32), group, scale, offset)


class Source(ABC):
    """To add a source, write a frozen dataclass with these attributes and the abstract methods, and list it in `KINDS`."""

    kind: ClassVar[str]
    is_complex: bool
    shape: tuple[int, int, int]

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _read(self, index: int) -> Sample:
        """Read sample `index`, which lies in 0..len - 1, and no more of the files than it needs."""

    @abstractmethod
    def _content(self) -> dict[str, Any]:
        """What identifies the files behind this source, for the fingerprint."""

    def __getitem__(self, index: int) -> Sample:
        if not -len(self) <= index < len(self):
            raise IndexError(f"There is no sample {index}: {self.kind} has {len(self)}, counted from 0.")
        return self._read(index % len(self))

    def geometry(self) -> dict[str, dict[str, Any]]:
        """Where the samples of each group are in space, as `gsure.data.geometry` describes it; empty if that is unknown."""
        return {}

    def reads(self) -> list[Path]:
        """The files and folders behind this source, which must not be overwritten."""
        named = (getattr(self, name, None) for name in ("path", "file"))
        return [Path(name).expanduser() for name in named if name is not None]

    def fingerprint(self) -> dict[str, Any]:
        """Where the data came from, as JSON: kind, options, number of samples, and what identifies the files."""
        options = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}  # type: ignore[arg-type]
        return {
            "kind": self.kind,
            "options": {name: _jsonable(value) for name, value in options.items()},
            "samples": len(self),
            "shape": list(self.shape),
            "complex": self.is_complex,
            **self._content(),
        }

    def _set(self, **values: Any) -> None:
        """Set fields that are computed on construction, although the dataclass is frozen."""
        for name, value in values.items():
            object.__setattr__(self, name, value)


class Spectrum(NamedTuple):
    """One measured sample: ȳ, float32 (channels, height, width), and its mask at a shape that broadcasts against it."""

    ybar: np.ndarray
    mask: np.ndarray
    group: str


@runtime_checkable
class Spectra(Protocol):
    """Data that is already measured, one sample at a time: what `gsure.convert` reads."""

    @property
    def is_complex(self) -> bool: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Spectrum: ...
    def volume(self, index: int, /) -> str:
        """Samples of one volume are divided by the same number."""

    def file(self, index: int, /) -> str:
        """The file of a sample, for messages."""

    def report(self) -> list[str]:
        """How the files were taken, and what was done to them, a line each."""

    def header(self, size: tuple[int, int], /) -> dict[str, Any]:
        """What else to keep in the header of the file of this height and width, as JSON."""


def _jsonable(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value


def existing(path: str | Path) -> Path:
    path = Path(path).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"There is no file or folder {path}: check the path.")
    return path


def refuse_unreadable(files: Iterable[str | Path]) -> None:
    """Raise an error that names the files, or folders, that the user may not read."""
    closed = [str(file) for file in files if os.path.exists(file) and not os.access(file, os.R_OK)]
    if closed:
        more = f" and {len(closed) - 1} more" if len(closed) > 1 else ""
        raise PermissionError(
            f"You have no permission to read {closed[0]}{more}: change that (chmod u+r), or remove it."
        )


def files_in(path: str | Path, *endings: str) -> tuple[str, ...]:
    """The path itself if it is a file, else every file below it with one of the endings, sorted. All of them can be read."""
    path = existing(path)
    refuse_unreadable([path])
    if path.is_file():
        return (str(path),)
    found = sorted(str(p) for p in path.rglob("*") if p.name.lower().endswith(endings) and p.is_file())
    if not found:
        raise FileNotFoundError(f"The folder {path} has no file that ends in {' or '.join(endings)}: check the path.")
    refuse_unreadable(found)
    return tuple(found)


def name_in(path: str | Path, file: str, *endings: str) -> str:
    """The name of a volume: the path of its file inside the folder `path`, without the ending."""
    folder, full = Path(path).expanduser(), Path(file)
    name = full.relative_to(folder).as_posix() if folder.is_dir() else full.name
    for ending in endings:
        name = name.removesuffix(ending)
    return name


def locate(ends: Sequence[int], index: int) -> tuple[int, int]:
    """The number of the file that holds a sample, and the position in it. `ends` are cumulative numbers of samples."""
    number = bisect.bisect_right(ends, index)
    return number, index - (ends[number - 1] if number else 0)


def evenly_spread(n: int, total: int) -> np.ndarray:
    """At most n of the positions 0..total-1, from all over the range."""
    n = min(n, total)
    return np.arange(n) * total // n


def summary(entries: Iterable[tuple[str, int]]) -> dict[str, Any]:
    """A short description of any number of files: how many, total size, the first name, and a hash of names and sizes."""
    entries = list(entries)
    digest = hashlib.sha256("".join(f"{name}\t{size}\n" for name, size in entries).encode()).hexdigest()
    return {"files": len(entries), "bytes": sum(size for _, size in entries), "first": entries[0][0], "sha256": digest}


def sizes(files: Iterable[str]) -> list[tuple[str, int]]:
    return [(Path(file).name, os.path.getsize(file)) for file in files]


def optional(module: str) -> ModuleType:
    """A package of the extra `formats`, imported when first needed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f'Reading this format needs the package {module}, which is not installed: pip install "gsure-diffusion[formats]".'
        ) from error


def kept(opener: Callable[[str], T], file: str) -> T:
    """`opener(file)`, cached for the next samples. It is called again in each process and when the file changes."""
    status = os.stat(file)
    return _kept(opener, file, os.getpid(), status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=4)
def _kept(opener: Callable[[str], T], file: str, process: int, modified: int, size: int) -> T:
    return opener(file)


MOST_COMPRESSED = 1100
"""Bytes that one byte of a compressed file can hold: deflate reaches 1032."""


class TruncatedError(ValueError):
    """A file holds less than its header promises."""


def refuse_promise(what: str, promised: int, held: int, compressed: bool = False) -> None:
    """A damaged header may promise more than the file can hold. This is checked before any memory is allocated."""
    if promised > held * (MOST_COMPRESSED if compressed else 1):
        raise TruncatedError(
            f"{what} promises {promised:,} bytes of values, but only {held:,} are stored: it is truncated, or its header is "
            "damaged; copy it again."
        )


def refuse_nonfinite(values: np.ndarray, what: str) -> None:
    if bad := values.size - int(np.isfinite(values).sum()):
        raise ValueError(f"{what} has {bad} values that are NaN or infinite: fix or remove it.")


def in_pairs(z: np.ndarray) -> np.ndarray:
    """Complex (..., height, width) as float32 channels (real, imaginary, real, imaginary, ...)."""
    z = z.reshape(-1, *z.shape[-2:])
    return np.stack([z.real, z.imag], 1).reshape(-1, *z.shape[-2:]).astype(np.float32)


def to_image(kspace: np.ndarray) -> np.ndarray:
    """Centred orthonormal inverse Fourier transform, the inverse of gsure.Fourier.to_spectral."""
    axes = (-2, -1)
    return np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(kspace, axes), norm="ortho"), axes)


def centre_crop(plane: np.ndarray, height: int, width: int) -> np.ndarray:
    top, left = (plane.shape[-2] - height) // 2, (plane.shape[-1] - width) // 2
    return plane[..., top : top + height, left : left + width]


def resized(plane: np.ndarray, size: int) -> np.ndarray:
    """A square (height, width) at another size: antialiased bilinear, in float32."""
    if plane.shape == (size, size):
        return plane
    from PIL import Image

    square = Image.fromarray(np.ascontiguousarray(plane, np.float32))
    return np.asarray(square.resize((size, size), Image.Resampling.BILINEAR))


def check_slices(slices: tuple[int, int] | None) -> None:
    if slices is not None and not 0 <= slices[0] <= slices[1]:
        raise ValueError(f"slices must be the first and the last, counted from 0, but are {slices}.")


def check_size(size: int | None) -> None:
    if size is not None and size < 1:
        raise ValueError(f"size must be at least 1, but is {size}.")


def check_scale(scale: float | None) -> None:
    if scale is not None and not 0 < scale < float("inf"):
        raise ValueError(f"scale must be a finite number above 0, but is {scale}.")
