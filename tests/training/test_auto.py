"""Settings that fit the data, budgets of time, and the tasks of a run."""

import dataclasses
import json
import re

import nibabel
import numpy as np
import pytest
import torch
from running import final, make_files, same

import gsure
from gsure.cli import main, make_parser
from gsure.corruption import Lines, Noise
from gsure.data.sources import open_source
from gsure.training import train as training
from gsure.training.auto import choose_settings, fit_to_budget
from gsure.training.run import Run
from gsure.training.settings import Settings

SMALL = {
    "width": 8,
    "multipliers": (1, 2),
    "batch": 8,
    "held_out": 0.2,
    "validate_on": 8,
    "steps": 9,
    "impute_count": 40,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = make_files(tmp_path_factory.mktemp("digits"))
    gsure.corrupt(open_source("phantom", size=16, n=60), folder / "k.h5", Lines(R=2.0), 0.05, clean=folder / "kc.h5")
    return folder


def chosen(data, **changes) -> Settings:
    return choose_settings(data, changes, timed=False).settings


def test_settings_fit_the_data(files, tmp_path):
    missing, noisy = gsure.open(files / "k.h5"), tmp_path / "n.h5"
    gsure.corrupt(open_source("digits"), noisy, Noise(), 0.3, limit=80)
    assert (chosen(missing).purpose, chosen(missing).base) == ("both", "gaussian")
    assert (chosen(gsure.open(noisy)).purpose, chosen(gsure.open(noisy)).base) == ("generate", "none")
    assert chosen(missing, purpose="restore").purpose == "restore"
    assert chosen(missing, network="mlp").base == "none"
    assert (chosen(missing, purpose="generate").base, chosen(missing, purpose="generate").impute_at) == ("none", (0,))
    assert chosen(missing).steps == 0
    assert chosen(missing).minutes == 15
    assert chosen(missing, steps=30).impute_at == (20,)
    for choice in choose_settings(missing, timed=False).choices:
        assert len(choice.reason) > 5


def test_choices_are_shown_as_one_types_them(files):
    choices = choose_settings(gsure.open(files / "k.h5"), timed=False).choices
    for choice in choices:
        call, _, _ = str(choice).partition(": ")
        assert eval(f"dict({call})") == {choice.name: choice.value}  # noqa: S307
        typed, _, _ = choice.as_option().partition(": ")
        options = make_parser().parse_args(["train", "d.h5", "--out", "run", *typed.split()])
        assert getattr(options.train, choice.name) == choice.value


def measured(size, coverage=1.0, n=24):
    mask = torch.ones(n, 1, 1, size[1])
    mask[..., :2] = coverage
    values = torch.randn(n, 2, *size, generator=torch.Generator().manual_seed(0))
    return gsure.from_arrays(values * mask, mask, sigma=0.1, basis=gsure.Fourier(), verbose=False)


def test_a_step_takes_fewer_of_the_large_images():
    sizes = ((64, 64), (128, 128), (320, 368), (640, 368))
    batches = [chosen(measured(size)).batch for size in sizes]
    assert batches[:2] == [16, 16]
    assert batches[3] < batches[2] <= 8


def test_a_step_takes_more_of_small_images_where_gradients_are_of_hidden_entries():
    few, many = (measured((32, 32), coverage, n=100) for coverage in (1.0, 0.0))
    assert [chosen(data).batch for data in (few, many)] == [16, 64]
    assert chosen(many, purpose="generate").batch == 16
    assert chosen(measured((64, 64), 0.0, n=100)).batch == 16


def test_entries_that_are_never_measured_do_not_prevent_training(tmp_path):
    data = measured((16, 24), coverage=0.0)
    choices = {choice.name: choice for choice in choose_settings(data, timed=False).choices}
    assert "2 of 24 entries are never measured: the model can only guess" in choices["coverage_weighting"].reason
    assert "coverage_weighting" not in {c.name for c in choose_settings(measured((16, 24)), timed=False).choices}
    run = gsure.train(data, tmp_path / "run", chosen(data, **SMALL))
    restored = gsure.restore(run, data, limit=2, draws=2, steps=3)
    assert restored.summary["extrapolation"].startswith("8.3 % of the entries were never measured in training")


def test_a_budget_becomes_a_number_of_steps():
    settings = Settings(steps=0, minutes=10.0, purpose="both", base="gaussian")
    found = fit_to_budget(settings, (0.1, 0.2), 0.01, 600.0, n=5000)
    trained = found.impute_at[0] * 0.1 + (found.steps - found.impute_at[0]) * 0.2 + found.impute_count * 0.01
    assert 0.8 * 600 * 0.85 < trained <= 600 * 0.85
    assert fit_to_budget(settings, (0.1, 0.2), 0.01, 1200.0, n=5000).steps > 1.9 * found.steps
    with pytest.raises(ValueError, match=r"preparing took 0 seconds, a step takes 40 s, .*Give at least 32 minutes,"):
        fit_to_budget(settings, (40.0, 40.0), 0.0, 600.0, n=5000)
    with pytest.raises(ValueError, match=r"preparing took 8 minutes, a step takes 6.5 s, .*Give at least 14 minutes,"):
        fit_to_budget(settings, (6.5, 6.5), 0.0, 120.0, n=5000)  # what is left, not the minutes, is too short


def test_a_run_that_does_not_fit_its_minutes_leaves_no_folder(files, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "_time_tasks", lambda *given: ((40.0, 40.0), 0.0))
    settings = chosen(gsure.open(files / "d.h5"), width=8, multipliers=(1, 2), batch=8, minutes=2.0)
    with pytest.raises(ValueError, match="2 minutes are too short"):
        gsure.train(files / "d.h5", tmp_path / "run", settings)
    assert not (tmp_path / "run").exists()


def test_a_run_with_a_budget_records_its_steps_and_resumes(files, tmp_path, monkeypatch):
    original = training._time_tasks

    def as_on_a_slow_computer(*given):
        original(*given)
        return (6.0, 6.0), 0.01

    monkeypatch.setattr(training, "_time_tasks", as_on_a_slow_computer)
    settings = chosen(gsure.open(files / "d.h5"), width=8, multipliers=(1, 2), batch=8, minutes=5.0)
    gsure.train(files / "d.h5", tmp_path / "run", settings)
    stored = Run(tmp_path / "run").config.settings
    assert 20 <= stored.steps < 50
    assert final(tmp_path / "run").step == stored.steps
    assert stored.impute_at == (next(iter(stored.impute_at)),)
    gsure.train(files / "d.h5", tmp_path / "run", resume=True)  # has nothing left to do
    assert final(tmp_path / "run").step == stored.steps


@pytest.mark.parametrize(
    ("options", "where"),
    [(["--preset", "digits"], "the steps of --preset digits"), (["--steps", "30"], "--steps 30")],
)
def test_minutes_beside_a_number_of_steps_are_refused(files, tmp_path, capsys, options, where):
    """They would be ignored."""
    assert main(["train", str(files / "d.h5"), "--out", str(tmp_path / "run"), "--minutes", "5", *options]) == 2
    assert f"--minutes has no effect beside {where}: add --steps 0" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"give Settings\(steps=0, minutes=5\)"):
        gsure.train(files / "d.h5", tmp_path / "run", Settings(steps=3), minutes=5.0)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["d", "k"])
