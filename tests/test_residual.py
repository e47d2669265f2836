"""The denoiser that adds to a Gaussian: without training it is the Gaussian, at any noise levels of the entries."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import gsure
from gsure import Fourier, Identity, Measurement, Schedule
from gsure.corruption import Lines
from gsure.denoiser import ResidualDenoiser
from gsure.gaussian.base import SolvedAnew
from gsure.gaussian.blocks import BlockGaussian, Blocks
from gsure.gaussian.coordinates import Entries, Rows
from gsure.gaussian.phase import Reference, ReferencedGaussian
from gsure.objective import Objective, Prediction
from gsure.restoration import context

SCHEDULE = Schedule.for_noise(0.05)
SIDE = 8


def gaussian_of_pixels(seed: int = 1) -> BlockGaussian:
    """Images of 1 × 1 × 12 pixels, strongly correlated."""
    distance = (torch.arange(12.0)[:, None] - torch.arange(12.0)).abs()
    covariance = torch.exp(-distance / 4)[None] + 0.02 * torch.eye(12)
    return BlockGaussian(Entries(Identity(), (1, 1, 12)), Blocks(torch.full((1, 12), 0.3), covariance))


def gaussian_of_rows(real: bool, seed: int = 1) -> BlockGaussian:
    generator = torch.Generator().manual_seed(seed)
    kind = torch.float32 if real else torch.complex64
    root = torch.randn(SIDE, SIDE, SIDE, generator=generator, dtype=kind)
    covariance = root @ root.mH / SIDE + 0.2 * torch.eye(SIDE)
    rows = Rows((2, SIDE, SIDE), real_images=real)
    return BlockGaussian(rows, Blocks(torch.zeros(SIDE, SIDE, dtype=kind), covariance, 1, SIDE))


class Silent(nn.Module):
    """Adds nothing, and keeps what it was given."""

    def forward(self, x, t, levels):
        self.seen, self.t, self.levels = x, t, levels
        return torch.zeros_like(x[:, : x.shape[1] // 2])


def draws(gaussian: BlockGaussian, n: int, generator) -> torch.Tensor:
    shape = gaussian.coordinates.shape
    nothing = Measurement._trusted(torch.zeros(n, *shape), torch.zeros(n, 1, 1, shape[-1]), torch.zeros(1, 1, 1, 1))
    return gaussian.draw(nothing, generator)


@pytest.mark.parametrize("real", [True, False])
def test_without_training_an_estimate_is_the_gaussians(real, generator):
    base = gaussian_of_rows(real)
    denoiser = ResidualDenoiser(Silent(), SCHEDULE, Fourier(), base)
    measurement = Lines(R=2.0).apply(torch.randn(3, 2, SIDE, SIDE, generator=generator), 0.05, generator)
    torch.testing.assert_close(denoiser.estimate(measurement), base.mean(measurement), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("make", [gaussian_of_pixels, lambda: gaussian_of_rows(True), lambda: gaussian_of_rows(False)])
def test_where_nothing_is_missing_the_quick_way_equals_the_posterior_mean(make, generator):
    base = make()
    xbar = draws(base, 4, generator)
    sigma = torch.tensor([0.1, 0.5, 2.0, 9.0])
    ybar = xbar + sigma.reshape(-1, 1, 1, 1) * torch.randn(xbar.shape, generator=generator)
    if base.real_images:  # the noise of a real image has a symmetric spectrum
        ybar = Fourier().to_spectral(Fourier().to_signal(ybar) * torch.tensor([1.0, 0.0]).reshape(1, 2, 1, 1))
    mask = torch.ones(4, 1, 1, xbar.shape[-1])
    slow = base.mean(Measurement(ybar, mask, sigma.reshape(-1, 1, 1, 1)))
    torch.testing.assert_close(base.denoise(ybar, sigma), slow, atol=1e-4, rtol=1e-3)


def test_the_network_knows_the_noise_level_of_each_entry(generator):
    network = Silent()
    denoiser = ResidualDenoiser(network, SCHEDULE, Identity(), gaussian_of_pixels())
    mask = torch.ones(1, 1, 1, 12)
    mask[..., :4] = 0
    denoiser.estimate(Measurement(mask * 0.5, mask, 0.05))
    assert network.levels[0, 0, 0, :4].tolist() == [0.0] * 4
    assert float(network.levels[0, 0, 0, 4:].min()) == pytest.approx(1.0, abs=1e-5)  # the lowest noise of the schedule
    std = torch.where(mask == 1, 0.05, 1.0)
    denoiser.estimate(Measurement(torch.randn(1, 1, 1, 12, generator=generator), torch.ones(1, 1, 1, 1), std))
    levels = network.levels[0, 0, 0]
    assert 0 < float(levels[0]) < float(levels[5])
    assert int(network.t) == int(SCHEDULE.first(torch.tensor([1.0])))


def test_a_mask_blind_denoiser_does_not_restore_in_one_call():
    denoiser = gsure.Denoiser(gsure.mlp(12, 8, 1), SCHEDULE, Identity())
    with pytest.raises(ValueError, match="only if the denoiser is mask-conditioned"):
        denoiser.estimate(
            Measurement(torch.zeros(1, 1, 1, 12), (torch.arange(12) > 0).float().expand(1, 1, 1, 12), 0.05)
        )
    with pytest.raises(ValueError, match="has no Gaussian"):
        ResidualDenoiser(Silent(), SCHEDULE, Identity()).estimate(Measurement.clean(torch.zeros(1, 1, 1, 12)))


# The loss on hidden entries


def test_prediction_has_the_posterior_mean_as_its_minimiser(generator):
    """The exact posterior mean has a smaller loss than one that is too smooth, and than one that is shifted."""
    base = gaussian_of_pixels()
    xbar = draws(base, 4000, generator)
    mask = (torch.rand(4000, 1, 1, 12, generator=generator) < 0.7).float()
    measurement = Measurement(mask * (xbar + 0.05 * torch.randn(xbar.shape, generator=generator)), mask, 0.05)
    prediction = Prediction((0.3, 1.0))

    class Off(BlockGaussian):
        def mean(self, measurement):
            return 0.8 * super().mean(measurement)

    losses = {}
    for name, one in {"exact": base, "off": Off(base.coordinates, base.blocks)}.items():
        denoiser = ResidualDenoiser(Silent(), SCHEDULE, Identity(), one)
        losses[name] = prediction(denoiser, measurement, torch.Generator().manual_seed(3))
    better = losses["off"] - losses["exact"]
    assert float(better.mean()) > 5 * float(better.std()) / len(better) ** 0.5


def test_prediction_at_the_noise_of_the_measurement_is_tweedie_with_hidden_entries(generator):
    """At t = 1 of a schedule that starts at the noise of the data, shown entries do not count, and hidden ones have γ P W²."""
    base = gaussian_of_pixels()
    denoiser = ResidualDenoiser(Silent(), SCHEDULE, Identity(), base)
    mask = torch.ones(5, 1, 1, 12)
    measurement = Measurement(draws(base, 5, generator), mask, 0.05)
    hidden = torch.zeros_like(mask)
    hidden[..., ::3] = 1
    shown = measurement.hide(hidden)

    class Given(Prediction):
        def show(self, measurement, generator):
            return shown

    by_prediction = Given()(denoiser, measurement, generator)
    objective = Objective("tweedie", coverage=1.0, floor=1.0)
    by_tweedie = objective.loss(denoiser, shown, measurement, torch.ones(5, dtype=torch.long), generator)
    constant = float((hidden * 0.05**2).flatten(1).mean())
    torch.testing.assert_close(by_prediction, by_tweedie + constant, atol=1e-3, rtol=1e-2)


def test_at_least_one_unit_is_shown(generator):
    measurement = Measurement(torch.ones(500, 1, 1, 4), torch.ones(500, 1, 1, 4), 0.1)
    shown = Prediction((0.99, 1.0)).show(measurement, generator)
    assert float(shown.mask.flatten(1).sum(1).min()) == 1
    centre = torch.tensor([0.0, 1.0, 1.0, 0.0]).reshape(1, 1, 1, 4)
    kept = Prediction((0.99, 1.0), always=centre).show(measurement, generator)
    assert bool((kept.mask[:, 0, 0, 1:3] == 1).all())


# Posterior draws


def test_draws_in_context_have_the_mean_and_the_variance_of_the_posterior(generator):
    base = gaussian_of_pixels()
    denoiser = ResidualDenoiser(Silent(), SCHEDULE, Identity(), base)
    mask = torch.ones(1, 1, 1, 12)
    mask[..., 3:8] = 0
    one = Measurement(mask * draws(base, 1, generator), mask, 0.05)
    n = 2000
    many = Measurement.cat([one] * n)
    found = context(denoiser, many, 40, (5.0, 0.01), generator=generator)
    mean, std = base.mean(one), base.std(one)
    missing = mask[0] == 0
    z = (found.mean(0) - mean[0]) / (std[0] / n**0.5)
    assert float(z[missing].abs().max()) < 5
    ratio = (found.std(0) / std[0])[missing]
    assert 0.93 < float(ratio.min()) <= float(ratio.max()) < 1.07
    few = context(denoiser, many[:200], 2, (5.0, 0.01), generator=generator)  # the control: two steps are too few
    assert not 0.93 < float((few.std(0) / std[0])[missing].mean()) < 1.07


@pytest.mark.parametrize("size", [(45, 32), (33, 47), (7, 5)])
def test_a_unet_takes_images_of_any_size(size, generator, outside):
    network = gsure.unet(size, 1, 8, (1, 2), (8,), groups=4, patch=2, mask_input="channels", inputs=2)
    x, mask = torch.randn(2, 2, *size, generator=generator), torch.ones(2, 1, *size)
    found = network.eval()(x, torch.ones(2, dtype=torch.long), mask)
    assert found.shape == (2, 1, *size)
    assert float(found.detach().std()) > 0


def referenced_gaussian(side: int, generator) -> ReferencedGaussian:
    rows = Rows((2, side, side))
    root = torch.randn(side, 2 * side, 2 * side, generator=generator)
    covariance = root @ root.mT / (2 * side) + 0.1 * torch.eye(2 * side)
    always = torch.zeros(side)
    always[side // 2 - 2 : side // 2 + 2] = 1
    reference = Reference.of_lines(rows, always)
    assert reference is not None
    mu = 0.3 * torch.randn(side, 2 * side, generator=generator)
    return ReferencedGaussian(rows, mu, covariance, reference)


def test_a_covariance_that_is_singular_but_for_rounding_can_be_drawn_from(generator):
    """As after a fit to few measurements, where eigenvalues of zero come out as small negative numbers."""
    base = referenced_gaussian(16, generator)
    values, vectors = torch.linalg.eigh(base.covariance)
    values[:, :20] = 0
    values[:, 0] = -3e-5 * values[:, -1]
    singular = replace(base, covariance=(vectors * values[:, None]) @ vectors.mT)
    with pytest.raises(torch.linalg.LinAlgError):
        torch.linalg.cholesky(singular.covariance)
    mask = torch.zeros(1, 1, 1, 16)
    mask[..., 6:10] = 1
    n = 3000
    one = Measurement(mask * torch.randn(1, 2, 16, 16, generator=generator), mask, 0.5)
    drawn = Fourier().to_signal(singular.draw(Measurement.cat([one] * n), generator))
    std = singular.std(one)[0]
    z = (drawn.mean(0) - Fourier().to_signal(singular.mean(one))[0]) / (std / n**0.5)
    assert float(z.abs().max()) < 5
    assert float((drawn.std(0) / std - 1).abs().max()) < 5 / (2 * n) ** 0.5


@pytest.mark.parametrize("std", [0.0, 0.05])
def test_a_level_of_noise_costs_no_system_and_gives_the_same_mean(std, generator):
    base = referenced_gaussian(16, generator)
    mask = torch.zeros(3, 1, 1, 16)
    mask[..., 6:10] = 1
    mask[0, ..., 1], mask[1, ..., 2:5], mask[2] = 1, 1, 1  # different numbers of missing entries; nothing is missing
    measurement = Measurement(mask * torch.randn(3, 2, 16, 16, generator=generator), mask, std)
    given, direct = base.given(measurement), SolvedAnew(base, measurement)
    missing = torch.randn(6, 2, 16, 16, generator=generator)  # two draws of each
    for level in (3.0, 0.3, 0.02):
        found, phase = given.mean_and_phase(missing, level)
        expected, expected_phase = direct.mean_and_phase(missing, level)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(phase, expected_phase)
    other, _ = given.mean_and_phase(missing, 0.1)
    assert float((other - found).abs().max()) > 0.01  # the level matters


def test_several_draws_in_context_are_those_of_repeated_measurements(generator):
    base = referenced_gaussian(8, generator)
    denoiser = ResidualDenoiser(Silent(), SCHEDULE, Fourier(), base)
    mask = torch.zeros(2, 1, 1, 8)
    mask[..., 2:6] = 1
    measurement = Measurement(mask * torch.randn(2, 2, 8, 8, generator=generator), mask, 0.05)
    together = context(denoiser, measurement, 5, draws=3, generator=gsure.generators(0, indices=range(6)))
    many = Measurement.cat([measurement] * 3)
    apart = context(denoiser, many, 5, generator=gsure.generators(0, indices=range(6)))
    torch.testing.assert_close(together, apart, atol=1e-4, rtol=1e-4)
