"""What the tests of training share: small settings, small data, and how to look at the result."""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

import gsure
from gsure.data.sources import open_source
from gsure.training import checkpoints
from gsure.training.loop import Loop
from gsure.training.run import Run
from gsure.training.settings import Settings

TINY = Settings(
    network="unet", width=8, multipliers=(1, 2), layers=1, dropout=0.2, batch=8, accumulate=2, steps=12, lr=1e-3, ema=0.9,
    warmup=3, held_out=0.1, t_bins=2, validate_on=8, checkpoint_every=4, picture_every=0, log_every=2,
)  # fmt: skip
QUICK = dataclasses.replace(TINY, network="mlp", width=16, depth=1, accumulate=1)


def make_files(folder: Path) -> Path:
    """d.h5, measurements of 120 digits, and c.h5, the digits."""
    digits, patches = open_source("digits"), gsure.corruption.Patches(p=0.4, size=2)
    gsure.corrupt(digits, folder / "d.h5", patches, 0.05, clean=folder / "c.h5", limit=120)
    return folder


def final(out: Path) -> checkpoints.Checkpoint:
    return checkpoints.read_latest(out / "checkpoints")[0]


def same(one: Path, other: Path) -> bool:
    a, b = final(one), final(other)
    return (
        a.step == b.step
        and a.tensors.keys() == b.tensors.keys()
        and all(a.tensors[k].equal(b.tensors[k]) for k in a.tensors)
    )


def told(out: Path) -> list[dict]:
    """metrics.jsonl without what depends on the clock."""
    lines = Run(out).read_metrics()
    return [
        {key: value for key, value in line.items() if key not in ("steps_per_second", "memory_gb")} for line in lines
    ]


def interrupt_at(monkeypatch, step: int, number: int = signal.SIGINT) -> None:
    original = Loop.step

    def stepping(loop, state, *rest):
        if state.step == step:
            os.kill(os.getpid(), number)
        return original(loop, state, *rest)

    monkeypatch.setattr(Loop, "step", stepping)


def torchrun(processes: int, module: bool = True) -> list[str]:
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        str(processes),
        "--standalone",
        *(["-m", "gsure"] if module else []),
    ]


def launch(processes: int, *arguments: object, module: bool = True) -> subprocess.CompletedProcess:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [*torchrun(processes, module), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


class Scale(nn.Module):
    """A network of a user's own."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x_t, t):
        return self.scale * x_t
