"""The README's Python runs as printed, only shorter."""

import re

import numpy as np
import torch
from conftest import ROOT

import gsure


def shortened(code: str) -> str:
    """The same calls on a network and a number of steps that a test can afford."""
    for long, short in {"20_000": "2", "size=32, channels=1": "32, 1, 16, (1, 2), ()", "steps=50": "steps=2"}.items():
        assert long in code
        code = code.replace(long, short)
    return code


def test_the_ten_lines_run(tmp_path, monkeypatch, generator):
    monkeypatch.chdir(tmp_path)
    np.save("faces.npy", torch.rand(300, 32, 32, generator=generator).numpy())
    faces = gsure.open_source("faces.npy")
    gsure.corrupt(faces, "faces-p04.h5", gsure.corruption.Patches(p=0.4, size=4), 0.02)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    scope: dict = {}
    exec(shortened(code), scope)  # noqa: S102
    assert scope["x"].shape == (64, 1, 32, 32)
    assert torch.isfinite(scope["x"]).all()
