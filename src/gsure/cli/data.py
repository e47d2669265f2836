"""corrupt, import and inspect: data in."""

import dataclasses
import sys
from typing import Any, Literal

from jsonargparse import ArgumentParser, Namespace

from gsure.cli import Command, Options, call, show

# Options of the corruption families and of the sources. They are written out here so that --help need not import torch; a
# test compares them with the classes.
FAMILY_OPTIONS: dict[str, tuple[Any, str]] = {
    "p": (float, "patches, pixels, channels: probability that one is dropped"),
    "size": (int, "patches: side of a patch"),
    "R": (float, "lines, poisson_disc: acceleration; about 1/R of the entries are measured"),
    "keep": (float, "hadamard: share of the patterns that are measured"),
    "kind": (Literal["gaussian", "motion"], "blur: kernel"),
    "width": (tuple[float, float], "blur: range of kernel widths or lengths in pixels"),
    "cutoff": (float, "blur: singular values up to this count as zero"),
}
SOURCE_OPTIONS: dict[str, tuple[Any, str]] = {
    "size": (int, "side of the images"),
    "crop": (int | str, "images: centre crop to this side first; celeba: released or centre"),
    "gray": (bool, "images, celeba: mean of the colour channels"),
    "group": (Literal["file", "folder"], "images: what forms a group"),
    "split": (
        str,
        "split of the dataset. digits, anatomy: train, test; celeba: train, valid, test; fastmri: train, val",
    ),
    "partition": (str, "celeba: path of the split file, if it is not beside the images"),
    "slices": (tuple[int, int], "volumes: first and last slice"),
    "axis": (int, "nifti, dicom, tiff: axis along which to slice"),
    "window": (tuple[float, float], "nifti, dicom, tiff: values that map to black and white"),
    "complex": (bool, "nifti, dicom, tiff: read as complex images of phase zero, for MRI masks"),
    "pages": (Literal["samples", "volume"], "tiff: what the pages of a file are"),
    "coil": (int, "ismrmrd, cfl: coil, counted from 0"),
    "dims": (str, "cfl: names of the dimensions, if they are not READ PHS1 PHS2 COIL ..."),
    "key": (str, "array: dataset of the HDF5 file"),
    "scale": (float, "divide by this"),
    "n": (int, "phantom, anatomy: number of images"),
    "seed": (int, "phantom, anatomy: seed"),
    "heads": (str, "anatomy: NIfTI file or folder of heads, instead of those that are built in"),
    "plane": (str, "anatomy: sagittal, coronal or axial slices; by default any"),
    "phase": (bool, "anatomy: smooth random phase; false makes real images"),
}
METAVARS = {tuple[float, float]: "[X,X]", tuple[int, int]: "[N,N]", bool: "true|false", int | str: "N|NAME"}
FAMILIES = (
    "patches",
    "pixels",
    "noise",
    "lines",
    "gaussian_lines",
    "equispaced_lines",
    "poisson_disc",
    "blur",
    "hadamard",
    "channels",
)


def _add_output(parser: ArgumentParser) -> Options:
    output = Options(parser, "output")
    output.add("--limit", int, "use only the first N samples")
    output.add("--shards", int, "number of files; several go to a folder", 1)
    output.add("--force", bool, "replace existing output")
    return output


def _corrupt_options(parser: ArgumentParser) -> None:
    data = Options(parser, "data")
    data.add("signals", str, "clean signals: digits, anatomy, phantom, a path, or kind:path (see docs/data.md)")
    data.add("out", str, "measurement file to write")
    data.add("--clean", str, "also write the clean signals, to this file", metavar="FILE")
    corruption = Options(parser, "corruption")
    corruption.add("--corruption", str, f"what happens to a signal: {', '.join(FAMILIES)}", required=True)
    about = "standard deviation of the noise, or a range [X,X] to draw it from"
    corruption.add("--sigma", float | tuple[float, float], about, metavar="X", required=True)
    for name, (kind, text) in FAMILY_OPTIONS.items():
        corruption.add(f"--{name}", kind, text, metavar=METAVARS.get(kind))
    corruption.add("--seed", int, "seed of masks and noise", 0)
    source = parser.add_argument_group("how to read the signals")
    for name, (kind, text) in SOURCE_OPTIONS.items():
        source.add_argument(f"--source.{name}", type=kind, help=text, metavar=METAVARS.get(kind))
    source.add_argument("--skip-bad", action="store_true", help="skip unreadable images, and report their number")
    output = _add_output(parser)
    output.add("--workers", int, "number of processes", 1)


