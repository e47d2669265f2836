"""Restorations as volumes for other tools: NIfTI (magnitudes) or BART's .cfl (complex), in the units of the raw data."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from gsure.data.measurements import Signals

Format = Literal["nifti", "cfl"]


def check_volumes(shape: tuple[int, ...], is_complex: bool) -> None:
    """Raise an error if signals of this shape have more channels than a voxel has numbers."""
    if len(shape) != 3 or shape[0] != (2 if is_complex else 1):
        kind = "complex" if is_complex else "real"
        raise ValueError(
            f"--volumes takes images of one channel, real or complex, but these are {kind}, of shape {shape}: omit it."
        )


def write_volumes(folder: Path, kinds: tuple[str, ...], form: Format) -> None:
    """folder/nifti/mean-GROUP.nii.gz, or folder/cfl/mean-GROUP.cfl and .hdr, of (height, width, slices); one file a group."""
    target = folder / form
    target.mkdir(exist_ok=True)
    for kind in kinds:
        signals = Signals(folder / kind)
        for name, positions in _volumes(signals):
            volume = np.moveaxis(signals.raw(positions)[:, 0].numpy(), 0, -1)
            if form == "nifti":
                _write_nifti(target, f"{kind}{name}", np.abs(volume) if signals.header["complex"] else volume)
            else:
                _write_cfl(target, f"{kind}{name}", volume)


def _volumes(signals: Signals) -> Iterator[tuple[str, np.ndarray]]:
    """Samples of one group together; if each is a group of its own, all in one."""
    groups = np.array(signals.groups())
    names = list(dict.fromkeys(groups.tolist()))
    if len(names) == len(groups):
        yield "", np.arange(len(groups))
        return
    for name in names:
        yield "-" + re.sub(r"[^\w.-]+", "_", name), np.flatnonzero(groups == name)


def _write_nifti(folder: Path, stem: str, volume: np.ndarray) -> None:
    try:
        import nibabel
    except ImportError as error:
        raise ValueError("NIfTI needs nibabel: pip install 'gsure-diffusion[formats]'.") from error
    temporary = folder / f".{stem}.tmp.nii.gz"  # nibabel compresses by this suffix
    nibabel.save(nibabel.Nifti1Image(volume.astype(np.float32), np.eye(4)), temporary)
    temporary.replace(folder / f"{stem}.nii.gz")


def _write_cfl(folder: Path, stem: str, volume: np.ndarray) -> None:
    """BART's own: dimensions in a text, values as complex64 with the first dimension fastest."""
    temporary = folder / f".{stem}.tmp"
    temporary.write_bytes(volume.astype("<c8").tobytes(order="F"))
    (folder / f"{stem}.hdr").write_text("# Dimensions\n" + " ".join(map(str, volume.shape)) + "\n")
    temporary.replace(folder / f"{stem}.cfl")
