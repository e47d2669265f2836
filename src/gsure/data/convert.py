"""Convert data that is already measured: k-space, images or other spectra, with their mask and noise level."""

from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from gsure.basis import Basis, Fourier, Identity, check_basis
from gsure.data.array import ArraySpectra, choose_array, read_beside
from gsure.data.cfl import cfl_file, stacked
from gsure.data.domain import CHECKED, wrong_domain
from gsure.data.fastmri import FastMRISpectra
from gsure.data.measurements import Measurements, open_measurements
from gsure.data.noise import prepare
from gsure.data.noisy import IMAGE_KINDS, open_noisy
from gsure.data.scaling import RULE, Scale, choose_scales, evenly_spread
from gsure.data.source import Spectra, Spectrum, check_scale, refuse_nonfinite
from gsure.data.tiff import Pages
from gsure.data.writer import Writer
from gsure.display import bar
from gsure.files import record_request, refuse_inputs
from gsure.measurement import Measurement

Kind = Literal["fastmri", "cfl", "array", "images", "tiff", "nifti", "dicom"]
WHAT = {"mask": "the masks in its files", "key": "one array", "slices": "samples, not volumes"}
WHAT |= {"axis": "slices of one orientation", "pages": "no pages"}
"""Reasons why an option has no effect."""


def convert(
    kind: Kind,
    path: str | Path,
    out: str | Path,
    sigma_0: float | str | None = None,
    *,
    mask: str | Path | None = None,
    basis: Basis | None = None,
    scale: Scale = "auto",
    key: str | None = None,
    slices: tuple[int, int] | None = None,
    axis: int | None = None,
    pages: Pages | None = None,
    noise_scan: str | Path | None = None,
    gain: float | str | None = None,
    read_noise: float | None = None,
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
    images   a folder or a zip of noisy images, one image, or TIFF stacks; `mask` is an image, a stack or a .npy
    tiff     TIFF stacks; `pages` is "samples" or "volume"
    nifti, dicom    slices of volumes along `axis`, whose affine and units restorations have again

    In spectra without a mask, entries that are zero in all channels count as missing; in images, pixels that are NaN.

    sigma_0      a number; or the name of a .npy file or array with one value per sample, or a noise map (H, W) or (N, H, W),
                 for images also an image, stack or volume; or "estimate": from the lowest local variances of each volume; or
                 "repeats": from samples that show the same thing
    noise_scan   a scan without signal, of the same kind, from which the noise level is measured
    gain, read_noise    for counts, instead of sigma_0: what one count adds to the data ("estimate": from the mean-variance
                 curve), and the standard deviation of the Gaussian noise. The values are transformed to noise of standard
                 deviation 1 (`gsure.data.anscombe`), and results are transformed back

    The file records the method of an estimate and its uncertainty.
    """
    request = record_request("convert", locals())
    basis = basis or (Identity() if kind in IMAGE_KINDS else Fourier())
    if not isinstance(scale, str):
        check_scale(scale)
    elif scale != "auto":
        raise ValueError(f"scale is auto or a number, not {scale!r}.")
    path = cfl_file(path) if kind == "cfl" else Path(path).expanduser()
    named = [Path(name).expanduser() for name in (mask, sigma_0, noise_scan) if isinstance(name, str | Path)]
    refuse_inputs([out], [path, *(file for file in named if file.suffix or file.is_dir())])
    if kind in IMAGE_KINDS and not basis.is_signal:
        raise ValueError(f"Images are measured in signal space, not in {basis}: omit --basis.")
    spectra = _open_spectra(kind, path, mask, key, slices, axis, pages)
    about: dict[str, Any] = getattr(spectra, "about", dict)()
    geometry: dict[str, Any] = getattr(spectra, "geometry", dict)()
    first, n = spectra[0], len(spectra) if limit is None else min(limit, len(spectra))
    check_basis(basis, first.ybar.shape)
    if limit is not None and limit < 1:
        raise ValueError(f"Nothing would be written: give a limit of at least 1, not {limit}.")
    _refuse_wrong_domain(spectra, basis, n, path)
    options = (key, slices, axis, pages)
    scan = None if noise_scan is None else _open_spectra(kind, Path(noise_scan).expanduser(), None, *options)
    spectra, noise, of_counts = prepare(spectra, basis, n, path, sigma_0, scan, gain, read_noise)
    scales = _scales(spectra, scale, n)
    header: dict[str, Any] = {
        "source": {"kind": kind, "path": str(path), "mask": None if mask is None else str(mask), **about},
        "geometry": geometry,
        "complex": spectra.is_complex,
        "corruption": {"name": "as measured"},
        "sigma_0": noise.describe(scales),
        "scaled by": RULE if scale == "auto" else scale,
        **of_counts,
        "seed": None,
        "request": request,
    }
    masks: dict[str, Any] = {
        "mask_shape": np.broadcast_shapes(first.mask.shape, noise.shape),
        "binary": not noise.is_map,
    }
    writer = Writer(out, n, first.ybar.shape, header, basis=basis, **masks, shards=shards, force=force)
    with writer, bar("converting", n, progress) as advance:
        for index in range(n):
            _append(writer, spectra[index], index, first, scales[index], noise.std(index) / scales[index])
            advance(1)
    return open_measurements(out, basis)


def _append(writer: Writer, spectrum: Spectrum, index: int, first: Spectrum, scale: float, std: np.ndarray) -> None:
    ybar, kept, group = spectrum
    if ybar.shape != first.ybar.shape or kept.shape != first.mask.shape:
        raise ValueError(
            f"Sample {index}, of group {group}, has shape {ybar.shape} and a mask of shape {kept.shape}, but the first sample "
            f"has {first.ybar.shape} and {first.mask.shape}: convert them separately."
        )
    refuse_nonfinite(ybar, f"Sample {index}, of group {group},")
    P = torch.from_numpy(kept).float()[None]
    noise = torch.from_numpy(std).float()[None]
    measurement = Measurement(P * torch.from_numpy(ybar).float()[None] / scale, P, noise)
    writer.append(measurement, [group], [scale], noise.flatten() if writer.binary else torch.ones(1))


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


def _open_spectra(
    kind: str,
    path: Path,
    mask: str | Path | None,
    key: str | None,
    slices: tuple[int, int] | None,
    axis: int | None,
    pages: Pages | None,
) -> Spectra:
    given = {"mask": mask, "key": key, "slices": slices, "axis": axis, "pages": pages}
    known = {"fastmri": {"slices"}, "cfl": {"mask"}, "array": {"mask"} if path.suffix == ".npy" else {"mask", "key"}}
    known |= {name: {"mask", "slices", "axis", "pages"} for name in IMAGE_KINDS}
    for name in [name for name, value in given.items() if value is not None and name not in known.get(kind, given)]:
        raise ValueError(f"--{name} has no effect for {kind} {path}, which has {WHAT[name]}: omit it.")
    match kind:
        case "fastmri":
            return FastMRISpectra(path, slices)
        case "cfl":
            return ArraySpectra(stacked(path), _mask(mask, path), path.stem)
        case "array":
            return ArraySpectra(choose_array(path, key, "spectra", (3, 4)), _mask(mask, path), None)
    if kind in IMAGE_KINDS:
        return open_noisy(kind, path, mask, slices, axis, pages)
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
