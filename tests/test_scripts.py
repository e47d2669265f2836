"""Every script of bench/, docs/ and examples/ runs: on little data, with few steps, to its last line."""

import dataclasses
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import browser
import nibabel as nib
import numpy as np
import pytest
import torch
from conftest import ROOT
from running import QUICK

import gsure
from gsure.cli import make_parser
from gsure.report import write_report
from gsure.training.run import Run

SCRIPTS = sorted(path for folder in ("bench", "docs", "examples") for path in (ROOT / folder).glob("*.py"))
NAMES = {"digits": "measurements", "digits-clean": "clean", "digits-naive": "naive"}


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(name).stem, ROOT / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """What the commands of the documentation make, with models that learned next to nothing."""
    folder = tmp_path_factory.mktemp("made")
    patches, digits = gsure.corruption.Patches(p=0.4, size=2), gsure.open_source("digits")
    gsure.corrupt(digits, folder / "d.h5", patches, 0.05, clean=folder / "c.h5", limit=120)
    for name, train_on in NAMES.items():
        settings = dataclasses.replace(QUICK, train_on=train_on, picture_every=12)
        gsure.train(folder / "d.h5", folder / "runs" / name, settings, clean=folder / "c.h5")
        drawn, restored = folder / "samples" / name, folder / "restored" / name
        gsure.sample(folder / "runs" / name, 60, drawn, steps=2)
        gsure.evaluate_samples(drawn, reference=folder / "c.h5", features="pca-4")
        gsure.evaluate_samples(
            drawn, measurements=folder / "d.h5", held_out=False, features="pca-4", out=drawn / "measured.json"
        )
        gsure.restore(folder / "runs" / name, folder / "d.h5", restored, steps=2, draws=2, limit=8, panels=0)
        gsure.evaluate_restorations(restored, clean=folder / "c.h5")
        gsure.evaluate_denoising(folder / "runs" / name, t_bins=2, n=8)
    write_report(folder / "runs" / "digits")
    return folder


def test_every_script_is_run_here_or_named():
    elsewhere = {"kill.py": "training/test_train.py", "make_figures.py": "test_docs.py"}
    here = Path(__file__).read_text()
    for script in SCRIPTS:
        assert f"/{script.name}" in here or (ROOT / "tests" / elsewhere[script.name]).read_text().count(script.stem), (
            script
        )


def test_finite_difference(monkeypatch, capsys):
    script = load("bench/finite_difference.py")
    monkeypatch.setattr(script, "STEPS", (0.1, 1e-3))
    script.main(probes=1)
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_floor(monkeypatch, capsys):
    script = load("bench/floor.py")
    for name, value in {"SIZE": 2000, "STEPS": 20, "SEEDS": range(2), "GRID": [1, 94]}.items():
        monkeypatch.setattr(script, name, value)
    monkeypatch.setattr(script, "CONTESTANTS", dict(list(script.CONTESTANTS.items())[-3:]))
    script.main()
    assert "gsure-y" in capsys.readouterr().out


def test_first_run(monkeypatch, capsys, tmp_path):
    script = load("bench/first_run.py")
    for name, value in {"HELD_OUT": 8, "LARGE": 16, "SLICES": 60, "TIMED": 2, "MOST": 60, "EPOCH": 32}.items():
        monkeypatch.setattr(script, name, value)
    monkeypatch.setattr(script.fitting, "EM_SAMPLES", (40, 40))
    images = np.random.default_rng(0).integers(0, 255, (80, 16, 16)).astype(np.uint8)
    np.savez(tmp_path / "b.npz", train=images[:60], test=images[60:])
    script.main(["brains", str(tmp_path / "b.npz"), "--seeds", "1"])
    assert capsys.readouterr().out.count("Gaussian - TV") == 3
    choose = script.gsure.choose_settings
    quick = {"steps": 4, "width": 8, "multipliers": (1, 1), "batch": 4, "validate_on": 4, "purpose": "restore"}
    monkeypatch.setattr(
        script.gsure, "choose_settings", lambda data, changes: choose(data, changes | quick, timed=False), raising=False
    )
    script.main(["default", str(tmp_path / "b.npz"), "--seeds", "1", "--tracks", "real"])
    assert capsys.readouterr().out.count("the network is better by") == 4
    script.main(["images", "digits=digits:2", "--seeds", "1"])
    assert capsys.readouterr().out.count("the network is better by") == 4
    monkeypatch.setattr(script.gsure, "choose_settings", lambda data, _, timed: choose(data, quick, timed=timed))
    script.main(["base", str(tmp_path / "b.npz"), "--tracks", "real"])
    assert "times as long as without" in capsys.readouterr().out
    volume = np.random.default_rng(0).uniform(0, 100, (20, 20, 6)).astype(np.float32)
    nib.save(nib.Nifti1Image(volume, np.eye(4)), tmp_path / "v.nii.gz")
    script.main(["large", str(tmp_path / "v.nii.gz")])
    assert "restored one slice" in capsys.readouterr().out
    script.main(["small"])
    assert "digits" in capsys.readouterr().out


