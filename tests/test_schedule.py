import json

import pytest
import torch
from diffusers import DDIMScheduler, DDPMScheduler, UniPCMultistepScheduler

from gsure import Schedule, generators

SCHEDULES = {
    "linear": Schedule.linear(4e-4, 0.02, 1000),
    "cosine": Schedule.cosine(1000),
    "for_noise": Schedule.for_noise(0.3),
    "short": Schedule.linear(0.1, 0.5, 7),
}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_alpha_bar_starts_at_one_and_is_the_product_of_1_minus_beta(schedule):
    assert schedule.alpha_bar.dtype == torch.float64
    assert schedule.alpha_bar[0] == 1
    assert len(schedule.alpha_bar) == schedule.T + 1
    product = 1.0
    for beta, alpha_bar in zip(schedule.beta.tolist(), schedule.alpha_bar[1:].tolist(), strict=True):
        product *= 1 - beta
        assert alpha_bar == pytest.approx(product, rel=1e-12)


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_a_diffusers_configuration_and_back_is_the_same_to_the_last_bit(schedule):
    config = json.loads(json.dumps(dict(DDIMScheduler(**schedule.to_diffusers()).config)))
    assert Schedule.from_diffusers(config).alpha_bar.equal(schedule.alpha_bar)


@pytest.mark.parametrize("kind", ["linear", "scaled_linear", "squaredcos_cap_v2"])
@pytest.mark.parametrize("scheduler", [DDPMScheduler, UniPCMultistepScheduler])
def test_schedules_of_diffusers_are_understood(kind, scheduler):
    theirs = scheduler(beta_schedule=kind, beta_start=2e-4, beta_end=0.03, num_train_timesteps=400)
    ours = Schedule.from_diffusers(theirs.config)
    torch.testing.assert_close(ours.alpha_bar[1:].float(), theirs.alphas_cumprod, rtol=2e-4, atol=1e-7)


def test_unknown_diffusers_schedules_are_refused():
    with pytest.raises(ValueError, match="'sigmoid' is not known"):
        Schedule.from_diffusers({"num_train_timesteps": 10, "beta_schedule": "sigmoid"})
    with pytest.raises(ValueError, match="zero_snr"):
        Schedule.from_diffusers({"num_train_timesteps": 10, "rescale_betas_zero_snr": True})


@pytest.mark.parametrize("std", [0.0, 0.005, 0.01, 0.02, 0.03, 0.2, 0.4, 1.0, 5.0])
def test_for_noise_starts_just_high_enough_and_ends_where_the_linear_schedule_ends(std):
    schedule = Schedule.for_noise(std)
    schedule.check(std)
    if std > 0.01:
        assert schedule.sigma[1].item() == pytest.approx(std, rel=1e-12)
        with pytest.raises(ValueError, match="starts too low"):
            schedule.check(std * (1 + 6e-7))
    else:
        assert schedule.alpha_bar.equal(Schedule.linear().alpha_bar)
    torch.testing.assert_close(schedule.alpha_bar[-1], Schedule.linear().alpha_bar[-1])
    assert (schedule.sigma.diff() > 0).all()


def test_check_accepts_equality_and_names_what_to_do_otherwise():
    sigma_0 = 0.02
    admissible = sigma_0**2 / (1 + sigma_0**2)
    Schedule.linear(admissible, 0.02).check(sigma_0)
    Schedule.linear(sigma_0**2, 0.02).check(sigma_0)  # the paper's choice
    with pytest.raises(ValueError, match=r"t = 1 .* std = 0\.02 .* beta_1 >= 0\.0003998"):
        Schedule.linear(1e-4, 0.02).check(sigma_0)


def test_first_is_the_first_admissible_time():
    schedule = Schedule.linear(1e-4, 0.02)
    std = torch.tensor([0.0, 0.005, 0.02, 0.3, 1e4], dtype=torch.float64)
    for s, first in zip(std.tolist(), schedule.first(std).tolist(), strict=True):
        slow = next((t for t in range(1, 1001) if schedule.sigma[t] >= s), 1001)
        assert first == slow


def test_draw_is_uniform_from_the_minimum_of_each_sample_on(generator):
    schedule = Schedule.linear(0.01, 0.1, 10)
    t = schedule.draw(60_000, generator)
    counts = torch.bincount(t, minlength=11)[1:]
    assert t.min() == 1
    assert t.max() == 10
    assert ((counts - 6000).abs() < 5 * (60_000 * 0.1 * 0.9) ** 0.5).all()
    minimum = torch.tensor([3, 10]).repeat(5000)
    t = schedule.draw(10_000, generator, minimum=minimum)
    assert (t >= minimum).all()
    assert t[::2].unique().tolist() == [3, 4, 5, 6, 7, 8, 9, 10]


def test_times_of_a_sample_do_not_depend_on_its_batch():
    schedule = Schedule.linear()
    whole = schedule.draw(6, generators(0, 3, indices=range(6)))
    assert whole[4:].equal(schedule.draw(2, generators(0, 3, indices=[4, 5])))
    assert len(whole.unique()) > 1


def test_at_broadcasts_and_refuses_times_out_of_range():
    schedule = Schedule.linear(0.01, 0.1, 10)
    like = torch.zeros(2, 3, 4, 4)
    assert schedule.at(torch.tensor([0, 10]), like).shape == (2, 1, 1, 1)
    for bad in (-1, 11):
        with pytest.raises(ValueError, match=r"0\.\.10"):
            schedule.at(torch.tensor([1, bad]), like)
    with pytest.raises(ValueError, match=r"1\.\.10"):
        schedule.draw(2, torch.Generator(), minimum=torch.tensor([0, 1]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Schedule.linear(0.02, 1e-4), "beta_1 <= beta_T"),
        (lambda: Schedule.linear(1e-4, 0.02, 0), "T >= 1"),
        (lambda: Schedule.cosine(0), "T >= 1"),
        (lambda: Schedule.linear(1e-4, 0.2, 1000), "alpha_bar_T is 2e-47"),
        (lambda: Schedule(torch.tensor([0.1, 1.0], dtype=torch.float64)), "beta_2 is 1"),
        (lambda: Schedule(torch.tensor([0.1])), "float64 vector"),
        (lambda: Schedule([0.1, 0.2]), "float64 vector"),
        (lambda: Schedule.from_diffusers({}), "no num_train_timesteps"),
        (lambda: Schedule.linear().check(float("nan")), "finite number"),
        (lambda: Schedule.for_noise(-1), "at least 0"),
        (lambda: Schedule.for_noise(float("nan")), "at least 0"),
        (lambda: Schedule.for_noise(1e3), "above the schedule's last level"),
    ],
)
def test_impossible_schedules_are_refused(make, message, outside):
    with pytest.raises(ValueError, match=message):
        make()
