"""Learning digits from measurements, for a small budget: the estimate without clean data is true, and so is the promise."""

import dataclasses

import numpy as np
import pytest
import torch
from conftest import z_score

import gsure
from gsure.data.sources import open_source
from gsure.training.run import Run
from gsure.training.settings import Settings

BUDGET = Settings(
    width=8, groups=4, multipliers=(1, 2), attention=(4,), dropout=0.0, batch=32, steps=100, lr=2e-3, warmup=20,
    decay="cosine", ema=0.95, held_out=0.15, t_bins=4, validate_on=160, checkpoint_every=100, picture_every=0,
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("learning")


@pytest.fixture(scope="module")
def results(folder):
    gsure.corrupt(
        open_source("digits"), folder / "d.h5", gsure.corruption.Patches(p=0.4, size=2), 0.1, clean=folder / "c.h5"
    )
    measured = {}
    for train_on in ("measurements", "clean", "naive"):
        settings = dataclasses.replace(BUDGET, train_on=train_on)
        gsure.train(folder / "d.h5", folder / train_on, settings, clean=folder / "c.h5")
        measured[train_on] = Run(folder / train_on).read_metrics()[-1]["validation"]
    return measured


@pytest.mark.parametrize("train_on", ["measurements", "naive"])
def test_the_estimate_without_clean_data_is_the_true_error(results, train_on):
    """Of a good model and of a bad one; per band of t, and over all of them, on the same network outputs."""
    result = results[train_on]
    for t_bin in [
        *result["t_bins"],
        {f"difference{k}": v for k, v in zip(("", "_se"), result["difference"].values(), strict=True)},
    ]:
        assert abs(t_bin["difference"]) < 4 * t_bin["difference_se"]
    assert abs(result["difference"]["mean"]) < 3 * result["difference"]["se"]


def test_an_estimate_that_is_told_the_wrong_noise_is_noticed(results, folder):
    """The control: half the noise that is in the data, and the difference is many standard errors."""
    data, clean = gsure.open(folder / "d.h5"), gsure.Signals(folder / "c.h5")
    positions = np.arange(0, len(data), 4)
    right, xbar = data[positions], clean[positions]
    wrong = gsure.Measurement(right.ybar, right.mask, right.std / 2)
    truth = gsure.Measurement(right.mask * xbar, right.mask, 0.0)
    denoiser = gsure.load(folder / "measurements")
    exact = gsure.Objective("exact", coverage=data.coverage, divergence=gsure.Divergence("finite-difference"))
    t = torch.full((len(positions),), 100)
    with torch.no_grad():
        true = exact.loss(denoiser, right, truth, t, gsure.generators(0, indices=positions))
        estimates = [exact(denoiser, m, t, gsure.generators(0, indices=positions)) for m in (right, wrong)]
    assert float(z_score(estimates[0] - true).abs()) < 4
    assert float(z_score(estimates[1] - true).abs()) > 8


def test_learning_from_measurements_lies_between_oracle_and_naive(results):
    full = {name: result["full"] for name, result in results.items()}
    assert full["clean"]["mean"] < full["measurements"]["mean"] < full["naive"]["mean"]
    gap = full["naive"]["mean"] - full["clean"]["mean"]
    assert full["naive"]["mean"] - full["measurements"]["mean"] > 0.5 * gap
    assert full["naive"]["mean"] - full["measurements"]["mean"] > 5 * full["naive"]["se"]
