"""Draws that contradict their measurement, or leave the range of the data, are repeated, and then excluded and reported."""

import numpy as np
import pytest
import torch
from conftest import Function

import gsure
from gsure import Denoiser, Identity, Measurement, Schedule
from gsure.gaussian.blocks import BlockGaussian, Blocks
from gsure.gaussian.coordinates import Entries
from gsure.inference.guard import Guard, Tally, chi_squared, is_below_baseline, mean_and_std
from gsure.inference.methods import Draws

SIDE = 6


def covariance() -> torch.Tensor:
    x = torch.arange(SIDE).double()
    smooth = torch.exp(-((x[:, None] - x) ** 2) / 6) + 1e-3 * torch.eye(SIDE)
    return torch.kron(smooth, smooth)


def measured(n: int, std: float, generator: torch.Generator) -> tuple[Measurement, BlockGaussian]:
    blocks = Blocks(torch.zeros(1, SIDE**2, dtype=torch.float64), covariance()[None])
    gaussian = BlockGaussian(Entries(Identity(), (1, SIDE, SIDE)), blocks)
    nothing = Measurement(torch.zeros(n, 1, SIDE, SIDE, dtype=torch.float64), 0.0, 0.0)
    mask = (torch.rand(n, 1, SIDE, SIDE, generator=generator) < 0.5).double()
    mask[:, :, 0, 0] = 1
    noise = std * torch.randn(mask.shape, generator=generator, dtype=torch.float64)
    return Measurement(mask * (gaussian.draw(nothing, generator) + noise), mask, std), gaussian


@pytest.mark.parametrize("std", [0.0, 0.1, 0.5])
def test_draws_from_the_posterior_are_not_rejected_and_planted_ones_are(std, generator):
    measurement, gaussian = measured(2000, std, generator)
    draws, basis = gaussian.draw(measurement, generator), Identity()
    guard = Guard.of(measurement[:100], basis, torch.full((1, 1, SIDE, SIDE), 0.5).double())
    assert not guard.rejects(draws, measurement, basis).any()
    assert float(chi_squared(draws, measurement).mean()) < 1.05
    noise = torch.randn(draws.shape, generator=generator, dtype=torch.float64)
    kept, missing = measurement.mask, 1 - measurement.mask
    planted = {
        "contradicts": draws + 8 * max(std, 0.3) * noise * kept,
        "too large": draws + 9 * missing,
        "one pixel": torch.where(
            missing * (missing.flatten(1).cumsum(1).reshape(missing.shape) == 1) == 1, 20.0, draws
        ),
        "not a number": draws * torch.nan,
        "infinite": draws + torch.inf * missing,
    }
    for name, bad in planted.items():
        has_missing = missing.flatten(1).sum(1) > 5
        assert float(guard.rejects(bad, measurement, basis)[has_missing].double().mean()) > 0.99, name


def test_draws_below_the_zero_filled_image_are_recognised_without_clean_data(generator):
    measurement, gaussian = measured(2000, 0.1, generator)
    missing, mean = 1 - measurement.mask, gaussian.mean(measurement)
    truth, draws = gaussian.draw(measurement, generator), gaussian.draw(measurement, generator)

    def power(x):
        return (missing * x.square()).flatten(1).sum(1)

    is_clear = power(mean) > 4 * power(draws - mean)  # the Gaussian knows most of what is missing
    assert int(is_clear.sum()) > 1000
    assert not is_below_baseline(draws, mean, measurement)[is_clear].any()
    noise = missing * torch.randn(truth.shape, generator=generator, dtype=torch.float64)
    wanted = 10**0.14 * power(truth)  # 1.4 dB below the zero-filled image, which has the error `power(truth)`
    planted = truth + noise * (wanted / power(noise).clamp(min=1e-9)).sqrt().reshape(-1, 1, 1, 1)
    assert float(is_below_baseline(planted, mean, measurement)[is_clear].double().mean()) > 0.95
    better = truth + 0.4 * (planted - truth)  # the control: 6.6 dB above it
    assert float(is_below_baseline(better, mean, measurement)[is_clear].double().mean()) < 0.05


def test_each_draw_is_judged_on_its_own(generator):
    measurement, gaussian = measured(20, 0.1, generator)
    draws = gaussian.draw(measurement, generator) + 0.5 * torch.randn(measurement.shape, generator=generator)
    guard = Guard(3.0, 1.0)
    whole = guard.rejects(draws, measurement, Identity())
    parts = [guard.rejects(draws[k : k + 1], measurement[k : k + 1], Identity()) for k in range(20)]
    assert torch.cat(parts).equal(whole)
    assert 0 < int(whole.sum()) < 20


def test_the_mean_is_that_of_good_draws(generator):
    x = torch.randn(4, 3, 2, generator=generator)
    is_bad = torch.tensor([[0, 1, 1], [0, 0, 1], [1, 0, 1], [0, 0, 1]]).bool()
    spoiled = torch.where(is_bad[..., None] & (torch.arange(3) < 2)[:, None], torch.nan, x)
    mean, std = mean_and_std(spoiled, is_bad)
    for k, good in ((0, [0, 1, 3]), (1, [1, 2, 3]), (2, [0, 1, 2, 3])):  # where all are bad, all are used
        torch.testing.assert_close(mean[k], x[good, k].mean(0))
        torch.testing.assert_close(std[k], x[good, k].std(0))
    torch.testing.assert_close(mean_and_std(x[:1], is_bad[:1])[1], torch.zeros(3, 2))