def _corrupt(options: Namespace) -> None:
    from gsure.corruption import FAMILIES as KNOWN
    from gsure.data.corrupt import corrupt
    from gsure.data.inspection import inspect_file
    from gsure.data.sources import open_source

    if options.corruption not in FAMILIES:
        raise ValueError(f"There is no corruption {options.corruption!r}; there are {', '.join(FAMILIES)}.")
    family = _make(KNOWN[options.corruption], _given(options, FAMILY_OPTIONS), f"--corruption {options.corruption}")
    skip_bad = {"skip_bad": True} if options.skip_bad else {}
    source = open_source(options.signals, **_given(options.source, SOURCE_OPTIONS), **skip_bad)
    call(corrupt, options, source=source, path=options.out, corruption=family, sigma_0=options.sigma)
    summary = inspect_file(options.out)
    show(summary, options.json)
    if summary["coverage"]["never measured"] and (advice := family.advice(source.shape)):
        sys.stderr.write(f"{advice}\n")


def _given(options: Namespace, known: dict[str, tuple[Any, str]]) -> dict[str, Any]:
    return {name: options[name] for name in known if options[name] is not None}


def _make(kind: type, options: dict[str, Any], what: str) -> Any:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if foreign := [name for name in options if name not in fields]:
        takes = ", ".join(f"--{name}" for name in fields) or "no options"
        raise ValueError(f"{what} has no option --{foreign[0]}; it takes {takes}.")
    needed = [name for name, field in fields.items() if field.default is field.default_factory is dataclasses.MISSING]
    if missing := [name for name in needed if name not in options]:
        raise ValueError(f"{what} needs --{missing[0]}.")
    return kind(**options)


def _import_options(parser: ArgumentParser) -> None:
    data = Options(parser, "data")
    about = "format of the data: array, cfl, fastmri, images, tiff, nifti or dicom"
    data.add("kind", Literal["fastmri", "cfl", "array", "images", "tiff", "nifti", "dicom"], about)
    data.add("path", str, "file or folder of measured spectra or images")
    data.add("out", str, "measurement file to write")
    about = ".npy, .cfl, image or dataset of the masks; without it, zeros of spectra and NaN pixels were not measured"
    data.add("--mask", str, about, metavar="FILE")
    data.add("--basis", str, "basis in which the data was measured; by default Fourier, for images Identity")
    about = "divide by this; auto brings each volume to a root mean square of about 1"
    data.add("--scale", float | Literal["auto"], about, "auto", metavar="X|auto")
    data.add("--slices", tuple[int, int], "fastmri, nifti, dicom, tiff: first and last slice", metavar="[N,N]")
    data.add("--axis", int, "nifti, dicom, tiff: axis along which to slice")
    data.add("--pages", Literal["samples", "volume"], "tiff: what the pages of a file are")
    _add_noise_options(parser)
    _add_kspace_options(parser)
    _add_output(parser)


def _add_noise_options(parser: ArgumentParser) -> None:
    noise = Options(parser, "noise")
    about = (
        "standard deviation of the noise: a number, in the units of the data; a file, with one value per sample or with a "
        "noise map; estimate, from the data; or repeats, from repeated scans"
    )
    noise.add("--sigma", float | str, about, metavar="X|FILE|estimate|repeats")
    noise.add("--noise-scan", str, "scan without signal, to measure the noise from", metavar="PATH")
    about = "for counts, instead of --sigma: what one count adds to the data, or estimate"
    noise.add("--gain", float | Literal["estimate"], about, metavar="X|estimate")
    noise.add("--read-noise", float, "for counts: standard deviation of the Gaussian noise", metavar="X")


