import itertools

import pytest
import torch
from conftest import Function, mask_blind_denoiser, z_score

from gsure import Clipped, Denoiser, Hadamard, Identity, Schedule, ddim, ddpm, dpm, generators, mlp, unet, unipc
from gsure.sampling import times

SCHEDULE = Schedule.linear(1e-4, 0.02, 1000)
VARIANCES = torch.tensor([0.04, 0.5, 1.0, 3.0], dtype=torch.float64)


def gaussian_denoiser(schedule: Schedule) -> Denoiser:
    """E[x̄|x̄_t] for x̄ ~ N(0, diag(VARIANCES))."""

    def f(x_t, t):
        alpha_bar_t = schedule.at(t, like=x_t)
        return alpha_bar_t.sqrt() * VARIANCES / (alpha_bar_t * VARIANCES + 1 - alpha_bar_t) * x_t

    return Denoiser(Function(f), schedule, Identity())


def test_one_step_is_the_denoiser_itself(generator):
    denoiser = gaussian_denoiser(SCHEDULE)
    start = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = denoiser(start, torch.full((5,), 1000))
    torch.testing.assert_close(ddim(denoiser, (5, 4), steps=1, generator=generator), expected)


def test_deterministic_ddim_converges_to_the_closed_form_flow(generator):
    """The probability flow maps x̄_T to x̄_0 = x̄_T √(v / (ᾱ_T v + 1 - ᾱ_T)) in each direction; the error falls as 1/steps."""
    schedule = Schedule.for_noise(0.0, T=4000)
    start = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    alpha_bar_T = schedule.alpha_bar[-1]
    flow = start * (VARIANCES / (alpha_bar_T * VARIANCES + 1 - alpha_bar_T)).sqrt()
    errors = [
        float((ddim(gaussian_denoiser(schedule), (3, 4), steps, generator=generator.manual_seed(0)) - flow).abs().max())
        for steps in (125, 250, 500, 1000)
    ]
    assert errors[-1] < 0.02
    for coarse, fine in itertools.pairwise(errors):
        assert 1.6 < coarse / fine < 2.4


@pytest.mark.parametrize("predicts", ["x", "eps"])
@pytest.mark.parametrize(("sampler", "order"), [(ddim, 1), (dpm, 2), (unipc, 2)])
def test_solvers_converge_to_the_flow_at_their_orders(sampler, order, predicts, generator):
    """The map from start to sample is linear, so this is mean and covariance too. Each doubling of steps must gain 2^order."""
    schedule = Schedule.linear(2.5e-5, 0.005, T=4000)

    def f(x_t, t):
        alpha_bar_t = schedule.at(t, like=x_t)
        x_hat = alpha_bar_t.sqrt() * VARIANCES / (alpha_bar_t * VARIANCES + 1 - alpha_bar_t) * x_t
        return x_hat if predicts == "x" else (x_t - alpha_bar_t.sqrt() * x_hat) / (1 - alpha_bar_t).sqrt()

    denoiser = Denoiser(Function(f), schedule, Identity(), predicts)
    start = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    alpha_bar_T = schedule.alpha_bar[-1]
    flow = start * (VARIANCES / (alpha_bar_T * VARIANCES + 1 - alpha_bar_T)).sqrt()
    errors = [
        float(
            (sampler(denoiser, (3, 4), steps, spacing="quadratic", generator=generator.manual_seed(0)) - flow)
            .abs()
            .max()
        )
        for steps in (20, 40, 80)
    ]
    rates = [coarse / fine for coarse, fine in itertools.pairwise(errors)]
    assert all(rate > 0.8 * 2**order for rate in rates)
    assert order > 1 or all(rate < 2.4 for rate in rates)  # the control: first order is not second
    assert errors[-1] < {1: 0.05, 2: 1e-3}[order]


@pytest.mark.parametrize("spacing", ["even", "quadratic", "logsnr"])
@pytest.mark.parametrize("steps", [1, 2, 7, 50, 999, 1000])
def test_times_fall_strictly_from_the_last_to_zero(spacing, steps):
    path = times(SCHEDULE, steps, spacing)
    assert (path[0], path[-1], len(path)) == (1000, 0, steps + 1)
    assert all(t > s for t, s in itertools.pairwise(path))


def test_spacings_are_what_they_say(outside):
    levels = SCHEDULE.sigma[times(SCHEDULE, 10, "logsnr")[:-1]].log().diff()
    assert float(levels.std() / levels.mean().abs()) < 0.15
    assert times(SCHEDULE, 10, "quadratic")[5] == 250
    with pytest.raises(ValueError, match="spacing is one of even, quadratic, logsnr"):
        times(SCHEDULE, 10, "odd")


def test_ancestral_sampling_is_ddim_with_eta_one():
    denoiser = gaussian_denoiser(SCHEDULE)
    one, other = (
        sampler(denoiser, (2, 4), 20, **options, generator=generators(0, indices=[0, 1]))
        for sampler, options in ((ddpm, {}), (ddim, {"eta": 1.0}))
    )
    assert one.equal(other)


