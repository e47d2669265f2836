"""What the tests of import share: k-space in the layouts of fastMRI and BART, and how to run a command."""

from pathlib import Path

import h5py
import numpy as np

import gsure
from gsure import cli

HEADER = """<?xml version="1.0"?>
<ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD"><encoding>
<encodedSpace><matrixSize><x>{rows}</x><y>{columns}</y><z>1</z></matrixSize>
<fieldOfView_mm><x>280</x><y>{fov}</y><z>4.5</z></fieldOfView_mm></encodedSpace>
<reconSpace><matrixSize><x>{kept}</x><y>{kept}</y><z>1</z></matrixSize>
<fieldOfView_mm><x>140</x><y>140</y><z>4.5</z></fieldOfView_mm></reconSpace>{limits}
</encoding></ismrmrdHeader>"""


def heads(n, rows, columns):
    """Complex phantoms, all of which lie in the middle half of the rows."""
    source = gsure.open_source("phantom", size=rows // 2, n=n)
    x = np.stack([source[k].x[0] + 1j * source[k].x[1] for k in range(n)])
    extra = columns - rows // 2
    return np.pad(x, [(0, 0), (rows // 4, rows // 4), (extra // 2, extra - extra // 2)])


def spectrum(image, axes=(-2, -1)):
    """The centred orthonormal Fourier transform as a sum, so that the import is not tested against its own FFT."""
    for axis in axes:
        n = image.shape[axis]
        k = np.arange(n) - n // 2
        matrix = np.exp(-2j * np.pi * np.outer(k, k) / n) / n**0.5
        image = np.moveaxis(np.tensordot(matrix, image, (1, axis)), 0, axis)
    return image.astype(np.complex64)


def normal(rng, *shape):
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64)


LIMITS = """<encodingLimits><kspace_encoding_step_1><minimum>0</minimum><maximum>{maximum}</maximum>
<center>{centre}</center></kspace_encoding_step_1></encodingLimits>"""


def write_fastmri(path, kspace, mask, header=True, limits=""):
    """As in fastMRI's test set."""
    path.parent.mkdir(exist_ok=True)
    rows, columns = kspace.shape[-2:]
    with h5py.File(path, "w") as file:
        file["kspace"] = np.where(mask, kspace, 0).astype(np.complex64)
        file["mask"] = mask.astype(np.float32)
        if header:
            text = HEADER.format(rows=rows, columns=columns, kept=rows // 2, fov=280 * columns / rows, limits=limits)
            file["ismrmrd_header"] = text
        file.attrs["acquisition"] = "CORPD_FBK"


def write_cfl(name, values):
    Path(f"{name}.hdr").write_text("# Dimensions\n" + " ".join(map(str, values.shape)) + "\n")
    Path(f"{name}.cfl").write_bytes(values.astype("<c8").tobytes(order="F"))


def run(capsys, *words):
    """What it printed, to either stream."""
    capsys.readouterr()
    assert cli.main([str(word) for word in words]) == 0, capsys.readouterr().err
    printed = capsys.readouterr()
    return printed.out + printed.err


def complaint(capsys, *words):
    capsys.readouterr()
    assert cli.main([str(word) for word in words]) == 2
    message = capsys.readouterr().err
    assert "Traceback" not in message
    assert not list(Path().rglob("out*.h5"))
    return message


def lines_mask(rng, columns):
    mask = rng.random(columns) < 0.4
    mask[columns // 2 - 3 : columns // 2 + 3] = True
    return mask
