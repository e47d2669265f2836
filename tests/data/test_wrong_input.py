"""What people import by mistake: axes in another order, images as k-space, swapped masks. One sentence each, or a warning."""

import os
from pathlib import Path

import h5py
import nibabel
import numpy as np
import pytest
import scipy.io
import tifffile
import torch
from importing import complaint, heads, lines_mask, run, spectrum, write_cfl, write_fastmri
from PIL import Image

import gsure
from gsure.plotting import draw_measurements

RNG = np.random.Generator(np.random.PCG64(8))
IMAGES = heads(6, 48, 48)
MASK = lines_mask(RNG, 48)
FULL = (spectrum(IMAGES) + 0.01 * RNG.normal(size=(6, 48, 48))).astype(np.complex64)
KSPACE = FULL * MASK
PHOTOS = RNG.uniform(10, 200, (6, 32, 40)).astype(np.float32)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def import_array(values, *words):
    np.save("a.npy", values)
    return "import", "array", "a.npy", "out.h5", "--sigma", 0.01, *words


def import_cfl(values, *words):
    write_cfl("c", np.moveaxis(values, 0, -1))
    return "import", "cfl", "c", "out.h5", "--sigma", 0.01, "--dims", "read,phs1,slice", *words


# Order of dimensions


@pytest.mark.parametrize("values", [KSPACE, np.fft.ifftshift(KSPACE, (-2, -1)), KSPACE[:1]])
def test_samples_in_the_last_dimension_of_kspace_are_recognised(here, capsys, values):
    message = complaint(capsys, *import_array(np.moveaxis(values, 0, -1)))
    assert "the energy of k-space in the middle of dimension 0, but not of dimension 2: type --axes" in message
    if values is KSPACE:
        text = run(capsys, *import_array(np.moveaxis(values, 0, -1), "--axes", "readout,phase,sample"))
        assert "samples      6" in text
        run(capsys, *import_array(values, "--force"))  # and the usual order is not asked about


@pytest.mark.parametrize(
    ("shape", "what", "axes"),
    [
        ((5, 24, 24, 3), "channels or colours", "sample,readout,phase,channel"),
        ((24, 24, 5), "the samples", "readout,phase,sample"),
    ],
)
def test_what_the_last_dimension_of_images_could_be_is_asked(here, capsys, shape, what, axes):
    words = import_array(RNG.uniform(1, 2, shape), "--basis", "Identity")
    assert f"of which the last dimension could be {what}: type --axes {axes} if so" in complaint(capsys, *words)
    run(capsys, *words, "--axes", axes)
    channels = shape[3] if len(shape) == 4 else 1
    assert gsure.open("out.h5").shape == (channels, 24, 24)
    assert len(gsure.open("out.h5")) == 5


def test_narrow_pages_of_a_stack_cause_a_warning(here, capsys):
    tifffile.imwrite("s.tif", np.moveaxis(PHOTOS, 0, -1), photometric="minisblack")
    assert "warning: pages of 40 × 6 are narrow" in run(capsys, "import", "tiff", "s.tif", "out.h5", "--sigma", 1)
    tifffile.imwrite("s.tif", PHOTOS, photometric="minisblack")
    assert "narrow" not in run(capsys, "import", "tiff", "s.tif", "out.h5", "--sigma", 1, "--force")


# Images and k-space


@pytest.mark.parametrize("values", [IMAGES, np.abs(IMAGES)])
def test_images_are_not_taken_for_kspace_even_if_the_object_is_small(here, capsys, values):
    for words in (import_array(values.astype(np.complex64)), import_cfl(values)):
        assert "The data looks like images, not like k-space" in complaint(capsys, *words)


def test_kspace_is_not_corrupted_as_if_it_were_images(here, capsys):
    np.save("k.npy", FULL)
    np.save("x.npy", IMAGES.astype(np.complex64))
    words = ["--corruption", "lines", "--R", 4, "--sigma", 0.01]
    message = complaint(capsys, "corrupt", "k.npy", "out.h5", *words)
    assert "The signals of array look like k-space, but corrupt needs images: transform them first" in message
    run(capsys, "corrupt", "x.npy", "out.h5", *words)


