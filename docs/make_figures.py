"""Makes every figure of these pages, by the commands that the pages themselves show.

    python docs/make_figures.py [--fashion FOLDER] [--nilearn FOLDER] [PAGE ...]

A page is run from top to bottom in an empty folder: its Python, and its `$ gsure ...` lines. A PNG that a command of
docs/sources/idx.md makes goes to docs/figures/sources/. PAGE is a page without ending, such as
sources/idx; all, if none is given. Two pages use real data, which is not shipped:

    --fashion   where `dpkg -x dataset-fashion-mnist*.deb` put the Debian package (here: fashion)
    --nilearn   the folder with nilearn's datasets/data (here: nilearn, or where the package is installed)

Formats whose data may not be passed on are shown on small files that are written here in the same layout.
"""

import argparse
import contextlib
import importlib.util
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import h5py
import numpy as np
from PIL import Image, ImageDraw

import gsure
from gsure.cli import main as run

DOCS = Path(__file__).parent
FEWER = 100 / 150
"""`gsure inspect` draws 150 dots an inch."""


class Step(NamedTuple):
    """Python to run, or a command and the lines that the page shows of its output."""

    code: str
    shown: tuple[str, ...] = ()
    is_command: bool = False


def pages() -> list[str]:
    """Every page about data, without ending."""
    return [
        "data",
        *sorted(f"{p.parent.name}/{p.stem}" for k in ("sources", "corruptions") for p in DOCS.glob(f"{k}/*.md")),
    ]


