"""Noisy images as measurements: TIFF stacks, image files, NIfTI and DICOM; not-measured pixels; noise maps."""

import json
from pathlib import Path

import nibabel
import numpy as np
import pydicom
import pytest
import skimage
import tifffile
import torch
from PIL import Image

import gsure
from gsure import cli
from gsure.data.sources import Images, Tiff, guess_kind

RNG = np.random.Generator(np.random.PCG64(5))
STACK = RNG.integers(0, 4000, (5, 12, 16)).astype(np.uint16)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words) -> None:
    assert cli.main([str(word) for word in words]) == 0, words


def complaint(capsys, *words) -> str:
    assert cli.main([str(word) for word in words]) == 2, words
    message = capsys.readouterr().err
    assert "Traceback" not in message
    return message


def raw(data) -> np.ndarray:
    """What was measured, in the units of the file."""
    return data[:].ybar.numpy() * data.scales().reshape(-1, 1, 1, 1)


# TIFF


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("shaped.tif", {}),
        ("imagej.tif", {"imagej": True, "metadata": {"axes": "ZYX"}}),
        ("compressed.tiff", {"compression": "zlib"}),
        ("volume.ome.tif", {"metadata": {"axes": "ZYX"}}),
        ("time.tif", {"imagej": True, "metadata": {"axes": "TYX"}}),
    ],
)
def test_pages_are_samples_or_a_volume_and_never_one_image(here, name, options):
    tifffile.imwrite(name, STACK, **options)
    assert guess_kind(Path(name)) == "tiff"
    samples, volume = Tiff(name), Tiff(name, pages="volume")
    for source, groups in ((samples, 5), (volume, 1)):
        assert (len(source), source.shape) == (5, (1, 12, 16))
        assert len({source[k].group for k in range(5)}) == groups
        for k in range(5):
            np.testing.assert_array_equal(source.raw(k), STACK[k])
            sample = source[k]
            np.testing.assert_allclose(sample.x[0] * sample.scale + sample.offset, STACK[k], atol=0.01)
    assert samples.fingerprint()["taken as"].startswith("samples")
    assert volume.fingerprint()["taken as"].startswith("volume")
    across = Tiff(name, axis=0)
    assert len(across) == 16
    np.testing.assert_array_equal(across.raw(3), np.rot90(np.rot90(np.moveaxis(STACK, 0, -1), -1)[3]))


def test_pages_written_one_by_one_are_read_one_by_one(here):
    with tifffile.TiffWriter("pages.tif") as writer:
        for page in STACK:
            writer.write(page, contiguous=False, metadata=None)
    source = Tiff("pages.tif")
    for k in (4, 0, 2):
        np.testing.assert_array_equal(source.raw(k), STACK[k])


def test_a_real_stack_of_scikit_image_is_read():
    source = Tiff(Path(skimage.__file__).parent / "data" / "multipage.tif")
    assert (len(source), source.shape) == (2, (1, 15, 10))


def test_several_stacks_are_volumes(here):
    Path("stacks").mkdir()
    for name in "ab":
        tifffile.imwrite(f"stacks/{name}.tif", STACK)
    source = Tiff("stacks")
    assert [source[k].group for k in (0, 4, 5, 9)] == ["a", "a", "b", "b"]


def test_corrupt_and_import_read_the_same_stack_and_say_what_pages_are(here, capsys):
    tifffile.imwrite("s.tif", STACK)
    run("corrupt", "s.tif", "c.h5", "--corruption", "noise", "--sigma", 0.1)
    assert "pages 5, taken as samples" in capsys.readouterr().out
    run("import", "tiff", "s.tif", "m.h5", "--sigma", 3, "--pages", "volume", "--json")
    summary = json.loads(capsys.readouterr().out)
    assert summary["source"]["taken as"] == "volume: the pages of a file are one volume"
    data = gsure.open("m.h5")
    assert (len(data), data.groups(), str(data.basis)) == (5, ["s"] * 5, "Identity()")
    np.testing.assert_allclose(raw(data)[:, 0], STACK, rtol=1e-5)
    assert data.max_std * data.scales()[0] == pytest.approx(3)
    run("import", "images", "s.tif", "i.h5", "--sigma", 3)
    np.testing.assert_allclose(raw(gsure.open("i.h5")), raw(data), rtol=1e-6)


