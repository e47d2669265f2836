"""Moment matching on Gaussian data, where the posterior is known: it must be reached; and how far DDRM is from it."""

import math
from dataclasses import replace

import pytest
import torch
from conftest import Function, z_score
from torch import Tensor

from gsure import Denoiser, Fourier, Identity, Measurement, Posterior, Schedule, ddim, ddrm, dpm, generators, mlp
from gsure.gaussian import Gaussian
from gsure.gaussian.blocks import BlockGaussian, Blocks
from gsure.gaussian.coordinates import Entries, Rows
from gsure.gaussian.phase import Reference, ReferencedGaussian
from gsure.gaussian.stationary import StationaryGaussian
from gsure.posterior import Preconditioner, solve

SCHEDULE = Schedule.linear(1e-4, 0.02, 1000)
FACTOR = torch.tensor([[1.0, 0, 0], [0.8, 0.5, 0], [-0.4, 0.3, 0.6]], dtype=torch.float64)
COVARIANCE = FACTOR @ FACTOR.mT
MASK = torch.tensor([[1.0, 0.0, 1.0]], dtype=torch.float64)
STD = torch.tensor([[0.3, 0.0, 0.6]], dtype=torch.float64)
YBAR = torch.tensor([[0.8, 0.0, -0.5]], dtype=torch.float64)
SIZE = 8


def gaussian_denoiser(covariance: Tensor, basis=None) -> Denoiser:
    """E[x|x_t] for signals whose last axis has this covariance; all that comes before is independent."""
    values, vectors = torch.linalg.eigh(covariance)

    def f(x_t, t):
        a = SCHEDULE.at(t, like=x_t)
        rows = x_t.reshape(*x_t.shape[:2], -1, len(values)) if x_t.ndim > 2 else x_t
        a = a.reshape(-1, *[1] * (rows.ndim - 1))
        return ((a.sqrt() * values / (a * values + 1 - a) * (rows @ vectors)) @ vectors.mT).reshape(x_t.shape)

    return Denoiser(Function(f), SCHEDULE, basis or Identity())


def gaussian() -> Denoiser:
    return gaussian_denoiser(COVARIANCE)


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
        estimate = Posterior(gaussian(), repeated(4), tolerance=0.0)(x_t, torch.full((4,), t))
        torch.testing.assert_close(estimate, expected)


@pytest.mark.parametrize(
    ("sampler", "options"), [(ddim, {"steps": 500}), (ddim, {"steps": 500, "eta": 1.0}), (dpm, {"steps": 50})]
)
def test_any_sampler_draws_from_the_exact_posterior(sampler, options, generator):
    n = 4000
    x = sampler(Posterior(gaussian(), repeated(n), max_iterations=2), (n, 3), **options, generator=generator)
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


# Few steps, and a Gaussian prior as the preconditioner


def smooth(size: int, width: float = 1.5) -> Tensor:
    """The covariance of smooth signals that fade out towards the edges."""
    x = torch.arange(size, dtype=torch.float64)
    fade = torch.exp(-((x - (size - 1) / 2) ** 2) / (2 * (size / 3) ** 2))
    return fade[:, None] * fade * torch.exp(-((x[:, None] - x) ** 2) / (2 * width**2)) + 1e-4 * torch.eye(size)


def pixels(width: float = 1.5) -> tuple[Denoiser, BlockGaussian]:
    """Smooth images."""
    covariance = torch.kron(smooth(SIZE, width), smooth(SIZE, width))
    blocks = Blocks(torch.zeros(1, SIZE**2, dtype=torch.float64), covariance[None])
    return gaussian_denoiser(covariance), BlockGaussian(Entries(Identity(), (1, SIZE, SIZE)), blocks)


def lines(width: float = 1.5) -> tuple[Denoiser, BlockGaussian]:
    """Complex images of smooth rows, in k-space."""
    covariance = smooth(SIZE, width)
    transform = torch.fft.fftshift(torch.fft.fft(torch.fft.ifftshift(torch.eye(SIZE), 0), dim=0, norm="ortho"), 0)
    transform = transform.to(torch.complex128)
    rows = (2 * transform @ covariance.to(transform) @ transform.mH).expand(SIZE, -1, -1)
    blocks = Blocks(torch.zeros(SIZE, SIZE, dtype=torch.complex128), rows, neighbours=SIZE)
    return gaussian_denoiser(covariance, Fourier()), BlockGaussian(Rows((2, SIZE, SIZE)), blocks)


