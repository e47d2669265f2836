"""Convert data that is already measured: k-space or other spectra with their mask and noise level."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from gsure.basis import Basis, Fourier, Identity
from gsure.data.array import read_beside
from gsure.data.cfl import cfl_file
from gsure.data.fastmri import FastMRIScan
from gsure.data.measurements import Measurements, open_measurements
from gsure.data.preparation import Combine, Preparation, ReadoutCrop
from gsure.data.prepared import Prepared
from gsure.data.problems import Problems
from gsure.data.scaling import RULE, Scale, choose_scales
from gsure.data.scans import FORMATS, Scan, data_files, open_array, open_cfl, refuse_unlike
from gsure.data.source import Spectra, Spectrum, check_scale, check_slices, name_in, refuse_nonfinite
from gsure.data.survey import survey
from gsure.data.writer import Writer
from gsure.display import bar, say
from gsure.files import record_request, refuse_existing, refuse_inputs
from gsure.measurement import Measurement

Kind = Literal["fastmri", "cfl", "array"]
WHAT = {
    "mask": "the masks in its files",
    "key": "one array",
    "slices": "samples, not volumes",
    "axes": "dimensions in a fixed order, or named by --dims",
    "dims": "dimensions in a fixed order, or named by --axes",
}
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
    axes: str | None = None,
    dims: str | None = None,
    coil: int | None = None,
    combine: Combine | None = None,
    uncentred: bool = False,
    readout_crop: ReadoutCrop = "auto",
    matrix: Sequence[int] | None = None,
    slices: tuple[int, int] | None = None,
    limit: int | None = None,
    shards: int = 1,
    force: bool = False,
    progress: bool = False,
    verbose: bool = True,
) -> Measurements | list[Measurements]:
    """Write measured spectra to a measurement file. `sigma_0` is the noise level in the units of the data.

    Data of several matrix sizes goes to one file per size: NAME-640x368.h5 and so on for the output NAME.h5. Then a list is
    returned. `matrix` is a height and a width to which k-space is padded or cropped instead.

    Spectra are divided by `scale`, which the file records, so that results have the units of the data again. By default, each
    volume is brought to a root mean square of about 1; real images between -1 and 1 stay as they are.

    fastmri  a file or a folder of files with `kspace` and `mask`, as in fastMRI's test set; `slices` is (first, last)
    cfl      BART's .cfl/.hdr, in BART's order of dimensions or as `dims` names them; `mask` is a .cfl or .npy
    array    .npy, .npz or HDF5 (`key`) with spectra (N, H, W) or (N, C, H, W), or as `axes` names the dimensions; `mask` and
             `sigma_0` are .npy files, or names of arrays in the same .npz or HDF5 file

    Without a mask, entries that are zero in all channels count as missing. `sigma_0="estimate"` computes the noise level from
    the median absolute deviation of the outermost measured frequencies (in signal space: of the finest diagonal wavelets).
    The file records that it is an estimate. `coil` and `combine` choose or combine coils, `uncentred` reads k-space whose
    zero frequency is at the first index, and `readout_crop` is the number of rows to keep of an oversampled readout. It
    prints how it takes the data, unless `verbose=False`, and lists all problems of a folder before it writes anything.
    """
    request = record_request("convert", locals())
    if not isinstance(scale, str):
        check_scale(scale)
    elif scale != "auto":
        raise ValueError(f"scale is auto or a number, not {scale!r}.")
    if limit is not None and limit < 1:
        raise ValueError(f"Nothing would be written: give a limit of at least 1, not {limit}.")
    path = Path(path).expanduser()
    path = cfl_file(path) if kind == "cfl" and not path.is_dir() else path
    files = [Path(name).expanduser() for name in (mask, sigma_0) if isinstance(name, str | Path) and Path(name).suffix]
    refuse_inputs([out], [path, *files])
    refuse_existing(Path(out), force)
    preparation = Preparation(coil, combine, uncentred, readout_crop, None if matrix is None else tuple(matrix))
    basis = _basis(basis, preparation)
    given = {"mask": mask, "key": key, "slices": slices, "axes": axes, "dims": dims}
    spectra = _open_spectra(kind, path, given, preparation)
    n = len(spectra) if limit is None else min(limit, len(spectra))
    found = survey(spectra, n, basis, zeros=scale != "auto", uncentred=uncentred, progress=progress)
    scales = _scales(spectra, scale, n)
    levels = _sigma(sigma_0, spectra, basis, n, path)
    about = spectra.report()
    if verbose:
        say("\n".join([f"import {kind}", *(f"  {line}" for line in about)]))
    header: dict[str, Any] = {
        "source": {"kind": kind, "path": str(path), "mask": None if mask is None else str(mask)},
        "complex": spectra.is_complex,
        "corruption": {"name": "as measured"},
        "scaled by": RULE if scale == "auto" else scale,
        "seed": None,
        "request": request,
        "read as": about,
    }
    names = _names(Path(out), list(found.shapes))
    refuse_inputs(list(names.values()), [path, *files])
    for name in names.values():
        refuse_existing(name, force)
    with contextlib.ExitStack() as stack, bar("converting", n, progress) as advance:
        for shape, indices in found.shapes.items():
            noise = _about_noise(sigma_0, [levels[i] for i in indices], [scales[i] for i in indices])
            kept, own = found.mask_shapes[shape], header | {"sigma_0": noise} | spectra.header((shape[-2], shape[-1]))
            writer = Writer(
                names[shape], len(indices), shape, own, basis=basis, mask_shape=kept, shards=shards, force=force
            )
            stack.enter_context(writer)  # all files get their names at the end, or none
            for index in indices:
                _append(writer, spectra[index], scales[index], levels[index] / scales[index])
                advance(1)
    opened = [open_measurements(name, basis) for name in names.values()]
    return opened[0] if len(opened) == 1 else opened


def _names(out: Path, shapes: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], Path]:
    """
    >>> [str(name) for name in _names(Path("scans.h5"), [(2, 640, 368), (2, 640, 372)]).values()]
    ['scans-640x368.h5', 'scans-640x372.h5']
    """
    if len(shapes) == 1:
        return {shapes[0]: out}
    first = 1 if len({shape[1:] for shape in shapes}) == len(shapes) else 0  # channels, if only they differ
    return {shape: out.with_name(f"{out.stem}-{'x'.join(map(str, shape[first:]))}{out.suffix}") for shape in shapes}


def _about_noise(given: float | str, levels: Sequence[float], scales: Sequence[float]) -> dict[str, Any]:
    sigma = [level / scale for level, scale in zip(levels, scales, strict=True)]
    return {
        "given": sigma[0] if len(set(sigma)) == 1 else [min(sigma), max(sigma)],
        "in units of the data": levels[0] if len(set(levels)) == 1 else [min(levels), max(levels)],
        "estimated": given == "estimate",
    }


def _basis(basis: Basis | None, preparation: Preparation) -> Basis:
    basis = basis or Fourier()
    if not isinstance(basis, Fourier) and (options := preparation.needs_kspace):
        raise ValueError(f"{options[0]} needs k-space, but the basis is {basis}: omit it, or use the basis Fourier.")
    return Identity() if preparation.combine == "rss" else basis


def _append(writer: Writer, spectrum: Spectrum, scale: float, sigma: float) -> None:
    ybar, kept, group = spectrum
    lines = tuple(slice(1) if length == 1 else slice(None) for length in writer.mask_shape)
    P = torch.from_numpy(np.broadcast_to(kept[lines], writer.mask_shape).copy()).float()[None]
    measurement = Measurement(P * torch.from_numpy(ybar).float()[None] / scale, P, sigma)
    writer.append(measurement, [group], [scale], torch.tensor([sigma]))


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


def _open_spectra(kind: str, path: Path, given: Mapping[str, Any], preparation: Preparation) -> Spectra:
    known = {"fastmri": {"slices"}, "cfl": {"mask", "dims"}, "array": {"mask", "axes"}}
    if kind not in known:
        raise ValueError(f"{kind!r} is not a kind of measured data: choose {', '.join(get_args(Kind))}.")
    accepted = known[kind] | ({"key"} if kind == "array" and path.suffix != ".npy" else set())
    for name in [name for name, value in given.items() if value is not None and name not in accepted]:
        raise ValueError(f"--{name} has no effect for {kind} {path}, which has {WHAT[name]}: omit it.")
    check_slices(given["slices"])
    problems = Problems()
    scans: list[Scan] = []
    for file in data_files(kind, path, given["mask"]):
        with problems.noted():
            scans.append(_open_scan(kind, path, file, given))
    scans = [scan for scan in scans if len(scan)]
    for scan in scans:
        preparation.check(scan, problems)
    refuse_unlike(scans, problems)
    problems.stop()
    if not scans:
        raise ValueError(f"No volume in {path} has slices in the range {given['slices']}: choose another range.")
    return Prepared(scans, preparation)


def _open_scan(kind: str, path: Path, file: str, given: Mapping[str, Any]) -> Scan:
    match kind:
        case "fastmri":
            return FastMRIScan.open(file, path, given["slices"])
        case "cfl":
            return open_cfl(file, given["mask"], given["dims"], name_in(path, file, ".cfl"))
        case _:
            group = name_in(path, file, *FORMATS["array"]) if path.is_dir() else None
            return open_array(file, given["key"], given["mask"], given["axes"], group)
