"""Restorations as volumes for other tools: NIfTI (magnitudes) or BART's .cfl (complex), in the units of the raw data.

Complex signals were divided by a scale; intensities, as of NIfTI and DICOM, were mapped from low..high to -1..1.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

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


def write_volumes(folder: Path, kinds: tuple[str, ...], form: Format, source: Mapping[str, Any]) -> None:
    """folder/nifti/mean-GROUP.nii.gz, or folder/cfl/mean-GROUP.cfl and .hdr, of (height, width, slices); one file a group.

    `source` is what the header of the measurements says of where they came from.
    """
    target = folder / form
    target.mkdir(exist_ok=True)
    for kind in kinds:
        signals = Signals(folder / kind)
        for name, positions in _volumes(signals):
            x, scales = signals[positions].numpy(), signals.scales()[positions].reshape(-1, 1, 1, 1)
            if _is_intensity(source, signals.header["complex"]):
                x = x * scales / 2 if kind == "std" else (x + 1) * scales / 2 + _low(source)
            else:
                x = x * scales
            stem = f"{kind}{name}"
            if form == "nifti":
                _write_nifti(target, stem, np.moveaxis(_magnitude(x, signals.header["complex"]), 0, -1))
            else:
                pairs = x[:, 0] + 1j * x[:, 1] if signals.header["complex"] else x[:, 0].astype(np.complex64)
                _write_cfl(target, stem, np.moveaxis(pairs, 0, -1))


def _is_intensity(source: Mapping[str, Any], is_complex: bool) -> bool:
    """Whether signals were mapped to -1..1, and not only divided."""
    unsigned = source.get("kind") == "array" and str(source.get("dtype")).startswith(("bool", "uint"))
    return not is_complex and (source.get("kind") in ("nifti", "dicom") or unsigned)


def _low(source: Mapping[str, Any]) -> float:
    """What became -1."""
    options = source.get("options")
    window = options.get("window") if isinstance(options, dict) else None
    return float(window[0]) if window else 0.0


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
    temporary = folder / f".{stem}.tmp.nii.gz"  # nibabel compresses by this suffix
    nibabel.save(nibabel.Nifti1Image(volume.astype(np.float32), np.eye(4)), temporary)
    temporary.replace(folder / f"{stem}.nii.gz")


def _write_cfl(folder: Path, stem: str, volume: np.ndarray) -> None:
    """BART's own: dimensions in a text, values as complex64 with the first dimension fastest."""
    temporary = folder / f".{stem}.tmp"
    temporary.write_bytes(volume.astype("<c8").tobytes(order="F"))
    (folder / f"{stem}.hdr").write_text("# Dimensions\n" + " ".join(map(str, volume.shape)) + "\n")
    temporary.replace(folder / f"{stem}.cfl")
