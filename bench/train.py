"""What training costs beside what it must: the digits preset (8 × 8, U-Net, PyTorch's choice of threads). Ratios in one run.

Contestants alternate, and each number is the median over rounds of the ratio within a round, with its quartiles:
  the default objective against a plain diffusion step of the same network on clean data, in time and in peak memory;
  a step of `gsure train` against forward, backward, clip and Adam alone; and its files against the steps between them.
Times of other jobs on the machine are in it: believe only a run on free cores. Files go to TMPDIR, so choose a real disk.
"""

import argparse
import dataclasses
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

import gsure
from gsure.corruption import Patches
from gsure.data.measurements import Signals
from gsure.denoiser import Denoiser
from gsure.files import record_request
from gsure.random import Stream, generators, normal
from gsure.training import checkpoints
from gsure.training.loop import Loop, accelerated
from gsure.training.model import make_denoiser, make_objective
from gsure.training.run import Log, Run
from gsure.training.settings import DataInfo, Settings, read_preset
from gsure.training.setup import Ready, setup
from gsure.training.tasks import Diffusing
from gsure.training.validation import validate

SETTINGS = Settings(**read_preset("digits"))
SETTINGS_END = 10**6
"""More steps than the rounds take."""
BLOCK = 4
"""Steps that a contestant does in its turn: enough that its first, with another's data in the caches, does not decide."""

Action = Callable[[], object]


def make_files(folder: Path) -> None:
    digits = gsure.open_source("digits")
    gsure.corrupt(digits, folder / "d.h5", Patches(p=0.4, size=2), 0.02, clean=folder / "c.h5")


def take_step(network: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor]) -> None:
    """What no training can do without."""
    optimizer.zero_grad()
    loss().backward()
    nn.utils.clip_grad_norm_(network.parameters(), SETTINGS.clip)
    optimizer.step()


def plain_loss(denoiser: Denoiser, x: Tensor, generator: torch.Generator) -> Tensor:
    """‖f(x_t) - x‖² of clean signals, as anyone would write it."""
    t = torch.randint(1, denoiser.schedule.T + 1, (len(x),), generator=generator)
    alpha_bar_t = denoiser.schedule.alpha_bar[t].to(x).reshape(-1, 1, 1, 1)
    eps = torch.randn(x.shape, generator=generator)
    x_t = alpha_bar_t.sqrt() * x + (1 - alpha_bar_t).sqrt() * eps
    return ((denoiser.network(x_t, t) - x) ** 2).mean()


def contestant(name: str, folder: Path) -> Action:
    """A step of "plain", or of an objective of this name. Each has its network and its optimizer; the data is in memory."""
    data, clean = gsure.open(folder / "d.h5"), Signals(folder / "c.h5")
    measurement, x = data[: SETTINGS.batch], clean[: SETTINGS.batch]
    info, generator = DataInfo.of(data), torch.Generator().manual_seed(0)
    denoiser = make_denoiser(SETTINGS, info, data.basis).train()
    optimizer = torch.optim.Adam(denoiser.parameters(), lr=SETTINGS.lr)
    if name == "plain":
        return lambda: take_step(denoiser, optimizer, lambda: plain_loss(denoiser, x, generator))
    objective = make_objective(dataclasses.replace(SETTINGS, objective=name), info, data.coverage, data.max_std)

    def loss() -> Tensor:
        return objective(denoiser, measurement, denoiser.schedule.draw(len(x), generator), generator).mean()

    return lambda: take_step(denoiser, optimizer, loss)


def seconds(action: Action, times: int = 1) -> float:
    """Of one call."""
    start = time.perf_counter()
    for _ in range(times):
        action()
    return (time.perf_counter() - start) / times


def alternate(actions: Mapping[str, Action], rounds: int, times: int = BLOCK) -> dict[str, list[float]]:
    """Seconds of a call of each, a round after the other; the round before the first does not count."""
    found: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(rounds + 1):
        for name, action in actions.items():
            taken = seconds(action, times)
            if number:
                found[name].append(taken)
    return found


