"""All sources of clean or raw signals, by kind."""

import dataclasses
import zipfile
from pathlib import Path
from typing import Any

from gsure.data.anatomy import Anatomy
from gsure.data.array import Array
from gsure.data.celeba import CelebA
from gsure.data.cfl import Cfl
from gsure.data.dicom import Dicom
from gsure.data.digits import Digits
from gsure.data.fastmri import FastMRI
from gsure.data.idx import Idx
from gsure.data.image_files import entries, is_picture
from gsure.data.images import Images
from gsure.data.ismrmrd import Ismrmrd
from gsure.data.nifti import Nifti
from gsure.data.phantom import Phantom
from gsure.data.source import Sample, Source, existing
from gsure.data.tiff import ENDINGS, Tiff, is_stack
from gsure.files import open_hdf5

KINDS: dict[str, type[Source]] = {
    source.kind: source
    for source in (Array, Images, Tiff, CelebA, Idx, FastMRI, Nifti, Dicom, Cfl, Ismrmrd, Digits, Phantom, Anatomy)
}

__all__ = [
    "KINDS",
    "Anatomy",
    "Array",
    "CelebA",
    "Cfl",
    "Dicom",
    "Digits",
    "FastMRI",
    "Idx",
    "Images",
    "Ismrmrd",
    "Nifti",
    "Phantom",
    "Sample",
    "Source",
    "Tiff",
    "guess_kind",
    "open_source",
]


def open_source(kind_or_path: str, **options: Any) -> Source:
    """Open a source by kind (`phantom`), by kind and path (`nifti:brains/`), or by a path alone, to guess the kind.

    >>> open_source("phantom", size=32, n=5).shape
    (2, 32, 32)
    """
    kind, _, path = kind_or_path.partition(":")
    if kind not in KINDS:
        kind, path = guess_kind(existing(kind_or_path)), kind_or_path
    accepted = {field.name: field for field in dataclasses.fields(KINDS[kind]) if field.init}  # type: ignore[arg-type]
    if ("path" in accepted) != bool(path):
        example = f"{kind}:PATH" if "path" in accepted else kind
        raise ValueError(f"The source {kind_or_path!r} should be given as {example}.")
    if unknown := sorted(set(options) - (set(accepted) - {"path"})):
        known = ", ".join(name for name in accepted if name != "path") or "none"
        raise ValueError(f"The source {kind} has no option {unknown[0]}: it has {known}.")
    return KINDS[kind](**({"path": path} if path else {}), **options)


def guess_kind(path: Path) -> str:
    """The kind of a file or folder, from its ending or content. Raises `ValueError` if neither determines it."""
    if path.is_dir():
        if path.name == "img_align_celeba" or (path / "img_align_celeba").is_dir():
            return "celeba"
        guesses = (_guess_by_file(path / name) for name, _ in entries(path))
        kind = next((kind for kind in guesses if kind), None)
    else:
        kind = _guess_by_file(path)
    if kind is None:
        raise ValueError(
            f"The kind of data in {path} cannot be guessed: give KIND:PATH, with one of {', '.join(KINDS)}."
        )
    return kind


def _guess_by_file(path: Path) -> str | None:
    name = path.name.lower()
    for endings, kind in (
        ((".npy", ".npz"), "array"),
        ((".nii", ".nii.gz"), "nifti"),
        ((".cfl", ".hdr"), "cfl"),
        ((".dcm", ".ima"), "dicom"),
        (("-ubyte", "-ubyte.gz", ".idx", ".idx.gz"), "idx"),
    ):
        if name.endswith(endings):
            return kind
    if name.endswith((".h5", ".hdf5", ".mrd")):
        return _guess_by_hdf5(path)
    if name.endswith(ENDINGS) and is_stack(path):
        return "tiff"
    if is_picture(name):
        return "images"
    if zipfile.is_zipfile(path):
        return "celeba" if any("img_align_celeba/" in entry for entry, _ in entries(path)) else "images"
    with path.open("rb") as stream:
        return "dicom" if stream.read(132)[128:] == b"DICM" else None


def _guess_by_hdf5(path: Path) -> str:
    import h5py

    with open_hdf5(path) as file:
        if file.attrs.get("format") == "gsure" and file.attrs.get("holds") == "measurements":
            raise ValueError(
                f"{path} holds measurements already, not clean signals: train on it, or choose another file."
            )
        if "kspace" in file:
            return "fastmri"
        groups = [group for group in file.values() if isinstance(group, h5py.Group)]
        return "ismrmrd" if any("xml" in group for group in groups) else "array"
