"""Counts: the generalised Anscombe transform, its exact unbiased inverse, and the gain from the mean-variance curve."""

import dataclasses
import json
from pathlib import Path

import nibabel
import numpy as np
import pytest
import tifffile
import torch
from running import QUICK

import gsure
from gsure import cli
from gsure.data.anscombe import Anscombe, transform_of
from gsure.data.counts import fit_curve
from gsure.data.source import Spectrum

DRAWS = 400_000
CAMERAS = [(1.0, 0.0), (2.5, 0.0), (2.0, 1.0), (1.0, 3.0)]


def counts(gain, read_noise, level, shape, seed=0):
    rng = np.random.Generator(np.random.PCG64(seed))
    return gain * rng.poisson(level, shape) + read_noise * rng.normal(size=shape)


@pytest.mark.parametrize(("gain", "read_noise"), CAMERAS)
@pytest.mark.parametrize("level", [2.0, 3.0, 10.0, 100.0, 199.0, 201.0, 3000.0])
def test_the_mean_of_counts_is_recovered_within_a_percent_from_two_counts_on(gain, read_noise, level):
    transform = Anscombe(gain, read_noise)
    f = torch.from_numpy(transform.forward(counts(gain, read_noise, level, DRAWS)))
    mean, error = f.mean(), f.std() / DRAWS**0.5
    found = float(transform.inverse(mean)) / gain
    standard_error = float(transform.slope(mean) * error) / gain
    assert abs(found - level) < 0.01 * level
    assert abs(found - level) < 5 * standard_error + 1e-5 * level
    algebraic = float(mean**2 / 4 - 3 / 8 - transform.s**2)  # the plain inverse of f is biased
    if level <= 10:
        assert abs(algebraic - level) > 0.01 * level
        assert abs(algebraic - level) > 5 * standard_error


@pytest.mark.parametrize(("gain", "read_noise"), CAMERAS)
def test_the_noise_of_transformed_counts_is_one(gain, read_noise):
    transform = Anscombe(gain, read_noise)
    for level in (5.0, 30.0, 500.0):
        f = transform.forward(counts(gain, read_noise, level, DRAWS))
        assert f.std() == pytest.approx(1, abs=0.03)
    assert counts(gain, read_noise, 500.0, DRAWS).std() / counts(gain, read_noise, 5.0, DRAWS).std() > 1.5


def test_the_inverse_increases_and_its_slope_is_its_derivative():
    transform = Anscombe(2.0, 1.0)
    D = torch.linspace(0.5, 80, 4001, dtype=torch.float64)
    values = transform.inverse(D)
    assert (values.diff() >= 0).all()
    assert values[0] == 0  # no fewer than no counts
    numeric = values.diff() / D.diff()
    between = transform.slope((D[1:] + D[:-1]) / 2)
    inside = (D[:-1] > 2) & ((D[:-1] - 28.4).abs() > 0.3)  # not where the table begins and ends
    torch.testing.assert_close(between[inside], numeric[inside], rtol=0.02, atol=0.02)


def test_a_damaged_transform_is_refused():
    assert transform_of({}) is None
    for record, message in (({"name": "anscombe", "gain": "x"}, "damaged"), ({"name": "log"}, "not known")):
        with pytest.raises(ValueError, match=message):
            transform_of({"transform": record})


# From a file of counts to restored counts


def flat_fields(n: int = 64, size: int = 32) -> np.ndarray:
    """Smooth expected counts from 5 to 100, without edges."""
    y, x = np.mgrid[0 : 1 : size * 1j, 0 : 1 : size * 1j]
    return np.stack([5 + 95 * (0.5 + 0.5 * np.sin(2 * y + 0.1 * k)) * x for k in range(n)])


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_gain_and_read_noise_are_estimated_within_their_uncertainty():
    wrong = []
    for gain, read_noise in ((1.0, 0.0), (2.0, 4.0)):
        for seed in range(10):
            z = counts(gain, read_noise, flat_fields(), (64, 32, 32), seed)
            curve = fit_curve([Spectrum(one[None].astype(np.float32), np.ones((1, 32, 32), bool), "") for one in z])
            assert curve.gain == pytest.approx(gain, rel=0.1)
            wrong.append(abs(curve.gain - gain) > curve.gain_uncertainty)
            wrong.append(abs(curve.offset - read_noise**2) > curve.offset_uncertainty)
            assert curve.gain_uncertainty < 0.4 * gain
    assert not any(wrong)


