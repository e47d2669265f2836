import itertools

import pytest
import torch
from conftest import Function, z_score

from gsure import Denoiser, Divergence, Identity, Measurement, Objective, Schedule, unet

METHODS = ["double-backward", "finite-difference"]


def nonlinear(A):
    return lambda x, samples: torch.tanh(x @ A.mT)


def exact(A, x, diagonal):
    """Σ_i D_i (1 - tanh²(Ax)_i) A_ii"""
    return (diagonal * (1 - torch.tanh(x @ A.mT) ** 2) * A.diag()).sum(1)


def problem(n, batch, generator):
    A, x = torch.randn(n, n, generator=generator).double(), torch.randn(batch, n, generator=generator).double()
    return A, x, torch.rand(batch, n, generator=generator).double(), torch.ones(batch, 1).double()


@pytest.mark.parametrize("method", METHODS)
def test_all_signs_of_a_rademacher_probe_give_the_divergence_exactly(method, generator):
    A, x, diagonal, scale = problem(3, 5, generator)
    divergence = Divergence(method, step=1e-5)
    signs = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=3)), dtype=torch.float64)
    estimates = [divergence(nonlinear(A), x, diagonal, v.expand_as(x), scale, generator)[1] for v in signs]
    tolerance = {"double-backward": 1e-12, "finite-difference": 1e-8}[method]
    torch.testing.assert_close(torch.stack(estimates).mean(0), exact(A, x, diagonal), rtol=0, atol=tolerance)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("fraction", [1.0, 0.25])
def test_gaussian_probes_are_unbiased_on_all_or_a_part_of_the_batch(method, fraction, generator):
    A, x, diagonal, scale = problem(4, 40_000, generator)
    probe = torch.randn(x.shape, generator=generator, dtype=torch.float64)
    value, estimate = Divergence(method, fraction)(nonlinear(A), x, diagonal, probe, scale, generator)
    torch.testing.assert_close(value, torch.tanh(x @ A.mT))
    assert abs(z_score(estimate - exact(A, x, diagonal))) < 5
    assert abs((estimate != 0).double().mean() - fraction) < 0.02
    assert abs(z_score(fraction * estimate - exact(A, x, diagonal))) > 5 or fraction == 1  # without 1/fraction it fails


def test_samples_without_noise_are_not_differentiated(generator):
    calls = []

    def f(x, samples):
        calls.append(samples.tolist())
        return x.round()  # has no useful derivative

    x = torch.randn(3, 2, generator=generator)
    zero = torch.zeros_like(x)
    assert not Divergence()(f, x, zero, x, torch.ones(3, 1), generator)[1].any()
    assert calls == [[0, 1, 2]]


@pytest.mark.parametrize("method", METHODS)
def test_training_through_attention_and_dropout_works_and_uses_one_dropout_mask(method, generator):
    network = unet(8, 1, width=16, multipliers=(1, 2), attention=(4,), dropout=0.5)
    schedule = Schedule.for_noise(0.1)
    denoiser = Denoiser(network, schedule, Identity()).train()
    data = Measurement(torch.randn(4, 1, 8, 8, generator=generator), 1.0, 0.1)
    objective = Objective("gsure-y", coverage=1.0, divergence=Divergence(method))
    loss = objective(denoiser, data, torch.tensor([1, 10, 100, 1000]), generator)
    loss.mean().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in denoiser.parameters())
    # With different dropout at the two points the difference quotient would be of order 1/step, not of order 1.
    assert loss.abs().max() < 50


@pytest.mark.parametrize("method", METHODS)
def test_both_methods_agree_in_value_and_gradient(method, generator):
    A = torch.randn(3, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    x, probe = torch.randn(2, 6, 3, generator=generator, dtype=torch.float64)
    ones = torch.ones_like(x)
    _, estimate = Divergence(method, step=1e-5)(nonlinear(A), x, ones, probe, ones[:, :1], generator)
    (gradient,) = torch.autograd.grad(estimate.sum(), A)
    jacobian = torch.autograd.functional.jacobian(
        lambda A: ((1 - torch.tanh(x @ A.mT) ** 2) * (probe @ A.mT) * probe).sum(), A
    )
    torch.testing.assert_close(gradient, jacobian, rtol=1e-4, atol=1e-5)


def test_without_gradients_nothing_is_kept(generator):
    A, x, diagonal, scale = problem(3, 5, generator)
    A.requires_grad_()
    with torch.no_grad():
        value, estimate = Divergence()(nonlinear(A), x, diagonal, torch.ones_like(x), scale, generator)
    assert not value.requires_grad
    assert not estimate.requires_grad


@pytest.mark.parametrize(
    ("options", "message"),
    [({"method": "guess"}, "not by 'guess'"), ({"fraction": 0.0}, "fraction"), ({"step": 0.0}, "step")],
)
def test_impossible_estimators_are_refused(options, message, outside):
    with pytest.raises(ValueError, match=message):
        Divergence(**options)


def test_one_generator_per_sample_must_match_the_batch(generator):
    denoiser = Denoiser(Function(lambda x, t: x), Schedule.linear(), Identity())
    with pytest.raises(ValueError, match="1 generators were given for 2 samples"):
        Objective(coverage=1.0)(
            denoiser, Measurement.clean(torch.zeros(2, 3).double()), torch.ones(2).long(), [generator]
        )
