"""Import of measured k-space, on files in their real layouts: fastMRI, BART and arrays with named dimensions."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from importing import LIMITS, complaint, heads, lines_mask, normal, run, spectrum, write_cfl, write_fastmri

import gsure
from gsure.data.kspace import centre_kspace, crop_field_of_view, resize_mask, resize_matrix
from gsure.data.layout import array_layout, bart_layout


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def rng():
    return np.random.Generator(np.random.PCG64(3))


def complex_of(data):
    """ȳ in the units of the file, complex."""
    ybar = data[:].ybar.numpy() * data.scales()[:, None, None, None]
    return ybar[:, 0] + 1j * ybar[:, 1]


# Exact operations


@pytest.mark.parametrize(("n", "m"), [(16, 8), (17, 8), (16, 7), (15, 15)])
@pytest.mark.parametrize("axis", [-2, -1])
def test_cropping_kspace_is_cropping_the_image(rng, n, m, axis):
    image = normal(rng, 3, n, 12) if axis == -2 else normal(rng, 3, 12, n)
    middle = np.take(image, np.arange(n // 2 - m // 2, n // 2 - m // 2 + m), axis)
    np.testing.assert_allclose(crop_field_of_view(spectrum(image), m, axis), spectrum(middle), atol=1e-5)


def test_the_readout_crop_of_undersampled_kspace_is_the_undersampled_kspace_of_the_cropped_image(rng):
    image, mask = normal(rng, 5, 24, 18), lines_mask(rng, 18)
    cropped = crop_field_of_view(spectrum(image) * mask, 12, -2)
    np.testing.assert_allclose(cropped, spectrum(image[:, 6:18]) * mask, atol=1e-5)
    across = rng.random((24, 1)) < 0.5  # the same along a mask that varies is wrong
    wrong = crop_field_of_view(spectrum(image) * across, 12, -2)
    assert np.abs(wrong - spectrum(image[:, 6:18])).max() > 0.1


def test_white_noise_keeps_its_std(rng):
    noise = normal(rng, 200, 32, 20)
    for after in (crop_field_of_view(noise, 16, -2), centre_kspace(noise, True), resize_matrix(noise, (20, 16))):
        assert after.real.std() == pytest.approx(1, abs=0.01)
        assert after.imag.std() == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("was", [(8, 6), (7, 5)])
@pytest.mark.parametrize("size", [(12, 10), (5, 4), (11, 3), (8, 6)])
def test_padding_and_cropping_keep_the_zero_frequency_in_the_middle(was, size):
    kspace = np.zeros(was)
    kspace[was[0] // 2, was[1] // 2] = 1
    resized = resize_matrix(kspace, size)
    assert resized.shape == size
    assert resized[size[0] // 2, size[1] // 2] == resized.sum() == 1
    mask = resize_mask(np.ones((1, 1), bool), was, size)
    full = np.broadcast_to(mask, size)
    assert full.sum() == min(was[0], size[0]) * min(was[1], size[1])
    assert [a == 1 for a in mask.shape] == [m <= n for n, m in zip(was, size, strict=True)]


@pytest.mark.parametrize("size", [(8, 6), (7, 9)])
def test_uncentred_kspace_becomes_the_centred_one(rng, size):
    image = normal(rng, 2, *size)
    plain = np.fft.fft2(image, norm="ortho")
    np.testing.assert_allclose(centre_kspace(plain, True), spectrum(image), atol=1e-5)
    shifted = np.fft.fft2(np.fft.ifftshift(image, (-2, -1)), norm="ortho")
    np.testing.assert_allclose(centre_kspace(shifted, False), spectrum(image), atol=1e-5)


# Dimensions


@pytest.mark.parametrize(
    ("axes", "order"),
    [
        ("slice,coil,readout,phase", (0, 1, 2, 3)),
        ("phase,readout,coil,slice", (3, 2, 1, 0)),
        ("coil,phase,slice,readout", (1, 3, 0, 2)),
    ],
)
def test_named_dimensions_are_found_wherever_they_are(rng, axes, order):
    values = normal(rng, 4, 3, 8, 6)
    stored = values.transpose(order)
    layout = array_layout(stored.shape, True, axes, "k.npy")
    assert (len(layout), layout.coils, layout.size) == (4, 3, (8, 6))
    for index in range(4):
        np.testing.assert_array_equal(layout.take(stored, index)[:, 0], values[index])


def test_samples_are_counted_in_the_order_of_the_file(rng):
    values = normal(rng, 2, 3, 4, 5)
    layout = array_layout(values.shape, True, "time,slice,readout,phase", "k.npy")
    assert [bool((layout.take(values, k)[0, 0] == values[k // 3, k % 3]).all()) for k in range(6)] == [True] * 6
    bart = bart_layout((4, 5, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 3), None, "k")
    stored = normal(rng, *bart.shape)
    flat = stored.reshape(4, 5, -1, order="F")  # the first dimension runs fastest
    assert [bool((bart.take(stored, k)[0, 0] == flat[..., k]).all()) for k in range(6)] == [True] * 6


@pytest.mark.parametrize(
    ("shape", "axes", "message"),
    [
        ((12, 8, 32, 32), None, r"dimensions 0 \(12\) and 1 \(8\) could both be coils: type --axes coil,sample,readout,phase"),
        ((10, 13, 1, 24, 24), None, "could both be coils: type --axes coil,sample,slice,readout,phase if dimension 0"),
        ((1, 200, 32, 32), None, "name its dimensions, such as --axes slice,coil,readout,phase"),
        ((32, 32), None, "--axes readout,phase for one image"),
        ((4, 32, 32), "coil,readout", "has 3 dimensions, .*, but --axes names 2"),
        ((4, 32, 32), "a,readout,phase", "the name 'a'"),
        ((4, 32, 32), "slice,readout,rows", "must name readout and phase, once each"),
        ((4, 4, 32, 32), "coil,coil,readout,phase", "names coil twice"),
        ((4, 32, 32), "phase2,readout,phase", "3-D k-space: transform the readout"),
    ],
)  # fmt: skip
def test_dimensions_that_cannot_be_told_apart_are_asked_for(shape, axes, message):
    with pytest.raises(ValueError, match=message):
        array_layout(shape, True, axes, "k.npy")


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (
            (32, 32, 8),
            "READ 32, PHS1 32 and PHS2 8, which is 3-D k-space .* type --dims read,phs1,slice if PHS2 counts",
        ),
        ((32, 32, 8, 1, 1, 4), "--dims read,phs1,coil,sample,maps,te if it has the coils"),
        ((32, 32, 8, 4), "type --dims read,phs1,slice,coil if PHS2 counts slices, or for 3-D k-space"),
        ((32, 30, 1, 8, 2), "MAPS 2 beside COIL 8, which could be coils or samples: .*read,phs1,phs2,coil,slice"),
        ((32, 30, 1, 1, 1, 1, 4), "COEFF 4, which could be coils or samples"),
    ],
)
def test_dimensions_of_bart_without_a_single_meaning_are_asked_for(shape, message):
    with pytest.raises(ValueError, match=message):
        bart_layout(shape, None, "k.cfl")


# fastMRI


@pytest.fixture
def knees(here, rng):
    """Three undersampled volumes of 64 rows and two widths, and the images behind them."""
    images, masks = {}, {}
    for name, n, columns in (("file1", 3, 40), ("file2", 2, 44), ("file3", 2, 40)):
        images[name], masks[name] = heads(n, 64, columns), lines_mask(rng, columns)
        write_fastmri(here / "knees" / f"{name}.h5", spectrum(images[name]), masks[name])
    return images, masks


def test_each_matrix_size_goes_to_a_file_of_its_own_without_oversampling(knees, capsys):
    images, masks = knees
    text = run(capsys, "import", "fastmri", "knees", "out.h5", "--sigma", 0.01)
    assert "2 matrix sizes, each in a file of its own: out-32x40.h5 (5 samples), out-32x44.h5 (2 samples)" in text
    assert "dimension 1 has rows (readout), dimension 2 has columns (phase)" in text
    assert "readout: cropped from 64 to 32 rows of 40 columns, which is exact and keeps the noise level" in text
    assert not Path("out.h5").exists()
    for file, names in (("out-32x40.h5", ("file1", "file3")), ("out-32x44.h5", ("file2",))):
        data = gsure.open(file)
        assert data.groups() == [name for name in names for _ in images[name]]
        assert data.mask_shape == (1, 1, data.shape[-1])
        expected = np.concatenate([spectrum(images[name][:, 16:48]) * masks[name] for name in names])
        np.testing.assert_allclose(complex_of(data), expected, atol=1e-4)
        assert data[:].std.min() * data.scales()[0] == pytest.approx(0.01, rel=0.3)
        (size,) = data.header["pixel size"]
        assert size["k-space"] == [64, data.shape[-1]]
        assert size["pixel size in mm"] == pytest.approx([280 / 64, 280 / 64])


def test_the_crop_is_switched_off_and_a_file_without_header_goes_by_its_size(knees, rng, capsys):
    run(capsys, "import", "fastmri", "knees/file2.h5", "out.h5", "--sigma", 0.01, "--readout-crop", "none")
    assert gsure.open("out.h5").shape == (2, 64, 44)
    x = np.zeros((1, 640, 24), complex)
    x[:, 240:400, 6:18] = 1
    write_fastmri(Path("knees/plain.h5"), spectrum(x), np.ones(24), header=False)
    run(capsys, "import", "fastmri", "knees/plain.h5", "out.h5", "--sigma", 0.01, "--force")
    assert gsure.open("out.h5").shape == (2, 320, 24)
    run(capsys, "import", "fastmri", "knees/plain.h5", "out.h5", "--sigma", 0.01, "--force", "--readout-crop", 200)
    assert gsure.open("out.h5").shape == (2, 200, 24)


def test_one_matrix_pads_with_lines_that_were_not_measured(knees, capsys):
    images, masks = knees
    text = run(capsys, "import", "fastmri", "knees", "out.h5", "--sigma", 0.01, "--matrix", 48, 42)
    assert "padded from 32 to 48 rows and padded from 40 to 42 columns; pixel sizes change by 0.6667 × 0.9524" in text
    assert "padded from 32 to 48 rows and cropped from 44 to 42 columns" in text
    data = gsure.open("out.h5")
    assert (len(data), data.shape, data.mask_shape) == (7, (2, 48, 42), (1, 48, 42))
    first = data[0]
    kept = first.mask[0, 0].numpy()
    assert kept[:8].sum() == kept[40:].sum() == kept[:, 0].sum() == kept[:, 41].sum() == 0
    np.testing.assert_array_equal(kept[8:40, 1:41], np.broadcast_to(masks["file1"], (32, 40)))
    expected = spectrum(images["file1"][:, 16:48]) * masks["file1"]
    np.testing.assert_allclose(complex_of(data)[:3, 8:40, 1:41], expected, atol=1e-4)
    assert [size["k-space"] for size in data.header["pixel size"]] == [[64, 40], [64, 44]]
    assert data.header["pixel size"][0]["pixel size in mm"] == pytest.approx([280 / 64 * 32 / 48, 280 / 64 * 40 / 42])


def test_noise_of_cropped_kspace_has_the_level_that_was_given(here, rng, capsys):
    """Half a readout of noise is as noisy as all of it: the transforms are orthonormal."""
    mask, x = lines_mask(rng, 40), heads(40, 64, 40)
    write_fastmri(here / "v.h5", spectrum(x) + 0.05 * normal(rng, *x.shape), mask)
    run(capsys, "import", "fastmri", "v.h5", "out.h5", "--sigma", 0.05)
    noise = (complex_of(gsure.open("out.h5")) - spectrum(x[:, 16:48]))[..., mask]
    for part in (noise.real, noise.imag):
        error = 0.05**2 * (2 / part.size) ** 0.5
        assert abs((part**2).mean() - 0.05**2) < 5 * error


def test_padding_of_the_scanner_was_not_measured_whatever_the_mask_says(here, capsys):
    kspace = spectrum(heads(2, 64, 40))
    kspace[..., :3] = kspace[..., 36:] = 0
    write_fastmri(here / "v.h5", kspace, np.ones(40), limits=LIMITS.format(maximum=32, centre=17))
    text = run(capsys, "import", "fastmri", "v.h5", "out.h5", "--sigma", 0.01)
    assert "7 columns are padding by the header, so they were not measured" in text
    assert gsure.open("out.h5")[0].mask.flatten().tolist() == [0.0] * 3 + [1.0] * 33 + [0.0] * 4


def test_a_crop_that_misses_the_object_is_said(here, capsys):
    x = np.fft.fftshift(heads(2, 64, 40), (-2, -1))
    write_fastmri(here / "v.h5", spectrum(x), np.ones(40))
    text = run(capsys, "import", "fastmri", "v.h5", "out.h5", "--sigma", 0.01)
    assert "warning: most of the energy is outside the crop, as if the image were shifted by half" in text
    x = heads(2, 64, 40)
    write_fastmri(here / "v.h5", spectrum(x), np.ones(40))
    text = run(capsys, "import", "fastmri", "v.h5", "out.h5", "--sigma", 0.01, "--force")
    assert "and 100 % of the energy" in text
    assert "warning" not in text


def test_every_problem_of_a_folder_is_listed_with_its_file_before_anything_is_written(knees, rng, capsys):
    folder = Path("knees")
    good, mask = spectrum(heads(2, 64, 40)), lines_mask(rng, 40)
    two_d = np.broadcast_to(mask, (64, 40)).copy()
    two_d[:20] = False
    write_fastmri(folder / "varies.h5", good, two_d)
    write_fastmri(folder / "corners.h5", np.fft.ifftshift(good, (-2, -1)), np.ones(40))
    bad = good.copy()
    bad[1, 30, 20] = np.nan
    write_fastmri(folder / "nan.h5", bad, mask)
    message = complaint(capsys, "import", "fastmri", "knees", "out.h5", "--sigma", 0.01)
    assert "3 problems to fix first, nothing was written:" in message
    for part in (
        "knees/corners.h5: its k-space is not centred, because its energy is in the corners: type --uncentred",
        "Sample 1 of knees/nan.h5 has 1 values that are NaN or infinite: fix or remove it",
        "The mask of knees/varies.h5 varies along the readout (the rows), so the field of view cannot be cropped along it "
        "from 64 to 32: type --readout-crop none.",
    ):
        assert part in message
    with h5py.File(folder / "other.h5", "w") as file:
        file["image"] = [1.0]
    for name in ("coils", "more"):
        write_fastmri(folder / f"{name}.h5", normal(rng, 2, 4, 64, 40), mask)
    (folder / "cut.h5").write_bytes((folder / "file1.h5").read_bytes()[:2000])
    message = complaint(capsys, "import", "fastmri", "knees", "out.h5", "--sigma", 0.01)
    assert "6 problems to fix first" in message
    assert "corners.h5: its k-space is not centred" in message
    assert "knees/other.h5 has no dataset kspace, only ['image']" in message
    assert "knees/cut.h5 is not a complete HDF5 file" in message
    assert "coils.h5, more.h5: it has 4 coils" in message
    assert (
        "--coil K (0 to 3), or combine them with --combine first-virtual or, if it is fully sampled, --combine rss"
        in message
    )


def test_a_folder_that_mixes_formats_is_refused(knees, capsys):
    np.save("knees/k.npy", np.ones((2, 4, 4)))
    Path("knees/README.txt").write_text("about")
    message = complaint(capsys, "import", "fastmri", "knees", "out.h5", "--sigma", 0.01)
    assert "The folder knees mixes formats: 3 .h5 (such as file1.h5), 1 .npy (such as k.npy)" in message
    assert "move the .npy files to a folder of their own, and import them with gsure import array" in message


def test_multicoil_volumes_are_read_by_coil(here, rng, capsys):
    x, mask = heads(2, 64, 40), lines_mask(rng, 40)
    maps = normal(rng, 1, 3, 1, 1)
    write_fastmri(here / "v.h5", spectrum(x)[:, None] * maps, mask)
    run(capsys, "import", "fastmri", "v.h5", "out.h5", "--sigma", 0.01, "--coil", 2)
    expected = spectrum(x[:, 16:48]) * mask * maps[:, 2]
    np.testing.assert_allclose(complex_of(gsure.open("out.h5")), expected, atol=2e-4)


# Coils


@pytest.fixture
def bart(here, rng):
    """A BART file as in the issue: READ is 1, and there are coils. Two echoes."""
    x, weights = heads(2, 40, 30), np.array([0.5, 0.1 + 0.2j, 1j, -0.3])
    kspace = np.einsum("nyx,c->yxcn", spectrum(x), weights)
    mask = lines_mask(rng, 30)
    write_cfl("k", (kspace * mask[:, None, None])[None, :, :, :, None])  # READ PHS1 PHS2 COIL MAPS TE
    return spectrum(x) * mask, weights, mask


def test_bart_files_with_coils_are_read_in_their_own_order(bart, capsys):
    kspace, weights, mask = bart
    message = complaint(capsys, "import", "cfl", "k", "out.h5", "--sigma", 0.01)
    assert (
        "k.cfl: it has 4 coils (PHS1 (40) has rows (readout), PHS2 (30) has columns (phase), COIL (4) has coils"
        in message
    )
    assert "not supported yet" in message
    assert "--coil 4 does not exist: it has 4 coils" in complaint(
        capsys, "import", "cfl", "k", "out.h5", "--sigma", 0.01, "--coil", 4
    )
    text = run(capsys, "import", "cfl", "k", "out.h5", "--sigma", 0.01, "--coil", 2)
    assert "PHS2 (30) has columns (phase), COIL (4) has coils, TE (2) counts samples" in text
    data = gsure.open("out.h5")
    np.testing.assert_allclose(complex_of(data), kspace * weights[2], atol=1e-5)
    assert data.mask_shape == (1, 1, 30)  # no mask was given, but complete lines are zero
    np.testing.assert_array_equal(data[0].mask[0, 0, 0], mask)


def test_the_first_virtual_coil_has_the_most_energy_and_the_noise_of_a_coil(bart, rng, capsys):
    kspace, weights, _ = bart
    text = run(capsys, "import", "cfl", "k.cfl", "out.h5", "--sigma", 0.01, "--combine", "first-virtual")
    assert "the first virtual coil of each volume, with 100 % of the energy" in text
    found = complex_of(gsure.open("out.h5"))
    np.testing.assert_allclose(np.abs(found), np.abs(kspace) * np.linalg.norm(weights), atol=1e-4)
    noisy = normal(rng, 4, 24, 24) + 3 * spectrum(heads(1, 24, 24)) * np.array([1, 0.1, 0.1, 0.1])[:, None, None]
    np.save("noisy.npy", noisy.astype(np.complex64))
    words = ["--axes", "coil,readout,phase", "--sigma", 1, "--combine", "first-virtual", "--force"]
    run(capsys, "import", "array", "noisy.npy", "out.h5", *words)
    away = complex_of(gsure.open("out.h5"))[0][:6]  # high frequencies, which have little signal
    assert away.real.std() == pytest.approx(1, abs=0.25)


def test_a_root_sum_of_squares_needs_fully_sampled_kspace(bart, capsys):
    message = complaint(capsys, "import", "cfl", "k", "out.h5", "--sigma", 0.01, "--combine", "rss")
    assert "needs fully sampled k-space: type --combine first-virtual or --coil K" in message
    x, weights = heads(2, 40, 30), np.array([0.5, 1j, -0.3])
    np.save("full.npy", spectrum(x)[:, None] * weights[:, None, None])
    axes = ["--axes", "slice,coil,readout,phase"]
    text = run(capsys, "import", "array", "full.npy", "out.h5", "--sigma", 0.01, "--combine", "rss", *axes)
    assert "root sum of squares of the coil images, real, in the basis Identity" in text
    data = gsure.open("out.h5")
    assert str(data.basis) == "Identity()"
    images = data[:].ybar.numpy()[:, 0] * data.scales()[:, None, None]
    np.testing.assert_allclose(images, np.abs(x) * np.linalg.norm(weights), atol=1e-4)


def test_options_that_exclude_each_other_or_do_nothing_are_refused(bart, capsys):
    np.save("one.npy", spectrum(heads(3, 40, 30)))
    np.save("real.npy", np.zeros((3, 2, 16, 16)))
    for words, message in [
        (["cfl", "k", "--coil", 1, "--combine", "rss"], "exclude each other"),
        (["array", "one.npy", "--combine", "first-virtual"], "has no effect, because it has one coil"),
        (["array", "one.npy", "--dims", "read,phs1,slice"], "--dims has no effect for array"),
        (["cfl", "k", "--axes", "readout,phase"], "--axes has no effect for cfl"),
        (["array", "one.npy", "--readout-crop", 50], "more than its 40 rows"),
        (["array", "one.npy", "--readout-crop", "half"], "must be at least 1, auto or none, but is half"),
        (["array", "one.npy", "--readout-crop", 0], "must be at least 1, auto or none"),
        (["array", "one.npy", "--matrix", 0, 4], "a height and a width of at least 1"),
        (["array", "real.npy", "--matrix", 8, 8], "needs complex k-space, but its values are real"),
        (["array", "one.npy", "--basis", "Hartley", "--uncentred"], "--uncentred needs k-space"),
        (
            ["array", "one.npy", "--uncentred"],
            "centred already, with the zero frequency in the middle: omit --uncentred",
        ),
    ]:
        kind, path, *options = words
        assert message in complaint(capsys, "import", kind, path, "out.h5", "--sigma", 0.1, *options)


# Arrays


@pytest.mark.parametrize("whole", [True, False])
def test_uncentred_kspace_is_recognised_and_read(here, rng, capsys, whole):
    x, mask = heads(6, 48, 36), np.ones((48, 1), bool)
    mask[[5, 9, 30, 31]] = False
    plain = np.fft.fft2(x if whole else np.fft.ifftshift(x, (-2, -1)), norm="ortho")
    np.savez("k.npz", k=np.where(mask, plain, 0).astype(np.complex64), m=mask)
    words = ["import", "array", "k.npz", "out.h5", "--key", "k", "--mask", "m", "--sigma", 0.01]
    message = complaint(capsys, *words)
    assert "k.npz: its k-space is not centred, because its energy is in the corners: type --uncentred" in message
    text = run(capsys, *words, "--uncentred")
    assert f"centred as k-space np.fft.fft2({'x' if whole else 'np.fft.ifftshift(x)'}) of an image x" in text
    data = gsure.open("out.h5")
    assert data.mask_shape == (1, 48, 1)
    np.testing.assert_allclose(complex_of(data), spectrum(x) * np.fft.fftshift(mask), atol=1e-4)


def test_arrays_of_many_dimensions_go_by_their_names(here, rng, capsys):
    """As in raw data of scanners: (echo, coil, slice, phase, readout), real and imaginary parts in two datasets."""
    x = heads(6, 48, 36).reshape(2, 3, 48, 36)
    k = (spectrum(x)[:, None] * np.array([1, 0.5j])[:, None, None, None]).transpose(0, 1, 2, 4, 3)
    mask = lines_mask(rng, 36)[:, None]
    with h5py.File("raw.h5", "w") as file:
        file["real"], file["imaginary"], file["mask"] = k.real * mask, k.imag * mask, mask[None, None, None]
    words = ["import", "array", "raw.h5", "out.h5", "--key", "real,imaginary", "--sigma", 0.01]
    message = complaint(capsys, *words)
    assert "dimensions 0 (2) and 1 (2) and 2 (3) could all be coils" in message
    axes = ["--axes", "echo,coil,slice,phase,readout", "--coil", 1, "--mask", "mask"]
    text = run(capsys, *words, *axes, "--readout-crop", 24)
    assert "dimension 3 (36) has columns (phase), dimension 4 (48) has rows (readout)" in text
    data = gsure.open("out.h5")
    expected = 0.5j * spectrum(x[..., 12:36, :].reshape(6, 24, 36)) * mask[:, 0]
    np.testing.assert_allclose(complex_of(data), expected, atol=1e-4)
    assert data.mask_shape == (1, 1, 36)
    assert data.header["read as"][0].startswith("k-space: dimension 0 (2) counts samples")


def test_a_mask_that_varies_along_the_readout_is_not_cropped(here, rng, capsys):
    np.save("k.npy", spectrum(heads(2, 48, 36)))
    np.save("m.npy", lines_mask(rng, 48)[:, None])
    words = ["import", "array", "k.npy", "out.h5", "--mask", "m.npy", "--sigma", 0.01, "--readout-crop", 24]
    message = complaint(capsys, *words)
    assert "The mask of k.npy varies along the readout" in message
    assert "or name the other dimension readout" in message


def test_folders_of_arrays_have_a_group_per_file_and_a_file_per_size(here, rng, capsys):
    Path("scans").mkdir()
    for name, n, columns in (("a", 3, 36), ("b", 2, 40)):
        np.save(f"scans/{name}.npy", spectrum(heads(n, 48, columns)))
    summary = json.loads(
        run(capsys, "import", "array", "scans", "out.h5", "--sigma", 0.01, "--json").split("\n")[0]
    )  # the lines for people follow, on the other stream
    assert [file["file"] for file in summary["files"]] == ["out-48x36.h5", "out-48x40.h5"]
    assert gsure.open("out-48x40.h5").groups() == ["b", "b"]
    files = gsure.convert("array", "scans", "again.h5", 0.01, verbose=False)
    assert [data.shape for data in files] == [(2, 48, 36), (2, 48, 40)]
    one = gsure.convert("array", "scans", "one.h5", 0.01, matrix=(48, 40), verbose=False)
    assert (len(one), one.shape) == (5, (2, 48, 40))
    np.savez("scans/b.npz", k=spectrum(heads(2, 48, 36)))
    with pytest.raises(ValueError, match=r"b\.npy and .*b\.npz would both be the group b: rename one"):
        gsure.convert("array", "scans", "new.h5", 0.01)
