"""A training run is killed (SIGKILL) at random moments, resumed each time, and compared with one that was never stopped.

What is claimed: after a kill every checkpoint, config.yaml and metrics.jsonl can be read; no more than `checkpoint_every`
steps are lost; and at the end weights, optimizer, best validation and log are those of the uninterrupted run, bit for bit.

One kill in five falls anywhere into start-up. The others wait for a line of the log, chosen at random from the next three
checkpoint periods, and then up to 50 ms; half of them choose the line of a validation, after which a checkpoint is written,
because writing takes too little of a run to be hit often by chance.
"""

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

import gsure
from gsure.corruption import Patches
from gsure.training import checkpoints
from gsure.training.run import Run

PERIOD = 5
"""Steps between checkpoints."""
PATIENCE = 120.0
"""Seconds after which a run that logs nothing counts as stuck."""
ENDLESS = 10**6
"""Steps of the run while it is killed; how many it makes is settled when it may finish."""
OPTIONS = (
    "--preset plain --width 8 --multipliers [1,2] --attention [] --dropout 0.1 --batch 16 --log-every 1 "
    f"--checkpoint-every {PERIOD} --picture-every 0 --keep 2 --validate-on 16 --t-bins 2 --json"
).split()


class BrokenClaimError(Exception):
    """The sentence says which claim, and where."""


class Kill(NamedTuple):
    """What a kill left behind. Steps are 0 where there was no run yet."""

    when: str
    """What it was meant to hit, "starting" or "training"."""
    logged: int
    """The last step in metrics.jsonl."""
    saved: int
    """The step of the latest checkpoint, from which the run will be resumed."""
    torn: bool
    """Whether it fell into the writing of a file: a temporary one was left."""

    @property
    def lost(self) -> int:
        return self.logged - self.saved


def killed_runs(times: int, folder: Path, seed: int) -> list[Kill]:
    """Kill a run so many times, print a line for each, let it finish, and raise `BrokenClaimError` if a claim fails."""
    data, run, rng = folder / "d.h5", Run(folder / "killed"), random.Random(seed)
    gsure.corrupt(gsure.open_source("digits"), data, Patches(p=0.4, size=2), 0.02, limit=400, force=True)
    kills: list[Kill] = []
    startup = 5.0  # a guess, until one has been seen
    for number in range(times):
        began = time.time()
        if number % 5 == 0:
            with _killing(data, run):
                time.sleep(rng.uniform(0, startup))
        else:
            startup = _kill_training(data, run, rng, saving=number % 2 == 0)
        kills.append(_look("starting" if number % 5 == 0 else "training", run, began))
        print(
            f"kill {number + 1:>3}, {kills[-1].when}: logged step {kills[-1].logged}, goes on from {kills[-1].saved}, "
            f"lost {kills[-1].lost}{', while writing a file' if kills[-1].torn else ''}",
            flush=True,
        )
    _compare_with_uninterrupted(data, run)
    return kills


def _start(data: Path, run: Run, steps: int) -> subprocess.Popen[bytes]:
    """One thread: other jobs on the machine then disturb the pace less. What it says goes to a file beside the run."""
    words = [*f"-m gsure train --steps {steps}".split(), *OPTIONS, *(["--resume"] if run.exists() else [])]
    command = [sys.executable, *words, str(data), "--out", str(run.path)]
    with run.path.with_suffix(".txt").open("wb") as said:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, stdout=said, stderr=said, env=environment)


@contextlib.contextmanager
def _killing(data: Path, run: Run) -> Iterator[subprocess.Popen[bytes]]:
    """A run that goes on as long as the block lasts, and not a moment longer."""
    process = _start(data, run, ENDLESS)
    try:
        yield process
        _refuse_ended(process, run)
    finally:
        process.kill()
        process.wait()


def _kill_training(data: Path, run: Run, rng: random.Random, saving: bool) -> float:
    """Returns how many seconds went by until the first line of the log."""
    before, saved, began = _identity(run.metrics), _latest(run), time.monotonic()
    with _killing(data, run) as process:
        _wait_for_line(process, run, before, saved + 1, "loss")
        startup = time.monotonic() - began
        ahead = rng.randrange(1, 3 * PERIOD + 1)
        _wait_for_line(process, run, before, saved + ahead, "validation" if saving else "loss")
        time.sleep(rng.uniform(0, 0.05))
    return startup


