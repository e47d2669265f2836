"""Arrays as measurements: how they are understood, what is asked back, and that a file holds the same."""

import re

import numpy as np
import pytest
import torch
from conftest import Function

import gsure
from gsure.data.sources import open_source

RNG = np.random.default_rng(0)


def kspace(n: int = 6, height: int = 16, width: int = 12) -> np.ndarray:
    """Complex k-space of smooth images, with its energy in the centre."""
    y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    images = np.exp(-((x - RNG.uniform(-0.3, 0.3, (n, 1, 1))) ** 2 + y**2) / 0.6) + 0j
    images = images + 0.01 * RNG.normal(size=images.shape)
    axes = (-2, -1)
    return np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(images, axes), norm="ortho"), axes).astype(np.complex64)


COLUMNS = (np.arange(12) % 3 != 0).astype(float)


@pytest.mark.parametrize(
    ("mask", "mask_shape", "says"),
    [
        (COLUMNS, (1, 1, 12), "varies over columns"),
        (COLUMNS[None], (1, 1, 12), "varies over columns"),
        (np.tile(COLUMNS, (16, 1)), (1, 1, 12), "varies over rows and columns"),
        (np.tile(COLUMNS, (6, 1, 1)), (1, 1, 12), "varies over samples and columns"),
        (np.tile(COLUMNS, (6, 16, 1)), (1, 1, 12), "varies over samples and rows and columns"),
        (np.tile(COLUMNS, (6, 1, 16, 1)) == 1, (1, 1, 12), "varies over samples and rows and columns"),
        (1, (1, 1, 1), "the same everywhere"),
    ],
)
def test_a_mask_of_any_shape_that_broadcasts_means_the_same_columns(mask, mask_shape, says, capsys):
    y = kspace()
    data = gsure.from_arrays(y, mask, 0.1, scale=1)
    assert (len(data), data.shape, data.mask_shape) == (6, (2, 16, 12), mask_shape)
    assert says in capsys.readouterr().err
    kept = np.broadcast_to(mask, y.shape) if np.ndim(mask) < 4 else np.broadcast_to(mask[:, 0], y.shape)
    found = gsure.as_complex(data[:].ybar)[:, 0].numpy()
    np.testing.assert_array_equal(found, np.where(kept == 1, y, 0))
    assert data.max_std == pytest.approx(0.1)


def test_it_says_how_it_takes_the_arrays(capsys):
    gsure.from_arrays(kspace(), COLUMNS, 0.1)
    said = capsys.readouterr().err
    assert "y: k-space of 6 images of 16 × 12, in Fourier()" in said
    assert "varies over columns" in said
    assert "sigma: 0.1 in real and imaginary part each, the same everywhere" in said
    assert "% of the energy of y lies where the mask is 0, and is not used" in said
    gsure.from_arrays(kspace(), COLUMNS, 0.1, verbose=False)
    assert not capsys.readouterr().err


@pytest.mark.parametrize("unit", [1e-6, 1.0, 4000.0])
def test_each_group_is_brought_to_the_same_size_whatever_its_unit(unit):
    y = kspace() * np.repeat([unit, 50 * unit], 3)[:, None, None]
    sigma = 0.05 * np.repeat([unit, 50 * unit], 3)
    data = gsure.from_arrays(y, COLUMNS, sigma, groups=list("aaabbb"), verbose=False)
    assert [len(set(part)) for part in np.split(data.scales(), 2)] == [1, 1]
    for some in (data[:3], data[3:]):
        assert float(some.ybar.square().mean().sqrt()) == pytest.approx(1, abs=0.3)
    torch.testing.assert_close(data[:3].std * data.scales()[0], torch.full((3, 1, 1, 1), 0.05 * unit))
    x = data.basis.to_signal(data[:].ybar) * torch.from_numpy(data.scales()).reshape(-1, 1, 1, 1)
    expected = gsure.Fourier().to_spectral(x)
    np.testing.assert_allclose(gsure.as_complex(expected)[:, 0].numpy(), y * COLUMNS, atol=1e-4 * 50 * unit)


def test_real_images_keep_their_range_and_zeros_are_refused(outside):
    images = np.random.default_rng(0).uniform(-1, 1, (4, 8, 8))
    options = {"basis": gsure.Identity(), "verbose": False}
    assert gsure.from_arrays(images, 1, 0.1, **options).scales().tolist() == [1, 1, 1, 1]
    assert gsure.from_arrays(255 * images, 1, 0.1, **options).scales()[0] == pytest.approx(150, rel=0.2)
    y = kspace()
    y[:2] = 0
    assert gsure.from_arrays(y, 1, 0.1, verbose=False).scales()[0] > 0  # some empty slices
    with pytest.raises(ValueError, match="Volume empty is zero everywhere: remove it, or give a scale"):
        gsure.from_arrays(y, 1, 0.1, groups=["empty"] * 2 + ["full"] * 4, verbose=False)
    with pytest.raises(ValueError, match="The data is zero everywhere: remove it, or give a scale"):
        gsure.from_arrays(0 * y, 1, 0.1, verbose=False)
    with pytest.raises(ValueError, match="scale is auto, a number, or one for each sample, not 'rms'"):
        gsure.from_arrays(y, 1, 0.1, scale="rms", verbose=False)


