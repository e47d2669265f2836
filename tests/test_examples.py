"""The method works: a 2-D mixture is learned from measurements alone, in seconds (examples/toy2d.py, one seed, few rows)."""

import importlib.util

import pytest
import torch
from conftest import ROOT

EXAMPLE = ROOT / "examples" / "toy2d.py"


@pytest.fixture(scope="module")
def toy2d():
    spec = importlib.util.spec_from_file_location("toy2d", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_mixture_is_learned_from_measurements_within_5_percent_of_the_oracle_and_better_than_naive(toy2d):
    errors = {}
    for row in ("oracle", "tweedie", "naive"):
        data, objective = toy2d.training_set(row, 50_000, torch.Generator().manual_seed(0))
        errors[row] = toy2d.denoising_error(toy2d.train(data, objective, seed=0, steps=700), toy2d.GRID)
    assert (errors["tweedie"] / errors["oracle"] < 1.05).all()
    middle = slice(0, 5)  # noise levels .25 to 1, at which there is something to get wrong
    assert (errors["naive"][middle] / errors["tweedie"][middle] > 1.08).all()