def test_a_run_for_both_purposes_resumes_bit_for_bit(files, tmp_path, name):
    settings = chosen(gsure.open(files / f"{name}.h5"), **SMALL, checkpoint_every=3)
    settings = dataclasses.replace(settings, decay="none")
    gsure.train(files / f"{name}.h5", tmp_path / "straight", settings)
    gsure.train(files / f"{name}.h5", tmp_path / "run", dataclasses.replace(settings, steps=7))
    gsure.train(files / f"{name}.h5", tmp_path / "run", settings, resume=True)
    assert same(tmp_path / "run", tmp_path / "straight")


def test_such_a_run_restores_in_one_call_and_draws_in_context(files, tmp_path):
    settings = chosen(gsure.open(files / "k.h5"), **SMALL)
    run = gsure.train(files / "k.h5", tmp_path / "run", settings)
    restored = gsure.restore(run, files / "k.h5", limit=4, draws=2, steps=3, clean=files / "kc.h5")
    assert restored.summary["method"] == "mean"
    assert restored.summary["drawn_by"] == "context"
    measurement = gsure.open(files / "k.h5")[:4]
    with torch.no_grad():
        expected = run.denoiser.basis.to_signal(run.denoiser.estimate(measurement))
    np.testing.assert_allclose(restored.signals["mean"][:4].numpy(), expected.numpy(), atol=1e-4)
    gsure.restore(run, files / "k.h5", tmp_path / "restored", limit=4, draws=2, steps=3)
    assert gsure.write_report(tmp_path)["runs"] == 1  # though nothing was validated over timesteps
    assert gsure.sample(run, 2, steps=3)[:].shape == (2, 2, 16, 16)
    json.dumps(restored.summary)