def measured(prior: BlockGaussian, n: int, std: float, generator: torch.Generator) -> Measurement:
    shape, is_lines = prior.coordinates.shape, prior.coordinates.blocks > 1
    nothing = Measurement(torch.zeros(n, *shape, dtype=torch.float64), 0.0, 0.0)
    mask = (torch.rand(n, 1, 1 if is_lines else SIZE, SIZE, generator=generator) < 0.35).double()
    if is_lines:
        mask[..., SIZE // 2 - 1 : SIZE // 2 + 1] = 1
    noise = std * torch.randn(nothing.shape, generator=generator, dtype=torch.float64)
    return Measurement(mask * (prior.draw(nothing, generator) + noise), mask, std)


def compare(denoiser: Denoiser, prior: BlockGaussian, measurement: Measurement, draws: int, **options):
    """Decibels that the mean of K draws loses beyond 10 log10(1 + 1/K), and the ratio of standard deviations."""
    many, shape = Measurement.cat([measurement] * draws), (draws, *measurement.shape)
    xbar = dpm(Posterior(denoiser, many, **options), many.shape, 20, "logsnr", generator=1)
    x = denoiser.basis.to_signal(xbar).reshape(shape)
    mean, variance = denoiser.basis.to_signal(prior.mean(measurement)), prior.std(measurement).square()
    lost = (x.mean(0) - mean).square().mean() / variance.mean()  # 1/K of the posterior variance, if draws are exact
    return 10 * math.log10((1 + lost) / (1 + 1 / draws)), float((x.var(0).mean() / variance.mean()).sqrt())


@pytest.mark.parametrize("std", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("make", [pixels, lines])
def test_twenty_steps_draw_from_the_posterior_with_a_gaussian_preconditioner(make, std, generator):
    denoiser, prior = make()
    measurement = measured(prior, 24, std, generator)
    budget = {"draws": 16, "max_iterations": 1}
    lost, ratio = compare(denoiser, prior, measurement, gaussian=prior, **budget)
    assert abs(lost) < 0.1
    assert abs(ratio - 1) < 0.1
    lost, ratio = compare(denoiser, prior, measurement, **budget)
    assert lost > 0.1, "control: as many iterations without the preconditioner"


@pytest.mark.parametrize("make", [pixels, lines])
def test_a_rough_gaussian_gives_the_same_answer_in_few_iterations(make, generator):
    denoiser, prior = make()
    _, rough = make(width=1.2)
    measurement = measured(prior, 8, 0.05, generator)
    t = torch.full((8,), 400)
    xbar_t = torch.randn(measurement.shape, generator=generator, dtype=torch.float64)
    a = SCHEDULE.alpha_bar[400]
    level = (1 - a) / a
    weight = measurement.mask / 0.05**2
    joint = 1 / (1 / level + weight)
    both = Measurement._trusted(
        joint * (xbar_t / a.sqrt() / level + weight * measurement.ybar), joint * 0 + 1, joint.sqrt()
    )
    expected = prior.mean(both)  # of x̄_t and ȳ at once

    def error(**options) -> float:
        found = Posterior(denoiser, measurement, **options)(xbar_t, t)
        return float((found - expected).norm() / expected.norm())

    assert error(gaussian=prior, max_iterations=1) < 1e-6
    assert error(gaussian=rough, max_iterations=30, tolerance=1e-8) < 1e-5
    assert error(gaussian=rough, max_iterations=4, tolerance=0.0) < 0.3 * error(max_iterations=4, tolerance=0.0)


def many_gaussians() -> dict[str, tuple[Gaussian, tuple[int, ...]]]:
    generator = torch.Generator().manual_seed(1)

    def random(n: int, blocks: int, kind: torch.dtype = torch.float64) -> Tensor:
        root = torch.randn(blocks, n, n, generator=generator, dtype=kind)
        return root @ root.mH / n + 0.05 * torch.eye(n)

    def rows(window: int = 1, real: bool = False) -> Gaussian:
        kind = torch.float64 if real else torch.complex128
        blocks = Blocks(torch.ones(4, 6, dtype=kind), random(6 * window, 4, kind), window, 4)
        return BlockGaussian(Rows((2, 4, 6), real_images=real), blocks)

    taper = torch.tensor([0.0, 0.5, 1, 1, 1, 0]).double()
    reference = Reference(Rows((2, 4, 6)), taper)
    entries = Blocks(torch.ones(1, 12, dtype=torch.float64), random(12, 1))
    power = 0.1 + torch.rand(1, 1, 4, 6, generator=generator, dtype=torch.float64)
    return {
        "entries": (BlockGaussian(Entries(Identity(), (1, 1, 12)), entries), (1, 1, 12)),
        "rows": (rows(), (2, 4, 6)),
        "windows": (rows(window=3), (2, 4, 6)),
        "real images": (rows(real=True), (2, 4, 6)),
        "phase": (
            ReferencedGaussian(Rows((2, 4, 6)), torch.ones(4, 12).double(), random(12, 4), reference),
            (2, 4, 6),
        ),
        "stationary": (StationaryGaussian(Identity(), torch.ones(1, 1, 4, 6).double(), power), (1, 4, 6)),
        "white": (None, (1, 1, 12)),
    }


@pytest.mark.parametrize("std", [0.0, 0.3])
@pytest.mark.parametrize("level", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("name", list(many_gaussians()))
def test_the_preconditioner_is_positive_definite_and_the_inverse(name, level, std, generator):
    gaussian, shape = many_gaussians()[name]
    mask = torch.ones(1, 1, 1, shape[-1]).double()
    mask[..., [0, 4]] = 0
    n = math.prod(shape)
    ybar = mask * torch.randn(1, *shape, generator=generator, dtype=torch.float64)
    measurement = Measurement(ybar.expand(n, *shape), mask, std)
    fixed = None if gaussian is None else gaussian.centred(measurement)
    unit = torch.eye(n, dtype=torch.float64).reshape(n, *shape)
    made = Preconditioner.at(ybar.expand_as(unit), measurement, torch.full((n, 1, 1, 1), level).double(), fixed)
    found = made(mask * unit).reshape(n, n)
    rounding = 0.02 if name == "stationary" else 1e-6  # its posterior mean is iterative
    torch.testing.assert_close(found, found.mT, rtol=rounding, atol=rounding * float(found.abs().max()))
    kept = mask.expand(1, *shape).flatten() == 1
    assert float(torch.linalg.eigvalsh((found + found.mT)[kept][:, kept])[0]) > 0
    faint = 1e9  # a measurement with so much noise moves the mean by C ȳ/noise²
    prior = (
        unit if fixed is None else faint * fixed.mean(Measurement._trusted(unit, unit * 0 + 1, unit * 0 + faint**0.5))
    )
    covariance = torch.linalg.inv(torch.linalg.pinv(prior.reshape(n, n), rtol=1e-6) + torch.eye(n) / level)
    if name != "real images":  # whose covariance has no inverse
        noise = made.variance.expand_as(unit)[0].flatten()
        inner = (covariance + torch.diag(noise))[kept][:, kept]
        torch.testing.assert_close(
            found[kept][:, kept], torch.linalg.inv(inner), rtol=1e-2, atol=rounding * float(found.abs().max())
        )


def test_the_preconditioner_is_positive_definite_in_single_precision(generator):
    _, prior = lines()
    prior = replace(prior, blocks=prior.blocks.to(torch.float32))
    measurement = measured(lines()[1], 1, 0.01, generator)
    n = 2 * SIZE**2
    measurement = Measurement(
        *(part.float().expand(n, *part.shape[1:]) for part in (measurement.ybar, measurement.mask)), 0.01
    )
    unit = torch.eye(n).reshape(n, 2, SIZE, SIZE)
    made = Preconditioner.at(measurement.ybar, measurement, torch.full((n, 1, 1, 1), 1e4), prior)
    found = made(measurement.mask * unit).reshape(n, n)
    kept = measurement.mask[0].expand(2, SIZE, SIZE).flatten() == 1
    assert float((found - found.mT).norm() / found.norm()) < 0.02
    assert float(torch.linalg.eigvalsh((found + found.mT)[kept][:, kept])[0]) > 0


# What a network can do wrong


def bent(sign: float) -> Denoiser:
    """A denoiser of smooth images whose Jacobian has the wrong sign for the first half of the batch."""
    denoiser, _ = pixels()

    def f(x_t, t):
        good = denoiser.network(x_t, t)
        first = (torch.arange(len(x_t)) < len(x_t) // 2).double().reshape(-1, 1, 1, 1)
        return good + first * (sign - 1) * (good - good.detach())

    return Denoiser(Function(f), SCHEDULE, Identity())


def test_where_the_jacobian_is_no_covariance_the_gaussian_replaces_it(generator):
    denoiser, prior = pixels()
    measurement = measured(prior, 6, 0.05, generator)
    xbar_t, t = torch.randn(measurement.shape, generator=generator, dtype=torch.float64), torch.full((6,), 500)
    expected = Posterior(denoiser, measurement, prior)(xbar_t, t)
    torch.testing.assert_close(Posterior(bent(-1.0), measurement, prior)(xbar_t, t), expected, rtol=1e-6, atol=1e-6)
    unhelped = Posterior(bent(-1.0), measurement)(xbar_t, t)
    away = [float((unhelped - expected)[half].norm() / expected[half].norm()) for half in (slice(3), slice(3, 6))]
    assert away[1] < 0.1 < away[0], "control: without the Gaussian, only samples with a good Jacobian are right"
    assert unhelped.isfinite().all()


@pytest.mark.parametrize("sign", [0.0, -1.0, 1e-30, 1e30])
def test_no_jacobian_makes_draws_infinite(sign, generator):
    _, prior = pixels()
    measurement = measured(prior, 4, 0.0, generator)
    for gaussian in (None, prior):
        x = dpm(Posterior(bent(sign), measurement, gaussian), measurement.shape, 10, "logsnr", generator=0)
        assert x.isfinite().all()
        assert float(x.abs().max()) < 20


def test_kept_entries_without_noise_are_reproduced(generator):
    measurement = Measurement(YBAR, MASK, 0.0)
    x = ddim(Posterior(gaussian(), measurement, tolerance=0.0), (1, 3), 50, generator=generator)
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
    exact = torch.linalg.solve(matrices + torch.diag_embed(diagonal), b)

    def matrix(v: Tensor) -> Tensor:
        return torch.einsum("bij,bj->bi", matrices, v)

    for scale in (1.0, torch.tensor([1.0, 3, 0.1, 1, 10])):  # any diagonal is a preconditioner
        found = solve(matrix, diagonal, b, lambda v, scale=scale: scale * v, 0.0, 5)
        torch.testing.assert_close(found.u, exact)
        assert found.is_covariance.all()
    loose = solve(matrix, diagonal, b, lambda v: v, 0.1, 5)
    assert loose.iterations < 5
    assert (loose.residual < 0.1).all()
    off = (matrix(loose.u) + diagonal * loose.u - b).norm(dim=1) / b.norm(dim=1).clamp(min=1e-9)
    torch.testing.assert_close(off, loose.residual * (b.norm(dim=1) > 0))


def test_a_direction_in_which_the_jacobian_is_no_covariance_stops_only_its_own_sample():
    matrices = torch.stack([torch.eye(3), -torch.eye(3), torch.full((3, 3), torch.nan)]).double()
    b = torch.ones(3, 3, dtype=torch.float64)
    half = torch.full((3, 3), 0.5, dtype=torch.float64)
    found = solve(lambda v: torch.einsum("bij,bj->bi", matrices, v), half, b, lambda v: v, 0.0, 3)
    torch.testing.assert_close(found.u, torch.tensor([[2 / 3] * 3, [0.0] * 3, [0.0] * 3], dtype=torch.float64))
    assert found.is_covariance.tolist() == [True, False, False]


def test_another_number_of_samples_than_measurements_is_refused(generator):
    with pytest.raises(ValueError, match=r"5 samples of shape .* for 2 measurements"):
        ddim(Posterior(gaussian(), repeated(2)), (5, 3), 2, generator=generator)
    with pytest.raises(ValueError, match="at least one iteration"):
        Posterior(gaussian(), repeated(2), max_iterations=0)
    with pytest.raises(ValueError, match="tolerance must be at least 0"):
        Posterior(gaussian(), repeated(2), tolerance=1.0)
