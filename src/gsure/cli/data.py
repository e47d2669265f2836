"""corrupt, import and inspect: data in."""

import dataclasses
import sys
from typing import Any, Literal

from jsonargparse import ArgumentParser, Namespace

from gsure.cli import Command, call, show

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
    "split": (str, "split of the dataset. digits: train, test; celeba: train, valid, test; fastmri: train, val"),
    "partition": (str, "celeba: path of the split file, if it is not beside the images"),
    "slices": (tuple[int, int], "volumes: first and last slice"),
    "axis": (int, "nifti, dicom: axis along which to slice"),
    "window": (tuple[float, float], "nifti, dicom: values that map to black and white"),
    "complex": (bool, "nifti, dicom: read as complex images of phase zero, for MRI masks"),
    "coil": (int, "ismrmrd: coil"),
    "key": (str, "array: dataset of the HDF5 file"),
    "scale": (float, "divide by this"),
    "n": (int, "phantom: number of images"),
    "seed": (int, "phantom: seed"),
}
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


def _add_writing_options(parser: ArgumentParser) -> None:
    parser.add_argument("--limit", type=int, help="use only the first so many samples")
    parser.add_argument("--shards", type=int, default=1, help="number of files; several go to a folder")
    parser.add_argument("--force", action="store_true", help="replace existing output")


def _corrupt_options(parser: ArgumentParser) -> None:
    parser.add_argument("signals", type=str, help="clean signals: digits, phantom, a path, or kind:path")
    parser.add_argument("out", type=str, help="measurement file to write")
    parser.add_argument("--corruption", type=str, required=True, help=f"corruption: {', '.join(FAMILIES)}")
    for name, (kind, text) in FAMILY_OPTIONS.items():
        parser.add_argument(f"--{name}", type=kind, help=text)
    parser.add_argument(
        "--sigma", type=float | tuple[float, float], required=True, help="standard deviation of the noise, or its range"
    )
    parser.add_argument("--clean", type=str, help="also write the clean signals, to this file")
    for name, (kind, text) in SOURCE_OPTIONS.items():
        parser.add_argument(f"--source.{name}", type=kind, help=text)
    parser.add_argument("--skip-bad", action="store_true", help="skip unreadable images, and report their number")
    parser.add_argument("--seed", type=int, default=0, help="seed of masks and noise")
    parser.add_argument("--workers", type=int, default=1, help="number of processes")
    _add_writing_options(parser)


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
    if summary["coverage"]["never covered"] and (advice := family.advice(source.shape)):
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
    parser.add_argument("kind", type=Literal["fastmri", "cfl", "array"], help="format of the data")
    parser.add_argument("path", type=str, help="file or folder of measured spectra")
    parser.add_argument("out", type=str, help="measurement file to write")
    sigma = (
        "standard deviation of the noise after scaling; or estimate; or a .npy file or dataset with one value a sample"
    )
    parser.add_argument("--sigma", type=float | str, required=True, help=sigma)
    parser.add_argument(
        "--mask", type=str, help=".npy, .cfl or dataset of the masks; without it, zeros were not measured"
    )
    parser.add_argument("--basis", type=str, default="Fourier", help="basis in which the data was measured")
    parser.add_argument("--scale", type=float, default=1.0, help="divide by this (fastMRI knees: 7e-5)")
    parser.add_argument("--key", type=str, help="dataset of the HDF5 file")
    parser.add_argument("--slices", type=tuple[int, int], help="fastmri: first and last slice")
    _add_writing_options(parser)


def _import(options: Namespace) -> None:
    from gsure.data.convert import convert
    from gsure.data.inspection import inspect_file
    from gsure.data.measurements import BASES

    names = ["Identity", "Fourier", "Hartley", "Cosine", "Hadamard"]
    if options.basis not in names:
        raise ValueError(f"There is no basis {options.basis!r}; choose {', '.join(names)}. Other bases need Python.")
    call(convert, options, sigma_0=options.sigma, basis=BASES[options.basis]())
    show(inspect_file(options.out), options.json)


def _inspect_options(parser: ArgumentParser) -> None:
    parser.add_argument("path", type=str, help="measurement file, folder of shards, file of clean signals, or run")
    parser.add_argument("--figure", type=str, help="PNG to write, of the first samples")
    parser.add_argument("--clean", type=str, help="file of clean signals, to show beside the measurements")
    parser.add_argument("--force", action="store_true", help="replace an existing figure")


def _inspect(options: Namespace) -> None:
    from gsure.training.run import inspect

    show(call(inspect, options), options.json)


COMMANDS = {
    "corrupt": Command(_corrupt_options, _corrupt),
    "import": Command(_import_options, _import),
    "inspect": Command(_inspect_options, _inspect),
}
