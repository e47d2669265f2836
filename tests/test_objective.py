"""The table of docs/method.md as tests: which losses estimate the projected denoising error without bias, which not."""

import pytest
import torch
from conftest import Function, z_score

from gsure import Denoiser, Divergence, Identity, Measurement, Objective, Schedule, generators, mlp, unet

ALPHA_BARS = [0.85, 0.5, 0.1]
SCHEDULE = Schedule(1 - torch.tensor([0.85, 0.5 / 0.85, 0.1 / 0.5], dtype=torch.float64))  # ᾱ_1, ᾱ_2, ᾱ_3 are those
N, SIZE, SIGMA_0 = 200_000, 16, 0.3


class Problem:
    """Correlated non-Gaussian signals, unequal singular values and coverage, and some nonlinear denoiser."""

    def __init__(self, mask_conditioned: bool = False) -> None:
        g = torch.Generator().manual_seed(0)
        mix = torch.randn(SIZE, SIZE, generator=g).double() / SIZE**0.5
        self.xbar = torch.randn(N, SIZE, generator=g).double() ** 3 @ mix / 2
        self.coverage = torch.linspace(0.4, 0.8, SIZE).double()[None]
        mask = (torch.rand(N, SIZE, generator=g) < self.coverage).double()
        svals = torch.linspace(0.86, 2.0, SIZE).double() * mask
        noise = SIGMA_0 * torch.randn(N, SIZE, generator=g).double()
        self.measurement = Measurement.from_svd(svals * self.xbar + mask * noise, svals, SIGMA_0)
        A = torch.randn(SIZE, SIZE, generator=g).double() / SIZE**0.5
        self.outputs = []

        def f(x_t, t, *mask):
            self.outputs.append(0.8 * x_t + torch.tanh(x_t @ A + sum(mask)) + 0.1 * torch.sin(3 * x_t))
            return self.outputs[-1]

        self.denoiser = Denoiser(Function(f), SCHEDULE, Identity(), mask_conditioned=mask_conditioned)

    @torch.no_grad()
    def z(self, objective: Objective, t: int, seed: int = 1) -> float:
        """Standard score of the paired difference between the loss and the true weighted projected error."""
        self.outputs.clear()
        loss = objective(self.denoiser, self.measurement, torch.full((N,), t), torch.Generator().manual_seed(seed))
        error = self.measurement.mask / self.coverage * (self.outputs[-1] - self.xbar) ** 2
        return float(z_score(loss - error.mean(1)))


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem()


@pytest.mark.parametrize("name", ["tweedie", "gsure-y", "gsure", "exact"])
@pytest.mark.parametrize("t", [1, 2, 3])
@pytest.mark.parametrize("hide", [0.0, 0.3])
def test_objective_is_unbiased(problem, name, t, hide):
    assert abs(problem.z(Objective(name, coverage=problem.coverage, hide=hide, floor=0.2), t)) < 5


@pytest.mark.parametrize("t", [2, 3])
def test_the_lambda_printed_in_proposition_2_is_biased(problem, t):
    printed = Objective("gsure", coverage=problem.coverage, lambda_t=lambda alpha_bar_t: 1 - alpha_bar_t)
    assert abs(problem.z(printed, t)) > 20


@pytest.mark.parametrize("name", ["gsure-y", "gsure"])
@pytest.mark.parametrize("t", [1, 2, 3])
@pytest.mark.parametrize("hide", [0.0, 0.3])
def test_without_its_divergence_an_objective_is_biased(problem, name, t, hide):
    without = Objective(name, coverage=problem.coverage, hide=hide, lambda_t=torch.zeros_like)
    assert abs(problem.z(without, t)) > 20


def test_the_lambda_of_the_table_is_biased_at_this_noise(problem):
    assert abs(problem.z(Objective("paper", coverage=problem.coverage), 1)) > 20


