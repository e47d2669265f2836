import pytest
import torch
from conftest import Function

from gsure import Denoiser, Fourier, Hartley, Identity, Schedule, mlp, unet

SCHEDULE = Schedule.linear(1e-3, 0.02, 100)


def test_the_network_works_in_signal_space(generator):
    xbar_t = torch.randn(3, 2, 4, 5, generator=generator, dtype=torch.float64)
    seen = []
    network = Function(lambda x_t, t: seen.append(x_t) or 2 * x_t)
    xbar_hat = Denoiser(network, SCHEDULE, Fourier())(xbar_t, torch.tensor([1, 2, 3]))
    torch.testing.assert_close(seen[0], Fourier().to_signal(xbar_t))
    torch.testing.assert_close(xbar_hat, 2 * xbar_t)


def test_predicting_eps_and_predicting_x_are_the_same_denoiser(generator):
    xbar, eps = torch.randn(2, 3, 1, 4, 4, generator=generator, dtype=torch.float64)
    t = torch.tensor([1, 50, 100])
    alpha_bar_t = SCHEDULE.at(t, like=xbar)
    xbar_t = alpha_bar_t.sqrt() * xbar + (1 - alpha_bar_t).sqrt() * eps
    knows_eps = Function(lambda x_t, t: Hartley().to_signal(eps))
    knows_x = Function(lambda x_t, t: Hartley().to_signal(xbar))
    torch.testing.assert_close(Denoiser(knows_eps, SCHEDULE, Hartley(), predicts="eps")(xbar_t, t), xbar)
    torch.testing.assert_close(Denoiser(knows_x, SCHEDULE, Hartley(), predicts="x")(xbar_t, t), xbar)
    a = SCHEDULE.at(t, like=xbar_t)
    v = Hartley().to_signal(a.sqrt() * eps - (1 - a).sqrt() * xbar)
    torch.testing.assert_close(Denoiser(Function(lambda *_: v), SCHEDULE, Hartley(), predicts="v")(xbar_t, t), xbar)


@pytest.mark.parametrize("predicts", ["eps", "v"])
def test_of_entries_that_carry_no_signal_it_predicts_x(predicts, generator):
    xbar_t, out = torch.randn(2, 2, 1, 4, 4, generator=generator)
    mask, t = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 1.0, 1.0]]).reshape(2, 1, 1, 4), torch.tensor([2, 70])
    f = Denoiser(
        Function(lambda x_t, t, mask: Hartley().to_signal(out)), SCHEDULE, Hartley(), predicts, mask_conditioned=True
    )
    whole, masked = f(xbar_t, t), f(xbar_t, t, mask)
    torch.testing.assert_close(masked, torch.where(mask == 1, whole, out))
    assert (whole - out).abs().min() > 1e-4
    with pytest.raises(ValueError, match=r"as many dimensions as the batch of signals, 4, but this has shape \(4,\)"):
        f(xbar_t, t, mask[0, 0, 0])


def test_only_a_denoiser_that_sees_the_mask_tells_it_to_the_network():
    xbar_t, mask, t = torch.zeros(2, 1, 4, 4), torch.ones(1, 1, 1, 4), torch.tensor([1, 2])
    seen = []
    network = Function(lambda x_t, t, *mask: seen.append(mask) or x_t)
    Denoiser(network, SCHEDULE, Identity())(xbar_t, t, mask * 0)
    Denoiser(network, SCHEDULE, Identity(), mask_conditioned=True)(xbar_t, t, mask * 0)
    Denoiser(network, SCHEDULE, Identity(), mask_conditioned=True)(xbar_t, t)
    assert seen[0] == ()
    assert seen[1][0].shape == (2, 1, 1, 4)
    assert not seen[1][0].any()
    assert seen[2][0].all(), "sampling says P = I"


@pytest.mark.parametrize(("network", "parameters"), [
    (lambda: unet(32, 1), 78.70),
    (lambda: unet(320, 2, multipliers=(1, 1, 2, 2, 4, 4), attention=(20,)), 113.67),
])  # fmt: skip
def test_the_networks_of_the_paper_have_as_many_parameters_as_they_should(network, parameters):
    with torch.device("meta"):
        millions = sum(parameter.numel() for parameter in network().parameters()) / 1e6
    assert round(millions, 2) == parameters


SMALL = {"size": 8, "channels": 2, "width": 16, "multipliers": (1, 2), "attention": (4,)}


