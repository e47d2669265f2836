import itertools
import math

import pytest
import torch
from conftest import Function, z_score

from gsure import Denoiser, Identity, Measurement, Schedule, ddim, ddrm, generators, mlp
from gsure.restoration import choose_noise

SCHEDULE = Schedule.linear(1e-4, 0.02, 1000)
VARIANCES = torch.tensor([0.04, 0.5, 1.0, 3.0], dtype=torch.float64)


def gaussian_denoiser() -> Denoiser:
    def f(x_t, t):
        alpha_bar_t = SCHEDULE.at(t, like=x_t)
        return alpha_bar_t.sqrt() * VARIANCES / (alpha_bar_t * VARIANCES + 1 - alpha_bar_t) * x_t

    return Denoiser(Function(f), SCHEDULE, Identity())


def test_without_noise_kept_entries_are_reproduced_exactly(generator):
    mask = torch.tensor([[1, 0, 1, 0], [0, 1, 1, 1]]).double()
    ybar = mask * torch.randn(2, 4, generator=generator, dtype=torch.float64)
    xbar = ddrm(gaussian_denoiser(), Measurement(ybar, mask, 0.0), 20, generator=generator)
    assert (xbar * mask).equal(ybar)
    assert (xbar * (1 - mask)).any()


def test_a_full_mask_without_noise_returns_the_measurement(generator):
    ybar = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    assert ddrm(gaussian_denoiser(), Measurement.clean(ybar), 50, generator=generator).equal(ybar)


def test_an_empty_mask_without_stochasticity_is_ddim_from_the_same_start():
    nothing = Measurement(torch.zeros(3, 4, dtype=torch.float64), 0.0, 0.3)
    restored = ddrm(gaussian_denoiser(), nothing, 25, eta=0.0, generator=torch.Generator().manual_seed(0))
    sampled = ddim(gaussian_denoiser(), (3, 4), 25, generator=torch.Generator().manual_seed(0))
    start = (1 - SCHEDULE.alpha_bar[-1]).sqrt()  # ddim starts at ε, ddrm at √(1-ᾱ_T) ε; this denoiser is linear
    torch.testing.assert_close(restored, start * sampled)


@pytest.mark.parametrize("eta", [0.5, 0.85, 1.0])
def test_dropped_entries_spread_as_the_algorithm_implies(eta, generator):
    n, steps = 40_000, 20
    mask = torch.tensor([[0.0, 0.0, 0.0, 1.0]]).double()
    data = Measurement(torch.ones(n, 4).double() * mask, mask, 0.1)
    xbar = ddrm(gaussian_denoiser(), data, steps, eta, generator=generator)

    def variance(noise: float) -> torch.Tensor:
        sigma = SCHEDULE.sigma
        value = sigma[-1] ** 2 * torch.ones(4, dtype=torch.float64)
        for t, s in itertools.pairwise(round(1000 * (steps - k) / steps) for k in range(steps + 1)):
            c = VARIANCES / (VARIANCES + sigma[t] ** 2)
            value = (c + (1 - eta**2) ** 0.5 * sigma[s] / sigma[t] * (1 - c)) ** 2 * value + noise * eta**2 * sigma[
                s
            ] ** 2
        return value

    dropped = slice(0, 3)
    assert z_score(xbar**2 - variance(1.0))[dropped].abs().max() < 5
    assert z_score(xbar**2 - variance(0.5))[dropped].abs().max() > 5  # a hidden 1/√2 on the noise


def test_noisy_kept_entries_have_the_law_that_the_algorithm_implies(generator):
    """Mean and variance by the affine recursion. Against the exact posterior DDRM is an approximation: of x ~ N(0, 1)
    measured as 1 with std 0.5, the mean is right within 10 %, but the spread is too small by about a half."""
    n, steps, std, y, eta, eta_b = 40_000, 100, 0.5, 1.0, 0.85, 0.9
    data = Measurement(torch.full((n, 4), y, dtype=torch.float64), 1.0, std)
    xbar = ddrm(gaussian_denoiser(), data, steps, eta, eta_b, generator=generator)
    sigma = SCHEDULE.sigma
    mean, variance = y * torch.ones(4).double(), (sigma[-1] ** 2 - std**2) * torch.ones(4).double()
    for t, s in itertools.pairwise(round(1000 * (steps - k) / steps) for k in range(steps + 1)):
        c = VARIANCES / (VARIANCES + sigma[t] ** 2)
        if sigma[s] >= std:
            factor, shift, noise = (1 - eta_b) * c, eta_b * y, sigma[s] ** 2 - eta_b**2 * std**2
        else:
            pull = (1 - eta**2) ** 0.5 * sigma[s] / std
            factor, shift, noise = (1 - pull) * c, pull * y, eta**2 * sigma[s] ** 2
        mean, variance = factor * mean + shift, factor**2 * variance + noise
    assert z_score(xbar - mean).abs().max() < 5
    assert z_score((xbar - mean) ** 2 - variance).abs().max() < 5
    posterior_mean, posterior_std = 1 / (1 + std**2), (std**2 / (1 + std**2)) ** 0.5
    assert mean[2].item() == pytest.approx(posterior_mean, rel=0.1)
    assert 0.4 < variance[2].sqrt().item() / posterior_std < 0.7