def test_numpy_torch_complex_and_real_pairs_are_the_same():
    y = kspace()
    pairs = np.stack([y.real, y.imag], 1)
    expected = gsure.from_arrays(y, COLUMNS, 0.1, verbose=False)[:]
    for given, options in [
        (torch.from_numpy(y), {}),
        (y[:, None], {}),
        (pairs, {"basis": gsure.Fourier()}),
        (torch.from_numpy(pairs), {"basis": gsure.Fourier()}),
    ]:
        found = gsure.from_arrays(
            given, torch.from_numpy(COLUMNS), torch.tensor(0.1, dtype=torch.float64), **options, verbose=False
        )[:]
        assert found.ybar.equal(expected.ybar)
        assert found.mask.equal(expected.mask)
        assert found.std.equal(expected.std)


def test_noise_can_differ_by_sample_and_by_entry():
    y = kspace()
    by_sample = gsure.from_arrays(y, COLUMNS, np.linspace(0.1, 0.6, 6), scale=1, verbose=False)[:]
    torch.testing.assert_close(by_sample.std.flatten(), torch.linspace(0.1, 0.6, 6))
    columns = np.linspace(0.1, 0.3, 12)
    by_column = gsure.from_arrays(y, COLUMNS, columns, scale=1, verbose=False)
    expected = torch.from_numpy(COLUMNS * columns).float().expand(6, 1, 1, 12)
    torch.testing.assert_close(by_column[:].mask * by_column[:].std, expected)
    assert by_column.max_std == pytest.approx(float(expected.max()))


def test_scale_divides_and_results_have_the_units_of_the_data():
    y, scales = kspace() * 100, np.linspace(50, 150, 6)
    data = gsure.from_arrays(y, 1, 3.0, scale=scales, verbose=False)
    np.testing.assert_allclose(gsure.as_complex(data[:].ybar)[:, 0], y / scales[:, None, None], rtol=1e-5)
    np.testing.assert_allclose(data[:].std.flatten(), 3.0 / scales, rtol=1e-6)
    denoiser = gsure.Denoiser(Function(lambda x_t, t: 0 * x_t), gsure.Schedule.for_noise(0.1), gsure.Fourier())
    restored = gsure.restore(denoiser, data, draws=2, steps=3)
    zero_filled = np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(y, (-2, -1)), norm="ortho"), (-2, -1))
    np.testing.assert_allclose(restored.baseline[:, 0], zero_filled, rtol=1e-3, atol=1e-3)


def test_groups_are_kept_and_split_together():
    data = gsure.from_arrays(kspace(), COLUMNS, 0.1, groups=["a", "a", "b", "b", "c", "c"], verbose=False)
    assert data.groups() == ["a", "a", "b", "b", "c", "c"]
    train, held_out = data.split(0.4, seed=1)
    assert not set(train.groups()) & set(held_out.groups())


@pytest.mark.parametrize("sigma", [0.1, np.linspace(0.1, 0.6, 6), np.linspace(0.1, 0.3, 12)])
def test_a_saved_file_opens_to_the_same(tmp_path, sigma):
    mask = RNG.random((6, 1, 12)) < 0.6
    mask[:, :, 6] = True
    data = gsure.from_arrays(kspace(), mask, sigma, groups=list("aabbcc"), scale=2.0, verbose=False)
    saved = gsure.save(tmp_path / "d.h5", data)
    opened = gsure.open(tmp_path / "d.h5")
    for other in (saved, opened):
        a, b = data[:], other[:]
        assert a.ybar.equal(b.ybar)
        assert a.mask.equal(b.mask)
        assert (a.mask * a.std).equal(b.mask * b.std)
        assert data.groups() == other.groups()
        np.testing.assert_array_equal(data.scales(), other.scales())
        torch.testing.assert_close(data.coverage, other.coverage)
        assert (data.shape, data.mask_shape, data.max_std) == (other.shape, other.mask_shape, other.max_std)
        assert data.fingerprint() == other.fingerprint()
        assert type(other.basis) is gsure.Fourier
    with pytest.raises(FileExistsError, match=r"d\.h5 exists already"):
        gsure.save(tmp_path / "d.h5", data)
    order = [batch.ybar for batch in data.batches(2, steps=3, generator=5)]
    assert all(a.equal(b.ybar) for a, b in zip(order, opened.batches(2, steps=3, generator=5), strict=True))


def test_a_part_of_a_file_can_be_saved(tmp_path):
    gsure.corrupt(open_source("digits"), tmp_path / "d.h5", gsure.corruption.Patches(p=0.4, size=2), 0.05, limit=20)
    data = gsure.open(tmp_path / "d.h5")
    part = gsure.save(tmp_path / "part.h5", data.subset(np.arange(3, 9)))
    assert part[:].ybar.equal(data[np.arange(3, 9)].ybar)
    assert (part.unit, part.groups(), part.offsets()[0]) == ((2, 2), [str(k) for k in range(3, 9)], 8)
    assert part.coverage.equal(data.coverage)


