"""The Gaussian law with the moments of measurements, against laws that are known."""

import dataclasses

import pytest
import torch
from running import TINY, make_files

import gsure
from gsure import gaussian
from gsure.gaussian import Gaussian
from gsure.random import generators

N, STD, KEEP = 20_000, 0.5, 0.5


def covariance_of(n: int, pairs: bool) -> torch.Tensor:
    """A covariance of n entries, complex if they are pairs, with correlations that matter."""
    generator = torch.Generator().manual_seed(1)
    root = torch.randn(n, n, generator=generator, dtype=torch.complex128 if pairs else torch.float64)
    return root @ root.mH / n + 0.2 * torch.eye(n)


def signals(covariance: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    white = torch.randn(N, len(covariance), generator=generator, dtype=covariance.dtype)
    z = white @ torch.linalg.cholesky(covariance).mT
    return (torch.stack([z.real, z.imag], 1) if z.is_complex() else z[:, None]).float()


def measure(x: torch.Tensor, generator: torch.Generator, std: float = STD) -> gsure.Measurement:
    mask = (torch.rand(len(x), 1, *x.shape[2:], generator=generator) < KEEP).float()
    return gsure.Measurement(mask * (x + std * torch.randn(x.shape, generator=generator)), mask, std)


@pytest.mark.parametrize("pairs", [False, True])
def test_half_of_the_entries_under_noise_show_all_covariances(pairs, generator):
    covariance = covariance_of(5, pairs)
    measurement = measure(signals(covariance, generator), generator)
    fitted = Gaussian.fit([measurement[:7000], measurement[7000:]], pairs).covariance
    power = covariance.diagonal().real.max() + (2 if pairs else 1) * STD**2
    se = float(2**0.5 * power / (N * KEEP**2) ** 0.5)  # at most, of a product of two entries that are measured together
    assert float((fitted - covariance).abs().max()) < 5 * se
    noisy = Gaussian.fit([gsure.Measurement(measurement.ybar, measurement.mask, 0.0)], pairs).covariance
    assert float((noisy - covariance).abs().max()) > 5 * se, "control: noise that is not known of is taken for signal"


@pytest.mark.parametrize("pairs", [False, True])
def test_the_mean_is_the_linear_estimate_that_no_other_beats(pairs, generator):
    covariance = covariance_of(5, pairs)
    x = signals(covariance, generator)[:4000]
    measurement = measure(x, generator)
    means = Gaussian(covariance, pairs).mean(measurement)
    errors = (means - x).square().sum((1, 2))
    unrelated = Gaussian(covariance.diagonal().diag(), pairs)
    others = {
        "larger": 1.2 * means,
        "smaller": 0.8 * means,
        "as measured": measurement.ybar,
        "without correlations": unrelated.mean(measurement),
    }
    for name, other in others.items():
        worse = (other - x).square().sum((1, 2)) - errors
        assert float(worse.mean()) > 3 * float(worse.std() / len(x) ** 0.5), name


@pytest.mark.parametrize("pairs", [False, True])
def test_draws_for_measurements_have_the_distribution_of_signals(pairs, generator):
    """x ~ p(x), y ~ p(y | x), draw ~ p(x | y): the draw and x have the same law, and with y the same joint law."""
    covariance = covariance_of(4, pairs)
    x = signals(covariance, generator)[:8000]
    measurement = measure(x, generator)
    drawn = Gaussian(covariance, pairs).draw(measurement, generator)
    means = Gaussian(covariance, pairs).mean(measurement)
    for name, estimate, same in (("draws", drawn, True), ("means", means, False)):
        difference = _products(estimate, estimate) - _products(x, x)
        z = (difference.mean(0) / (difference.std(0) / len(x) ** 0.5)).abs().max()
        assert (float(z) < 4.5) == same, name
        joint = _products(estimate, measurement.ybar) - _products(x, measurement.ybar)
        assert float((joint.mean(0) / (joint.std(0) / len(x) ** 0.5)).abs().max()) < 4.5, name


def _products(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.flatten(1)[:, :, None] * b.flatten(1)[:, None, :]).flatten(1)


def test_a_draw_agrees_with_a_measurement_without_noise_and_depends_on_its_own_generator(generator):
    covariance = covariance_of(6, True)
    measurement = measure(signals(covariance, generator)[:9], generator, std=0.0)
    fitted = Gaussian(covariance, True)
    drawn = fitted.draw(measurement, generators(0, indices=range(9)))
    assert float((measurement.mask * (drawn - measurement.ybar)).abs().max()) < 1e-5
    alone = fitted.draw(measurement[4:5], generators(0, indices=[4]))
    assert torch.allclose(alone[0], drawn[4], atol=1e-6)


def test_entries_never_measured_together_count_as_unrelated(generator):
    x = torch.randn(500, 1, generator=generator).expand(500, 2)
    mask = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(250, 1)
    fitted = Gaussian.fit([gsure.Measurement(mask * x, mask, 0.0)]).covariance
    assert float(fitted[0, 1]) == pytest.approx(0, abs=1e-9)
    assert fitted.diagonal().tolist() == pytest.approx([1, 1], abs=0.4)


def test_noise_that_is_stated_larger_than_what_was_measured_is_refused(generator):
    x = 0.05 * torch.randn(200, 3, generator=generator)
    with pytest.raises(ValueError, match="is as large as all that was measured"):
        Gaussian.fit([gsure.Measurement(x, torch.ones(1, 1), 0.06)])


def test_a_gaussian_of_too_many_entries_is_refused_before_it_fills_the_memory(monkeypatch):
    monkeypatch.setattr(gaussian, "MAX_ENTRIES", 8)
    with pytest.raises(ValueError, match="of 9 entries is too large: 8 are the most"):
        Gaussian.fit([gsure.Measurement.clean(torch.zeros(2, 9))])


def test_so_is_training_that_would_need_one_before_it_writes(monkeypatch, tmp_path):
    data = make_files(tmp_path) / "d.h5"
    monkeypatch.setattr(gaussian, "MAX_ENTRIES", 8)
    with pytest.raises(ValueError, match=r"of 64 entries is too large: 8 are the most\. Remove 0 from --impute-at"):
        gsure.train(data, tmp_path / "run", dataclasses.replace(TINY, impute_at=(0,)))
    assert not (tmp_path / "run").exists()