def lost_by_eight_draws(measurement: Measurement, covariance: torch.Tensor, eta: float, spacing: str) -> float:
    """Decibels between the mean of 8 draws of smooth signals and the mean of 8 exact draws, by the exact denoiser."""
    values, vectors = torch.linalg.eigh(covariance)

    def f(x_t, t):
        a = SCHEDULE.at(t, like=x_t)
        return (a.sqrt() * values / (a * values + 1 - a) * (x_t @ vectors)) @ vectors.mT

    many = Measurement.cat([measurement] * 8)
    draws = ddrm(Denoiser(Function(f), SCHEDULE, Identity()), many, 50, eta, spacing=spacing, generator=1)
    mean = draws.reshape(8, *measurement.shape).mean(0)
    kept = measurement.mask[:, :, None].expand(-1, -1, len(values))
    inner = kept * kept.mT * covariance + torch.diag_embed(measurement.std**2 + 1 - measurement.mask)
    gain = (covariance * kept.mT) @ torch.linalg.inv(inner)
    exact = (gain @ measurement.ybar[..., None])[..., 0]
    variance = torch.diagonal(covariance - gain @ (kept * covariance), dim1=1, dim2=2)
    return 10 * math.log10((1 + float((mean - exact).square().mean() / variance.mean())) / (1 + 1 / 8))


@pytest.mark.parametrize(("is_complete", "std"), [(True, 0.1), (True, 0.2), (True, 0.4), (False, 0.02), (False, 0.1)])
def test_the_default_noise_suits_what_is_missing(is_complete, std, generator):
    x = torch.arange(24.0).double()
    covariance = torch.exp(-((x[:, None] - x) ** 2) / 8) + 1e-4 * torch.eye(24)
    signals = torch.randn(200, 24, generator=generator, dtype=torch.float64) @ torch.linalg.cholesky(covariance).mT
    mask = torch.ones(200, 24).double() if is_complete else (torch.rand(200, 24, generator=generator) < 0.4).double()
    noise = std * torch.randn(200, 24, generator=generator, dtype=torch.float64)
    measurement = Measurement(mask * (signals + noise), mask, std)
    lost = lost_by_eight_draws(measurement, covariance, *choose_noise(is_complete))
    other = lost_by_eight_draws(measurement, covariance, *choose_noise(not is_complete))
    assert lost + 0.1 < other, "control: what suits masks does not suit complete signals, and the other way round"
    if is_complete:
        assert lost < 0.1
    assert choose_noise(is_complete, 0.3, "logsnr") == (0.3, "logsnr")


def test_a_restoration_does_not_depend_on_its_batch(generator):
    denoiser = Denoiser(mlp(4, width=16, depth=2), SCHEDULE, Identity())
    mask = (torch.rand(5, 4, generator=generator) < 0.5).float()
    data = Measurement(mask * torch.randn(5, 4, generator=generator), mask, torch.rand(5, 4, generator=generator))
    whole = ddrm(denoiser, data, 10, generator=generators(0, indices=range(5)))
    part = ddrm(denoiser, data[3:], 10, generator=generators(0, indices=[3, 4]))
    torch.testing.assert_close(whole[3:], part, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_that_equals_a_level_of_the_schedule_is_no_trouble(dtype, generator):
    for std in torch.linspace(0.02, 0.4, 30).tolist():
        schedule = Schedule.for_noise(std, T=20)
        denoiser = Denoiser(Function(lambda x_t, t: 0.5 * x_t), schedule, Identity())
        levels = schedule.sigma[[1, 2, 5]].to(dtype)
        data = Measurement(torch.ones(2, 3, dtype=dtype), 1.0, levels[None])
        assert ddrm(denoiser, data, 20, generator=generator).isfinite().all()


def test_noise_above_the_last_level_is_no_information(generator):
    data = Measurement(torch.full((2, 4), 1e6, dtype=torch.float64), 1.0, 1e6)
    xbar = ddrm(gaussian_denoiser(), data, 10, eta=1.0, generator=generator)
    assert xbar.isfinite().all()


@pytest.mark.parametrize("options", [{"eta": 1.2}, {"eta_b": -0.1}])
def test_impossible_restorations_are_refused(options, generator):
    with pytest.raises(ValueError, match="must lie between 0 and 1"):
        ddrm(gaussian_denoiser(), Measurement.clean(torch.zeros(1, 4).double()), 5, **options, generator=generator)