IMAGES = np.abs(gsure.Fourier().to_signal(torch.from_numpy(np.stack([kspace().real, kspace().imag], 1))).numpy())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((IMAGES[:, 0] + 0j, 1, 0.1), "looks like images, not like k-space.*to_spectral"),
        ((np.fft.ifftshift(kspace(), (-2, -1)), 1, 0.1), r"energy in the corners.*np\.fft\.fftshift"),
        ((IMAGES, 1, 0.1), r"real and imaginary parts of k-space or two real images: give basis=gsure\.Fourier\(\)"),
        ((kspace()[0], 1, 0.1), r"can be one image or 16 vectors: give y\[None\]"),
        ((kspace(), np.ones(7), 0.1), r"mask has shape \(7,\), which does not broadcast against y, \(6, 1, 16, 12\)"),
        ((kspace(16)[:, :16], np.ones((16, 12)), 0.1), r"can mean \(1, 1, 16, 12\) or \(16, 1, 1, 12\)"),
        ((kspace(12), 1, np.ones(12)), "one per sample or one per column: reshape it"),
        ((kspace(), 0.5, 0.1), r"mask must be 0 \(not measured\) or 1"),
        ((kspace(), 0, 0.1), "mask is 0 everywhere.*swapped"),
        ((COLUMNS[None, None], kspace(), 0.1), "mask is complex, as k-space is: give y first, and then mask"),
        (
            (kspace() * COLUMNS, 1 - COLUMNS, 0.1),
            "mask leaves out 100 % of the energy of y, as if 0 and 1 were swapped",
        ),
        ((kspace(), np.abs(np.arange(12) - 6) > 2, 0.1), "mask leaves out 100 % of the energy of y, as if"),
        ((IMAGES * COLUMNS, 1 - COLUMNS, 0.1, gsure.Identity()), "mask leaves out 100 % of the energy of y"),
        ((kspace(),), "mask must be a number or an array.*but is None. Give 1 if everything was measured"),
        (
            (kspace(), 1),
            "sigma must be .* but is None. Give the standard deviation of the noise.*If you do not know it.*convert",
        ),
        ((kspace(), 1, "estimate"), "sigma must be a number .*, but is 'estimate'.*gsure.convert"),
        (("kspace.npy", 1, 0.1), "y must be a number .*, but is 'kspace.npy'.*Load it first"),
        ((kspace(), 1, -0.1), "sigma must be at least 0, but has the value -0.1"),
        ((kspace() * np.nan, 1, 0.1), "y has 1152 values that are NaN or infinite"),
        ((kspace().reshape(6, 1, 1, 16, 12), 1, 0.1), "at most 4 dimensions"),
    ],
)
def test_what_can_be_meant_in_two_ways_or_in_none_is_asked_back(arguments, message, outside):
    with pytest.raises(ValueError, match=message):
        gsure.from_arrays(*arguments, verbose=False)


def test_several_coils_or_channels_are_asked_back_and_each_remedy_works(outside, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    coils = np.array([1, 0.5j, 0.2])[:, None, None] * kspace()[:, None]  # (6, 3, 16, 12)
    pairs = np.stack([coils.real, coils.imag], 2).reshape(6, 6, 16, 12)
    options = {"scale": 1, "verbose": False}
    for y, basis, one in ((coils, None, coils[:, 0]), (pairs, gsure.Fourier(), pairs[:, :2])):
        with pytest.raises(
            ValueError, match=r"dimension 1 can be 3 coils or 3 channels of one image.*channels=True"
        ) as e:
            gsure.from_arrays(y, COLUMNS, 0.1, basis, **options)
        assert gsure.from_arrays(y, COLUMNS, 0.1, basis, channels=True, **options).shape == (6, 16, 12)
        assert gsure.from_arrays(one, COLUMNS, 0.1, basis, **options).shape == (2, 16, 12)
        save, convert = re.search(r"(np\.save\(.*\)), then (gsure\.convert\(.*'\))\. If", str(e.value)).groups()
        scope = {"np": np, "gsure": gsure, "y": y, "sigma": 0.1}
        exec(f"{save}; {convert.replace(', sigma', ', sigma, force=True, verbose=False')}", scope)  # noqa: S102
        assert gsure.open("out.h5").shape == (2, 16, 12)
    assert gsure.from_arrays(np.abs(coils), 1, 0.1, gsure.Identity(), **options).shape == (3, 16, 12)  # such as RGB
    with pytest.raises(ValueError, match=r"channels=True needs y of shape \(N, channels, H, W\)"):
        gsure.from_arrays(kspace(), COLUMNS, 0.1, channels=True, **options)


def test_wrong_groups_and_scales_are_refused(outside):
    with pytest.raises(ValueError, match="2 groups for 6 samples"):
        gsure.from_arrays(kspace(), 1, 0.1, groups=["a", "b"], verbose=False)
    with pytest.raises(ValueError, match=r"scale must be a number above 0.*is 0"):
        gsure.from_arrays(kspace(), 1, 0.1, scale=0, verbose=False)
