"""Completion: learning from whole signals, of which the model itself has drawn what was not measured."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch
from running import QUICK, final, interrupt_at, launch, make_files, same, told
from torch import nn

import gsure
from gsure.training import imputation, prior
from gsure.training.run import Run

IMPUTING = dataclasses.replace(QUICK, accumulate=2, impute_at=(4, 8), impute_count=40, impute_sampling_steps=3)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return make_files(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="module")
def straight(files):
    """A run that was never stopped."""
    return gsure.train(files / "d.h5", files / "straight", IMPUTING).path


@pytest.fixture(scope="module")
def begun(files):
    """A run that has imputed once."""
    return gsure.train(files / "d.h5", files / "begun", dataclasses.replace(IMPUTING, steps=6)).path


# Why


class Linear(nn.Module):
    def __init__(self, matrix):
        super().__init__()
        self.matrix = nn.Parameter(matrix)

    def forward(self, x_t, t):
        return x_t @ self.matrix.T


def pull(fill: str, t: int = 300, batches: int = 60, n: int = 4000) -> float:
    """How many standard errors the loss on what was measured pulls the best linear denoiser of whole signals away, for pairs
    of correlation 0.6 of which one entry, or none, is missing, imputed in one way or another."""
    correlation, schedule = 0.6, gsure.Schedule.linear()
    covariance = torch.tensor([[1.0, correlation], [correlation, 1.0]])
    alpha_bar = float(schedule.alpha_bar[t])
    best = alpha_bar**0.5 * covariance @ torch.linalg.inv(alpha_bar * covariance + (1 - alpha_bar) * torch.eye(2))
    denoiser = gsure.Denoiser(Linear(best), schedule, gsure.basis.Identity())
    objective = gsure.Objective("tweedie", coverage=2 / 3)
    generator, slopes = torch.Generator().manual_seed(0), []
    for _ in range(batches):
        x = torch.randn(n, 2, generator=generator) @ torch.linalg.cholesky(covariance).T
        mask = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])[torch.randint(3, (n,), generator=generator)]
        measurement = gsure.Measurement(mask * x, mask, 0.0)
        other = (mask * x).flip(-1)  # where an entry is missing, what was measured is the other one
        spread = (1 - correlation**2) ** 0.5 * torch.randn(n, 2, generator=generator)
        xbar = {"draws": correlation * other + spread, "means": correlation * other, "nothing": torch.zeros(n, 2)}[fill]
        times = torch.full((n,), t)
        loss = objective(denoiser, measurement, times, generator, input=measurement.impute(xbar)).mean()
        slopes.append(torch.autograd.grad(loss, denoiser.network.matrix)[0].flatten())
    slope = torch.stack(slopes)
    return float((slope.mean(0) / (slope.std(0) / batches**0.5)).abs().max())


def test_imputed_by_draws_from_the_posterior_measurements_teach_what_full_signals_teach():
    assert pull("draws") < 4


@pytest.mark.parametrize("fill", ["means", "nothing"])
def test_imputed_by_means_or_by_nothing_they_would_teach_something_else(fill):
    assert pull(fill) > 10


def test_an_imputed_measurement_has_noise_where_it_was_measured_only(generator):
    measurement = gsure.Measurement(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0]]), 0.1)
    whole = measurement.impute(torch.tensor([[5.0, 7.0]]))
    assert whole.ybar.tolist() == [[2, 7]]
    assert bool((whole.mask.expand_as(whole.ybar) == 1).all())
    assert whole.std.tolist() == [[pytest.approx(0.1), 0]]


# How


def test_what_is_learned_from_is_as_measured_where_it_was_measured(files, tmp_path, monkeypatch):
    found = []
    original = imputation.Imputing.at
    monkeypatch.setattr(imputation.Imputing, "at", lambda self, *rest: found.append(original(self, *rest)) or found[-1])
    gsure.train(files / "d.h5", tmp_path / "run", IMPUTING)
    examples, held_out, _ = found[-1]
    for some in (examples, held_out):
        input, target, _ = some.pair(np.arange(len(some)))
        kept = target.mask.expand_as(input.ybar) == 1
        assert input.ybar[kept].equal(target.ybar[kept])
        assert bool((input.mask == 1).all())
        assert float(input.ybar[~kept].std()) > 0.1
    assert len(examples) == 40
    assert len(held_out) == 12


@pytest.mark.parametrize("stop", [2, 3, 5, 9])
def test_a_resumed_run_equals_one_that_was_never_stopped_and_draws_nothing_again(
    files, straight, tmp_path, monkeypatch, stop
):
    with monkeypatch.context() as patch:
        interrupt_at(patch, stop)
        gsure.train(files / "d.h5", tmp_path / "stopped", IMPUTING)
    assert final(tmp_path / "stopped").step == stop + 1
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "stopped").glob("imputed/*/*/*.h5")}
    assert len(before) == 2 * sum(at < stop + 1 for at in IMPUTING.impute_at)
    gsure.train(files / "d.h5", tmp_path / "stopped", resume=True)
    assert same(straight, tmp_path / "stopped")
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    validations = [[line for line in told(run) if "validation" in line] for run in (straight, tmp_path / "stopped")]
    assert validations[0] == validations[1]


def test_before_the_first_step_a_gaussian_imputes_all_and_a_resumed_run_equals_one_never_stopped(
    files, tmp_path, monkeypatch
):
    settings = dataclasses.replace(IMPUTING, impute_at=(0, 8))
    gsure.train(files / "d.h5", tmp_path / "straight", settings)
    imputed = gsure.Signals(tmp_path / "straight" / "imputed" / "step-00000000" / "train")
    assert len(imputed) == len(gsure.open(files / "d.h5")) - 12
    clean = gsure.Signals(files / "c.h5")[[int(group) for group in imputed.groups()]]
    data = gsure.open(files / "d.h5")
    measured = data[[int(group) for group in imputed.groups()]].ybar
    assert float((imputed[:] - clean).square().mean()) < 0.7 * float((measured - clean).square().mean())
    with monkeypatch.context() as patch:
        interrupt_at(patch, 3)
        gsure.train(files / "d.h5", tmp_path / "stopped", settings)
    fits = []
    monkeypatch.setattr(prior, "fit_gaussian", lambda *rest: fits.append(rest))
    gsure.train(files / "d.h5", tmp_path / "stopped", resume=True)
    assert same(tmp_path / "straight", tmp_path / "stopped")
    assert not fits, "what is there is not fitted again"


def test_what_is_imputed_matters(files, straight, begun, tmp_path):
    """The control of the test above."""
    shutil.copytree(begun, tmp_path / "other")
    for piece in (tmp_path / "other").glob("imputed/*/train/*.h5"):
        shutil.copyfile(straight / "imputed" / "step-00000008" / "train" / piece.name, piece)
    gsure.train(files / "d.h5", tmp_path / "other", IMPUTING, resume=True)
    assert not same(straight, tmp_path / "other")


@pytest.mark.parametrize("changed", [{"impute_count": 20}, {"batch": 4}])
def test_imputed_signals_of_other_measurements_are_not_taken_for_these(files, begun, tmp_path, changed):
    shutil.copytree(begun, tmp_path / "run")
    with pytest.raises(ValueError, match="was written with different settings"):
        gsure.train(files / "d.h5", tmp_path / "run", dataclasses.replace(IMPUTING, **changed), resume=True, force=True)


def test_imputed_signals_that_are_gone_are_not_drawn_by_a_later_model(files, begun, tmp_path):
    shutil.copytree(begun, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "imputed")
    with pytest.raises(ValueError, match="imputed at step 4 are gone"):
        gsure.train(files / "d.h5", tmp_path / "run", IMPUTING, resume=True)


def test_an_interrupt_while_imputing_loses_no_chunk(files, straight, tmp_path, monkeypatch):
    monkeypatch.setattr(imputation, "BATCHES_PER_CHUNK", 2)
    original, calls = imputation.Imputing._draw, []

    def interrupted(state, *rest):
        calls.append(rest)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return original(state, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(imputation.Imputing, "_draw", interrupted)
        with pytest.raises(KeyboardInterrupt):
            gsure.train(files / "d.h5", tmp_path / "stopped", IMPUTING)
    assert len(list((tmp_path / "stopped").glob("imputed/*/*/*.h5"))) == 3
    gsure.train(files / "d.h5", tmp_path / "stopped", resume=True)
    assert final(tmp_path / "stopped").step == 12
    assert same(straight, tmp_path / "stopped")


def test_two_processes_impute_what_one_imputes(files, tmp_path):
    settings = dataclasses.replace(IMPUTING, accumulate=1, impute_at=(2,), steps=4, objective="gsure-y")
    gsure.train(files / "d.h5", tmp_path / "one", settings)
    (tmp_path / "settings.yaml").write_text(json.dumps(dataclasses.asdict(settings)))
    done = launch(2, "train", files / "d.h5", "--out", tmp_path / "two", "--config", tmp_path / "settings.yaml")
    assert done.returncode == 0, done.stderr
    one, two = (gsure.Signals(tmp_path / name / "imputed" / "step-00000002" / "train")[:] for name in ("one", "two"))
    assert float((one - two).abs().max()) < 1e-3
    for a, b in zip(told(tmp_path / "one"), told(tmp_path / "two"), strict=True):
        assert a.get("loss", 0) == pytest.approx(b.get("loss", 0), rel=1e-3)


def test_the_best_is_found_again_among_those_validated_on_imputed_signals(straight):
    validations = {
        line["step"]: line["validation"]["estimate"]["mean"] for line in told(straight) if "validation" in line
    }
    assert final(straight).header["best"]["mean"] == validations[12]  # the only one since step 8
    assert gsure.load(straight).schedule.T == IMPUTING.T
    assert Run(straight).config.settings.impute_at == (4, 8)


def test_steps_beyond_the_last_impute_nothing(files, tmp_path):
    gsure.train(files / "d.h5", tmp_path / "run", dataclasses.replace(IMPUTING, impute_at=(12, 40)))
    assert not (tmp_path / "run" / "imputed").exists()


def test_what_is_said_of_measurements_with_holes_comes_with_a_word_about_imputation(files, tmp_path, few_times):
    gsure.train(files / "d.h5", tmp_path / "run", dataclasses.replace(IMPUTING, held_out=0.5), clean=files / "c.h5")
    told_of = gsure.evaluate_denoising(tmp_path / "run", t_bins=2, n=8)
    assert any("imputed" in warning for warning in told_of["warnings"])
    checks = {
        check["name"]: check["words"]
        for check in gsure.diagnose(tmp_path / "run", clean=files / "c.h5", n=40)["checks"]
    }
    assert "imputed" in checks["full_sampling"]
    assert "imputed" not in checks["coverage"]