def test_tweedie_without_its_correction_is_biased(problem):
    """ρ taken as 0 leaves the plain squared error to ȳ: what a naive reader would write."""
    measurement = problem.measurement
    blind = Measurement._trusted(measurement.ybar, measurement.mask, measurement.std)
    problem.outputs.clear()
    loss = Objective("gsure-y", coverage=problem.coverage, lambda_t=torch.zeros_like)
    with torch.no_grad():
        value = loss(problem.denoiser, blind, torch.full((N,), 1), torch.Generator().manual_seed(1))
    error = measurement.mask / problem.coverage * (problem.outputs[-1] - problem.xbar) ** 2
    assert abs(z_score(value - error.mean(1))) > 20


@pytest.mark.parametrize("name", ["tweedie", "gsure-y", "gsure"])
def test_objectives_are_unbiased_for_a_network_that_sees_the_mask(name):
    assert abs(Problem(mask_conditioned=True).z(Objective(name, coverage=Problem().coverage, hide=0.3), 2)) < 5


def test_a_fraction_of_the_batch_and_finite_differences_are_unbiased_too(problem):
    for divergence in (Divergence(fraction=0.125), Divergence("finite-difference")):
        objective = Objective("gsure-y", coverage=problem.coverage, divergence=divergence)
        problem.outputs.clear()
        with torch.no_grad():
            loss = objective(
                problem.denoiser, problem.measurement, torch.full((N,), 1), torch.Generator().manual_seed(1)
            )
        whole = [output for output in problem.outputs if len(output) == N]
        at_x = whole[0] if divergence.method == "finite-difference" else whole[-1]
        error = problem.measurement.mask / problem.coverage * (at_x - problem.xbar) ** 2
        assert abs(z_score(loss - error.mean(1))) < 5


@pytest.mark.parametrize("name", ["tweedie", "gsure-y", "exact"])
@pytest.mark.parametrize("predicts", ["x", "eps"])
def test_clean_data_gives_the_plain_diffusion_loss_to_the_last_bit_gradient_included(name, predicts, generator):
    schedule = Schedule.linear()
    denoiser = Denoiser(mlp(6, width=16, depth=2), schedule, Identity(), predicts)
    xbar = torch.randn(64, 6, generator=generator)
    t = schedule.draw(64, generator)
    loss = Objective(name, coverage=1.0)(denoiser, Measurement.clean(xbar), t, torch.Generator().manual_seed(5))
    loss.mean().backward()
    gradients = [parameter.grad.clone() for parameter in denoiser.parameters()]

    denoiser.zero_grad()
    eps = torch.randn(64, 6, generator=torch.Generator().manual_seed(5))
    alpha_bar_t = schedule.alpha_bar[t][:, None]
    xbar_t = alpha_bar_t.sqrt().float() * xbar + (1 - alpha_bar_t).sqrt().float() * eps
    plain = ((denoiser(xbar_t, t) - xbar) ** 2).mean(1)
    plain.mean().backward()
    assert loss.equal(plain)
    assert all(mine.equal(parameter.grad) for mine, parameter in zip(gradients, denoiser.parameters(), strict=True))


def test_gamma_is_a_weight_over_time_and_the_columns_of_the_table_are_its_two_values(problem, generator):
    small = problem.measurement[:8]
    t = torch.tensor([1, 2, 3, 1, 2, 3, 1, 2])
    alpha_bar_t = SCHEDULE.alpha_bar[t]

    def loss(name, **options):
        objective = Objective(name, coverage=problem.coverage, **options)
        return objective(problem.denoiser, small, t, torch.Generator().manual_seed(1))

    snr = alpha_bar_t / (1 - alpha_bar_t)
    torch.testing.assert_close(loss("tweedie", weighting="eps"), snr * loss("tweedie"))
    celeba = loss("gsure-y", lambda_t=lambda alpha_bar_t: 1e-4 * torch.ones_like(alpha_bar_t))
    fastmri = loss("gsure-y", weighting="eps", lambda_t=lambda alpha_bar_t: 1e-4 * (1 - alpha_bar_t) / alpha_bar_t)
    torch.testing.assert_close(loss("paper"), celeba)
    torch.testing.assert_close(loss("paper", weighting="eps"), fastmri)


