import numpy as np
import pytest
import torch
from conftest import z_score

from gsure import Measurement, Schedule

YBAR = torch.tensor([[1.0, 0.0, 2.0], [0.5, 0.0, 0.0]])
MASK = torch.tensor([[1, 0, 1], [1, 1, 0]])


def test_mask_and_std_take_the_dtype_of_ybar_and_broadcast():
    measurement = Measurement(YBAR.double(), MASK, 0.1)
    assert measurement.mask.dtype == measurement.std.dtype == torch.float64
    assert measurement.std.shape == (1, 1)
    assert Measurement(YBAR, MASK.bool(), torch.full((2, 1), 0.1)).max_std == pytest.approx(0.1)


def test_std_counts_only_where_the_mask_is_one():
    assert Measurement(YBAR, MASK, torch.tensor([[0.1, 9.0, 0.2], [0.0, 0.3, 9.0]])).max_std == pytest.approx(0.3)


def test_from_svd_recovers_a_dense_problem(generator):
    H = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    U, svals, Vt = torch.linalg.svd(H)
    x = torch.randn(2, 6, generator=generator, dtype=torch.float64)
    pad = torch.nn.functional.pad
    measurement = Measurement.from_svd(pad(x @ H.mT @ U, (0, 2)), pad(svals, (0, 2))[None], sigma_0=0.3)
    assert measurement.mask.tolist() == [[1, 1, 1, 1, 0, 0]]
    torch.testing.assert_close(measurement.ybar, x @ Vt.mT * measurement.mask)
    torch.testing.assert_close(measurement.std[0, :4], 0.3 / svals)


def test_from_svd_cuts_small_singular_values_and_takes_one_sigma_0_a_sample():
    uty, svals = torch.tensor([[2.0, 1.0, 1e-6]] * 2), torch.tensor([[2.0, 0.5, 1e-7]])
    measurement = Measurement.from_svd(uty, svals, torch.tensor([0.1, 0.2]), cutoff=1e-3)
    assert measurement.ybar.tolist() == [[1, 2, 0]] * 2
    torch.testing.assert_close(measurement.std, torch.tensor([[0.05, 0.2, 0], [0.1, 0.4, 0]]))


@pytest.mark.parametrize("alpha_bar", [0.9, 0.5, 0.05])
def test_perturbation_has_the_marginal_of_the_paper(alpha_bar, generator):
    n = 200_000
    xbar = torch.tensor([[1.0, -2.0, 0.5, 3.0]])
    mask = torch.tensor([[1.0, 1.0, 0.0, 1.0]])
    std = torch.tensor([[0.3, 0.1, 0.2, 0.0]])
    ybar = mask * (xbar + std * torch.randn(n, 4, generator=generator))
    alpha_bar_t = torch.full((n, 1), alpha_bar, dtype=torch.float64)
    xbar_t = Measurement(ybar, mask, std).perturb(alpha_bar_t, torch.randn(n, 4, generator=generator))
    centred = xbar_t - alpha_bar**0.5 * mask * xbar
    assert z_score(centred).abs().max() < 5
    assert z_score(centred**2 - (1 - alpha_bar)).abs().max() < 5
    # Negative control: a std that reaches the dropped entry makes it quieter, and betrays the mask.
    leaky = (1 - alpha_bar - alpha_bar * 0.2**2) ** 0.5 * torch.randn(n, generator=generator)
    if alpha_bar > 0.1:
        assert z_score(leaky**2 - (1 - alpha_bar)).abs() > 5


def test_the_measurement_noise_may_be_all_the_noise_there_is():
    schedule = Schedule.for_noise(0.3)
    measurement = Measurement(torch.ones(2, 3), 1.0, 0.3)
    t = torch.tensor([1, 2])
    xbar_t = measurement.perturb(schedule.at(t, like=measurement.ybar), torch.ones(2, 3))
    torch.testing.assert_close(xbar_t[0], schedule.alpha_bar[1].sqrt().float().expand(3))
    assert (xbar_t[1] > schedule.alpha_bar[2].sqrt()).all()


def test_perturbation_refuses_a_negative_variance():
    measurement = Measurement(torch.ones(2, 3), 1.0, 0.301)
    with pytest.raises(ValueError, match=r"std up to 0\.301, exceeds .* 0\.3: use Schedule\.for_noise"):
        measurement.perturb(Schedule.for_noise(0.3).at(torch.tensor([5, 1]), measurement.ybar), torch.ones(2, 3))


def test_indexing_keeps_the_batch_dimension_and_what_is_shared():
    measurement = Measurement(YBAR, MASK, 0.1)
    assert measurement[1].ybar.tolist() == [[0.5, 0.0, 0.0]]
    assert measurement[-1].mask.tolist() == [[1, 1, 0]]
    assert measurement[torch.tensor(1)].ybar.shape == measurement[np.int64(1)].ybar.shape == (1, 3)
    assert measurement[torch.tensor([1, 0, 1])].ybar.shape == (3, 3)
    assert measurement[:1].std.shape == (1, 1)
    assert len(measurement.to("cpu")[[]]) == 0
    with pytest.raises(IndexError):
        measurement[2]


def test_hiding_drops_more_and_keeps_the_rest():
    hidden = Measurement(YBAR, MASK, 0.1).hide(torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    assert hidden.mask.tolist() == [[0, 0, 1], [1, 1, 0]]
    assert hidden.ybar.tolist() == [[0, 0, 2], [0.5, 0, 0]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Measurement(YBAR / 0, MASK, 0.1), "ybar has 6 values that are NaN or infinite"),
        (lambda: Measurement(YBAR, MASK, float("nan")), "std has 1 values"),
        (lambda: Measurement(YBAR, MASK * 0.5, 0.1), "mask must be 0 .* has the value 0.5"),
        (lambda: Measurement(YBAR, MASK, -0.1), "std must be at least 0, but has the value -0.1"),
        (lambda: Measurement(YBAR + 1, MASK, 0.1), "2 dropped entries are not"),
        (lambda: Measurement(YBAR, MASK[:, :2], 0.1), r"mask has shape \(2, 2\), which does not broadcast .*\(2, 3\)"),
        (
            lambda: Measurement(YBAR, MASK, torch.ones(3)),
            r"std has shape \(3,\).* one value a sample has shape \(2, 1\)",
        ),
        (lambda: Measurement(YBAR, MASK, None), "std is missing"),
        (lambda: Measurement(YBAR.numpy(), MASK, 0.1), "must be a torch tensor, but is ndarray"),
        (lambda: Measurement(YBAR[0], 1.0, 0.1), "leading batch dimension"),
        (lambda: Measurement(YBAR.long(), 1.0, 0.1), "floating-point"),
        (lambda: Measurement(YBAR.to(torch.complex64), 1.0, 0.1), "channel pairs"),
        (lambda: Measurement.from_svd(YBAR, -YBAR, 0.1), "Singular values must be finite and at least 0"),
        (lambda: Measurement.from_svd(YBAR, YBAR, 0.1, cutoff=-1), "cutoff"),
        (lambda: Measurement.from_svd(YBAR, YBAR, torch.ones(5)), "sigma_0 has shape"),
        (lambda: Measurement.from_svd(YBAR, YBAR, -1.0), "std must be at least 0"),
    ],
)
def test_bad_measurements_are_refused_in_a_sentence(make, message, outside):
    with pytest.raises(ValueError, match=message):
        make()


def test_std_cannot_be_left_out(outside):
    with pytest.raises(TypeError, match="std"):
        Measurement(YBAR, MASK)