def test_bad_stacks_cost_a_sentence(here, capsys):
    with tifffile.TiffWriter("two.tif") as writer:
        writer.write(STACK[0])
        writer.write(STACK[0, :6])
    tifffile.imwrite("rgb.tif", np.zeros((3, 8, 8, 3), np.uint8), photometric="rgb")
    Path("bad.tif").write_bytes(b"nothing")
    with tifffile.TiffWriter("pages.tif") as writer:
        for page in STACK:
            writer.write(page, contiguous=False, metadata=None)
    Path("cut.tif").write_bytes(Path("pages.tif").read_bytes()[:1200])
    Path("mixed").mkdir()
    tifffile.imwrite("mixed/s.tif", STACK)
    Image.fromarray(STACK[0].astype(np.uint8)).save("mixed/p.png")
    for path, message in (
        ("two.tif", "two.tif has pages of different sizes or types (1 of 12×16, 1 of 6×16): save each size in a file"),
        ("rgb.tif", "rgb.tif holds pages in 3 colours, but a stack is gray"),
        ("bad.tif", "bad.tif is not a TIFF file that can be read"),
        ("cut.tif", "cut.tif is not a TIFF file that can be read (a page is missing"),
    ):
        assert message in complaint(capsys, "import", "tiff", path, "x.h5", "--sigma", 1)
    assert "mixed mixes formats: s.tif is a TIFF stack and p.png is not" in complaint(
        capsys, "import", "images", "mixed", "x.h5", "--sigma", 1
    )
    with pytest.raises(ValueError, match=r"s.tif in mixed has 5 pages: read stacks with the source tiff"):
        Images("mixed")[1]
    assert not Path("x.h5").exists()


# Several bad files


def write_dicom(path, values, series, number):
    """A plain MR image."""
    meta = pydicom.dataset.FileMetaDataset()
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    image = pydicom.dataset.FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    image.SOPClassUID, image.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.4", f"{series}.{number}"
    image.SeriesInstanceUID, image.InstanceNumber = series, number
    image.Rows, image.Columns = values.shape
    image.BitsAllocated, image.BitsStored, image.HighBit, image.PixelRepresentation = 16, 16, 15, 0
    image.SamplesPerPixel, image.PhotometricInterpretation = 1, "MONOCHROME2"
    image.PixelData = values.astype("<u2").tobytes()
    image.save_as(path, enforce_file_format=True)


def bad_pictures(folder):
    for name in ("a.png", "good.png", "z.png"):
        Image.fromarray(STACK[0].astype(np.uint8)).save(folder / name)
    (folder / "a.png").write_bytes((folder / "a.png").read_bytes()[:60])
    (folder / "z.png").write_bytes(b"nothing")
    return [
        "a.png in folder cannot be read as an image (",
        "z.png in folder cannot be read as an image (it has another format): fix or remove it.",
    ]


def bad_stacks(folder):
    for name in ("cut", "good", "nan"):
        tifffile.imwrite(folder / f"{name}.tif", STACK.astype(np.float32), photometric="minisblack")
    (folder / "cut.tif").write_bytes(b"nothing")
    tifffile.imwrite(folder / "nan.tif", np.full((2, 12, 16), np.inf, np.float32), photometric="minisblack")
    with tifffile.TiffWriter(folder / "sizes.tif") as writer:
        writer.write(STACK[0])
        writer.write(STACK[0, :6])
    return [
        "folder/cut.tif is not a TIFF file that can be read (",
        "folder/sizes.tif has pages of different sizes or types (1 of 12×16, 1 of 6×16): save each size in a file of its own.",
        "folder/nan.tif, has 192 values that are NaN or infinite: fix or remove it.",
    ]


