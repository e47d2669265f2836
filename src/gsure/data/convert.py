"""Convert data that is already measured: k-space, images or other spectra, with their mask and noise level."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from gsure.basis import Basis, Fourier, Identity
from gsure.data.cfl import cfl_file
from gsure.data.fastmri import FastMRIScan
from gsure.data.measurements import Measurements, open_measurements
from gsure.data.noise import Noise, check_options, choose_noise, to_gaussian
from gsure.data.noisy import IMAGE_KINDS, open_noisy
from gsure.data.preparation import Combine, Preparation, ReadoutCrop
from gsure.data.prepared import Prepared
from gsure.data.problems import Problems
from gsure.data.scaling import RULE, Scale, choose_scales
from gsure.data.scans import FORMATS, Scan, data_files, is_mask_right, open_array, open_cfl, refuse_unlike
from gsure.data.source import Spectra, Spectrum, check_scale, check_slices, name_in, refuse_nonfinite
from gsure.data.survey import survey
from gsure.data.tiff import Pages
from gsure.data.writer import Writer
from gsure.display import bar, say
from gsure.files import record_request, refuse_existing, refuse_inputs
from gsure.measurement import Measurement

Kind = Literal["fastmri", "cfl", "array", "images", "tiff", "nifti", "dicom"]
WHAT = {
    "mask": "the masks in its files",
    "key": "one array",
    "slices": "samples, not volumes",
    "axes": "dimensions in a fixed order, or named by --dims",
    "dims": "dimensions in a fixed order, or named by --axes",
    "axis": "slices of one orientation",
    "pages": "no pages",
}
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
    axes: str | None = None,
    dims: str | None = None,
    coil: int | None = None,
    combine: Combine | None = None,
    uncentred: bool = False,
    readout_crop: ReadoutCrop = "auto",
    matrix: Sequence[int] | None = None,
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

    The file records the method of an estimate and its uncertainty. `coil` and `combine` choose or combine coils, `uncentred`
    reads k-space whose zero frequency is at the first index, and `readout_crop` is the number of rows to keep of an
    oversampled readout. It prints how it takes the data, unless `verbose=False`, and lists all problems of a folder before it
    writes anything.
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
    named = [Path(name).expanduser() for name in (mask, sigma_0, noise_scan) if isinstance(name, str | Path)]
    files = [file for file in named if file.suffix or file.is_dir()]
    refuse_inputs([out], [path, *files])
    refuse_existing(Path(out), force)
    if kind in IMAGE_KINDS and (inside := [file for file in files if path.resolve() in file.resolve().parents]):
        raise ValueError(
            f"{inside[0]} is in the folder of the images, so it would count as one: move it out of {path}."
        )
    preparation = Preparation(coil, combine, uncentred, readout_crop, None if matrix is None else tuple(matrix))
    basis = _basis(kind, basis, preparation)
    check_options(sigma_0, noise_scan is not None, gain, read_noise, basis)
    given = {"mask": mask, "key": key, "slices": slices, "axes": axes, "dims": dims, "axis": axis, "pages": pages}
    problems = Problems()
    spectra = _open_spectra(kind, path, given, preparation, problems)
    scan = None if noise_scan is None else _open_noise_scan(kind, Path(noise_scan).expanduser(), given, preparation)
    n = len(spectra) if limit is None else min(limit, len(spectra))
    of_counts: dict[str, Any] = {}
    with problems.noted():  # the survey may find more
        spectra, of_counts = to_gaussian(spectra, n, gain, read_noise)
    found = survey(spectra, n, basis, problems, zeros=scale != "auto", uncentred=uncentred, progress=progress)
    noise = choose_noise(1.0 if of_counts else sigma_0, spectra, basis, found.shapes, path, scan)
    scales = _scales(spectra, scale, n)
    about = spectra.report()
    if verbose:
        say("\n".join([f"import {kind}", *(f"  {line}" for line in about)]))
    header: dict[str, Any] = {
        "source": {"kind": kind, "path": str(path), "mask": None if mask is None else str(mask)},
        "complex": spectra.is_complex,
        "corruption": {"name": "as measured"},
        "scaled by": RULE if scale == "auto" else scale,
        **of_counts,
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
            own = _header(header, noise, spectra, shape, indices, scales)
            kept = np.broadcast_shapes(found.mask_shapes[shape], noise.std(indices[0]).shape)
            masks: dict[str, Any] = {"mask_shape": kept, "binary": not noise.is_map}
            writer = Writer(names[shape], len(indices), shape, own, basis=basis, **masks, shards=shards, force=force)
            stack.enter_context(writer)  # all files get their names at the end, or none
            for index in indices:
                _append(writer, spectra[index], scales[index], noise.std(index) / scales[index])
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


def _header(
    common: Mapping[str, Any],
    noise: Noise,
    spectra: Spectra,
    shape: tuple[int, ...],
    indices: Sequence[int],
    scales: Sequence[float],
) -> dict[str, Any]:
    """The header of the file of one shape."""
    more = spectra.header((shape[-2], shape[-1]))
    source = common["source"] | more.get("source", {})
    return {**common, "sigma_0": noise.describe(indices, scales), **more, "source": source}


def _basis(kind: str, basis: Basis | None, preparation: Preparation) -> Basis:
    if kind in IMAGE_KINDS:
        if basis is not None and not basis.is_signal:
            raise ValueError(f"Images are measured in signal space, not in {basis}: omit --basis.")
        return basis or Identity()
    basis = basis or Fourier()
    if not isinstance(basis, Fourier) and (options := preparation.needs_kspace):
        raise ValueError(f"{options[0]} needs k-space, but the basis is {basis}: omit it, or use the basis Fourier.")
    return Identity() if preparation.combine == "rss" else basis


def _append(writer: Writer, spectrum: Spectrum, scale: float, std: np.ndarray) -> None:
    ybar, kept, group = spectrum
    lines = tuple(slice(1) if length == 1 else slice(None) for length in writer.mask_shape)
    P = torch.from_numpy(np.broadcast_to(kept[lines], writer.mask_shape).copy()).float()[None]
    noise = torch.from_numpy(std).float()[None]
    measurement = Measurement(P * torch.from_numpy(ybar).float()[None] / scale, P, noise)
    writer.append(measurement, [group], [scale], noise.flatten() if writer.binary else torch.ones(1))


def _scales(spectra: Spectra, scale: Scale, n: int) -> list[float]:
    if not isinstance(scale, str):
        return [scale] * n

    def read(index: int) -> np.ndarray:
        ybar, mask, group = spectra[index]
        refuse_nonfinite(ybar, f"Sample {index}, of group {group},")
        return ybar * mask

    return choose_scales(read, [spectra.volume(index) for index in range(n)], spectra.is_complex).tolist()


def _open_noise_scan(kind: str, path: Path, given: Mapping[str, Any], preparation: Preparation) -> Spectra:
    if preparation.combine is not None:
        raise ValueError(
            f"--noise-scan does not go with --combine {preparation.combine}, because coils of noise alone combine in another "
            "way: measure the noise level of a coil, and give it as --sigma."
        )
    problems = Problems()
    scan = _open_spectra(kind, path, {**given, "mask": None}, preparation, problems)
    problems.stop()
    return scan


def _open_spectra(
    kind: str, path: Path, given: Mapping[str, Any], preparation: Preparation, problems: Problems
) -> Spectra:
    """Notes what is wrong with files, and raises an error if no sample is left to look at."""
    known = {"fastmri": {"slices"}, "cfl": {"mask", "dims"}, "array": {"mask", "axes"}}
    known |= {name: {"mask", "slices", "axis", "pages"} for name in IMAGE_KINDS}
    if kind not in known:
        raise ValueError(f"{kind!r} is not a kind of measured data: choose {', '.join(get_args(Kind))}.")
    accepted = known[kind] | ({"key"} if kind == "array" and path.suffix != ".npy" else set())
    for name in [name for name, value in given.items() if value is not None and name not in accepted]:
        raise ValueError(f"--{name} has no effect for {kind} {path}, which has {WHAT[name]}: omit it.")
    check_slices(given["slices"])
    if kind in IMAGE_KINDS:
        if options := preparation.given:
            raise ValueError(f"{options[0]} needs k-space, but {kind} {path} holds images: omit it.")
        return open_noisy(kind, path, given["mask"], given["slices"], given["axis"], given["pages"], problems=problems)
    scans: list[Scan] = []
    for file in data_files(kind, path, given["mask"]):
        with problems.noted():
            scans.append(_open_scan(kind, path, file, given))
    scans = [scan for scan in scans if len(scan)]
    refuse_unlike(scans, problems)
    scans = [scan for scan in scans if preparation.fits(scan, problems) and is_mask_right(scan, problems)]
    if not scans:
        problems.stop()
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