def _add_kspace_options(parser: ArgumentParser) -> None:
    layout = Options(parser, "dimensions of the data")
    layout.add("--key", str, "array: name of the array, or REAL,IMAGINARY for two arrays")
    names = "readout, phase, coil, channel, slice, sample, ..."
    layout.add("--axes", str, f"array: names of the dimensions, in order: {names}", metavar="NAMES")
    about = "cfl: names of the dimensions, if they are not READ PHS1 PHS2 COIL ... as in BART"
    layout.add("--dims", str, about, metavar="NAMES")
    kspace = Options(parser, "k-space")
    kspace.add("--coil", int, "use one coil, counted from 0", metavar="K")
    about = "combine coils: to the first virtual coil, or (fully sampled) to a root sum of squares image"
    kspace.add("--combine", Literal["rss", "first-virtual"], about)
    kspace.add("--uncentred", bool, "the zero frequency is at the first index, not in the middle")
    about = "rows to keep of an oversampled readout; auto: what a fastmri file says; none: all"
    kspace.add("--readout-crop", int | str, about, "auto", metavar="N|auto|none")
    about = "zero-pad or crop k-space to one size; without it, each size goes to a file of its own"
    kspace.add("--matrix", int, about, nargs=2, metavar=("H", "W"))


def _import(options: Namespace) -> None:
    from gsure.data.convert import convert
    from gsure.data.inspection import inspect_file
    from gsure.data.measurements import BASES

    names = ["Identity", "Fourier", "Hartley", "Cosine", "Hadamard"]
    if options.basis not in (None, *names):
        raise ValueError(f"There is no basis {options.basis!r}; choose {', '.join(names)}. Other bases need Python.")
    basis = None if options.basis is None else BASES[options.basis]()
    written = call(convert, options, sigma_0=options.sigma, basis=basis)
    written = written if isinstance(written, list) else [written]
    if len(written) > 1:
        files = ", ".join(f"{data.name} ({len(data)} samples)" for data in written)
        sys.stderr.write(f"The data has {len(written)} matrix sizes, each in a file of its own: {files}\n")
    summaries = [inspect_file(data.name) for data in written]
    if options.json:
        show(summaries[0] if len(summaries) == 1 else {"files": summaries}, options.json)
        return
    for number, summary in enumerate(summaries):
        sys.stdout.write("\n" if number else "")
        show({key: value for key, value in summary.items() if key != "read as"}, options.json)  # convert said it


def _inspect_options(parser: ArgumentParser) -> None:
    data = Options(parser, "data")
    data.add("path", str, "measurement file, folder of shards, file of clean signals, or run")
    data.add("--clean", str, "clean signals, to show beside the measurements in the figure", metavar="FILE")
    output = Options(parser, "output")
    output.add("--figure", str, "PNG to write, of the first samples", metavar="FILE")
    output.add("--force", bool, "replace an existing figure")


def _inspect(options: Namespace) -> None:
    from gsure.training.run import inspect

    show(call(inspect, options), options.json)


COMMANDS = {
    "corrupt": Command(
        "gsure corrupt SIGNALS OUT --corruption NAME --sigma X [options]",
        _corrupt_options,
        _corrupt,
        (
            "gsure corrupt digits d.h5 --corruption patches --p 0.4 --size 2 --sigma 0.02 --clean c.h5",
            "gsure corrupt brain.nii.gz b.h5 --corruption lines --R 4 --sigma 0.01 --source.complex true",
        ),
    ),
    "import": Command(
        "gsure import KIND PATH OUT --sigma X|FILE|estimate|repeats [options]",
        _import_options,
        _import,
        (
            "gsure import fastmri singlecoil_test knees.h5 --sigma estimate",
            "gsure import array kspace.npy k.h5 --mask mask.npy --sigma 0.01",
            "gsure import tiff stack.tif s.h5 --gain 2.2 --read-noise 1.5",
        ),
    ),
    "inspect": Command(
        "gsure inspect PATH [options]",
        _inspect_options,
        _inspect,
        ("gsure inspect d.h5 --clean c.h5 --figure d.png", "gsure inspect runs/digits --json"),
    ),
}