def bad_volumes(folder):
    volume = np.moveaxis(STACK, 0, -1).astype(np.float32)
    for name, values in (("flat", volume[..., 0]), ("good", volume), ("short", volume)):
        nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), folder / f"{name}.nii")
    (folder / "short.nii").write_bytes((folder / "short.nii").read_bytes()[:2000])
    (folder / "text.nii").write_text("nothing")
    return [
        "folder/flat.nii has shape (12, 16), but a volume needs at least 3 dimensions: use the source array.",
        "folder/text.nii is not a NIfTI file that can be read (",
        "folder/short.nii promises 3,840 bytes of values, but only 2,000 are stored: it is truncated, or its header is "
        + "damaged; copy it again.",
    ]


def bad_series(folder):
    for k in range(3):
        write_dicom(folder / f"good{k}.dcm", STACK[k], "1.2.3", k)
    write_dicom(folder / "large.dcm", STACK[0], "1.2.4", 1)
    write_dicom(folder / "small.dcm", STACK[0, :6], "1.2.4", 2)
    (folder / "text.dcm").write_text("nothing")
    (folder / "good1.dcm").write_bytes((folder / "good1.dcm").read_bytes()[:-100])
    return [
        "folder/text.dcm is not a DICOM file that can be read (",
        "The series 1.2.4 in folder has slices of different sizes: move them to separate folders.",
        "The pixels of folder/good1.dcm cannot be decoded (",
    ]


@pytest.mark.parametrize(
    ("kind", "write"),
    [("images", bad_pictures), ("tiff", bad_stacks), ("nifti", bad_volumes), ("dicom", bad_series)],
)
def test_every_bad_file_of_a_folder_is_listed_with_a_remedy_and_nothing_is_written(here, capsys, kind, write):
    Path("folder").mkdir()
    expected = write(Path("folder"))
    message = complaint(capsys, "import", kind, "folder", "x.h5", "--sigma", 1)
    assert f"{len(expected)} problems to fix first, nothing was written:" in message
    listed = [line for line in message.splitlines() if line.startswith("  - ")]
    assert len(listed) == len(expected)
    for part in expected:
        (line,) = [line for line in listed if part in line]
        assert "): " in line.split(part)[-1] or part.endswith(".")  # the remedy
    for good in ("good.png", "folder/good.", "good0.dcm"):
        assert good not in message
    assert not list(here.glob("x*"))


def test_a_folder_of_bad_pictures_alone_is_listed_too(here, capsys):
    Path("folder").mkdir()
    bad_pictures(Path("folder"))
    Path("folder/good.png").unlink()
    message = complaint(capsys, "import", "images", "folder", "x.h5", "--sigma", 1)
    assert "2 problems to fix first" in message
    for name in "az":
        assert f"{name}.png in folder" in message


def test_a_mask_among_the_images_is_not_taken_for_an_image(here, capsys):
    Path("photos").mkdir()
    for name in ("a.png", "mask.png"):
        Image.fromarray(STACK[0].astype(np.uint8)).save(f"photos/{name}")
    message = complaint(capsys, "import", "images", "photos", "x.h5", "--sigma", 1, "--mask", "photos/mask.png")
    assert "photos/mask.png is in the folder of the images, so it would count as one: move it out of photos." in message


def test_gray_and_colour_pictures_go_to_separate_files(here, capsys):
    Path("photos").mkdir()
    colours = RNG.integers(0, 255, (10, 12, 3)).astype(np.uint8)
    Image.fromarray(colours).save("photos/a.png")
    Image.fromarray(colours[..., 0]).save("photos/b.png")
    run("import", "images", "photos", "m.h5", "--sigma", 5)
    np.testing.assert_allclose(raw(gsure.open("m-3x10x12.h5"))[0], np.moveaxis(colours, -1, 0), rtol=1e-5)
    np.testing.assert_allclose(raw(gsure.open("m-1x10x12.h5"))[0, 0], colours[..., 0], rtol=1e-5)