def test_a_schedule_that_ends_in_nothing_but_noise_is_sampled_too():
    """There 1-ᾱ_s-τ² is 0, and may be rounded to less."""
    schedule = Schedule.linear(1e-4, 0.1)
    denoiser = Denoiser(Function(lambda x_t, t: 0 * x_t), schedule, Identity())
    for steps in (2, 3, 5, 10):
        for spacing in ("even", "quadratic"):
            x = ddpm(denoiser, (4, 2), steps, spacing, generator=generators(0, indices=range(4)))
            assert x.isfinite().all()
            assert not x.is_complex()


def test_clipping_bounds_the_estimate_in_signal_space():
    """In a basis other than the signal's too; and it does nothing to what lies within."""
    inner = Denoiser(Function(lambda x_t, t: 3 * x_t), SCHEDULE, Hadamard())
    x = torch.linspace(-1, 1, 8, dtype=torch.float64).reshape(1, 1, 8)[..., None].expand(1, 1, 8, 8).contiguous()
    clipped = Hadamard().to_signal(Clipped(inner)(Hadamard().to_spectral(x), torch.tensor([5])))
    torch.testing.assert_close(clipped, (3 * x).clamp(-1, 1))


@pytest.mark.parametrize("eta", [0.5, 1.0])
def test_stochastic_ddim_has_the_variance_that_its_recursion_implies(eta, generator):
    n, steps = 40_000, 20
    x = ddim(gaussian_denoiser(SCHEDULE), (n, 4), steps, eta, generator=generator)
    variance = torch.ones(4, dtype=torch.float64)
    path = [round(1000 * (steps - k) / steps) for k in range(steps + 1)]
    for t, s in itertools.pairwise(path):
        a_t, a_s = SCHEDULE.alpha_bar[t], SCHEDULE.alpha_bar[s]
        shrink = a_t.sqrt() * VARIANCES / (a_t * VARIANCES + 1 - a_t)
        tau2 = eta**2 * (1 - a_s) / (1 - a_t) * (1 - a_t / a_s)
        factor = a_s.sqrt() * shrink + (1 - a_s - tau2).sqrt() * (1 - a_t.sqrt() * shrink) / (1 - a_t).sqrt()
        variance = factor**2 * variance + tau2
    assert z_score(x**2 - variance).abs().max() < 5
    assert z_score(x**2 - 1.1 * variance).abs().max() > 5


def test_ancestral_sampling_with_all_steps_draws_from_the_data(generator):
    x = ddim(gaussian_denoiser(SCHEDULE), (4000, 4), steps=1000, eta=1.0, generator=generator)
    assert z_score(x).abs().max() < 5
    assert z_score(x**2 - VARIANCES).abs().max() < 5


def test_sample_k_does_not_depend_on_its_batch():
    denoiser = Denoiser(mlp(4, width=16, depth=2), SCHEDULE, Identity())
    whole = ddim(denoiser, (6, 4), 10, eta=0.7, generator=generators(0, indices=range(6)))
    part = ddim(denoiser, (2, 4), 10, eta=0.7, generator=generators(0, indices=[4, 5]))
    torch.testing.assert_close(whole[4:], part)


def test_the_same_seed_gives_the_same_bytes_without_dropout_and_leaves_the_mode_alone():
    denoiser = Denoiser(
        unet(8, 1, width=16, multipliers=(1, 2), attention=(), dropout=0.5), SCHEDULE, Identity()
    ).train()
    first, same = (ddim(denoiser, (2, 1, 8, 8), 3, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert first.equal(same)
    assert denoiser.training


@pytest.mark.parametrize(
    ("options", "message"),
    [({"steps": 1001}, "1001 were asked"), ({"steps": 0}, "between 1 and"), ({"eta": 1.5}, "eta")],
)
def test_impossible_samplers_are_refused(options, message, generator):
    with pytest.raises(ValueError, match=message):
        ddim(gaussian_denoiser(SCHEDULE), (1, 4), **options, generator=generator)


@pytest.mark.parametrize(("eta", "expected"), [(0.0, (0.84, 0.77, 0.70)), (1.0, (0.87, 0.84, 0.80))])
def test_mask_blindness_loses_correlation_even_with_the_exact_denoiser(eta, expected, generator):
    """A documented limitation: at keep-probability .8, .6, .4, data of correlation .9 is generated with less."""
    steps = 1000 if eta else 250
    for keep, correlation in zip((0.8, 0.6, 0.4), expected, strict=True):
        x = ddim(mask_blind_denoiser(0.9, keep), (8000, 2), steps, eta, generator=generator)
        assert float(torch.corrcoef(x.mT)[0, 1]) == pytest.approx(correlation, abs=0.02)
    # Nothing masked, nothing lost:
    x = ddim(mask_blind_denoiser(0.9, 1 - 1e-9), (8000, 2), steps, eta, generator=generator)
    assert float(torch.corrcoef(x.mT)[0, 1]) == pytest.approx(0.9, abs=0.01)