def test_counts_are_restored_in_their_units(here):
    """A model that keeps what was measured: mean and std come back as counts, the std by the delta method."""
    level = flat_fields(12, 8)
    z = counts(2.0, 1.0, level, level.shape, 3).astype(np.float32)
    tifffile.imwrite("z.tif", z)
    assert cli.main(["import", "tiff", "z.tif", "z.h5", "--gain", "2", "--read-noise", "1"]) == 0
    data = gsure.open("z.h5")
    assert data.black == 0  # counts of zero are shown as black, not as grey
    transform = transform_of(data.header)
    assert transform == Anscombe(2.0, 1.0)
    np.testing.assert_allclose(data[:].ybar[:, 0] * data.scales()[0], transform.forward(z), rtol=1e-4)
    assert data.max_std * data.scales()[0] == pytest.approx(1)
    gsure.train("z.h5", "run", dataclasses.replace(QUICK, steps=2, batch=2, held_out=0.0))
    options = {"draws": 4, "steps": 3, "panels": 0, "baselines": False}
    kept = gsure.restore("run", "z.h5", "r", volumes="nifti", **options)
    memory = gsure.restore("run", "z.h5", **options)
    D = kept.signals["mean"][:] * data.scales()[0]
    s = kept.signals["std"][:] * data.scales()[0]
    for restored in (kept, memory):
        torch.testing.assert_close(restored.mean, transform.inverse(D), rtol=1e-3, atol=1e-2)
        torch.testing.assert_close(restored.std, s * transform.slope(D), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(memory.draws[0], kept.draws[0], rtol=1e-3, atol=1e-2)
    volume = nibabel.load("r/nifti/std.nii.gz").get_fdata()
    np.testing.assert_allclose(volume, np.moveaxis(kept.std[:, 0].numpy(), 0, -1), rtol=1e-4)
    with pytest.raises(ValueError, match="standard deviations of transformed counts: give raw the mean"):
        gsure.Signals("r/std").raw()


def test_the_estimated_gain_is_recorded_with_its_uncertainty(here, capsys):
    tifffile.imwrite("z.tif", counts(2.0, 0.0, flat_fields(), (64, 32, 32)).astype(np.float32))
    assert cli.main(["import", "images", "z.tif", "z.h5", "--gain", "estimate", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["transform"]
    assert found["method"] == "mean-variance curve"
    assert found["gain"] == pytest.approx(2, rel=0.1)
    assert "±" in found["fitted gain"]


def test_what_cannot_be_counts_costs_a_sentence(here, capsys):
    level = flat_fields(8)
    tifffile.imwrite("negative.tif", (counts(1.0, 0.0, level, level.shape) - 10).astype(np.float32))
    tifffile.imwrite("black.tif", (counts(1.0, 0.0, level, level.shape) + 100).astype(np.float32))
    gaussian = flat_fields(8) + np.random.Generator(np.random.PCG64(0)).normal(size=level.shape)
    tifffile.imwrite("constant.tif", np.ones((4, 16, 16), np.float32), photometric="minisblack")
    tifffile.imwrite("gaussian.tif", (20 * gaussian**0.5).astype(np.float32))
    np.save("k.npy", np.random.Generator(np.random.PCG64(1)).normal(size=(2, 8, 8)).astype(np.complex64))
    for words, message in (
        (
            ["tiff", "negative.tif", "x.h5", "--gain", 1],
            "which counts with no read noise cannot have: subtract the black",
        ),
        (
            ["tiff", "negative.tif", "x.h5", "--gain", 1, "--read-noise", 0.5],
            "counts with read noise of 0.5 cannot have",
        ),
        (["tiff", "black.tif", "x.h5", "--gain", "estimate"], "so they have a black level of at least that: subtract"),
        (["tiff", "constant.tif", "x.h5", "--gain", "estimate"], "The gain cannot be estimated"),
        (["tiff", "gaussian.tif", "x.h5", "--gain", "estimate"], "does not grow with their mean"),
        (["tiff", "black.tif", "x.h5", "--gain", -1], "The gain must be above 0"),
        (["array", "k.npy", "x.h5", "--gain", 1], "--gain is for counts in signal space"),
        (
            ["array", "k.npy", "x.h5", "--gain", 1, "--basis", "Identity"],
            "Counts are real, but these values are complex",
        ),
    ):
        assert cli.main(["import", *map(str, words)]) == 2, words
        assert message in capsys.readouterr().err, words
    assert not Path("x.h5").exists()