# Not measured


def test_nan_pixels_and_zeros_of_the_mask_were_not_measured(here):
    values = RNG.normal(5, 1, (3, 8, 8)).astype(np.float32)
    values[0, 2, 3] = np.nan
    tifffile.imwrite("s.tif", values, photometric="minisblack")
    Image.fromarray(np.where(np.arange(64).reshape(8, 8) % 7 == 0, 0, 255).astype(np.uint8)).save("mask.png")
    measured = np.broadcast_to(np.arange(64).reshape(8, 8) % 7 != 0, (3, 8, 8)) & ~np.isnan(values)
    run("import", "tiff", "s.tif", "m.h5", "--sigma", 0.1, "--mask", "mask.png")
    data = gsure.open("m.h5")
    np.testing.assert_array_equal(data[:].mask[:, 0].numpy() == 1, measured)
    np.testing.assert_allclose(raw(data)[:, 0], np.where(measured, values, 0), rtol=1e-5)
    run("import", "tiff", "s.tif", "n.h5", "--sigma", 0.1)
    assert int((gsure.open("n.h5")[:].mask == 0).sum()) == 1


def test_each_sample_may_have_a_mask_of_its_own(here, capsys):
    tifffile.imwrite("s.tif", STACK)
    masks = (RNG.random((5, 12, 16)) < 0.6).astype(np.uint8)
    tifffile.imwrite("masks.tif", masks)
    np.save("masks.npy", masks)
    for file in ("masks.tif", "masks.npy"):
        run("import", "tiff", "s.tif", "m.h5", "--sigma", 1, "--mask", file, "--force")
        np.testing.assert_array_equal(gsure.open("m.h5")[:].mask[:, 0], masks)
    np.save("few.npy", masks[:3])
    np.save("small.npy", masks[0, :4])
    np.save("none.npy", 0 * masks[0])
    for file, message in (
        ("few.npy", "The mask few.npy holds 3 images for 5 samples: give one for all, or one for each"),
        ("small.npy", "The mask small.npy has images of shape (4, 16), but the samples are (12, 16)"),
        ("none.npy", "The mask none.npy measures no pixel"),
    ):
        assert message in complaint(capsys, "import", "tiff", "s.tif", "x.h5", "--sigma", 1, "--mask", file)


def test_a_folder_of_noisy_pictures_keeps_its_units(here):
    Path("photos").mkdir()
    pixels = RNG.integers(0, 255, (4, 10, 12)).astype(np.uint8)
    for k, values in enumerate(pixels):
        Image.fromarray(values).save(f"photos/{k}.png")
    run("import", "images", "photos", "m.h5", "--sigma", 5)
    data = gsure.open("m.h5")
    assert data.groups() == [f"{k}.png" for k in range(4)]
    np.testing.assert_allclose(raw(data)[:, 0], pixels, rtol=1e-5)
    assert data.max_std * data.scales()[0] == pytest.approx(5)
    run("import", "images", "photos/2.png", "one.h5", "--sigma", 5)
    np.testing.assert_allclose(raw(gsure.open("one.h5"))[0, 0], pixels[2], rtol=1e-5)


def test_nifti_volumes_are_imported_real_or_complex(here):
    for name, values in (
        ("real", RNG.normal(100, 10, (7, 9, 4)).astype(np.float32)),
        ("complex", (RNG.normal(size=(7, 9, 4)) + 1j * RNG.normal(size=(7, 9, 4))).astype(np.complex64)),
    ):
        nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), f"{name}.nii.gz")
        run("import", "nifti", f"{name}.nii.gz", f"{name}.h5", "--sigma", 0.5, "--slices", "[1,2]")
        data = gsure.open(f"{name}.h5")
        assert len(data) == 2
        found = gsure.data.measurements.as_complex(torch.from_numpy(raw(data)), name == "complex")[:, 0].numpy()
        np.testing.assert_allclose(found, [np.rot90(values[..., k]) for k in (1, 2)], rtol=1e-5)


