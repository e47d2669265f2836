"""Import data that is already measured: k-space or other spectra with their mask and noise level."""

import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

import h5py
import numpy as np
import torch

from gsure.basis import Basis, Fourier, check_basis
from gsure.data.cfl import planes
from gsure.data.measurements import Measurements, open_measurements
from gsure.data.source import in_pairs
from gsure.data.writer import Writer
from gsure.files import open_hdf5, refuse_inputs
from gsure.measurement import Measurement
from gsure.progress import bar

Kind = Literal["fastmri", "cfl", "array"]
WHAT = {"mask": "its masks in its files", "key": "one array", "slices": "samples, and no volumes"}
"""Why an option is refused where it would not be heard."""


class Spectrum(NamedTuple):
    """One measured sample: (channels, height, width), and its mask at a shape that broadcasts against it."""

    ybar: np.ndarray
    mask: np.ndarray
    group: str


@runtime_checkable
class Spectra(Protocol):
    @property
    def is_complex(self) -> bool: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Spectrum: ...


def convert(
    kind: Kind,
    path: str | Path,
    out: str | Path,
    sigma_0: float | str,
    *,
    mask: str | Path | None = None,
    basis: Basis | None = None,
    scale: float = 1.0,
    key: str | None = None,
    slices: tuple[int, int] | None = None,
    limit: int | None = None,
    shards: int = 1,
    force: bool = False,
    progress: bool = False,
) -> Measurements:
    """Measured spectra, divided by `scale`, as a measurement file. `sigma_0` is the noise of the data as divided.

    fastmri  a file or a folder of files with `kspace` and `mask`, as in fastMRI's test set; `slices` first and last
    cfl      BART's .cfl/.hdr, in the first two dimensions; `mask` a .cfl or .npy
    array    .npy, .npz or HDF5 (`key`) of spectra (N, H, W) complex or (N, C, H, W) real; `mask` and `sigma_0` may be
             files (.npy) or names of datasets beside the data

    Without a mask, an entry that is zero in all channels counts as dropped. `sigma_0="estimate"` takes the median absolute
    deviation of the outermost kept frequencies (of the finest diagonal wavelets, in signal space), and the file says so.
    """
    basis = basis or Fourier()
    if not 0 < scale < float("inf"):
        raise ValueError(f"scale must be a finite number above 0, but is {scale}.")
    beside = [
        name for name in (mask, sigma_0) if isinstance(name, Path) or (isinstance(name, str) and Path(name).suffix)
    ]
    refuse_inputs([out], [path, *beside])
    spectra = _open_spectra(kind, Path(path), mask, key, slices)
    if len(spectra) == 0:
        raise ValueError(f"{path} has no samples.")
    n = len(spectra) if limit is None else min(limit, len(spectra))
    first = spectra[0]
    check_basis(basis, first.ybar.shape)
    estimated = sigma_0 == "estimate"
    sigma = _sigma(
        estimate_sigma([spectra[i] for i in range(min(len(spectra), 32))], basis) / scale if estimated else sigma_0,
        n,
        path,
    )
    header: dict[str, Any] = {
        "source": {"kind": kind, "path": str(path), "mask": None if mask is None else str(mask)},
        "complex": spectra.is_complex,
        "corruption": {"name": "as measured"},
        "sigma_0": {"given": sigma[0] if len(set(sigma)) == 1 else str(sigma_0), "estimated": estimated},
        "seed": None,
    }
    writer = Writer(
        out, n, first.ybar.shape, header, basis=basis, mask_shape=first.mask.shape, shards=shards, force=force
    )
    with writer, bar("importing", n, progress) as advance:
        for index in range(n):
            _import_one(writer, spectra[index], index, first, scale, sigma[index])
            advance(1)
    return open_measurements(out, basis)


def _import_one(writer: Writer, spectrum: Spectrum, index: int, first: Spectrum, scale: float, sigma: float) -> None:
    ybar, kept, group = spectrum
    if ybar.shape != first.ybar.shape or kept.shape != first.mask.shape:
        raise ValueError(f"{group} has shape {ybar.shape}, the first sample {first.ybar.shape}: import them apart.")
    if not np.isfinite(ybar).all():
        raise ValueError(f"Sample {index}, of group {group}, has values that are NaN or infinite: mend the file first.")
    P = torch.from_numpy(kept).float()[None]
    measurement = Measurement(P * torch.from_numpy(ybar).float()[None] / scale, P, sigma)
    writer.append(measurement, [group], [scale], torch.tensor([sigma]))