@pytest.fixture
def problem(generator):
    """Measurements of smooth Gaussian images, and their exact denoiser."""
    measurement, _ = measured(6, 0.1, generator)
    values, vectors = torch.linalg.eigh(covariance())
    schedule = Schedule.linear(1e-4, 0.02, 1000)

    def f(x_t, t):
        a = schedule.at(t, like=x_t).reshape(-1, 1)
        flat = x_t.flatten(1).double()
        return ((a.sqrt() * values / (a * values + 1 - a) * (flat @ vectors)) @ vectors.mT).reshape(x_t.shape).to(x_t)

    denoiser = Denoiser(Function(f), schedule, Identity()).float()
    data = gsure.from_arrays(
        measurement.ybar.numpy().astype(np.float32), measurement.mask.numpy(), 0.1, basis=Identity()
    )
    return denoiser, data


OPTIONS = {"draws": 6, "steps": 10, "baselines": False}


def test_draws_of_a_prior_that_invents_are_reported_by_hidden_entries(problem, generator):
    """The prior knows smooth images. Of pixels that are independent, it invents what is missing."""
    n, root = 24, torch.linalg.cholesky(covariance())
    for is_smooth in (True, False):
        white = torch.randn(n, SIDE**2, generator=generator, dtype=torch.float64)
        x = (white @ root.mT if is_smooth else white).reshape(n, 1, SIDE, SIDE)
        mask = (torch.rand(x.shape, generator=generator) < 0.5).double()
        y = mask * (x + 0.1 * torch.randn(x.shape, generator=generator, dtype=torch.float64))
        data = gsure.from_arrays(y.float().numpy(), mask.numpy(), 0.1, basis=Identity())
        restored = gsure.restore(problem[0], data, method="moments", **OPTIONS)
        error = ((1 - mask) * (restored.draws.reshape(-1, *x.shape) - x)).square().flatten(2).sum(2)
        is_below = error > ((1 - mask) * x).square().flatten(1).sum(1)
        reported = restored.reported_draws
        assert (float(is_below.float().mean()) < 0.1) if is_smooth else bool(is_below.float().mean() > 0.9)
        assert (float(reported.float().mean()) < 0.25) if is_smooth else bool(reported[is_below].float().mean() > 0.9)


def spoil(monkeypatch, always: bool) -> None:
    """About a fifth of the draws diverge: at the first attempt, or always."""
    original = Draws._draw

    def drawn(self, measurement, draws, generator, steps):
        found = original(self, measurement, draws, generator, steps)
        x = found.xbar
        spoiled = [always if steps > self.steps else g.initial_seed() % 5 == 0 for g in generator]
        return found._replace(xbar=x + 9 * torch.tensor(spoiled).to(x).reshape(-1, 1, 1, 1))

    monkeypatch.setattr(Draws, "_draw", drawn)


def test_a_planted_bad_draw_is_repeated(problem, monkeypatch):
    good = gsure.restore(*problem, **OPTIONS)
    assert not any(key.endswith("draws") and key != "draws" for key in good.summary)
    spoil(monkeypatch, always=False)
    restored = gsure.restore(*problem, **OPTIONS)
    assert restored.summary["repeated draws"].endswith("contradicted their measurement or left the range of the data")
    assert "excluded draws" not in restored.summary
    assert float(restored.draws.abs().max()) < 5
    assert float((restored.mean - good.mean).abs().max()) < 1.0
    monkeypatch.setattr(Guard, "rejects", lambda self, xbar, *_: torch.zeros(len(xbar), dtype=torch.bool))
    assert float(gsure.restore(*problem, **OPTIONS).draws.abs().max()) > 5, "control: without the guard it stays"


def test_a_draw_that_stays_bad_is_reported_and_excluded(problem, monkeypatch):
    good = gsure.restore(*problem, **OPTIONS)
    spoil(monkeypatch, always=True)
    restored = gsure.restore(*problem, **OPTIONS)
    count = int(restored.summary["repeated draws"].split()[0])
    assert restored.summary["excluded draws"].startswith(
        f"{count} of 36 are still wrong after smaller steps: measurements"
    )
    assert (restored.draws.amax((2, 3, 4)) > 5).equal(restored.reported_draws)
    assert int(restored.reported_draws.sum()) == count
    assert float(restored.signals["draw"].raw().abs().max()) < 5, "the draw that is shown is a good one"
    assert float((restored.mean - good.mean).abs().max()) < 1.0
    assert float(restored.raw_std.max()) < 1.5


def test_what_is_excluded_does_not_depend_on_batches_or_processes(problem, tmp_path, monkeypatch):
    spoil(monkeypatch, always=True)
    denoiser, data = problem
    one = gsure.restore(denoiser, data, tmp_path / "one", batch=64, panels=0, **OPTIONS)
    memory = gsure.restore(denoiser, data, batch=12, **OPTIONS)
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        two = gsure.restore(denoiser, data, tmp_path / "two", batch=12, panels=0, **OPTIONS)
    for key in ("repeated draws", "excluded draws"):
        assert one.summary[key] == two.summary[key] == memory.summary[key]
    for kind in ("mean", "std", "draw"):
        torch.testing.assert_close(one.signals[kind].raw(), two.signals[kind].raw(), atol=1e-5, rtol=1e-4)


def test_a_measurement_without_a_good_draw_is_named():
    tally = Tally()
    tally.add([3, 4], torch.ones(2, 2).bool(), torch.tensor([[True, False], [True, True]]))
    assert tally.summary(5, 2)["excluded draws"].endswith(
        "3 of 10 are still wrong after smaller steps: measurements 3 (all), 4"
    )
    assert tally.summary(3, 2) == {}
