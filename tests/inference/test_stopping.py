"""Means of draws in context that stop at a noise level, and the choice of that level by hidden measured entries."""

import pytest
import torch
from torch import nn

from gsure import Identity, Measurement, Schedule
from gsure.denoiser import ResidualDenoiser
from gsure.gaussian import About
from gsure.gaussian.blocks import BlockGaussian, Blocks
from gsure.gaussian.coordinates import Entries
from gsure.inference.methods import Draws, OneCall
from gsure.inference.stopping import choose_stop
from gsure.random import Stream, generators
from gsure.restoration import context_path, falling_levels

SCHEDULE = Schedule.for_noise(0.05)
SHAPE = (1, 1, 16)
ABOUT = About(Identity(), SHAPE, False, torch.zeros(1, 1, 1, 16), (1, 1))


def gaussian() -> BlockGaussian:
    distance = (torch.arange(16.0)[:, None] - torch.arange(16.0)).abs()
    covariance = torch.exp(-distance / 4)[None] + 0.02 * torch.eye(16)
    return BlockGaussian(Entries(Identity(), SHAPE), Blocks(torch.zeros(1, 16), covariance))


class Adds(nn.Module):
    """Adds an error where a missing entry has no value at all, as a network may that was trained too little for one call."""

    def __init__(self, error: float):
        super().__init__()
        self.error = error

    def forward(self, x, t, levels):
        return self.error * (levels == 0).float().expand(len(x), *SHAPE)


def measured(n: int, generator: torch.Generator) -> tuple[Measurement, torch.Tensor]:
    base, nothing = gaussian(), Measurement(torch.zeros(n, *SHAPE), torch.zeros(n, *SHAPE), 0.0)
    xbar = base.draw(nothing, generator)
    mask = (torch.rand(n, *SHAPE, generator=generator) < 0.5).float()
    return Measurement(mask * (xbar + 0.05 * torch.randn(xbar.shape, generator=generator)), mask, 0.05), xbar


def drawing(error: float = 0.0, stop: int | None = None, steps: int = 20) -> Draws:
    denoiser = ResidualDenoiser(Adds(error), SCHEDULE, Identity(), gaussian())
    return Draws(denoiser, "context", 4, steps, 0.0, 1.0, "logsnr", 0, stop=stop)


def test_the_mean_of_stopped_draws_has_a_smaller_error_than_that_of_as_many_complete_draws(generator):
    measurement, xbar = measured(100, generator)
    path = context_path(drawing().denoiser, measurement, 20, draws=4, generator=generator)
    means = [x.unflatten(0, (4, -1)).mean(0) for x in path]
    errors = torch.stack([(mean - xbar).square().flatten(1).sum(1) for mean in means])
    gained = errors[-1] - errors[8]  # of the same draws
    assert float(gained.mean()) > 5 * float(gained.std()) / 100**0.5
    exact = gaussian().mean(measurement)
    away = [float((mean - exact).square().mean()) for mean in means]
    assert away == sorted(away)  # the higher the level, the nearer to the posterior mean


def test_restorers_average_at_the_chosen_level_and_keep_their_draws(generator):
    measurement, _ = measured(5, generator)
    indices = list(range(5))
    complete, stopped = drawing()(measurement, indices), drawing(stop=6)(measurement, indices)
    torch.testing.assert_close(stopped.draws, complete.draws)
    torch.testing.assert_close(stopped.std, complete.std)
    torch.testing.assert_close(complete.mean, complete.draws.mean(0))
    noise = [g for draw in range(4) for g in generators(0, Stream.RESTORE, draw, indices=indices)]
    *path, _ = context_path(drawing().denoiser, measurement, 20, draws=4, generator=noise)
    torch.testing.assert_close(stopped.mean, path[6].unflatten(0, (4, -1)).mean(0))
    assert not stopped.mean.allclose(complete.mean, atol=1e-2)
    call = OneCall(drawing()).stop_at(6)
    torch.testing.assert_close(call(measurement, indices).mean, stopped.mean)
    torch.testing.assert_close(call.mean(measurement, indices), stopped.mean)
    assert call.options()["mean_at_level"] == pytest.approx(falling_levels(20)[6], rel=1e-2)
    torch.testing.assert_close(call.few(4)(measurement, indices).mean, OneCall(drawing()).mean(measurement, indices))


def test_hidden_entries_choose_the_level(generator):
    measurement, xbar = measured(60, generator)
    batches = [(measurement, list(range(60)))]
    found = choose_stop(drawing(steps=8), "context", ABOUT, batches)
    assert found is not None
    assert found.step is not None
    assert found.step < 3  # far from complete draws
    exact = choose_stop(drawing(steps=8), "mean", ABOUT, batches)
    assert exact is not None
    assert exact.step is None  # the control: one call of the exact denoiser is the posterior mean
    poor = choose_stop(drawing(error=0.5, steps=8), "mean", ABOUT, batches)
    assert poor is not None
    assert poor.step is not None
    restorer = OneCall(drawing(error=0.5, steps=8))
    one, several = (r.mean(measurement, list(range(60))) for r in (restorer, restorer.stop_at(poor.step)))
    gained = ((one - xbar).square() - (several - xbar).square()).flatten(1).sum(1)
    assert float(gained.mean()) > 5 * float(gained.std()) / 60**0.5  # also on entries that were never measured


def test_nothing_is_chosen_where_nothing_can_be_hidden(generator):
    measurement, _ = measured(4, generator)
    always = About(Identity(), SHAPE, False, torch.ones(1, 1, 1, 16), (1, 1))
    assert choose_stop(drawing(steps=8), "mean", always, [(measurement, list(range(4)))]) is None
