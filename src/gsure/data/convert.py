"""Convert data that is already measured: k-space or other spectra with their mask and noise level."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from gsure.basis import Basis, Fourier, check_basis
from gsure.data.array import ArraySpectra, choose_array, read_beside
from gsure.data.cfl import cfl_file, stacked
from gsure.data.fastmri import FastMRISpectra
from gsure.data.inspection import CHECKED, wrong_domain
from gsure.data.measurements import Measurements, open_measurements
from gsure.data.scaling import RULE, Scale, choose_scales, evenly_spread
from gsure.data.source import Spectra, Spectrum, check_scale, refuse_nonfinite
from gsure.data.writer import Writer
from gsure.display import bar
from gsure.files import record_request, refuse_inputs
from gsure.measurement import Measurement

Kind = Literal["fastmri", "cfl", "array"]
WHAT = {"mask": "the masks in its files", "key": "one array", "slices": "samples, not volumes"}
"""Reasons why an option has no effect."""


def convert(
    kind: Kind,
    path: str | Path,
    out: str | Path,
    sigma_0: float | str,
    *,
    mask: str | Path | None = None,
    basis: Basis | None = None,
    scale: Scale = "auto",
    key: str | None = None,
    slices: tuple[int, int] | None = None,
    limit: int | None = None,
    shards: int = 1,
    force: bool = False,
    progress: bool = False,
) -> Measurements:
    """Write measured spectra to a measurement file. `sigma_0` is the noise level in the units of the data.

    Spectra are divided by `scale`, which the file records, so that results have the units of the data again. By default, each
    volume is brought to a root mean square of about 1; real images between -1 and 1 stay as they are.

    fastmri  a file or a folder of files with `kspace` and `mask`, as in fastMRI's test set; `slices` is (first, last)
    cfl      BART's .cfl/.hdr, whose first two dimensions are height and width; `mask` is a .cfl or .npy
    array    .npy, .npz or HDF5 (`key`) with spectra (N, H, W) or (N, C, H, W); `mask` and `sigma_0` are .npy files, or names
             of arrays in the same .npz or HDF5 file

    Without a mask, entries that are zero in all channels count as missing. `sigma_0="estimate"` computes the noise level from
    the median absolute deviation of the outermost measured frequencies (in signal space: of the finest diagonal wavelets).
    The file records that it is an estimate.
    """
    request = record_request("convert", locals())
    basis = basis or Fourier()
    if not isinstance(scale, str):
        check_scale(scale)
    elif scale != "auto":
        raise ValueError(f"scale is auto or a number, not {scale!r}.")
    path = cfl_file(path) if kind == "cfl" else Path(path).expanduser()
    files = [Path(name).expanduser() for name in (mask, sigma_0) if isinstance(name, str | Path) and Path(name).suffix]
    refuse_inputs([out], [path, *files])
    spectra = _open_spectra(kind, path, mask, key, slices)
    first, n = spectra[0], len(spectra) if limit is None else min(limit, len(spectra))
    check_basis(basis, first.ybar.shape)
    if limit is not None and limit < 1:
        raise ValueError(f"Nothing would be written: give a limit of at least 1, not {limit}.")
    _refuse_wrong_domain(spectra, basis, n, path)
    scales = _scales(spectra, scale, n)
    raw = _sigma(sigma_0, spectra, basis, n, path)
    sigma = [level / factor for level, factor in zip(raw, scales, strict=True)]
    header: dict[str, Any] = {
        "source": {"kind": kind, "path": str(path), "mask": None if mask is None else str(mask)},
        "complex": spectra.is_complex,
        "corruption": {"name": "as measured"},
        "sigma_0": {
            "given": sigma[0] if len(set(sigma)) == 1 else [min(sigma), max(sigma)],
            "in units of the data": raw[0] if len(set(raw)) == 1 else [min(raw), max(raw)],
            "estimated": sigma_0 == "estimate",
        },
        "scaled by": RULE if scale == "auto" else scale,
        "seed": None,
        "request": request,
    }
    writer = Writer(
        out, n, first.ybar.shape, header, basis=basis, mask_shape=first.mask.shape, shards=shards, force=force
    )
    with writer, bar("converting", n, progress) as advance:
        for index in range(n):
            _append(writer, spectra[index], index, first, scales[index], sigma[index])
            advance(1)
    return open_measurements(out, basis)


def _append(writer: Writer, spectrum: Spectrum, index: int, first: Spectrum, scale: float, sigma: float) -> None:
    ybar, kept, group = spectrum
    if ybar.shape != first.ybar.shape or kept.shape != first.mask.shape:
        raise ValueError(
            f"Sample {index}, of group {group}, has shape {ybar.shape} and a mask of shape {kept.shape}, but the first sample "
            f"has {first.ybar.shape} and {first.mask.shape}: convert them separately."
        )
    refuse_nonfinite(ybar, f"Sample {index}, of group {group},")
    P = torch.from_numpy(kept).float()[None]
    measurement = Measurement(P * torch.from_numpy(ybar).float()[None] / scale, P, sigma)
    writer.append(measurement, [group], [scale], torch.tensor([sigma]))


def _refuse_wrong_domain(spectra: Spectra, basis: Basis, n: int, path: Path) -> None:
    some = [spectra[int(index)].ybar for index in evenly_spread(CHECKED, n)]
    if len({ybar.shape for ybar in some}) == 1 and (problem := wrong_domain(np.stack(some), basis)):
        raise ValueError(f"{path}: {problem}")


def _scales(spectra: Spectra, scale: Scale, n: int) -> list[float]:
    if not isinstance(scale, str):
        return [scale] * n

    def read(index: int) -> np.ndarray:
        ybar, mask, group = spectra[index]
        refuse_nonfinite(ybar, f"Sample {index}, of group {group},")
        return ybar * mask

    return choose_scales(read, [spectra.volume(index) for index in range(n)], spectra.is_complex).tolist()


def _sigma(given: float | str, spectra: Spectra, basis: Basis, n: int, path: Path) -> list[float]:
    """One noise level per sample: given, estimated, or read from a .npy file or an array in the same file as the data."""
    if given == "estimate":
        given = estimate_sigma([spectra[i] for i in range(min(len(spectra), 32))], basis)
    if not isinstance(given, str):
        return [float(given)] * n
    values = read_beside(given, path)
    if values.ndim != 1 or len(values) < n or values.dtype.kind != "f":
        raise ValueError(
            f"sigma_0 in {given} is {values.dtype} of shape {values.shape}: give one float for each of {n} samples."
        )
    return values[:n].astype(float).tolist()


def estimate_sigma(spectra: Sequence[Spectrum], basis: Basis) -> float:
    """Estimate the noise level from entries with little signal: median(|v|) / 0.6745, which is the std of a Gaussian.

    Signal in these entries makes the estimate too high.
    """
    if not (basis.is_signal or isinstance(basis, Fourier)):
        raise ValueError(
            f"The noise level can be estimated in the basis Fourier or in signal space, but not in {basis}: measure it, and "
            "pass it as --sigma."
        )
    values: list[np.ndarray] = []
    for ybar, mask, _ in spectra:
        _, h, w = ybar.shape
        kept = np.broadcast_to(mask, ybar.shape) == 1
        if basis.is_signal:  # the finest diagonal Haar wavelets of complete 2 × 2 blocks
            a, b, c, d = (ybar[:, i : h // 2 * 2 : 2, j : w // 2 * 2 : 2] for i in (0, 1) for j in (0, 1))
            complete = np.stack([kept[:, i : h // 2 * 2 : 2, j : w // 2 * 2 : 2] for i in (0, 1) for j in (0, 1)]).all(
                0
            )
            values.append(((a - b - c + d) / 2)[complete])
        else:
            y, x = np.ogrid[-1 : 1 : h * 1j, -1 : 1 : w * 1j]
            values.append(ybar[kept & (np.hypot(y, x) > 1.2)[None]])  # the corners; edge centres are at 1
    pooled = np.concatenate(values)
    if len(pooled) < 100:
        raise ValueError(
            f"Only {len(pooled)} entries can be used to estimate the noise level, but at least 100 are needed: measure it, "
            "and pass it as --sigma."
        )
    return float(np.median(np.abs(pooled)) / 0.6745)


def _open_spectra(
    kind: str, path: Path, mask: str | Path | None, key: str | None, slices: tuple[int, int] | None
) -> Spectra:
    given = {"mask": mask, "key": key, "slices": slices}
    known = {"fastmri": {"slices"}, "cfl": {"mask"}, "array": {"mask"} if path.suffix == ".npy" else {"mask", "key"}}
    for name in [name for name, value in given.items() if value is not None and name not in known.get(kind, given)]:
        raise ValueError(f"--{name} has no effect for {kind} {path}, which has {WHAT[name]}: omit it.")
    match kind:
        case "fastmri":
            return FastMRISpectra(path, slices)
        case "cfl":
            return ArraySpectra(stacked(path), _mask(mask, path), path.stem)
        case "array":
            return ArraySpectra(choose_array(path, key, "spectra", (3, 4)), _mask(mask, path), None)
    raise ValueError(f"{kind!r} is not a kind of measured data: choose {', '.join(get_args(Kind))}.")


def _mask(given: str | Path | None, path: Path) -> np.ndarray | None:
    """Read the mask from a .cfl or .npy file, or from an array in the same file as the data."""
    if given is None:
        return None
    values = np.abs(stacked(given)) if Path(given).suffix in (".cfl", ".hdr") else read_beside(given, path)
    if not np.isin(values, (0, 1)).all():
        raise ValueError(f"The mask {given} must be 0 (missing) or 1 (measured), but has other values.")
    if not values.any():
        raise ValueError(f"The mask {given} measures no entry: check whether 0 and 1 are swapped.")
    return values.astype(bool)