def test_gaussian(monkeypatch, capsys, tmp_path):
    script = load("bench/gaussian.py")
    for name, value in {"SIZE": 8, "MORE": (30, 30), "TIMES": (500,), "DRAWS": 1, "STEPS": 2}.items():
        monkeypatch.setattr(script, name, value)
    script.main(["--figure", str(tmp_path / "figure.png")])
    assert "posterior mean" in capsys.readouterr().out
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_imputation(made, monkeypatch, capsys):
    script = load("bench/imputation.py")
    ways = {"ddrm": script.by_ddrm(2, 1.0, "even"), "moments": script.by_moments(2, 1)}
    monkeypatch.setattr(script, "WAYS", ways)
    script.main([str(made / "runs" / "digits"), str(made / "d.h5"), str(made / "c.h5"), "pca-4", "--n", "20"])
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_perfect_needs_no_patch_to_learn_from_the_truth(tmp_path):
    script = load("bench/perfect.py")
    source = gsure.open_source("phantom", size=16, n=40)
    gsure.corrupt(source, tmp_path / "p.h5", gsure.corruption.Lines(R=2.0), 0.05, clean=tmp_path / "pc.h5")
    settings = dataclasses.replace(QUICK, steps=4)
    script.train_perfectly(str(tmp_path / "p.h5"), str(tmp_path / "pc.h5"), str(tmp_path / "run"), settings)
    gsure.train(tmp_path / "p.h5", tmp_path / "plain", settings, clean=tmp_path / "pc.h5")
    perfect, plain = (Run(tmp_path / name).read_metrics()[0]["loss"] for name in ("run", "plain"))
    assert perfect != plain


def test_restore(made, monkeypatch, capsys, tmp_path):
    monkeypatch.syspath_prepend(ROOT / "bench")
    script, run = load("bench/restore.py"), str(made / "runs" / "digits")
    monkeypatch.setitem(script.REFERENCE, "steps", 4)
    script.main(["--case", "digits", run, str(made / "d.h5"), str(made / "c.h5"), "--n", "4"])
    *_, row = (line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines())
    assert row[:2] == ["digits", "4"]
    ddrm, auto = map(int, row[7].split(", "))
    assert 8 * 4 <= ddrm <= 8 * (4 + 8)  # draws of a poor model are repeated with twice as many steps
    assert auto > 8 * 20
    below, draws = map(int, row[9].split(" of "))
    assert 0 <= int(row[10]) <= below <= draws == 32
    assert 0 <= int(row[11]) <= draws - below
    assert all(0 <= float(cell.split()[0]) <= 100 for cell in row[12:])
    images = np.random.default_rng(0).integers(0, 255, (20, 16, 16)).astype(np.uint8)
    np.savez(tmp_path / "b.npz", train=images[:16], test=images[16:])
    case = script.brains("brains", run, str(tmp_path / "b.npz"), "phase", "0", "8")
    away = case.data[:].ybar - case.data[:].mask * gsure.Fourier().to_spectral(case.clean[:])
    assert float(away.std()) < 2 * case.data.max_std  # the clean images are those behind the measurements
    assert float(case.data.coverage.mean()) < 0.25


def test_sample(made, monkeypatch, capsys):
    script = load("bench/sample.py")
    monkeypatch.setattr(script, "ROUNDS", 4)
    monkeypatch.setattr(script, "RESTORED", (2, 4))
    monkeypatch.setattr(script, "STEPS", {"ddim": (2,), "dpm++": (2,)})
    run = str(made / "runs" / "digits")
    assert script.untrained()[1] == (1, 8, 8)
    script.main(["speed", run])
    script.main(["curves", run, str(made / "c.h5"), "pca-4", "--n", "20"])
    script.main(["memory", run, str(made / "d.h5")])
    assert "peak memory" in capsys.readouterr().out