def test_a_noise_level_that_is_far_too_high_is_said_for_few_samples_too(here, capsys):
    np.save("a.npy", FULL)
    for sigma, told in ((0.01, "trainable    yes"), (1000, "The noise drowns the signal")):
        assert told in run(capsys, "import", "array", "a.npy", "out.h5", "--sigma", sigma, "--force")


# Masks


def test_a_mask_with_zero_and_one_swapped_is_recognised(here, capsys):
    np.save("m.npy", ~MASK)
    for values in (KSPACE, FULL):
        for words in (import_array(values, "--mask", "m.npy"), import_cfl(values, "--mask", "m.npy")):
            message = complaint(capsys, *words)
            assert "of the energy of the file, as if 0 and 1 were swapped: 1 means measured" in message
    write_fastmri(here / "f" / "v.h5", KSPACE, MASK)
    with h5py.File("f/v.h5", "r+") as file:
        file["mask"][...] = ~MASK
    assert "f/v.h5: its mask leaves out 100 % of the energy" in complaint(
        capsys, "import", "fastmri", "f", "out.h5", "--sigma", 1
    )
    np.save("m.npy", MASK)
    run(capsys, *import_array(FULL, "--mask", "m.npy"))


def test_a_mask_and_kspace_in_each_others_place_are_recognised(here, capsys):
    np.save("k.npy", KSPACE)
    assert "The mask k.npy is complex, as k-space is: check whether the two files are swapped" in complaint(
        capsys, *import_array(np.broadcast_to(MASK, KSPACE.shape).astype(float), "--mask", "k.npy")
    )


def test_zeros_are_said_to_be_missing_or_to_be_odd(here, capsys):
    missing = f"{100 * (1 - MASK.mean()):.2g} %"
    text = run(capsys, *import_array(KSPACE))
    assert f"mask: none is given, so entries that are zero were not measured, {missing}" in text
    np.save("m.npy", np.ones(48))
    text = run(capsys, *import_array(KSPACE, "--mask", "m.npy", "--force"))
    assert f"warning: {missing} of the entries that the mask measures are exactly zero" in text
    np.save("m.npy", MASK)
    assert "zero" not in run(capsys, *import_array(KSPACE, "--mask", "m.npy", "--force"))


def test_a_mask_of_images_must_not_have_nan(here, capsys):
    tifffile.imwrite("s.tif", PHOTOS, photometric="minisblack")
    np.save("m.npy", np.where(PHOTOS[0] > 100, 1, np.nan))
    message = complaint(capsys, "import", "tiff", "s.tif", "out.h5", "--sigma", 1, "--mask", "m.npy")
    assert "The mask has values that are NaN: set them to 0 (not measured) or 1 (measured)." in message


# Files


def test_complex_numbers_of_matlab_are_read(here, capsys):
    values = np.zeros(KSPACE.shape, [("real", "<f8"), ("imag", "<f8")])
    values["real"], values["imag"] = KSPACE.real, KSPACE.imag
    with h5py.File("k.mat", "w") as file:
        file["k"] = values
    run(capsys, "import", "array", "k.mat", "a.h5", "--key", "k", "--sigma", 0.01)
    run(capsys, *import_array(KSPACE)[:3], "b.h5", "--sigma", 0.01)
    assert gsure.open("a.h5")[:].ybar.equal(gsure.open("b.h5")[:].ybar)
    scipy.io.savemat("old.mat", {"k": KSPACE})
    message = complaint(capsys, "import", "array", "old.mat", "new.h5", "--sigma", 0.01)
    assert "save the array with numpy.save, or in MATLAB with save -v7.3" in message


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        ("<c16", "save complex64 values, not complex128"),
        (">c8", "values that are NaN or infinite"),
        ("<f4", "save complex64 values, not real float32"),
    ],
)
def test_bart_files_of_another_type_cost_a_sentence(here, capsys, dtype, message):
    words = import_cfl(KSPACE)
    values = np.moveaxis(KSPACE, 0, -1)
    Path("c.cfl").write_bytes((values.real if dtype == "<f4" else values).astype(dtype).tobytes(order="F"))
    assert message in complaint(capsys, *words)


