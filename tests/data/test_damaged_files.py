"""Damaged and hostile files of every format: one sentence, nothing written, and no memory for what a header only promises."""

import gzip
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import h5py
import nibabel
import numpy as np
import pydicom
import pytest
import tifffile
from PIL import Image

from gsure import cli

RNG = np.random.Generator(np.random.PCG64(5))
VOLUME = RNG.normal(100, 5, (12, 10, 5)).astype(np.float32)
MOST = 50e6
"""Bytes that may be allocated for a file of a few kilobytes."""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def complaint(capsys, kind, path, *words) -> str:
    """The one sentence in which a file is refused."""
    capsys.readouterr()
    tracemalloc.start()
    code = cli.main(["import", kind, str(path), "out.h5", "--sigma", "1", *words])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    message = [line for line in capsys.readouterr().err.splitlines() if line.startswith("gsure import: ")]
    assert code == 2
    assert peak < MOST
    assert not list(Path().glob("*out*"))
    (sentence,) = message
    return sentence


# Headers that promise more than the file holds


def npy(file, shape):
    text = f"{{'descr': '<c8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (63 - (10 + len(text)) % 64) + b"\n"
    file.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(100))


def npz(file, shape):
    npy(file.with_suffix(".npy"), shape)
    with zipfile.ZipFile(file, "w") as archive:
        archive.write(file.with_suffix(".npy"), "k.npy")


def nifti(file, shape):
    header = nibabel.Nifti1Header()
    header.set_data_dtype(np.float32)
    header.set_data_shape((1, 1, 1))
    block = bytearray(header.binaryblock)
    block[40:56] = struct.pack("<8h", len(shape), *shape, *[1] * (7 - len(shape)))
    values = bytes(block) + bytes(104)
    file.write_bytes(gzip.compress(values) if file.suffix == ".gz" else values)


def fastmri(file, shape):
    with h5py.File(file, "w") as volume:
        volume.create_dataset("kspace", shape, np.complex64, chunks=(1, 64, 64))
        volume["mask"] = np.ones(shape[-1], np.float32)


def cfl(file, shape):
    file.with_suffix(".hdr").write_text("# Dimensions\n" + " ".join(map(str, shape)) + "\n")
    file.write_bytes(bytes(100))


@pytest.mark.parametrize(
    ("kind", "name", "write", "shape"),
    [
        ("array", "a.npy", npy, (2**40, 2**40, 2**40)),
        ("array", "b.npy", npy, (4096, 512, 512)),
        ("array", "c.npz", npz, (2048, 512, 512)),
        ("array", "d.h5", fastmri, (10**9, 64, 64)),
        ("fastmri", "e.h5", fastmri, (4, 40_000, 40_000)),
        ("nifti", "f.nii", nifti, (32_000, 32_000, 32_000, 32_000)),
        ("nifti", "g.nii.gz", nifti, (1024, 1024, 2000)),
        ("cfl", "h.cfl", cfl, (10**6, 10**6, 10**6)),
    ],
)
def test_no_memory_is_allocated_for_what_a_header_only_promises(here, capsys, kind, name, write, shape):
    write(here / name, shape)
    key = ["--key", "kspace"] if name == "d.h5" else []
    sentence = complaint(capsys, kind, name, *key)
    assert name in sentence
    assert "promises" in sentence
    assert sentence.endswith("copy it again.")


def test_huge_images_are_refused_without_a_warning(here, capsys):
    def chunk(kind, values):
        return struct.pack(">I", len(values)) + kind + values + struct.pack(">I", zlib.crc32(kind + values))

    size = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    Path("i.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IEND", b""))
    assert "i.png cannot be read as an image (Image size (3600000000 pixels)" in complaint(capsys, "images", "i.png")


# Damaged values


def test_the_checksum_of_a_compressed_volume_is_verified(here, capsys):
    Path("v").mkdir()
    for name in ("a", "b", "c"):
        nibabel.save(nibabel.Nifti1Image(VOLUME, np.eye(4)), f"v/{name}.nii.gz")
    values = bytearray(Path("v/b.nii.gz").read_bytes())
    values[-8] ^= 255  # of the checksum at the end
    Path("v/b.nii.gz").write_bytes(bytes(values))
    assert "v/b.nii.gz cannot be read (CRC check failed" in complaint(capsys, "nifti", "v")


