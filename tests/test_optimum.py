"""Where the minima of the losses lie, on Gaussian data, where everything is known in closed form."""

import pytest
import torch
from conftest import Function, z_score

from gsure import Denoiser, Identity, Measurement, Objective, Schedule

ALPHA_BAR = 0.6
SCHEDULE = Schedule(torch.tensor([1 - ALPHA_BAR], dtype=torch.float64))
N = 200_000
C = torch.tensor([[1.0, 0.7, -0.3], [0.7, 1.5, 0.2], [-0.3, 0.2, 0.8]], dtype=torch.float64)
STD = torch.tensor([[0.2, 0.5, 0.35]], dtype=torch.float64)


def gaussian_data(keep: float) -> Measurement:
    g = torch.Generator().manual_seed(0)
    xbar = torch.randn(N, 3, generator=g).double() @ torch.linalg.cholesky(C).mT
    mask = (torch.rand(N, 3, generator=g) < keep).double()
    mask[:, 0] = torch.where(mask.any(1), mask[:, 0], 1.0)  # something is kept of each
    return Measurement(mask * (xbar + STD * torch.randn(N, 3, generator=g).double()), mask, STD)


def optimum(mask: torch.Tensor, excess: torch.Tensor | float = 0.0) -> torch.Tensor:
    """M with f*(x̄_t) = M x̄_t = E[x̄|x̄_t, P] + excess ∇log p(x̄_t|P), for each mask; `excess` is Λ - √ᾱ std²."""
    P = torch.diag_embed(mask)
    S = ALPHA_BAR * P @ C @ P + (1 - ALPHA_BAR) * torch.eye(3, dtype=torch.float64)
    posterior = ALPHA_BAR**0.5 * C @ P @ torch.linalg.inv(S)
    return posterior - torch.diag_embed(torch.as_tensor(excess).double().expand_as(mask)) @ torch.linalg.inv(S)


def z_of_gradient(objective: Objective, data: Measurement, M: torch.Tensor) -> float:
    """The largest standard score among the entries of dE[loss]/dM: below 5 at a stationary point."""
    M = M.expand(N, 3, 3).clone().requires_grad_()
    denoiser = Denoiser(Function(lambda x_t, t: torch.einsum("bij,bj->bi", M, x_t)), SCHEDULE, Identity())
    loss = objective(denoiser, data, torch.ones(N).long(), torch.Generator().manual_seed(1))
    (gradient,) = torch.autograd.grad(loss.sum(), M)
    return float(z_score(gradient).abs().max())


@pytest.mark.parametrize("name", ["tweedie", "gsure-y", "gsure", "exact"])
@pytest.mark.parametrize("keep", [1.0, 0.6])
def test_the_minimiser_is_the_posterior_mean(name, keep):
    data = gaussian_data(keep)
    objective = Objective(name, coverage=keep)
    assert z_of_gradient(objective, data, optimum(data.mask)) < 5
    assert z_of_gradient(objective, data, optimum(data.mask, excess=0.1)) > 20


@pytest.mark.parametrize("value", [0.0, 1e-4, 0.3])
@pytest.mark.parametrize("keep", [1.0, 0.6])
def test_another_lambda_moves_the_minimiser_along_the_score(value, keep):
    """f* = E[x̄|x̄_t] + (Λ - √ᾱ std²) ∇log p_t(x̄_t), for any Λ."""
    data = gaussian_data(keep)
    objective = Objective("gsure-y", coverage=keep, lambda_t=lambda alpha_bar_t: value * torch.ones_like(alpha_bar_t))
    assert z_of_gradient(objective, data, optimum(data.mask, excess=value - ALPHA_BAR**0.5 * STD**2)) < 5
    assert z_of_gradient(objective, data, optimum(data.mask)) > 20


def test_tweedie_and_gsure_y_are_minimised_by_the_same_known_matrix_and_naive_is_not():
    data = gaussian_data(1.0)
    expected = optimum(torch.ones(3, dtype=torch.float64))

    def minimise(objective, data):
        M = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
        denoiser = Denoiser(Function(lambda x_t, t: x_t @ M.mT), SCHEDULE, Identity())
        optimizer = torch.optim.LBFGS([M], max_iter=30, line_search_fn="strong_wolfe")

        def closure():
            optimizer.zero_grad()
            loss = objective(denoiser, data, torch.ones(N).long(), torch.Generator().manual_seed(1)).mean()
            loss.backward()
            return loss

        optimizer.step(closure)
        return M.detach()

    for name in ("tweedie", "gsure-y"):
        assert (minimise(Objective(name, coverage=1.0), data) - expected).abs().max() < 0.01
    naive = minimise(Objective(coverage=1.0), Measurement.clean(data.ybar))
    assert (naive - expected).abs().max() > 0.05