def test_store(monkeypatch, capsys):
    script = load("bench/store.py")
    for name, value in {"WRITTEN": 200, "ROUNDS": 2, "SIMULATED": 20, "READ": 2, "REPEATED": (300, 2)}.items():
        monkeypatch.setattr(script, name, value)
    script.main()
    assert "time to read a batch" in capsys.readouterr().out


def test_train(monkeypatch, capsys, tmp_path):
    script = load("bench/train.py")
    monkeypatch.setattr(script, "SETTINGS", dataclasses.replace(script.SETTINGS, width=8, batch=8, validate_on=8))
    monkeypatch.setattr(script, "BLOCK", 1)
    monkeypatch.setattr(script, "memory", lambda folder, **_: script.peak("tweedie", folder, 1))
    with torch.random.fork_rng():  # the plain step, which it is compared with, draws dropout as anyone would
        script.main(["--quick"])
    assert "logging and checkpoints" in capsys.readouterr().out


def test_training_figures(made, monkeypatch, capsys, tmp_path):
    script = load("docs/make_training_figures.py")
    monkeypatch.setattr(script, "FIGURES", tmp_path)
    script.main([str(made / "runs")])
    assert "from measurements" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} >= {"samples.png", "denoised.png", "tracking.png"}


def test_evaluation_figures(made, monkeypatch, capsys, tmp_path):
    script = load("docs/make_evaluation_figures.py")
    monkeypatch.setattr(script, "FIGURES", tmp_path)
    script.main([str(made)])
    assert "frechet" in capsys.readouterr().out
    assert (tmp_path / "digits.png").stat().st_size > 1000


def test_heads(monkeypatch, tmp_path):
    """A ball with a dark core, before noise: what is kept is the ball, in the right orientation, without its lower part."""
    script = load("docs/make_heads.py")
    at = np.indices((40, 44, 48)) - np.array([20, 22, 24])[:, None, None, None]
    ball = np.where((at**2).sum(0) < 18**2, 100.0, 3.0) - 99.0 * ((at**2).sum(0) < 3**2) + 50.0 * (at[2] > 12)
    nib.save(
        nib.Nifti1Image(np.where((at**2).sum(0) < 18**2, ball, 3.0)[..., ::-1], np.diag([2, 2, -2, 1.0])),
        tmp_path / "a.nii",
    )
    monkeypatch.setattr(script, "HEADS", {"a": script.Head("a.nii", noise=0.1, height=60.0, front=70.0)})
    script.main(str(tmp_path), str(tmp_path / "out"))
    with np.load(tmp_path / "out" / "a.npz") as made:
        voxels, size = made["voxels"], float(made["millimetres"])
    np.testing.assert_allclose(size * (np.array(voxels.shape) - 2), (70, 70, 60), atol=4)
    assert voxels.dtype == np.uint8
    assert voxels.max() == script.LEVELS
    assert voxels[2, 2].max() == 0  # the noise
    across, along, up = (length // 2 for length in voxels.shape)
    assert voxels[across, along, -8] > voxels[across, along, up + 10] > 60  # the top of the head is bright
    assert voxels[across, along, 2] < 10  # the signal fades where it was cut


def test_uncertainty_table(made, monkeypatch, capsys):
    script = load("docs/make_uncertainty_table.py")
    monkeypatch.setattr(script, "N", 8)
    monkeypatch.setattr(script, "STEPS", 3)
    script.main([str(made / "runs" / "digits"), str(made / "d.h5"), str(made / "c.h5")])
    assert "moments" in capsys.readouterr().out


@pytest.mark.skipif(
    browser.find() is None and "GSURE_NEEDS_BROWSER" not in os.environ, reason="no Chromium: apt-get install chromium"
)
def test_report_figure(made, monkeypatch, tmp_path):
    script = load("docs/make_report_figure.py")
    monkeypatch.setattr(script, "FIGURES", tmp_path)
    script.main([str(made / "runs" / "digits" / "report.html")])
    assert (tmp_path / "digits.png").stat().st_size > 10_000


def test_toy2d(tmp_path):
    """In a process of its own: it starts others."""
    command = [sys.executable, str(ROOT / "examples/toy2d.py"), "--seeds", "1", "--steps", "20"]
    done = subprocess.run([*command, "--out", str(tmp_path / "toy.png")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "toy.png").stat().st_size > 10_000


def test_the_batch_script_is_sound_and_its_command_is_understood():
    script = ROOT / "examples" / "train.slurm"
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    gsure_command = script.read_text().split("-m gsure ")[-1].splitlines()[0].replace("$resume", "--resume")
    make_parser().parse_args(gsure_command.replace('"', "").split())