def ratios(over: list[float], under: list[float]) -> list[float]:
    return [a / b for a, b in zip(over, under, strict=True)]


def show(what: str, values: list[float], goal: float | None = None, percent: bool = False) -> None:
    middle = statistics.median(values)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else (middle,) * 3
    shown = "{:.2f} %" if percent else "{:.3f}"
    low_, middle_, high_ = (shown.format(100 * value if percent else value) for value in (low, middle, high))
    judged = "" if goal is None else f"at most {shown.format(100 * goal if percent else goal)}"
    verdict = "" if goal is None else "met" if middle <= goal else "MISSED"
    print(f"{what:<58}{middle_:>9}  {f'({low_} to {high_})':<24}{judged:<18}{verdict}", flush=True)


def objectives(folder: Path, rounds: int) -> None:
    names = ("tweedie", "plain", "gsure-y")
    times = alternate({name: contestant(name, folder) for name in names}, rounds)
    print(f"a plain step takes {1e3 * statistics.median(times['plain']):.1f} ms")
    show("step: default objective / plain diffusion", ratios(times["tweedie"], times["plain"]), 1.05)
    show("  for comparison: gsure-y, double backward / plain", ratios(times["gsure-y"], times["plain"]))


def status(field: str) -> float:
    """VmRSS or VmHWM in MB. Not ru_maxrss: on Linux that of a process begins at the size of the one that started it."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{field}:"))
    return float(line.split()[1]) / 1024


def peak(name: str, folder: Path, steps: int) -> None:
    """In a process of its own: print the peak, and how far it lies above what was in use before the first step."""
    step = contestant(name, folder)
    before = status("VmRSS")
    for _ in range(steps):
        step()
    print(json.dumps([status("VmHWM"), status("VmHWM") - before]))


def memory(folder: Path, rounds: int, steps: int) -> None:
    names = ("tweedie", "plain", "gsure-y")
    found: dict[str, list[list[float]]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            command = [sys.executable, __file__, "--peak", name, str(folder), str(steps)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[name].append(json.loads(done.stdout))
    whole, added = ({name: [pair[k] for pair in found[name]] for name in names} for k in (0, 1))
    megabytes = ", ".join(f"{name} {statistics.median(added[name]):.0f}" for name in names)
    print(f"a plain process peaks at {statistics.median(whole['plain']):.0f} MB; MB that the steps add: {megabytes}")
    show("peak memory: default objective / plain", ratios(whole["tweedie"], whole["plain"]), 1.05)
    show("  what the steps add: default objective / plain", ratios(added["tweedie"], added["plain"]))
    show("  for comparison: gsure-y, double backward / plain", ratios(whole["gsure-y"], whole["plain"]))


def compare_loop(loop: Loop, ready: Ready, rounds: int) -> None:
    state, examples, objective = ready.state, ready.examples, ready.objective
    batches = loop.batches(examples, 0, SETTINGS_END)
    [(numbers, positions)] = next(batches)
    measurement, generator = examples.target(positions), torch.Generator().manual_seed(0)
    t = state.denoiser.schedule.draw(len(positions), generator)
    bare = make_denoiser(SETTINGS, ready.config.data_info, state.denoiser.basis).train()
    optimizer = torch.optim.Adam(bare.parameters(), lr=SETTINGS.lr)
    each = generators(SETTINGS.seed, Stream.TRAIN, indices=numbers)

    def needed() -> None:
        take_step(bare, optimizer, lambda: objective(bare, measurement, t, generator).mean())

    def step() -> None:
        loop.step(state, examples, Diffusing(objective), next(batches))
        state.unread.clear()

    times = alternate({"loop": step, "bare": needed}, rounds)
    show("overhead of the loop over the bare step", [r - 1 for r in ratios(times["loop"], times["bare"])], 0.03, True)
    parts: dict[str, Action] = {
        "which measurements": lambda: next(batches),
        "reading them": lambda: examples.target(positions),
        "a generator for each": lambda: generators(SETTINGS.seed, Stream.TRAIN, indices=numbers),
        "their times": lambda: state.denoiser.schedule.draw(len(each), each),
        "noise from a generator each": lambda: normal(measurement.shape, each, like=measurement.ybar),
        "  instead of from one (in the bare step)": lambda: normal(measurement.shape, generator, like=measurement.ybar),
        "average of the weights": lambda: state.average(SETTINGS.ema),
    }
    for name, values in alternate(parts, rounds).items():
        show(f"  {name}", [value / statistics.median(times["bare"]) for value in values], percent=True)


def compare_files(loop: Loop, ready: Ready, rounds: int) -> None:
    """At the rhythm of the preset. A checkpoint counts with the best one, as if every validation were the best so far."""
    state, run, config = ready.state, ready.run, ready.config.as_dict()
    batches, numbers = loop.batches(ready.examples, 0, SETTINGS_END), itertools.count(1)

    def step() -> None:
        loop.step(state, ready.examples, Diffusing(ready.objective), next(batches))
        state.unread.clear()

    def write_line() -> None:
        state.losses = [0.0]
        loop.log.write(state)

    def save() -> None:
        checkpoints.write(run.best, state.weights(), state.header(config))
        path = checkpoints.path_of(run.checkpoints, next(numbers))
        checkpoints.write(path, state.tensors(), state.header(config))
        checkpoints.prune(run.checkpoints, SETTINGS.keep)

    aside: dict[str, Action] = {
        "step": step,
        "validation": lambda: validate(state.averaged, ready.held_out, loop.accelerator, SETTINGS.batch),
        "pictures": lambda: loop.draw(state, ready.examples, ready.held_out),
    }
    times = alternate({"step": step, "line": write_line, "save": save}, rounds, times=1)
    lines = [ratio / SETTINGS.log_every for ratio in ratios(times["line"], times["step"])]
    saves = [ratio / SETTINGS.checkpoint_every for ratio in ratios(times["save"], times["step"])]
    show("logging and checkpoints / the steps between", [a + b for a, b in zip(lines, saves, strict=True)], 0.02, True)
    show(f"  a line of the log every {SETTINGS.log_every} steps", lines, percent=True)
    show(f"  a checkpoint, and the best, every {SETTINGS.checkpoint_every} steps", saves, percent=True)
    times = alternate(aside, max(2, rounds // 10), times=1)
    for name, every in (("validation", SETTINGS.checkpoint_every), ("pictures", SETTINGS.picture_every)):
        shares = [ratio / every for ratio in ratios(times[name], times["step"])]
        show(f"  not counted: {name} every {every} steps", shares, percent=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What does training cost beside what it must?")
    parser.add_argument("--rounds", type=int, default=60, help="how often contestants alternate")
    parser.add_argument("--quick", action="store_true", help="a few rounds, to see that it works")
    parser.add_argument("--peak", nargs=3, help=argparse.SUPPRESS)  # how it starts itself to measure memory
    options = parser.parse_args(arguments)
    if options.peak:
        peak(options.peak[0], Path(options.peak[1]), int(options.peak[2]))
        return
    rounds, began = 3 if options.quick else options.rounds, time.monotonic()
    busy = f"{os.getloadavg()[0]:.1f} processes were busy on {os.cpu_count()} cores before"
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {rounds} rounds, median (quartiles); {busy}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_files(folder)
        objectives(folder, rounds)
        memory(folder, rounds=1 if options.quick else 3, steps=3 if options.quick else 10)
        endless = dataclasses.replace(SETTINGS, steps=SETTINGS_END)
        with accelerated() as accelerator:
            run, request = Run(folder / "run"), record_request("bench/train.py", {})
            ready = setup(accelerator, folder / "d.h5", run, endless, request)
            loop = Loop(accelerator, run, ready.config, Log(run, accelerator))
            compare_loop(loop, ready, rounds)
            compare_files(loop, ready, rounds)
    print(f"took {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