def _sigma(given: float | str, n: int, path: str | Path) -> list[float]:
    """One for each sample: from a number, a .npy file, or a dataset beside the data."""
    if not isinstance(given, str):
        return [float(given)] * n
    values = _load_npy(Path(given)) if given.endswith(".npy") else np.asarray(_array(Path(path), given))
    if values.ndim != 1 or len(values) < n or values.dtype.kind != "f":
        raise ValueError(
            f"sigma_0 in {given} is {values.dtype} of shape {values.shape}: one number for each of {n} samples is wanted."
        )
    return values[:n].astype(float).tolist()


def estimate_sigma(spectra: Sequence[Spectrum], basis: Basis) -> float:
    """Noise from entries that hold hardly any signal: median(|v|) / 0.6745, as for a Gaussian; what signal is there, adds."""
    if not (basis.is_signal or isinstance(basis, Fourier)):
        raise ValueError(
            f"Noise is estimated from the highest frequencies of Fourier, or in signal space, but not in {basis}: measure it, "
            "and pass --sigma."
        )
    values: list[np.ndarray] = []
    for ybar, mask, _ in spectra:
        _, h, w = ybar.shape
        kept = np.broadcast_to(mask, ybar.shape) == 1
        if basis.is_signal:  # the finest diagonal Haar wavelets of whole 2 × 2 blocks
            a, b, c, d = (ybar[:, i : h // 2 * 2 : 2, j : w // 2 * 2 : 2] for i in (0, 1) for j in (0, 1))
            whole = np.stack([kept[:, i : h // 2 * 2 : 2, j : w // 2 * 2 : 2] for i in (0, 1) for j in (0, 1)]).all(0)
            values.append(((a - b - c + d) / 2)[whole])
        else:
            y, x = np.ogrid[-1 : 1 : h * 1j, -1 : 1 : w * 1j]
            values.append(ybar[kept & (np.hypot(y, x) > 1.2)[None]])  # the corners; 1 is the middle of an edge
    pooled = np.concatenate(values)
    if len(pooled) < 100:
        raise ValueError(
            f"Only {len(pooled)} entries are fit to estimate the noise from: measure it, and pass --sigma."
        )
    return float(np.median(np.abs(pooled)) / 0.6745)


def _open_spectra(
    kind: str, path: Path, mask: str | Path | None, key: str | None, slices: tuple[int, int] | None
) -> Spectra:
    given = {"mask": mask, "key": key, "slices": slices}
    known = {"fastmri": {"slices"}, "cfl": {"mask"}, "array": {"mask"} if path.suffix == ".npy" else {"mask", "key"}}
    for name in [name for name, value in given.items() if value is not None and name not in known.get(kind, given)]:
        raise ValueError(f"--{name} is of no use for {kind} {path}, which has {WHAT[name]}: leave it away.")
    match kind:
        case "fastmri":
            return FastMRISpectra(path, slices)
        case "cfl":
            return ArraySpectra(_cfl(path), _load_mask(mask, path), path.stem)
        case "array":
            return ArraySpectra(_array(path, key), _load_mask(mask, path), None)
    raise ValueError(f"{kind!r} cannot be imported; {', '.join(get_args(Kind))} can.")


@dataclass(frozen=True)
class ArraySpectra:
    """An array of spectra and a mask for all or each of them."""

    values: Any  # anything with shape, dtype and [index]: a memory map or an HDF5 dataset
    mask: np.ndarray | None
    group: str | None
    """Of all samples; None makes each its own."""

    def __post_init__(self) -> None:
        if len(self.values.shape) not in (3, 4) or self.values.dtype.kind not in "fcui":
            raise ValueError(
                f"The data is {self.values.dtype} of shape {self.values.shape}: numbers of shape (N, H, W) or (N, C, H, W) "
                "are wanted."
            )
        if self.mask is not None:
            aligned = zip(self.mask.shape[::-1], self.values.shape[::-1], strict=False)
            if self.mask.ndim > len(self.values.shape) or any(mine not in (1, theirs) for mine, theirs in aligned):
                raise ValueError(
                    f"The mask has shape {self.mask.shape}, which does not broadcast against the data's {self.values.shape}: "
                    "give (W), (H, W), (N, 1, W) or the whole shape."
                )

    @property
    def is_complex(self) -> bool:
        return bool(np.issubdtype(self.values.dtype, np.complexfloating))

    def __len__(self) -> int:
        return self.values.shape[0]

    def __getitem__(self, index: int) -> Spectrum:
        ybar = as_channels(np.asarray(self.values[index]))
        group = str(index) if self.group is None else self.group
        if self.mask is None:
            return Spectrum(ybar, (ybar != 0).any(0, keepdims=True), group)
        per_sample = self.mask.ndim == len(self.values.shape) and len(self.mask) == len(self)
        mask = self.mask[index] if per_sample else self.mask.reshape(self.mask.shape[-3:])
        mask = mask.reshape((1,) * (3 - mask.ndim) + mask.shape)
        if self.is_complex and len(mask) > 1:
            mask = mask.repeat(2, 0)  # a coil is two channels
        return Spectrum(ybar, mask, group)


@dataclass(frozen=True)
class FastMRISpectra:
    """Volumes of fastMRI's test set: `kspace` (slices, H, W) and `mask` (W)."""

    path: Path
    slices: tuple[int, int] | None
    is_complex: bool = True
    where: list[tuple[Path, int]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        files = sorted(self.path.glob("*.h5")) if self.path.is_dir() else [self.path]
        if not files:
            raise FileNotFoundError(f"There are no .h5 files in {self.path}.")
        where: list[tuple[Path, int]] = []
        for file in files:
            with open_hdf5(file) as volume:
                if missing := [name for name in ("kspace", "mask") if not isinstance(volume.get(name), h5py.Dataset)]:
                    raise ValueError(
                        f"{file} has no {' and no '.join(missing)}: it is no measured single-coil fastMRI volume."
                    )
                if volume["kspace"].dtype.kind != "c":
                    raise ValueError(
                        f"{file} has k-space of {volume['kspace'].dtype}, where complex numbers are wanted."
                    )
                if volume["kspace"].ndim != 3 or volume["mask"].shape != volume["kspace"].shape[-1:]:
                    raise ValueError(
                        f"{file} has k-space of shape {volume['kspace'].shape} and a mask of shape {volume['mask'].shape}: "
                        "(slices, H, W) and (W,) are wanted."
                    )
                last = len(volume["kspace"]) - 1
            low, high = self.slices or (0, last)
            if low < 0 or high < low:
                raise ValueError(f"slices are [first,last], counted from 0, but {list(self.slices or ())} was given.")
            where += [(file, index) for index in range(low, min(high, last) + 1)]
        if not where:
            raise ValueError(f"No volume in {self.path} has slices {self.slices}.")
        object.__setattr__(self, "where", where)

    def __len__(self) -> int:
        return len(self.where)

    def __getitem__(self, index: int) -> Spectrum:
        file, number = self.where[index]
        with open_hdf5(file) as volume:
            ybar, mask = as_channels(volume["kspace"][number]), np.asarray(volume["mask"]).astype(bool)
        return Spectrum(ybar * mask, mask[None, None], file.stem)


def as_channels(values: np.ndarray) -> np.ndarray:
    """(C, H, W) float32; complex values become (real, imaginary) pairs."""
    return in_pairs(values) if np.iscomplexobj(values) else values.reshape(-1, *values.shape[-2:]).astype(np.float32)


def _cfl(path: Path) -> np.ndarray:
    if path.suffix == ".hdr":
        path = path.with_suffix(".cfl")
    return np.moveaxis(planes(str(path)), -1, 0)


def _array(path: Path, key: str | None) -> Any:
    if path.suffix == ".npy":
        return _load_npy(path)
    if path.suffix == ".npz":
        try:
            with zipfile.ZipFile(path) as archive:
                names = [name.removesuffix(".npy") for name in archive.namelist()]
            with np.load(path, allow_pickle=False) as arrays:
                return arrays[_choose(path, key, names)]
        except (zlib.error, zipfile.BadZipFile, EOFError, tokenize.TokenError) as error:
            raise ValueError(f"{path} is not a whole .npz of numbers: {error}") from error
    volume = open_hdf5(path)
    return volume[_choose(path, key, [name for name in volume if isinstance(volume[name], h5py.Dataset)])]


def _choose(path: Path, key: str | None, names: list[str]) -> str:
    if key is None and len(names) != 1:
        raise ValueError(f"{path} has {', '.join(names) or 'no arrays'}: say which is the data by --key.")
    if key is not None and key not in names:
        raise ValueError(f"{path} has no array {key}; it has {', '.join(names) or 'none'}.")
    return key or names[0]


def _load_npy(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no file {path}.") from None
    except (ValueError, EOFError, tokenize.TokenError) as error:
        raise ValueError(f"{path} is not a plain .npy of numbers: save it by numpy.save, without objects.") from error


def _load_mask(mask: str | Path | None, data: Path) -> np.ndarray | None:
    if mask is None:
        return None
    path = Path(mask)
    if path.suffix in (".cfl", ".hdr"):
        values = np.abs(_cfl(path))
    elif path.suffix == ".npy":
        values = _load_npy(path)
    elif data.suffix not in (".npy", ".cfl", ".hdr"):
        values = np.asarray(_array(data, str(mask)))
    else:
        raise ValueError(
            f"A mask is a .npy, a .cfl, or the name of an array in the same file as the data; {mask} is none."
        )
    if not np.isin(values, (0, 1)).all():
        raise ValueError(f"The mask {mask} must be 0 (dropped) or 1 (kept), but has other values.")
    if not values.any():
        raise ValueError(f"The mask {mask} keeps nothing.")
    return values.astype(bool)