def test_real_and_complex_images_are_not_mixed(here, capsys):
    Path("t").mkdir()
    tifffile.imwrite("t/a.tif", PHOTOS, photometric="minisblack")
    tifffile.imwrite("t/b.tif", PHOTOS.astype(np.complex64), photometric="minisblack")
    Path("v").mkdir()
    nibabel.save(nibabel.Nifti1Image(PHOTOS.astype(np.complex64), np.eye(4)), "v/a.nii")
    nibabel.save(nibabel.Nifti1Image(PHOTOS, np.eye(4)), "v/b.nii")
    assert "t/b.tif is complex, but the first file is real: import them separately." in complaint(
        capsys, "import", "tiff", "t", "out.h5", "--sigma", 1
    )
    assert "v/b.nii is real, but the first file is complex: import them separately." in complaint(
        capsys, "import", "nifti", "v", "out.h5", "--sigma", 1
    )


def test_pictures_of_several_depths_or_frames_are_refused(here, capsys):
    Path("p").mkdir()
    Image.fromarray(PHOTOS[0].astype(np.uint8)).save("p/a.png")
    Image.fromarray(PHOTOS[0].astype(np.uint16)).save("p/b.png")
    message = complaint(capsys, "import", "images", "p", "out.h5", "--sigma", 1)
    assert "1 up to 255 (such as a.png), 1 up to 65535 (such as b.png): move them to separate folders." in message
    frames = [Image.fromarray(one.astype(np.uint8)) for one in PHOTOS]
    frames[0].save("p/b.gif", save_all=True, append_images=frames[1:])
    Path("p/b.png").unlink()
    message = complaint(capsys, "import", "images", "p", "out.h5", "--sigma", 1)
    assert "b.gif in p has 6 frames: save each of them as an image." in message


def test_most_pixels_below_two_counts_cause_a_warning(here, capsys):
    tifffile.imwrite("s.tif", PHOTOS / 255, photometric="minisblack")
    text = run(capsys, "import", "tiff", "s.tif", "out.h5", "--gain", 1)
    assert "warning: 100 % of the pixels are below 2 counts" in text
    tifffile.imwrite("s.tif", PHOTOS, photometric="minisblack")
    assert "warning" not in run(capsys, "import", "tiff", "s.tif", "out.h5", "--gain", 1, "--force")


def test_files_that_may_not_be_read_or_written_are_named(here, capsys, monkeypatch):
    """Tests may run as root, who may do everything."""
    Path("v").mkdir()
    for name in "ab":
        nibabel.save(nibabel.Nifti1Image(PHOTOS, np.eye(4)), f"v/{name}.nii")
    np.save("a.npy", KSPACE)
    write_cfl("c", np.moveaxis(KSPACE, 0, -1))
    Path("closed").mkdir()
    may = os.access
    denied = ("v/b.nii", "a.npy", "c.hdr", "closed")
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith(denied) and may(path, mode))
    for kind, path, name in (("nifti", "v", "v/b.nii"), ("array", "a.npy", "a.npy"), ("cfl", "c.cfl", "c.hdr")):
        message = complaint(capsys, "import", kind, path, "out.h5", "--sigma", 1)
        assert f"You have no permission to read {name}: change that (chmod u+r), or remove it." in message
    for kind in ("images", "dicom", "tiff"):
        message = complaint(capsys, "import", kind, "closed", "out.h5", "--sigma", 1)
        assert "You have no permission to read closed" in message
    message = complaint(capsys, "import", "nifti", "v/a.nii", "closed/out.h5", "--sigma", 1)
    assert "You have no permission to write to the folder" in message


@pytest.mark.parametrize("name", ["köpfe mit leerzeichen", "a.b"])
def test_names_with_umlauts_and_spaces_links_and_slashes_are_read(here, capsys, name):
    Path(name).mkdir()
    np.save(f"{name}/größe 1.npy", KSPACE)
    Path("link").symlink_to(name)
    for path in (name, f"{name}/", "link", "link/"):
        run(capsys, "import", "array", path, "out.h5", "--sigma", 0.01, "--force")
        assert gsure.open("out.h5").groups() == ["größe 1"] * 6


# Pictures of masks


def test_every_line_of_a_wide_mask_is_in_the_figure(tmp_path):
    columns = 368
    mask = (torch.arange(columns) % 2).float().expand(320, -1)
    draw_measurements(tmp_path / "m.png", {"mask": [mask] * 6}, mask, "")
    pixels = np.asarray(Image.open(tmp_path / "m.png").convert("L")).astype(int)
    changes = (np.abs(np.diff(pixels, axis=1)) > 128).sum(1).max()
    assert changes > 6 * (columns - 2)