def steps(page: str) -> Iterator[Step]:
    """What a page tells its reader to do, in order. Commands other than ours (apt-get, pip) are left to the reader."""
    text = (DOCS / f"{page}.md").read_text()
    for kind, block in re.findall(r"^```(python|console)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        if kind == "python":
            yield Step(block)
            continue
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *output = part.replace("\\\n", " ").splitlines()
            if command.startswith("gsure "):
                yield Step(command, tuple(line for line in output if line.strip()), is_command=True)


def run_page(page: str) -> Iterator[tuple[Step, str]]:
    """Each step with what it printed, in the current folder."""
    scope: dict[str, Any] = {"__name__": "page"}
    for step in steps(page):
        printed = io.StringIO()
        wide = mock.patch.dict(os.environ, COLUMNS="1000")  # no line is broken
        with wide, contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            if step.is_command:
                run(shlex.split(step.code)[1:])
            else:
                exec(compile(step.code, f"docs/{page}.md", "exec"), scope)  # noqa: S102
        yield step, printed.getvalue()


def differences(step: Step, printed: str) -> list[str]:
    """Lines that the page shows and the command did not print. Padding does not count."""
    told = [" ".join(line.split()) for line in printed.splitlines()]
    return [line for line in step.shown if line.strip() != "..." and " ".join(line.split()) not in told]


def shrink(picture: Path, target: Path) -> None:
    """As drawn, without transparency; with fewer dots where that would be over 200 kB."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(picture) as image:
        drawn = image.convert("RGB")
    drawn.save(target, optimize=True)
    if target.stat().st_size > 200_000:
        size = (round(drawn.width * FEWER), round(drawn.height * FEWER))
        drawn.resize(size, Image.Resampling.LANCZOS).save(target, optimize=True)


# Small files in each layout.


def phantoms(n: int, size: int) -> np.ndarray:
    """Complex (n, size, size)."""
    x = np.stack([sample.x for sample in map(gsure.sources.Phantom(size=size, n=n).__getitem__, range(n))])
    return x[:, 0] + 1j * x[:, 1]


def spectra(images: np.ndarray) -> np.ndarray:
    """The centred orthonormal Fourier transform."""
    axes = (-2, -1)
    return np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(images, axes), norm="ortho"), axes).astype(np.complex64)


def padded(images: np.ndarray, height: int, width: int) -> np.ndarray:
    """With zeros around."""
    missing = (height - images.shape[-2], width - images.shape[-1])
    return np.pad(images, [(0, 0), *((m // 2, m - m // 2) for m in missing)])


def crops(n: int, height: int, width: int) -> list[np.ndarray]:
    """Chunks of the two photographs that come with scikit-learn, in colour."""
    from sklearn.datasets import load_sample_images

    rng = np.random.Generator(np.random.PCG64(0))
    photographs = load_sample_images().images
    corners = [(rng.integers(0, 427 - height), rng.integers(0, 640 - width)) for _ in range(n)]
    return [photographs[k % 2][top : top + height, left : left + width] for k, (top, left) in enumerate(corners)]


def write_photographs() -> None:
    for k, crop in enumerate(crops(24, 240, 320)):
        folder = Path("photographs", f"roll-{1 + k // 4}")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(crop).save(folder / f"{1 + k % 4}.jpg", quality=92)


def write_array() -> None:
    pieces = [
        Image.fromarray(crop).convert("L").resize((32, 32), Image.Resampling.BOX) for crop in crops(200, 288, 288)
    ]
    np.save("chunks.npy", np.stack([np.asarray(piece) for piece in pieces]))
    slices = spectra(padded(phantoms(8, 40), 48, 40)).reshape(2, 1, 4, 48, 40)
    with h5py.File("raw.h5", "w") as file:
        file["kspace"] = lines(40) * slices * np.array([1, 0.5j, 0.3])[:, None, None, None]


def write_frames() -> None:
    """Crops of photographs as a detector counts them: up to 60 photons a pixel, gain 2.2; 40 frames of 128 × 128."""
    import tifffile

    rng = np.random.Generator(np.random.PCG64(2))
    crop = [Image.fromarray(one).convert("L").resize((128, 128), Image.Resampling.BOX) for one in crops(40, 384, 384)]
    counts = np.stack([np.asarray(one, np.float64) for one in crop]) / 255 * 60
    tifffile.imwrite("frames.tif", (2.2 * rng.poisson(counts)).astype(np.float32), photometric="minisblack")


def write_faces() -> None:
    """Drawn ones, where eyes and mouth of the aligned photographs are."""
    Path("celeba/img_align_celeba").mkdir(parents=True)
    rng, lines = np.random.Generator(np.random.PCG64(1)), []
    for k in range(1, 13):
        dark, fair = rng.uniform(0.5, 1), rng.uniform(0.05, 0.45)
        skin = tuple(int(dark * c) for c in (255, 215, 180))
        hair = tuple(int(fair * c) for c in (225, 180, 110))
        ground, eyes = (tuple(rng.integers(low, high, 3).tolist()) for low, high in ((60, 220), (0, 90)))
        image = Image.new("RGB", (178, 218), ground)
        draw, wide, long = ImageDraw.Draw(image), int(rng.integers(42, 54)), int(rng.integers(62, 76))
        draw.ellipse((89 - wide - 9, 120 - long - 16, 89 + wide + 9, 120 + long - 12), fill=hair)
        draw.ellipse((89 - wide, 124 - long, 89 + wide, 124 + long), fill=skin)
        for x in (69, 108):
            draw.ellipse((x - 8, 107, x + 8, 117), fill=(245, 245, 245))
            draw.ellipse((x - 4, 108, x + 4, 116), fill=eyes)
        draw.line((89, 118, 84, 136, 91, 138), fill=hair, width=2)
        draw.arc((72, 138, 106, 138 + int(rng.integers(14, 30))), 10, 170, fill=(170, 40, 50), width=4)
        image.save(f"celeba/img_align_celeba/{k:06d}.jpg", quality=92)
        lines.append(f"{k:06d}.jpg {0 if k <= 8 else 1 if k <= 10 else 2}\n")
    Path("celeba/list_eval_partition.txt").write_text("".join(lines))


def lines(width: int) -> np.ndarray:
    """A mask of every third column and the centre."""
    column = np.arange(width)
    return ((column % 3 == 0) | (np.abs(column - width // 2) < width // 20)).astype(np.float32)


def write_fastmri() -> None:
    """One volume of 16 slices, the last six of which are wanted; and a test set with two widths."""
    Path("knees/singlecoil_train").mkdir(parents=True)
    with h5py.File("knees/singlecoil_train/file1000001.h5", "w") as file:
        kspace = file.create_dataset("kspace", (16, 640, 368), np.complex64, chunks=(1, 640, 368))
        kspace[10:] = spectra(7e-5 * padded(phantoms(6, 320), 640, 368))
    Path("knees/singlecoil_test").mkdir()
    for name, n, width in (("file1000002", 4, 368), ("file1000003", 3, 372)):
        with h5py.File(f"knees/singlecoil_test/{name}.h5", "w") as file:
            file["mask"] = lines(width)
            file["kspace"] = lines(width) * spectra(7e-5 * padded(phantoms(n, 320), 640, width))


def write_dicom() -> None:
    import pydicom
    from pydicom.uid import ExplicitVRLittleEndian, MRImageStorage

    Path("series").mkdir()
    for at, plane in enumerate(np.abs(phantoms(12, 128))):
        data = pydicom.Dataset()
        data.file_meta = pydicom.dataset.FileMetaDataset()
        data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        data.file_meta.MediaStorageSOPClassUID = data.SOPClassUID = MRImageStorage
        data.file_meta.MediaStorageSOPInstanceUID = data.SOPInstanceUID = f"1.2.826.0.1.3680043.8.498.1.{at + 1}"
        data.SeriesInstanceUID, data.InstanceNumber = "1.2.826.0.1.3680043.8.498.1", at + 1
        data.ImagePositionPatient, data.ImageOrientationPatient = [0, 0, 3 * at], [1, 0, 0, 0, 1, 0]
        data.Rows, data.Columns, data.SamplesPerPixel, data.PhotometricInterpretation = 128, 128, 1, "MONOCHROME2"
        data.BitsAllocated, data.BitsStored, data.HighBit, data.PixelRepresentation = 16, 16, 15, 0
        data.PixelData = (plane * 1000).astype("<u2").tobytes()
        data.save_as(f"series/IM{at:04d}.dcm", enforce_file_format=True)


def write_cfl() -> None:
    images = np.moveaxis(phantoms(24, 96), 0, -1)
    Path("heads.hdr").write_text(f"# Dimensions\n{' '.join(map(str, images.shape))}\n")
    Path("heads.cfl").write_bytes(images.astype("<c8").tobytes(order="F"))
    kspace = lines(96)[:, None] * spectra(phantoms(1, 96))[0, ..., None] * np.array([1, 0.5j, 0.3, -0.2])
    Path("kspace.hdr").write_text("# Dimensions\n1 96 96 4\n")
    Path("kspace.cfl").write_bytes(kspace[None].astype("<c8").tobytes(order="F"))


ISMRMRD_HEADER = """<?xml version="1.0"?>
<ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD">
 <experimentalConditions><H1resonanceFrequency_Hz>63500000</H1resonanceFrequency_Hz></experimentalConditions>
 <encoding>
  <encodedSpace><matrixSize><x>192</x><y>96</y><z>1</z></matrixSize>
   <fieldOfView_mm><x>480</x><y>240</y><z>5</z></fieldOfView_mm></encodedSpace>
  <reconSpace><matrixSize><x>96</x><y>96</y><z>1</z></matrixSize>
   <fieldOfView_mm><x>240</x><y>240</y><z>5</z></fieldOfView_mm></reconSpace>
  <encodingLimits><kspace_encoding_step_1><minimum>0</minimum><maximum>95</maximum><center>48</center>
   </kspace_encoding_step_1></encodingLimits>
  <trajectory>cartesian</trajectory>
 </encoding>
</ismrmrdHeader>"""


def write_ismrmrd() -> None:
    """Readouts twice as long as the field of view that is wanted, as scanners take them."""
    import ismrmrd

    with ismrmrd.Dataset("scan.mrd", "dataset", mode="w") as dataset:
        dataset.write_xml_header(ISMRMRD_HEADER.encode())
        for at, kspace in enumerate(spectra(padded(phantoms(8, 96), 192, 96))):
            for line in range(96):
                readout = ismrmrd.Acquisition.from_array(np.ascontiguousarray(kspace[None, :, line]))
                readout.center_sample, readout.idx.kspace_encode_step_1, readout.idx.slice = 96, line, at
                dataset.append_acquisition(readout)


WRITERS: dict[str, Callable[[], None]] = {
    "sources/array": write_array,
    "sources/images": write_photographs,
    "sources/tiff": write_frames,
    "sources/celeba": write_faces,
    "sources/fastmri": write_fastmri,
    "sources/dicom": write_dicom,
    "sources/cfl": write_cfl,
    "sources/ismrmrd": write_ismrmrd,
    "corruptions/channels": write_photographs,
}
REAL = {"sources/idx": "fashion", "sources/nifti": "nilearn"}


def make(page: str, real: dict[str, Path]) -> None:
    """Run a page in an empty folder and keep its figures."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        if page in REAL:
            Path(REAL[page]).symlink_to(real[REAL[page]])
        WRITERS.get(page, lambda: None)()
        for step, printed in run_page(page):
            for line in differences(step, printed):
                sys.stdout.write(f"{page}: {step.code.strip()} did not print {line!r}, but\n{printed}\n")
        for picture in sorted(Path().glob("*.png")):
            target = DOCS / "figures" / Path(page).parent / picture.name
            shrink(picture, target)
            sys.stdout.write(f"{page}: {target.relative_to(DOCS)}, {target.stat().st_size // 1000} kB\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", default=[], metavar="PAGE")
    parser.add_argument("--fashion", type=Path, default=Path("fashion"))
    parser.add_argument("--nilearn", type=Path, default=Path("nilearn"))
    chosen = parser.parse_args()
    installed = importlib.util.find_spec("nilearn")
    if not chosen.nilearn.is_dir() and installed is not None and installed.origin is not None:
        chosen.nilearn = Path(installed.origin).parent
    real = {"fashion": chosen.fashion.resolve(), "nilearn": chosen.nilearn.resolve()}
    for page in chosen.pages or pages():
        if page in REAL and not real[REAL[page]].is_dir():
            sys.stdout.write(
                f"{page}: left as it is, for {real[REAL[page]]} is not there; the page says how to get it.\n"
            )
            continue
        make(page, real)


if __name__ == "__main__":
    main()