@pytest.mark.parametrize("tag", [256, 257, 258, 279])
def test_a_tiff_file_with_a_damaged_tag_is_refused_by_name(here, capsys, tag):
    """Each of these made the reader raise another kind of error."""
    tifffile.imwrite("s.tif", VOLUME.transpose(2, 0, 1).astype(np.uint16), photometric="minisblack", compression="zlib")
    values = bytearray(Path("s.tif").read_bytes())
    (first,) = struct.unpack("<I", values[4:8])
    (many,) = struct.unpack("<H", values[first : first + 2])
    at = next(
        start
        for start in range(first + 2, first + 2 + 12 * many, 12)
        if struct.unpack("<H", values[start : start + 2]) == (tag,)
    )
    values[at + 2 : at + 12] = b"\xff" * 10
    Path("s.tif").write_bytes(bytes(values))
    assert "s.tif" in complaint(capsys, "tiff", "s.tif")


def test_a_dicom_tag_that_cannot_be_read_is_named(here, capsys):
    meta = pydicom.dataset.FileMetaDataset()
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    image = pydicom.dataset.FileDataset("i.dcm", {}, file_meta=meta, preamble=bytes(128))
    image.SOPClassUID, image.SOPInstanceUID, image.SeriesInstanceUID = "1.2.840.10008.5.1.4.1.1.4", "1.2.3.4", "1.2.3"
    image.Rows, image.Columns, image.BitsAllocated, image.BitsStored, image.HighBit = 4, 4, 16, 16, 15
    image.PixelRepresentation, image.SamplesPerPixel, image.PhotometricInterpretation = 0, 1, "MONOCHROME2"
    image.PixelData = bytes(32)
    image.ImagePositionPatient = [1, 2]
    image.save_as("i.dcm", enforce_file_format=True)
    sentence = complaint(capsys, "dicom", "i.dcm")
    assert "i.dcm has ImagePositionPatient [1.0, 2.0], which cannot be read: fix or remove it." in sentence


HEADER = """<h><encoding><encodedSpace><fieldOfView_mm><x>{whole}</x><y>1</y></fieldOfView_mm></encodedSpace>
<reconSpace><fieldOfView_mm><x>140</x><y>1</y></fieldOfView_mm></reconSpace><encodingLimits><kspace_encoding_step_1>
<maximum>{last}</maximum><center>20</center></kspace_encoding_step_1></encodingLimits></encoding></h>"""


@pytest.mark.parametrize(("whole", "last"), [(-280, 39), (0, 39), ("nan", 39), (1e9, 39), (280, -5), (280, "x")])
def test_a_header_of_fastmri_that_makes_no_sense_is_refused(here, capsys, whole, last):
    with h5py.File("f.h5", "w") as volume:
        volume["kspace"] = (RNG.normal(size=(2, 32, 40)) + 0j).astype(np.complex64)
        volume["mask"] = np.ones(40, np.float32)
        volume["ismrmrd_header"] = HEADER.format(whole=whole, last=last)
    sentence = complaint(capsys, "fastmri", "f.h5")
    assert "The ismrmrd_header of f.h5 has no field of view or no limits that make sense" in sentence


def test_a_link_to_nowhere_is_listed_with_the_other_problems(here, capsys):
    Path("p").mkdir()
    Image.fromarray(np.full((8, 8), 9, np.uint8)).save("p/a.png")
    Path("p/b.png").write_bytes(b"")
    Path("p/c.png").symlink_to("nowhere.png")
    assert "2 problems to fix first" in complaint(capsys, "images", "p")


def test_real_values_are_not_taken_for_kspace(here, capsys):
    np.save("x.npy", RNG.normal(size=(3, 16, 16)))
    sentence = complaint(capsys, "array", "x.npy")
    assert (
        "The values of x.npy are real, but k-space is complex: type --basis Identity if they are images, or" in sentence
    )


def test_each_volume_without_noise_is_named(here, capsys):
    Path("v").mkdir()
    for name, values in (("flat", np.full((32, 32, 4), 7, np.float32)), ("noisy", RNG.normal(50, 3, (32, 32, 4)))):
        nibabel.save(nibabel.Nifti1Image(values.astype(np.float32), np.eye(4)), f"v/{name}.nii")
    assert cli.main(["import", "nifti", "v", "out.h5", "--sigma", "estimate"]) == 2
    message = capsys.readouterr().err
    assert "v/flat.nii: " in message
    assert "noisy" not in message