@pytest.mark.parametrize("options", [
    {},
    {"mask_input": "channels"},
    {"mask_input": "embedding", "mask_shape": (1, 1, 8)},
])  # fmt: skip
def test_a_unet_sees_the_mask_exactly_if_told_so(options, generator):
    network = unet(**SMALL, **options).eval()
    for parameter in network.parameters():  # away from the start, at which the last layer hears little
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    denoiser = Denoiser(network, SCHEDULE, Identity(), mask_conditioned=bool(options))
    xbar_t, t = torch.randn(2, 2, 8, 8, generator=generator), torch.tensor([3, 80])
    masks = (torch.rand(2, 2, 1, 1, 8, generator=generator) < 0.5).float()
    with torch.no_grad():
        first, second, again = (denoiser(xbar_t, t, mask) for mask in (masks[0], masks[1], masks[0]))
    assert first.shape == xbar_t.shape
    assert first.equal(again)
    assert first.equal(second) != bool(options)


def test_the_same_seed_gives_the_same_weights_and_another_seed_others():
    first, same, other = (unet(**SMALL, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(first[name].equal(same[name]) for name in first)
    assert not first["inner.conv_in.weight"].equal(other["inner.conv_in.weight"])


def test_the_unet_counts_time_as_diffusers_does(generator):
    network = unet(**SMALL).eval()
    x_t = torch.randn(1, 2, 8, 8, generator=generator)
    with torch.no_grad():
        assert network(x_t, torch.tensor([1])).equal(network.inner(x_t, 0).sample)


def test_mlps_take_signals_of_any_shape_and_masks(generator):
    x_t = torch.randn(5, 3, 2, generator=generator)
    assert mlp(6, width=8, depth=1)(x_t, torch.arange(5)).shape == x_t.shape
    assert mlp(6, width=8, depth=1, mask_conditioned=True)(x_t, torch.arange(5), torch.ones(5, 1, 2)).shape == x_t.shape


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Denoiser(mlp(2), SCHEDULE, Identity(), predicts="y"), "x, eps, v, not 'y'"),
        (
            lambda: Denoiser(unet(**SMALL, mask_input="channels"), SCHEDULE, Fourier(), mask_conditioned=True),
            "mask_input='embedding'",
        ),
        (lambda: unet((0, 16), 1), "images of \\(height, width\\)"),
        (lambda: unet(32, 1, mask_input="embedding"), "mask_shape"),
        (lambda: unet(32, 1, mask_input="picture"), "none, channels, embedding"),
        (lambda: mlp(2, width=7), "even width"),
        (
            lambda: mlp(2)(torch.zeros(1, 2), torch.ones(1), torch.ones(1, 2)),
            "mask_conditioned=False but was given a mask",
        ),
        (lambda: unet(**SMALL, mask_input="channels")(torch.zeros(1, 2, 8, 8), torch.ones(1)), "was not given a mask"),
    ],
)
def test_impossible_denoisers_are_refused(make, message, outside):
    with pytest.raises(ValueError, match=message):
        make()


def test_at_sigma_and_score_follow_the_convention_of_the_field(generator):
    """For signals N(0, c), D(x, σ) = c/(c + σ²) x and the score is -x/(c + σ²), in signal space."""
    c, schedule = 2.0, Schedule.linear(1e-4, 0.02, 1000)

    def wiener(x_t, t):
        a = schedule.at(t, like=x_t)
        return (c * a.sqrt() / (c * a + 1 - a)).to(x_t) * x_t

    denoiser = Denoiser(Function(wiener), schedule, Hartley())
    x = torch.randn(4, 1, 6, 6, generator=generator, dtype=torch.float64)
    for sigma in (0.02, 0.5, 3.0, torch.tensor([0.02, 0.5, 3.0, 50.0])):
        level = torch.as_tensor(sigma, dtype=torch.float64).expand(4).reshape(-1, 1, 1, 1)
        torch.testing.assert_close(denoiser.at_sigma(x, sigma), c / (c + level**2) * x, rtol=0.02, atol=1e-4)
        torch.testing.assert_close(denoiser.score(x, sigma), -x / (c + level**2), rtol=0.05, atol=1e-4)
    for sigma in (1e-3, 200.0):
        with pytest.raises(ValueError, match=r"sigma must lie between 0\.01 and 157"):
            denoiser.at_sigma(x, sigma)
