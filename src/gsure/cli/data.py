"""corrupt, import, inspect: data in."""

import dataclasses
import sys
from typing import Any, Literal

from jsonargparse import ArgumentParser, Namespace

from gsure.cli.base import Command, call, show

# Options of the corruption families and of the sources. They are written out here so that --help need not import torch; a
# test compares them with the classes.
FAMILY_OPTIONS: dict[str, tuple[Any, str]] = {
    "p": (float, "patches, pixels, channels: probability to drop one"),
    "size": (int, "patches: side of a patch"),
    "R": (float, "lines, poisson_disc: acceleration; about one entry in R is kept"),
    "keep": (float, "hadamard: share of the patterns that are measured"),
    "kind": (Literal["gaussian", "motion"], "blur: kind of kernel"),
    "width": (tuple[float, float], "blur: range of widths or lengths in pixels, as [low,high]"),
    "cutoff": (float, "blur: singular values up to this count as lost"),
}
SOURCE_OPTIONS: dict[str, tuple[Any, str]] = {
    "size": (int, "side of the images"),
    "crop": (int | str, "images: centre crop to this side first; celeba: released or centre"),
    "gray": (bool, "images, celeba: mean of the colour channels"),
    "group": (Literal["file", "folder"], "images: what a group is"),
    "split": (str, "digits: train, test; celeba: train, valid, test; fastmri: train, val"),
    "partition": (str, "celeba: the split file, if it is elsewhere"),
    "slices": (tuple[int, int], "volumes: first and last slice, as [first,last]"),
    "axis": (int, "nifti, dicom: axis along which to slice"),
    "window": (tuple[float, float], "nifti, dicom: values that become black and white"),
    "complex": (bool, "nifti, dicom: as complex images of phase zero, for MRI masks"),
    "coil": (int, "ismrmrd: which coil"),
    "key": (str, "array: which dataset"),
    "scale": (float, "divide by this"),
    "n": (int, "phantom: how many"),
    "seed": (int, "phantom: which"),
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
    parser.add_argument("--limit", type=int, help="only the first so many samples")
    parser.add_argument("--shards", type=int, default=1, help="write a folder of so many files instead of one")
    parser.add_argument("--force", action="store_true", help="replace the output if it exists")


def _corrupt_options(parser: ArgumentParser) -> None:
    parser.add_argument("signals", type=str, help="digits, phantom, a path, or kind:path")
    parser.add_argument("out", type=str, help="the measurement file to write")
    parser.add_argument("--corruption", type=str, required=True, help=f"one of {', '.join(FAMILIES)}")
    for name, (kind, text) in FAMILY_OPTIONS.items():
        parser.add_argument(f"--{name}", type=kind, help=text)
    parser.add_argument(
        "--sigma", type=float | tuple[float, float], required=True, help="noise; a number or [low,high]"
    )
    parser.add_argument("--clean", type=str, help="write the clean signals to this second file")
    for name, (kind, text) in SOURCE_OPTIONS.items():
        parser.add_argument(f"--source.{name}", type=kind, help=text)
    parser.add_argument("--skip-bad", action="store_true", help="leave unreadable images out, and count them")
    parser.add_argument("--seed", type=int, default=0, help="of masks and noise")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    _add_writing_options(parser)


def _corrupt(options: Namespace) -> None:
    from gsure import corruption
    from gsure.data.corrupt import corrupt
    from gsure.data.sources import open_source
    from gsure.training.summary import inspect

    if options.corruption not in FAMILIES:
        raise ValueError(f"There is no corruption {options.corruption!r}; there are {', '.join(FAMILIES)}.")
    family = _make(
        corruption.FAMILIES[options.corruption], _given(options, FAMILY_OPTIONS), f"--corruption {options.corruption}"
    )
    skip_bad = {"skip_bad": True} if options.skip_bad else {}
    source = open_source(options.signals, **_given(options.source, SOURCE_OPTIONS), **skip_bad)
    call(corrupt, options, source=source, path=options.out, corruption=family, sigma_0=options.sigma)
    summary = inspect(options.out)
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
    parser.add_argument("kind", type=Literal["fastmri", "cfl", "array"], help="of the data")
    parser.add_argument("path", type=str, help="file or folder of measured spectra")
    parser.add_argument("out", type=str, help="the measurement file to write")
    sigma = "noise after scaling; or the word estimate; or a .npy or an array beside the data, one for each sample"
    parser.add_argument("--sigma", type=float | str, required=True, help=sigma)
    parser.add_argument("--mask", type=str, help=".npy, .cfl, or an array beside the data; else zeros count as dropped")
    parser.add_argument("--basis", type=str, default="Fourier", help="in which the data was measured")
    parser.add_argument("--scale", type=float, default=1.0, help="divide by this (fastMRI knees: 7e-5)")
    parser.add_argument("--key", type=str, help="dataset of an HDF5 file")
    parser.add_argument("--slices", type=tuple[int, int], help="first and last slice of fastMRI volumes")
    _add_writing_options(parser)


def _import(options: Namespace) -> None:
    from gsure import basis
    from gsure.data.convert import convert
    from gsure.training.summary import inspect

    names = ["Identity", "Fourier", "Hartley", "Cosine", "Hadamard"]
    if options.basis not in names:
        raise ValueError(f"There is no basis {options.basis!r}; there are {', '.join(names)}; others in Python.")
    call(convert, options, sigma_0=options.sigma, basis=getattr(basis, options.basis)())
    show(inspect(options.out), options.json)


def _inspect_options(parser: ArgumentParser) -> None:
    parser.add_argument("path", type=str, help="a measurement file, a folder of shards, clean signals, or a run")
    parser.add_argument("--figure", type=str, help="write a picture of the first samples to this PNG")
    parser.add_argument("--clean", type=str, help="the file of clean signals, to show them in the figure too")
    parser.add_argument("--force", action="store_true", help="replace the figure if it exists")


def _inspect(options: Namespace) -> None:
    from gsure.training.summary import inspect

    show(call(inspect, options), options.json)


CORRUPT = Command("simulate measurements of clean signals", _corrupt_options, _corrupt)
IMPORT = Command("make a measurement file of data that is already measured", _import_options, _import)
INSPECT = Command("say what is in a file or a run, and draw it", _inspect_options, _inspect)
