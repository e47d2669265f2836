"""Every preset parses, builds its network, takes a step at reduced size, and says what it is."""

import dataclasses
import re
from typing import get_args, get_type_hints

import pytest
import torch

import gsure
from gsure import corruption, denoiser, divergence, objective
from gsure.data.sources import open_source
from gsure.training.model import make_network, make_schedule
from gsure.training.settings import PRESETS, DataInfo, Settings, known, preset_names, read_preset

FAMILY = {"fastmri": corruption.Lines(R=2.0), "phantom": corruption.Lines(R=2.0)}
SHAPES = {
    "celeba32": (1, 32, 32),
    "celeba": (3, 32, 32),
    "fastmri": (2, 320, 320),
    "digits": (1, 8, 8),
    "fashion16": (1, 16, 16),
    "phantom32": (2, 32, 32),
}
PAPER = ["celeba32-p02", "celeba32-p04", "celeba32-p06", "celeba-colour-p02", "fastmri-r4"]
SMALL = ["digits", "fashion16", "phantom32"]


def test_the_presets_are_those_of_the_paper_and_of_a_laptop():
    assert preset_names() == sorted(PAPER + SMALL)


@pytest.mark.parametrize("name", PAPER + SMALL)
@pytest.mark.parametrize("train_on", ["clean", "naive"])
def test_clean_and_naive_training_change_only_what_incomplete_data_needs(name, train_on):
    ours, other = Settings(**read_preset(name)), Settings(**read_preset(name, {"train_on": train_on}))
    assert set(ours.differences(other)) <= {"train_on", "mask_conditioned", "hide", "impute_at", "impute_count"}
    assert (other.train_on, other.mask_conditioned, other.hide, other.impute_at) == (train_on, False, 0.0, ())


def test_what_is_asked_for_is_kept_whatever_is_trained_on():
    assert read_preset("fashion16", {"train_on": "clean", "mask_conditioned": True})["mask_conditioned"]


@pytest.mark.parametrize("name", preset_names())
def test_preset_builds_its_network(name):
    settings = Settings(**read_preset(name))
    shape = SHAPES[name.split("-")[0]]
    about = DataInfo(shape, "Identity", (1, *shape[1:]), (), False, 0.02, 1000, {})
    with torch.device("meta"):
        network = make_network(settings, about, basis_is_signal=True)
    parameters = sum(parameter.numel() for parameter in network.parameters()) / 1e6
    if name.startswith("celeba32"):
        assert parameters == pytest.approx(78.70, abs=0.005)
    elif name.startswith("fastmri"):
        assert parameters == pytest.approx(113.67, abs=0.005)
    elif not name.startswith("celeba"):
        assert parameters < 5


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_schedule_starts_at_its_noise(name):
    sigma_0 = {"p02": 0.01, "p04": 0.02, "p06": 0.03, "r4": 0.01}[name.split("-")[-1]]
    schedule = make_schedule(Settings(**read_preset(name)), max_std=sigma_0)
    assert float(schedule.beta[0]) == pytest.approx(sigma_0**2)
    assert (float(schedule.beta[-1]), schedule.T) == (0.02, 1000)


@pytest.mark.parametrize("name", preset_names())
def test_preset_takes_a_step_at_reduced_size(name, tmp_path):
    base = name.split("-")[0]
    family = FAMILY.get(base.rstrip("0123456789"), corruption.Patches(p=0.4, size=2))
    source = open_source("phantom", size=16, n=12) if family.basis != gsure.Identity() else open_source("digits")
    gsure.corrupt(source, tmp_path / "d.h5", family, 0.01, clean=tmp_path / "c.h5", limit=12)
    reduced = {
        "width": 8,
        "multipliers": (1, 2),
        "attention": (8,) if family.basis != gsure.Identity() else (4,),
        "batch": 4,
        "steps": 1,
        "held_out": 0.3,
        "t_bins": 2,
    }
    settings = dataclasses.replace(Settings(**read_preset(name)), **reduced)
    gsure.train(tmp_path / "d.h5", tmp_path / "run", settings, clean=tmp_path / "c.h5")
    assert gsure.inspect(tmp_path / "run")["step"] == 1


@pytest.mark.parametrize("name", PAPER + SMALL)
def test_preset_says_what_it_costs_and_why_each_line(name):
    text = (PRESETS / f"{name}.yaml").read_text()
    assert re.search(r'^cost: "(not measured: |\d).*"$', text, re.MULTILINE)
    assert re.search(r"^#   gsure corrupt ", text, re.MULTILINE)
    undocumented = [
        line for line in text.splitlines() if line and not line.startswith(("#", "cost:")) and "#" not in line
    ]
    assert not undocumented


def test_settings_name_what_the_modules_name():
    kinds = get_type_hints(Settings)
    for setting, names in {
        "objective": objective.Name,
        "weighting": objective.Weighting,
        "predicts": denoiser.Predicts,
        "divergence": divergence.Method,
    }.items():
        assert get_args(kinds[setting]) == get_args(names)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"wdith": 3}, "sets 'wdith', which is no setting; did you mean width?"),
        ({"lr": "1e-3"}, "sets lr to '1e-3', where a float is wanted"),
        ({"steps": True}, "sets steps to True, where an int is wanted"),
    ],
)
def test_a_configuration_with_a_slip_is_refused(values, match):
    with pytest.raises(ValueError, match=re.escape(match)):
        known(values, "config.yaml")


def test_lists_and_whole_numbers_of_yaml_are_understood():
    assert known({"multipliers": [1, 2], "lr": 1}, "config.yaml") == {"multipliers": (1, 2), "lr": 1.0}