# A noise level for each entry


def test_a_noise_map_passes_through_every_importer(here):
    std = RNG.uniform(0.5, 2, (12, 16)).astype(np.float32)
    np.save("std.npy", std)
    tifffile.imwrite("std.tif", std)
    volume = np.moveaxis(np.rot90(STACK, -1, (1, 2)), 0, -1).astype(np.float32)  # so that its slices are the pages
    nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), "v.nii")
    nibabel.save(
        nibabel.Nifti1Image(np.repeat(np.rot90(std, -1)[..., None], 5, 2).astype(np.float32), np.eye(4)), "std.nii"
    )
    tifffile.imwrite("s.tif", STACK)
    np.save("a.npy", 1 + STACK[:, None].astype(np.float32))  # a zero would be missing
    np.save("k.npy", (RNG.normal(size=(5, 12, 16)) + 1j * RNG.normal(size=(5, 12, 16))).astype(np.complex64))
    for kind, path, file, more in (
        ("tiff", "s.tif", "std.npy", []),
        ("tiff", "s.tif", "std.tif", []),
        ("nifti", "v.nii", "std.nii", []),
        ("nifti", "v.nii", "std.npy", []),
        ("array", "a.npy", "std.npy", ["--basis", "Identity"]),
        ("array", "k.npy", "std.npy", []),
    ):
        run("import", kind, path, "m.h5", "--sigma", file, "--force", *more)
        data = gsure.open("m.h5")
        found = data[:].std.numpy() * data.scales().reshape(-1, 1, 1, 1)
        np.testing.assert_allclose(found, np.broadcast_to(std, found.shape), rtol=1e-5)
        assert data.max_std * data.scales()[0] == pytest.approx(float(std.max()))
        assert data.header["sigma_0"]["map"] == file


def test_maps_for_each_sample_and_bad_maps(here, capsys):
    tifffile.imwrite("s.tif", STACK)
    std = RNG.uniform(0.5, 2, (5, 12, 16)).astype(np.float32)
    np.save("each.npy", std)
    np.save("list.npy", std[:, 0, 0])
    np.save("bad.npy", -std[0])
    np.save("k.npy", (RNG.normal(size=(5, 12, 16)) + 0j).astype(np.complex64))
    np.save("wrong.npy", std[0, :3])
    for file, expected in (("each.npy", std[:, None]), ("list.npy", std[:, :1, :1, None])):
        run("import", "tiff", "s.tif", "m.h5", "--sigma", file, "--force")
        data = gsure.open("m.h5")
        np.testing.assert_allclose(data[:].std.numpy() * data.scales().reshape(-1, 1, 1, 1), expected, rtol=1e-5)
    assert "must be finite and at least 0, but go from -" in complaint(
        capsys, "import", "tiff", "s.tif", "x.h5", "--sigma", "bad.npy"
    )
    assert "The noise map wrong.npy has shape (3, 16), but 5 samples are (12, 16)" in complaint(
        capsys, "import", "array", "k.npy", "x.h5", "--sigma", "wrong.npy"
    )


def test_the_noise_level_is_given_exactly_once(here, capsys):
    tifffile.imwrite("s.tif", STACK)
    for words, message in (
        ([], "The noise level is needed once, but neither is given"),
        (["--sigma", 1, "--noise-scan", "s.tif"], "The noise level is needed once, but both are given"),
        (["--sigma", 1, "--gain", 1], "--gain determines the noise of counts"),
        (["--read-noise", 1], "--read-noise is for counts and needs --gain"),
        (["--sigma", 1, "--basis", "Fourier"], "Images are measured in signal space"),
        (["--sigma", 1, "--key", "x"], "--key has no effect for tiff"),
    ):
        assert message in complaint(capsys, "import", "tiff", "s.tif", "x.h5", *words)
    assert not Path("x.h5").exists()
