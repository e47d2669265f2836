"""Restorations as volumes for other tools: NIfTI (magnitudes) or BART's .cfl (complex), in the units of the raw data."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gsure.data.geometry import assemble
from gsure.data.measurements import Measurements, Signals
from gsure.data.source import optional
from gsure.inference.restored import SPREADS

Format = Literal["nifti", "cfl"]


def check_volumes(data: Measurements) -> None:
    """Raise an error if signals have more channels than a voxel has numbers, or if two groups need the same file name."""
    shape, is_complex = tuple(data.shape), data.header["complex"]
    if len(shape) != 3 or shape[0] != (2 if is_complex else 1):
        kind = "complex" if is_complex else "real"
        raise ValueError(
            f"--volumes takes images of one channel, real or complex, but these are {kind}, of shape {shape}: omit it."
        )
    owners: dict[str, str] = {}
    for name in dict.fromkeys(data.groups()):
        if (other := owners.setdefault(_file_name(name), name)) != name:
            raise ValueError(
                f"The groups {other!r} and {name!r} would both be written to the volume {_file_name(name)}: rename one of "
                "them where the measurements come from, or omit --volumes."
            )


def write_volumes(
    folder: Path, kinds: tuple[str, ...], form: Format, geometry: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """folder/nifti/mean-GROUP.nii.gz, or folder/cfl/mean-GROUP.cfl and .hdr; one file a group.

    A NIfTI file has the axes, affine and units of the volume that was measured, if `geometry` knows them. Otherwise, and in a
    .cfl, the axes are (height, width, slices).
    """
    target = folder / form
    target.mkdir(exist_ok=True)
    for kind in kinds:
        signals = Signals(folder / kind)
        for group, stem, positions in _volumes(signals, bool(geometry)):
            planes = signals.raw(positions, Signals(folder / "mean"))[:, 0].numpy()
            if form == "cfl":
                _write_cfl(target, f"{kind}{stem}", np.moveaxis(planes, 0, -1))
                continue
            if signals.header["complex"]:  # magnitudes, and their standard deviations
                planes = planes.real if kind in SPREADS else np.abs(planes)
            _write_nifti(target, f"{kind}{stem}", planes, (geometry or {}).get(group, {}))


def _file_name(group: str) -> str:
    return re.sub(r"[^\w.-]+", "_", group)


def _volumes(signals: Signals, are_placed: bool) -> Iterator[tuple[str, str, np.ndarray]]:
    """Samples of one group together, with the name of the group and the ending of its file.

    If each sample is a group, and none has a place in space, all are together.
    """
    groups = np.array(signals.groups())
    names: Sequence[str] = list(dict.fromkeys(groups.tolist()))
    if len(names) == len(groups) and not are_placed:
        yield "", "", np.arange(len(groups))
        return
    for name in names:
        yield name, f"-{_file_name(name)}", np.flatnonzero(groups == name)


def _write_nifti(folder: Path, stem: str, planes: np.ndarray, geometry: Mapping[str, Any]) -> None:
    nibabel = optional("nibabel")
    if "affine" in geometry:
        volume, affine = assemble(planes, geometry), np.array(geometry["affine"])
    else:
        volume, affine = np.moveaxis(planes, 0, -1), np.eye(4)
    image = nibabel.Nifti1Image(volume.astype(np.float32), affine)
    if "affine" in geometry:
        qform, sform = geometry["codes"]
        image.set_qform(affine, qform)
        image.set_sform(affine, sform if sform or qform else 1)
        image.header.set_xyzt_units(*geometry["units"])
        if geometry["steps"]:
            image.header.set_zooms((*image.header.get_zooms()[:3], *geometry["steps"]))
    temporary = folder / f".{stem}.tmp.nii.gz"  # nibabel compresses by this suffix
    nibabel.save(image, temporary)
    temporary.replace(folder / f"{stem}.nii.gz")


def _write_cfl(folder: Path, stem: str, volume: np.ndarray) -> None:
    """BART's own: dimensions in a text, values as complex64 with the first dimension fastest."""
    temporary = folder / f".{stem}.tmp"
    temporary.write_bytes(volume.astype("<c8").tobytes(order="F"))
    (folder / f"{stem}.hdr").write_text("# Dimensions\n" + " ".join(map(str, volume.shape)) + "\n")
    temporary.replace(folder / f"{stem}.cfl")