def _wait_for_line(process: subprocess.Popen[bytes], run: Run, before: int | None, step: int, what: str) -> None:
    """Of this process: lines of the one before stay in metrics.jsonl until the resumed run has replaced the file."""
    deadline = time.monotonic() + PATIENCE
    while _identity(run.metrics) == before or _logged(run, what) < step:
        _refuse_ended(process, run)
        if time.monotonic() > deadline:
            raise BrokenClaimError(f"No {what} of step {step} in {run.metrics} after {PATIENCE:.0f} s.")
        time.sleep(0.003)


def _identity(path: Path) -> int | None:
    return path.stat().st_ino if path.exists() else None


def _logged(run: Run, what: str) -> int:
    return max((line["step"] for line in run.read_metrics() if what in line), default=0)


def _latest(run: Run) -> int:
    return max(checkpoints.steps_of(run.checkpoints), default=0)


def _refuse_ended(process: subprocess.Popen[bytes], run: Run) -> None:
    if process.poll() is not None:
        said = run.path.with_suffix(".txt").read_text().strip()
        raise BrokenClaimError(f"The run ended by itself with exit code {process.returncode}: {said}")


def _look(when: str, run: Run, began: float) -> Kill:
    """Read everything that a run of this name should hold; a folder that exists is a whole run."""
    if not run.path.exists():
        return Kill(when, 0, 0, torn=False)
    try:
        config, steps = run.config, checkpoints.steps_of(run.checkpoints)
        for step in steps:
            if (found := checkpoints.read(checkpoints.path_of(run.checkpoints, step)).step) != step:
                raise BrokenClaimError(f"The checkpoint of step {step} says that it is of step {found}.")
        if run.best.exists():
            checkpoints.read(run.best)
        torn = any(path.stat().st_mtime > began for path in run.path.rglob(".*.tmp"))
        kill = Kill(when, _logged(run, "loss"), steps[0], torn)
    except (ValueError, OSError, IndexError) as error:
        raise BrokenClaimError(f"After a kill while {when}: {error}") from error
    if kill.lost > config.settings.checkpoint_every:
        raise BrokenClaimError(f"{kill.lost} steps were lost, of {config.settings.checkpoint_every} at most: {kill}.")
    return kill


def _compare_with_uninterrupted(data: Path, killed: Run) -> None:
    straight, last = Run(killed.path.with_name("straight")), _latest(killed) // PERIOD * PERIOD + 2 * PERIOD
    for run in (killed, straight):
        process = _start(data, run, last)
        if process.wait() != 0:
            _refuse_ended(process, run)
    ends = [checkpoints.read(checkpoints.path_of(run.checkpoints, last)) for run in (killed, straight)]
    ours, theirs = ({name: _bytes(tensor) for name, tensor in end.tensors.items()} for end in ends)
    different = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
    if different:
        raise BrokenClaimError(
            f"At step {last}, {len(different)} of {len(theirs)} tensors differ from the uninterrupted run's, such as "
            f"{different[0]}."
        )
    if ends[0].header["best"] != ends[1].header["best"]:
        raise BrokenClaimError(
            f"The best validation is {ends[0].header['best']}, uninterrupted {ends[1].header['best']}."
        )
    if (what := _learned(killed)) != _learned(straight):
        raise BrokenClaimError(f"The log of the killed run, {len(what)} lines, is not that of the uninterrupted one.")
    print(f"At step {last:,}, {len(theirs)} tensors and {len(what)} lines of the log equal the uninterrupted run's.")


def _bytes(tensor: torch.Tensor) -> tuple[str, tuple[int, ...], bytes]:
    return str(tensor.dtype), tuple(tensor.shape), tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def _learned(run: Run) -> list[tuple[object, ...]]:
    """The log but for speed and memory."""
    return [tuple(line.get(name) for name in ("step", "loss", "lr", "validation")) for line in run.read_metrics()]


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill a training run at random moments; is anything lost?")
    parser.add_argument("--times", type=int, default=30, help="how often")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        try:
            kills = killed_runs(options.times, Path(name), options.seed)
        except BrokenClaimError as error:
            sys.exit(f"A claim fails. {error}")
        litter = list(Path(name).glob(".killed.*"))
    torn, starting = sum(kill.torn for kill in kills), sum(kill.when == "starting" for kill in kills)
    print(
        f"{len(kills)} kills, {starting} while starting, {torn} while writing a file: nothing unreadable, at most "
        f"{max(kill.lost for kill in kills)} steps lost ({PERIOD} allowed); {len(litter)} hidden folders of starts left."
    )


if __name__ == "__main__":
    main()