def test_training_on_clean_signals_has_the_same_network_and_hides_as_much(files, tmp_path):
    settings = chosen(gsure.open(files / "k.h5"), **SMALL, train_on="clean")
    ours = chosen(gsure.open(files / "k.h5"), **SMALL)
    same_names = ("base", "purpose", "hide", "width", "multipliers", "lr", "batch", "steps", "impute_at")
    assert all(getattr(settings, name) == getattr(ours, name) for name in same_names)
    run = gsure.train(files / "k.h5", tmp_path / "run", settings, clean=files / "kc.h5")
    assert final(tmp_path / "run").step == 9
    assert run.denoiser.mask_conditioned


def test_what_cannot_be_learned_is_refused(files, tmp_path, capsys):
    with pytest.raises(ValueError, match=r"--purpose both .* add --base gaussian, or --mask-conditioned"):
        Settings(purpose="both")
    noisy = tmp_path / "n.h5"
    gsure.corrupt(open_source("digits"), noisy, Noise(), 0.3, limit=80)
    settings = Settings(purpose="restore", base="gaussian", width=8, multipliers=(1, 2), batch=8, steps=2)
    with pytest.raises(ValueError, match="Nothing can be hidden: every measurement has all entries"):
        gsure.train(noisy, tmp_path / "run", settings)
    blind = tmp_path / "blind"
    gsure.train(files / "d.h5", blind, Settings(width=8, multipliers=(1, 2), batch=8, steps=2, checkpoint_every=2))
    assert main(["restore", str(blind), str(files / "d.h5"), "--method", "mean", "--out", str(tmp_path / "r")]) == 2
    assert "needs a mask-conditioned network" in " ".join(capsys.readouterr().err.split())


def test_a_network_without_its_gaussian_is_refused(files, tmp_path):
    settings = chosen(gsure.open(files / "d.h5"), **SMALL)
    run = gsure.train(files / "d.h5", tmp_path / "run", settings)
    other = gsure.train(files / "d.h5", tmp_path / "other", dataclasses.replace(settings, seed=1, steps=1))
    assert "held-out error relative to the Gaussian prior" in other.summary()  # it was validated in one call
    run.gaussian.write_bytes(other.gaussian.read_bytes())
    with pytest.raises(ValueError, match="is not the Gaussian prior that the network"):
        gsure.load(run)
    run.gaussian.unlink()
    with pytest.raises(ValueError, match=r"gaussian.safetensors is missing: the network of"):
        gsure.load(run)


def test_a_folder_of_nifti_volumes_leads_to_a_verdict(tmp_path, capsys):
    """What a new user types, at tiny scale."""
    generator = np.random.default_rng(0)
    for name in "abcdef":
        coarse = torch.from_numpy(generator.uniform(0, 900, (1, 1, 8, 4, 5)))
        volume = torch.nn.functional.interpolate(coarse, (40, 20, 25), mode="trilinear")[0, 0].numpy()
        nibabel.save(nibabel.Nifti1Image(volume.astype(np.float32), np.diag([2, 2, 3, 1])), tmp_path / f"{name}.nii.gz")
    data, out = str(tmp_path / "scans.h5"), str(tmp_path / "run")
    simulate = ["--source.complex", "true", "--corruption", "lines", "--R", "2", "--sigma", "0.02"]
    assert main(["corrupt", str(tmp_path), data, *simulate]) == 0
    changes = {**SMALL, "held_out": 0.4, "validate_on": 50}
    options = [word for name, value in changes.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    options = [word.replace("(", "[").replace(")", "]") for word in options]
    assert main(["train", data, "--out", out, *options]) == 0
    assert re.search(r"(Better|Worse|Not better) than (no model|total variation)", capsys.readouterr().out)
    assert main(["restore", out, data, "--limit", "2", "--draws", "2", "--steps", "3", "--out", f"{out}-restored"]) == 0
    assert "verdict" in capsys.readouterr().out