def test_hiding_takes_whole_units_and_only_kept_ones(generator):
    n, size = 4000, 8
    mask = (torch.rand(n, 1, 2, 2, generator=generator) < 0.6).double().repeat_interleave(4, 2).repeat_interleave(4, 3)
    shown = []
    denoiser = Denoiser(
        Function(lambda x_t, t, mask: shown.append(mask) or x_t), Schedule.linear(), Identity(), mask_conditioned=True
    )
    measurement = Measurement(torch.ones(n, 1, size, size).double() * mask, mask, 0.0)
    objective = Objective(coverage=0.6, hide=0.25, unit=(4, 4))
    objective(denoiser, measurement, torch.full((n,), 500), generator)
    patches = torch.nn.functional.avg_pool2d(shown[0], 4)
    assert ((patches == 0) | (patches == 1)).all()
    assert (shown[0] <= mask).all()
    kept = torch.nn.functional.avg_pool2d(mask, 4) == 1
    hidden = (patches[kept] == 0).double()
    assert abs(z_score(hidden - 0.25)) < 5


def test_hidden_entries_are_weighted_as_errors_of_x(generator):
    """Of a denoiser that always says 0, the error is x itself."""
    x, t = torch.randn(3, 1, 2, 4, generator=generator), torch.tensor([2, 300, 900])
    hidden = torch.tensor([0.0, 1.0, 0.0, 1.0]).expand(1, 1, 2, 4)
    data, schedule = Measurement(x, torch.ones(1, 1, 2, 4), 0.0), Schedule.linear()
    silent = Denoiser(Function(lambda x_t, t, mask: torch.zeros_like(x_t)), schedule, Identity(), mask_conditioned=True)
    for weighting, weigh in {"v": lambda a: 1 / (1 - a), "eps": lambda a: a / (1 - a)}.items():
        loss = Objective(coverage=1.0, weighting=weighting).loss(silent, data.hide(hidden), data, t, generator)
        weight = weigh(schedule.at(t, like=x)).float()
        wanted = torch.where(hidden == 1, weight.clamp(max=1), weight) * x**2
        torch.testing.assert_close(loss, wanted.flatten(1).mean(1))
        blind = Denoiser(Function(lambda x_t, t: torch.zeros_like(x_t)), schedule, Identity())
        loss = Objective(coverage=1.0, weighting=weighting).loss(blind, data.hide(hidden), data, t, generator)
        torch.testing.assert_close(loss, (weight * x**2).flatten(1).mean(1))  # it cannot tell them apart


def test_lines_are_hidden_whole_because_their_mask_is_compact(generator):
    mask = torch.ones(50, 1, 1, 8)
    shown = []
    denoiser = Denoiser(
        Function(lambda x_t, t, mask: shown.append(mask) or x_t), Schedule.linear(), Identity(), mask_conditioned=True
    )
    Objective(coverage=1.0, hide=0.5)(
        denoiser, Measurement(torch.zeros(50, 2, 4, 8), mask, 0.1), torch.full((50,), 300), generator
    )
    assert shown[0].shape == mask.shape
    assert 0.3 < shown[0].mean() < 0.7


@pytest.mark.parametrize("name", ["tweedie", "gsure"])
def test_a_loss_does_not_depend_on_the_batch_its_sample_comes_in(name, generator):
    schedule = Schedule.for_noise(0.1)
    denoiser = Denoiser(mlp(4, width=8, depth=1), schedule, Identity())
    mask = (torch.rand(6, 4, generator=generator) < 0.5).float()
    data = Measurement(mask * torch.randn(6, 4, generator=generator), mask, 0.1)
    t = schedule.draw(6, generator)
    objective = Objective(name, coverage=0.5, hide=0.3, divergence=Divergence(fraction=0.5))
    whole = objective(denoiser, data, t, generators(0, 12, indices=range(6)))
    parts = [objective(denoiser, data[i], t[i : i + 1], generators(0, 12, indices=[i])) for i in range(6)]
    torch.testing.assert_close(whole, torch.cat(parts))


