"""Restorations as volumes for other tools: NIfTI (magnitudes) or BART's .cfl (complex), in the units of the raw data."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from gsure.store import Signals

Format = Literal["nifti", "cfl"]


def write_volumes(folder: Path, kinds: tuple[str, ...], form: Format) -> None:
    """folder/nifti/mean-GROUP.nii.gz, or folder/cfl/mean-GROUP.cfl and .hdr, of (height, width, slices); one file a group."""
    target = folder / form
    target.mkdir(exist_ok=True)
    for kind in kinds:
        signals = Signals(folder / kind)
        for name, positions in _volumes(signals):
            x = signals[positions].numpy() * signals.scales()[positions].reshape(-1, 1, 1, 1)
            stem = f"{kind}{name}"
            if form == "nifti":
                _write_nifti(target, stem, np.moveaxis(_magnitude(x, signals.header["complex"]), 0, -1))
            else:
                pairs = x[:, 0] + 1j * x[:, 1] if signals.header["complex"] else x[:, 0].astype(np.complex64)
                _write_cfl(target, stem, np.moveaxis(pairs, 0, -1))


def _volumes(signals: Signals) -> Iterator[tuple[str, np.ndarray]]:
    """Samples of one group together; if each is a group of its own, all in one."""
    groups = np.array(signals.groups())
    names = list(dict.fromkeys(groups.tolist()))
    if len(names) == len(groups):
        yield "", np.arange(len(groups))
        return
    for name in names:
        yield "-" + re.sub(r"[^\w.-]+", "_", name), np.flatnonzero(groups == name)


def _magnitude(x: np.ndarray, is_complex: bool) -> np.ndarray:
    return np.linalg.norm(x, axis=1) if is_complex else x[:, 0]


def _write_nifti(folder: Path, stem: str, volume: np.ndarray) -> None:
    try:
        import nibabel
    except ImportError as error:
        raise ValueError("NIfTI needs nibabel: pip install 'gsure-diffusion[formats]'.") from error
    temporary = folder / f".{stem}.tmp.nii.gz"  # its ending tells nibabel to compress
    nibabel.save(nibabel.Nifti1Image(volume.astype(np.float32), np.eye(4)), temporary)
    temporary.replace(folder / f"{stem}.nii.gz")


def _write_cfl(folder: Path, stem: str, volume: np.ndarray) -> None:
    """BART's own: dimensions in a text, values as complex64 with the first dimension fastest."""
    temporary = folder / f".{stem}.tmp"
    temporary.write_bytes(volume.astype("<c8").tobytes(order="F"))
    (folder / f"{stem}.hdr").write_text("# Dimensions\n" + " ".join(map(str, volume.shape)) + "\n")
    temporary.replace(folder / f"{stem}.cfl")
