"""Baselines and the verdict: total variation against a slow solver, and the right sentence for planted models."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import gsure
from gsure.basis import Fourier, Identity
from gsure.gaussian import About, with_conjugates
from gsure.gaussian.blocks import BlockGaussian, Blocks
from gsure.gaussian.coordinates import Entries
from gsure.judging import Baselines, difference_of_errors, difference_of_scores, judge_differences, predict_hidden
from gsure.judging.baselines import gradient, total_variation
from gsure.judging.verdict import MIN_UNITS, Difference, Verdict, choose_judged
from gsure.measurement import Measurement

pytestmark = pytest.mark.usefixtures("full_judgement")

# Total variation


def objective(x: torch.Tensor, ybar: torch.Tensor, weight: torch.Tensor, strength: float, basis, smooth: float = 0.0):
    length = (gradient(x).square().sum((1, 2)) + smooth**2).sqrt()
    return 0.5 * (weight * (basis.to_spectral(x) - ybar) ** 2).sum() + strength * length.sum()


@pytest.mark.parametrize("basis", [Identity(), Fourier()], ids=repr)
def test_total_variation_agrees_with_a_slow_solver(basis, generator):
    """L-BFGS on a smoothed objective, whose smoothing becomes small."""
    x = torch.zeros(1, 2, 8, 8, dtype=torch.float64)
    x[:, 0, 2:6, 1:5] = 1.0
    mask = (torch.rand(1, 1, 8, 8, generator=generator) < 0.6).double()
    noise = 0.1 * torch.randn(x.shape, generator=generator, dtype=torch.float64)
    ybar, strength = mask * (basis.to_spectral(x) + noise), 0.05
    found = total_variation(ybar, mask, strength, basis.to_spectral, basis.to_signal, iterations=20000)
    assert bool(found.converged.all())
    guess = basis.to_signal(ybar).flatten().numpy()
    for smooth in (1e-1, 1e-2, 1e-3, 1e-4):

        def value_and_gradient(flat, smooth=smooth):
            at = torch.from_numpy(flat).reshape(x.shape).requires_grad_()
            value = objective(at, ybar, mask, strength, basis, smooth)
            (slope,) = torch.autograd.grad(value, at)
            return float(value.detach()), slope.flatten().numpy()

        guess = minimize(value_and_gradient, guess, jac=True, method="L-BFGS-B", options={"maxiter": 5000}).x
    slow = float(objective(torch.from_numpy(guess).reshape(x.shape), ybar, mask, strength, basis))
    fast = float(objective(found.x, ybar, mask, strength, basis))
    start = float(objective(basis.to_signal(ybar), ybar, mask, strength, basis))
    assert fast < slow + 1e-3 * (start - slow)


def test_total_variation_says_when_it_has_not_converged(generator):
    ybar = torch.randn(2, 1, 8, 8, generator=generator)
    one = torch.ones(2, 1, 1, 1)
    found = total_variation(ybar, one, 1.0, lambda x: x, lambda x: x, iterations=1)
    assert not found.converged.any()


def test_the_strength_is_the_one_that_predicts_hidden_entries(generator):
    """Of images with sharp edges in much noise, a strong one; of those without noise, a weak one."""
    x = torch.zeros(8, 1, 16, 16)
    x[:, :, 4:12, 4:12] = 1.0
    mask = (torch.rand(8, 1, 16, 16, generator=generator) < 0.5).float()
    about = About(Identity(), (1, 16, 16), False, torch.zeros(1, 1, 16, 16))
    chosen = {}
    for std in (0.0, 0.5):
        noisy = mask * (x + std * torch.randn(x.shape, generator=generator))
        baselines = Baselines.choose(Measurement(noisy, mask, std), about)
        chosen[std] = baselines.strength
    assert chosen[0.5] > chosen[0.0]


def test_conjugates_of_real_images_are_filled_in(generator):
    x = torch.randn(3, 2, 8, 8, generator=generator)
    x[:, 1] = 0
    xbar, mask = Fourier().to_spectral(x), (torch.rand(3, 1, 1, 8, generator=generator) < 0.6).float()
    filled = with_conjugates(Measurement(mask * xbar, mask, 0.1), Fourier())
    assert (filled.mask >= mask).all()
    assert filled.mask.sum() > mask.sum()
    torch.testing.assert_close(filled.ybar, filled.mask * xbar, atol=1e-5, rtol=1e-4)


def test_signals_that_are_not_images_have_no_total_variation(generator):
    about = About(Identity(), (1, 1, 30), False, torch.zeros(1, 1, 1, 30))
    y = torch.randn(4, 1, 1, 30, generator=generator)
    assert Baselines.choose(Measurement(y, 1.0, 0.1), about).kinds == ("baseline",)


# The verdict


def gaussian_problem(seed: int) -> tuple[Measurement, About, BlockGaussian]:
    """Measurements of smooth Gaussian images, and their exact prior."""
    generator = torch.Generator().manual_seed(seed)
    size = 8
    at = torch.cartesian_prod(torch.arange(size), torch.arange(size)).double()
    covariance = (-torch.cdist(at, at).square() / 8).exp() + 1e-3 * torch.eye(size**2)
    x = (torch.randn(32, size**2, generator=generator).double() @ torch.linalg.cholesky(covariance).mT).float()
    mask = (torch.rand(32, 1, size, size, generator=generator) < 0.6).float()
    ybar = mask * (x.reshape(-1, 1, size, size) + 0.05 * torch.randn(32, 1, size, size, generator=generator))
    coordinates = Entries(Identity(), (1, size, size))
    blocks = Blocks(torch.zeros(1, size**2), covariance[None].float())
    about = About(Identity(), (1, size, size), False, torch.zeros(1, 1, size, size))
    return Measurement(ybar, mask, 0.05), about, BlockGaussian(coordinates, blocks)


def judged(seed: int, *models) -> list[Verdict]:
    measurement, about, prior = gaussian_problem(seed)
    baselines = Baselines.choose(measurement, about, seed=seed)
    signals: dict[str, torch.Tensor] = {}

    def verdict_on(model) -> Verdict:
        def estimate(shown):
            if not signals:  # the same entries are hidden from all models
                signals.update(baselines(shown).signals)
            return {"mean": model(prior, shown)} | signals

        names = [str(k) for k in range(len(measurement))]
        return predict_hidden(estimate, measurement, about, range(len(measurement)), names, seed).verdict()

    return [verdict_on(model) for model in models]


def test_the_verdict_is_right_for_a_planted_good_and_a_planted_bad_model_over_20_seeds():
    """The exact posterior mean of Gaussian data, and an untrained network."""
    network = gsure.mlp(64, width=16, depth=1, seed=0)
    schedule = gsure.Schedule.for_noise(0.05)
    untrained = gsure.Denoiser(network, schedule, Identity())

    def bad(_, shown):
        return gsure.ddrm(untrained, shown, steps=10, generator=0).detach()

    for seed in range(20):
        exact, poor = judged(seed, lambda prior, shown: prior.mean(shown), bad)
        assert exact.is_better is True, (seed, exact.sentence)
        assert exact.sentence.startswith("Better than"), seed
        assert poor.is_better is False, (seed, poor.sentence)
        assert poor.sentence.startswith("Worse than no model"), seed


def test_equal_models_are_not_called_better(generator):
    """A verdict at two standard errors is wrong about one time in twenty, for each sign."""
    wrong = 0
    for _ in range(200):
        errors = torch.randn(2, 40, generator=generator).square()
        found = judge_differences({"baseline": difference_of_errors(errors[0], errors[1], torch.arange(40))})
        wrong += found.is_better is not None
    assert wrong < 200 * 0.05 + 5 * (200 * 0.05 * 0.95) ** 0.5


def test_the_standard_error_counts_volumes_not_slices(generator):
    by_volume = 1 + torch.rand(10, generator=generator)
    other = 2 * by_volume * (1 + 0.2 * torch.rand(10, generator=generator))
    groups = torch.arange(10)
    single = difference_of_errors(by_volume, other, groups)
    repeated = difference_of_errors(by_volume.repeat(5), other.repeat(5), groups.repeat(5))
    assert repeated.value == pytest.approx(single.value)
    assert repeated.error == pytest.approx(single.error)


def test_what_the_sentence_says():
    worse = judge_differences({"baseline": Difference(2.0, 0.1), "total_variation": Difference(-3.0, 0.2)})
    assert worse.sentence.startswith("Worse than no model: total variation is better by 3.00 ± 0.20 dB. Do not use it")
    beaten = judge_differences({"baseline": Difference(2.0, 0.1), "gaussian": Difference(-1.0, 0.1)})
    assert beaten.sentence.endswith(
        "The Gaussian prior of the run is better by 1.00 ± 0.10 dB: restore with the method gaussian."
    )
    assert beaten.is_better is True
    unsure = judge_differences({"baseline": Difference(0.1, 0.1)})
    assert unsure.sentence == (
        "Not better than the baseline: the difference is 0.10 ± 0.10 dB, within two standard errors. Train longer."
    )
    one = judge_differences({"baseline": difference_of_scores(torch.tensor([20.0]), torch.tensor([18.0]))})
    assert "too few" in one.sentence
    assert one.is_better is None


def test_too_few_hidden_entries_are_not_judged(generator):
    measurement, about, prior = gaussian_problem(0)

    def estimate(shown):
        return {"mean": prior.mean(shown), "baseline": shown.ybar}

    few = predict_hidden(estimate, measurement[:2], about, [0, 1], ["a", "b"])
    assert few.units < MIN_UNITS
    assert f"only {few.units} of the measured units could be hidden, and at least 20" in few.verdict().sentence
    always = replace(about, always=torch.ones(1, 1, 8, 8))
    none = predict_hidden(estimate, measurement, always, range(32), ["a"] * 32)
    assert none.verdict().sentence.startswith("No verdict: nothing could be hidden")
    assert none.as_dict()["is_better"] is None


def test_large_images_are_judged_on_fewer():
    assert [len(choose_judged(1000, shape)) for shape in ((1, 8, 8), (2, 64, 64), (2, 320, 320))] == [64, 32, 8]


# In train, restore and evaluate


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("judged")
    digits, patches = gsure.open_source("digits"), gsure.corruption.Patches(p=0.4, size=2)
    gsure.corrupt(digits, folder / "d.h5", patches, 0.05, clean=folder / "c.h5", limit=600)
    settings = gsure.Settings(steps=2, batch=8, network="mlp", width=16, depth=1, checkpoint_every=2, validate_on=8)
    return gsure.train(folder / "d.h5", folder / "run", settings)


def test_an_untrained_run_is_called_worse_than_no_model(run):
    record = json.loads(run.verdict.read_text())
    assert record["is_better"] is False
    assert record["verdict"].startswith("Worse than no model")
    assert "restore with the method gaussian" in record["verdict"]
    assert set(record["decibels"]) == {"mean", "baseline", "total_variation", "gaussian"}
    assert next(iter(run.summary())) == "verdict"


def test_the_gaussian_of_a_run_restores(run, tmp_path):
    folder = run.path.parent
    restored = gsure.restore(run, folder / "d.h5", tmp_path / "r", method="gaussian", clean=folder / "c.h5", limit=64)
    assert restored.verdict.startswith("Better than")
    clean = gsure.Signals(folder / "c.h5")[:64]
    error = (restored.signals["mean"][:] - clean).square().mean()
    assert float(error) < 0.5 * float((restored.signals["baseline"][:] - clean).square().mean())
    spread = float(restored.signals["std"][:].square().mean())
    assert spread == pytest.approx(float(error), rel=0.3)  # error bars of the right size
    record = gsure.evaluate_restorations(tmp_path / "r", clean=folder / "c.h5")
    assert record["verdict"] == restored.verdict
    assert record["metrics"]["psnr"]["value"] > record["metrics"]["psnr_of_total_variation"]["value"]
    assert "object_psnr" in record["metrics"]


def test_without_baselines_there_is_no_verdict(run):
    restored = gsure.restore(run, run.path.parent / "d.h5", limit=2, draws=1, steps=2, baselines=False)
    assert set(restored.signals) == {"mean", "std", "draw", "baseline"}
    assert "verdict" not in restored.summary


def test_a_denoiser_alone_has_no_gaussian(run, outside):
    data = gsure.open(run.path.parent / "d.h5")
    with pytest.raises(ValueError, match="The method gaussian needs a run"):
        gsure.restore(run.denoiser, data, method="gaussian", limit=2)
    restored = gsure.restore(run.denoiser, data, limit=40, draws=1, steps=2)
    assert "gaussian" not in restored.signals
    assert restored.verdict.startswith(("Worse than no model", "Not better than total variation"))
    assert restored.summary["excluded draws"].startswith("40 of 40"), (
        "an untrained network contradicts all measurements"
    )


def test_masks_that_the_gaussian_does_not_fit_are_said(tmp_path, capsys):
    """It was fitted to lines; points of k-space have no rows."""
    source = gsure.open_source("phantom", size=16, n=60)
    lines, points = gsure.corruption.Lines(R=2.0), gsure.corruption.PoissonDisc(R=2.0)
    gsure.corrupt(source, tmp_path / "lines.h5", lines, 0.05)
    gsure.corrupt(source, tmp_path / "points.h5", points, 0.05, limit=4)
    settings = gsure.Settings(steps=1, batch=8, network="mlp", width=8, depth=1, validate_on=8)
    run = gsure.train(tmp_path / "lines.h5", tmp_path / "run", settings)
    header = gsure.gaussian.load_gaussian(run.gaussian, Fourier())[0].gaussian.state()[1]
    if header["structure"] == "rows":
        restored = gsure.restore(run, tmp_path / "points.h5", draws=1, steps=2, progress=True)
        assert "gaussian" not in restored.signals
        assert "masks that do not vary along" in capsys.readouterr().err
        with pytest.raises(ValueError, match="Use another method"):
            gsure.restore(run, tmp_path / "points.h5", method="gaussian")
    else:  # small signals may have a covariance of all entries, which takes any mask
        assert header["structure"] == "entries"
        restored = gsure.restore(run, tmp_path / "points.h5", draws=1, steps=2)
        assert "gaussian" in restored.signals
    assert np.isfinite(restored.mean.numpy()).all()


def test_training_says_how_many_pairs_were_never_measured_together(tmp_path, capsys):
    source = gsure.open_source("phantom", size=16, n=48)
    x = torch.stack([torch.from_numpy(source[k].x) for k in range(48)])
    mask = torch.eye(16).repeat(3, 1)[:, None, None]  # one line each, and always the centre
    mask[..., 7:10] = 1
    data = gsure.from_arrays(mask * Fourier().to_spectral(x), mask, 0.01, basis=Fourier(), verbose=False)
    settings = gsure.Settings(steps=1, batch=8, network="mlp", width=8, depth=1, validate_on=8)
    gsure.train(data, tmp_path / "run", settings, progress=True)
    said = " ".join(capsys.readouterr().err.split())
    assert "Gaussian of rows: not determined, because 78 of 128 pairs of entries were never measured together." in said
    assert "The Gaussian prior of the run: stationary images." in said