def test_dropout_is_drawn_from_the_generator(generator):
    network = unet(8, 1, width=16, multipliers=(1, 2), attention=(), dropout=0.5)
    denoiser = Denoiser(network, Schedule.linear(), Identity()).train()
    data, t = Measurement.clean(torch.zeros(2, 1, 8, 8)), torch.tensor([5, 500])
    seeds = (1, 1, 2)
    first, same, other = (Objective(coverage=1.0)(denoiser, data, t, torch.Generator().manual_seed(s)) for s in seeds)
    assert first.equal(same)
    assert not first.equal(other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "sure"}, "'sure' is not one of tweedie, gsure-y, gsure, paper, exact"),
        ({"weighting": "two"}, "'two' is not one of x, eps"),
        (
            {"coverage": torch.tensor([[0.5, 0.0, 0.0]])},
            r"2 of 3 entries are never measured .* the first at \(0, 1\), \(0, 2\), .* --no-coverage-weighting",
        ),
        ({"coverage": 1.2}, "give E\\[P\\], not W"),
        ({"coverage": float("nan")}, "coverage must lie in"),
        ({"hide": 1.0}, "hide"),
        ({"floor": 0.0}, "floor"),
        ({"unit": (0, 4)}, "unit is a block"),
        ({"lambda_t": torch.zeros_like}, "tweedie has none to replace"),
    ],
)
def test_impossible_objectives_are_refused(options, message, outside):
    with pytest.raises(ValueError, match=message):
        Objective(**{"coverage": 1.0} | options)


def test_hiding_refuses_units_that_do_not_divide_the_mask(outside, generator):
    denoiser = Denoiser(mlp(16, width=8, depth=1), Schedule.linear(), Identity())
    data = Measurement(torch.zeros(1, 1, 4, 4), torch.ones(1, 1, 4, 4), 0.0)
    with pytest.raises(ValueError, match=r"Units of \(1, 3, 3\) cannot be hidden in masks of shape \(1, 4, 4\)"):
        Objective(coverage=1.0, hide=0.2, unit=(3, 3))(denoiser, data, torch.tensor([3]), generator)
    with pytest.raises(ValueError, match="expand a mask that is one number"):
        Objective(coverage=1.0, hide=0.2)(denoiser, Measurement.clean(data.ybar), torch.tensor([3]), generator)


def test_data_too_noisy_for_the_schedule_is_refused(generator):
    denoiser = Denoiser(mlp(2, width=8, depth=1), Schedule.linear(), Identity())
    with pytest.raises(ValueError, match=r"Schedule\.for_noise\(0\.5\)"):
        Objective(coverage=1.0)(denoiser, Measurement(torch.zeros(1, 2), 1.0, 0.5), torch.tensor([1]), generator)


@pytest.mark.parametrize(
    "t", [torch.tensor([0, 1]), torch.tensor([1]), torch.tensor([1.0, 2.0]), torch.tensor([1, 4000])]
)
def test_times_out_of_range_are_refused(t, generator, outside):
    denoiser = Denoiser(mlp(2, width=8, depth=1), Schedule.linear(), Identity())
    with pytest.raises(ValueError, match=r"t must be 2 integers in 1\.\.1000|Times must lie in 0\.\.1000"):
        Objective(coverage=1.0)(denoiser, Measurement.clean(torch.zeros(2, 2)), t, generator)


def test_a_coverage_of_another_shape_is_refused(generator):
    denoiser = Denoiser(mlp(2, width=8, depth=1), Schedule.linear(), Identity())
    for coverage in (torch.ones(2), torch.ones(1, 3), torch.ones(1, 1, 2)):
        with pytest.raises(ValueError, match=r"which does not fit a batch of \(2, 2\)"):
            Objective(coverage=coverage)(
                denoiser, Measurement.clean(torch.zeros(2, 2)), torch.tensor([1, 2]), generator
            )
