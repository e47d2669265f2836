"""Moment matching on Gaussian data, where the posterior is known: it must be reached; and how far DDRM is from it."""

import pytest
import torch
from conftest import Function, z_score

from gsure import Denoiser, Identity, Measurement, Posterior, Schedule, ddim, ddrm, dpm, generators, mlp
from gsure.posterior import solve

SCHEDULE = Schedule.linear(1e-4, 0.02, 1000)
FACTOR = torch.tensor([[1.0, 0, 0], [0.8, 0.5, 0], [-0.4, 0.3, 0.6]], dtype=torch.float64)
COVARIANCE = FACTOR @ FACTOR.mT
MASK = torch.tensor([[1.0, 0.0, 1.0]], dtype=torch.float64)
STD = torch.tensor([[0.3, 0.0, 0.6]], dtype=torch.float64)
YBAR = torch.tensor([[0.8, 0.0, -0.5]], dtype=torch.float64)


def gaussian() -> Denoiser:
    """E[x̄|x̄_t] for x̄ ~ N(0, COVARIANCE)."""
    values, vectors = torch.linalg.eigh(COVARIANCE)

    def f(x_t, t):
        a = SCHEDULE.at(t, like=x_t)
        return (a.sqrt() * values / (a * values + 1 - a) * (x_t @ vectors)) @ vectors.mT

    return Denoiser(Function(f), SCHEDULE, Identity())


def posterior() -> tuple[torch.Tensor, torch.Tensor]:
    kept = MASK[0] == 1
    gain = COVARIANCE[:, kept] @ torch.linalg.inv(COVARIANCE[kept][:, kept] + torch.diag(STD[0, kept] ** 2))
    return gain @ YBAR[0, kept], COVARIANCE - gain @ COVARIANCE[kept]


def repeated(n: int) -> Measurement:
    return Measurement(*(part.expand(n, -1) for part in (YBAR, MASK, STD)))


def test_it_is_the_exact_conditional_mean(generator):
    """E[x̄ | x̄_t, ȳ] of a Gaussian, by conditioning on both at once."""
    for t in (1, 200, 700):
        a = SCHEDULE.alpha_bar[t]
        x_t = torch.randn(4, 3, generator=generator, dtype=torch.float64)
        kept = MASK[0] == 1
        rows = torch.cat([a.sqrt() * torch.eye(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)[kept]])
        noise = torch.diag(torch.cat([(1 - a).expand(3), STD[0, kept] ** 2]))
        gain = COVARIANCE @ rows.mT @ torch.linalg.inv(rows @ COVARIANCE @ rows.mT + noise)
        expected = torch.cat([x_t, YBAR[:, kept].expand(4, -1)], 1) @ gain.mT
        estimate = Posterior(gaussian(), repeated(4), iterations=3)(x_t, torch.full((4,), t))
        torch.testing.assert_close(estimate, expected)


@pytest.mark.parametrize(
    ("sampler", "options"), [(ddim, {"steps": 500}), (ddim, {"steps": 1000, "eta": 1.0}), (dpm, {"steps": 100})]
)
def test_any_sampler_draws_from_the_exact_posterior(sampler, options, generator):
    n = 4000
    x = sampler(Posterior(gaussian(), repeated(n)), (n, 3), **options, generator=generator)
    mean, covariance = posterior()
    assert (z_score(x - mean).abs() < 5).all()
    deviations = (x - mean)[:, :, None] * (x - mean)[:, None, :]
    assert ((deviations.mean(0) - covariance).abs() < 5 * deviations.std(0) / n**0.5 + 0.01).all()
    prior = (x[:, :, None] * x[:, None, :]).mean(0) - COVARIANCE
    assert prior.abs().max() > 0.2  # the control: it is not the prior


def test_ddrm_is_further_from_the_posterior_than_moment_matching(generator):
    n = 4000
    mean, covariance = posterior()
    draws = {
        "moments": ddim(Posterior(gaussian(), repeated(n)), (n, 3), 200, 1.0, generator=generator),
        "ddrm": ddrm(gaussian(), repeated(n), 200, generator=generator),
    }
    off = {
        name: float((x.mean(0) - mean).abs().max() + (x.var(0) - covariance.diag()).abs().max())
        for name, x in draws.items()
    }
    assert off["moments"] < 0.05 < off["ddrm"]


def test_kept_entries_without_noise_are_reproduced(generator):
    measurement = Measurement(YBAR, MASK, 0.0)
    x = ddim(Posterior(gaussian(), measurement), (1, 3), 50, generator=generator)
    torch.testing.assert_close(x * MASK, YBAR, atol=1e-6, rtol=0.0)


def test_nothing_measured_is_plain_sampling():
    denoiser = Denoiser(mlp(3, width=16), SCHEDULE, Identity())
    nothing = Measurement(torch.zeros(2, 3), 0.0, 0.1)
    noise = [generators(0, indices=[0, 1]) for _ in range(2)]
    torch.testing.assert_close(
        ddim(Posterior(denoiser, nothing), (2, 3), 10, generator=noise[0]),
        ddim(denoiser, (2, 3), 10, generator=noise[1]),
    )


def test_conjugate_gradients_solve_each_system_of_a_batch(generator):
    factor = torch.randn(4, 5, 5, generator=generator, dtype=torch.float64)
    matrices = factor @ factor.mT + torch.eye(5, dtype=torch.float64)
    b = torch.randn(4, 5, generator=generator, dtype=torch.float64)
    b[2] = 0  # already solved
    diagonal = torch.rand(4, 5, generator=generator, dtype=torch.float64)
    u = solve(lambda v: torch.einsum("bij,bj->bi", matrices, v), diagonal, b, 5)
    torch.testing.assert_close(u, torch.linalg.solve(matrices + torch.diag_embed(diagonal), b))


def test_a_direction_in_which_the_jacobian_is_no_covariance_stops_only_its_own_sample():
    matrices = torch.stack([torch.eye(3), -torch.eye(3)]).double()
    b = torch.ones(2, 3, dtype=torch.float64)
    u = solve(lambda v: torch.einsum("bij,bj->bi", matrices, v), torch.full((2, 3), 0.5, dtype=torch.float64), b, 3)
    torch.testing.assert_close(u, torch.tensor([[2 / 3] * 3, [0.0] * 3], dtype=torch.float64))


def test_another_number_of_samples_than_measurements_is_refused(generator):
    with pytest.raises(ValueError, match=r"5 samples of shape .* for 2 measurements"):
        ddim(Posterior(gaussian(), repeated(2)), (5, 3), 2, generator=generator)
    with pytest.raises(ValueError, match="at least one iteration"):
        Posterior(gaussian(), repeated(2), iterations=0)
