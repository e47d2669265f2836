"""The README's Python runs as printed, with a small network and few steps."""

import re
import shlex

import numpy as np
import torch
from conftest import ROOT
from running import QUICK

import gsure
from gsure.cli import make_parser

README = (ROOT / "README.md").read_text()


def test_the_quick_start_in_python_goes_from_arrays_to_mean_and_std(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    source = gsure.open_source("phantom", size=16, n=40)
    images = torch.from_numpy(np.stack([source[k].x for k in range(len(source))]))
    np.save("kspace.npy", gsure.as_complex(gsure.Fourier().to_spectral(images))[:, 0].numpy())
    mask = np.random.default_rng(0).random((40, 1, 16)) < 0.4
    mask[..., 7:10] = True
    np.save("mask.npy", mask)
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line]) <= 10
    train, restore = gsure.train, gsure.restore
    monkeypatch.setattr(gsure, "train", lambda data, out, **options: train(data, out, QUICK))
    monkeypatch.setattr(gsure, "restore", lambda run, data, **options: restore(run, data, steps=2, **options))
    scope: dict = {}
    exec(code, scope)  # noqa: S102
    assert scope["image"].shape == scope["error"].shape == (32, 1, 16, 16)
    assert torch.isfinite(scope["image"]).all()
    assert (scope["error"] >= 0).all()
    assert "k-space of 40 images of 16 × 16" in capsys.readouterr().err


def test_every_command_of_the_readme_is_understood():
    blocks = re.findall(r"```\n(.*?)```", README, flags=re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines() if line.startswith("gsure ")]
    assert len(commands) >= 6
    for command in commands:
        make_parser().parse_args(shlex.split(command)[1:])


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 150
