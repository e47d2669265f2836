"""The measurement file: how fast it is written and read, what it costs in memory and bytes. Ratios within one run.

Contestants alternate; each ratio is the median over the rounds.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import torch

import gsure
from gsure.corruption import Blur, Lines, Patches
from gsure.data.corrupt import CHUNK
from gsure.data.writer import Writer

SHAPE = (1, 32, 32)
WRITTEN, ROUNDS, SIMULATED, READ, REPEATED = 20_000, 9, 1000, 15, (10_000, 20)


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measurements(n: int) -> gsure.Measurement:
    generator = torch.Generator().manual_seed(0)
    return Patches(p=0.4, size=4).apply(torch.randn(n, *SHAPE, generator=generator), 0.02, generator)


def write(path: Path, data: gsure.Measurement, repeat: int = 1) -> None:
    n = len(data) * repeat
    coverage = Patches(p=0.4, size=4).coverage(SHAPE).value
    options = {"basis": gsure.Identity(), "mask_shape": data.mask.shape[1:], "coverage": coverage, "force": True}
    header = {"source": {}, "complex": False, "corruption": {"name": "patches"}, "sigma_0": {}, "seed": 0}
    with Writer(path, n, SHAPE, header, **options) as writer:
        for _ in range(repeat):
            for start in range(0, len(data), CHUNK):
                part = data[start : start + CHUNK]
                writer.append(part, ["a"] * len(part), [1.0] * len(part), torch.full((len(part),), 0.02))


def write_plainly(path: Path, data: gsure.Measurement) -> None:
    ybar = data.ybar.numpy()
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("ybar", ybar.shape, "<f4")
        for start in range(0, len(ybar), CHUNK):
            dataset[start : start + CHUNK] = ybar[start : start + CHUNK]


def writing(folder: Path) -> None:
    data = measurements(WRITTEN)
    rounds = []
    for _ in range(ROUNDS):
        plain = seconds(lambda: write_plainly(folder / "plain.h5", data))
        rounds.append(plain / seconds(lambda: write(folder / "m.h5", data)))
        size = os.path.getsize(folder / "m.h5") / (data.ybar.numel() * 4)
        for name in ("plain.h5", "m.h5"):  # replacing a file is not writing one
            os.remove(folder / name)
    print(
        f"writing rate / h5py alone: {statistics.median(rounds):.2f} ({min(rounds):.2f} to {max(rounds):.2f}); wanted: >= 0.5"
    )
    print(f"bytes / float32 bytes of ybar, patches: {size:.3f}; wanted: at most 1.1 for 0/1 masks")


def other_sizes(folder: Path) -> None:
    for name, corruption, source in (("lines", Lines(R=4), "phantom"), ("blur", Blur(), "digits")):
        path = folder / f"{name}.h5"
        data = gsure.corrupt(gsure.open_source(source), path, corruption, 0.02, limit=SIMULATED)
        print(
            f"bytes / float32 bytes of ybar, {name}: {os.path.getsize(path) / (SIMULATED * data[0].ybar.numel() * 4):.3f}"
        )


def reading(folder: Path) -> None:
    """Against a training step of a network as small as a preset's may be: 8 × 8 digits, width 32, batch 128."""
    path = folder / "digits.h5"
    data = gsure.corrupt(gsure.open_source("digits"), path, Patches(p=0.4, size=2), 0.02)
    schedule = gsure.Schedule.for_noise(0.02)
    denoiser = gsure.Denoiser(gsure.unet(8, 1, 32, (1, 2), (), dropout=0.1), schedule, data.basis)
    objective = gsure.Objective(coverage=data.coverage)
    generator = torch.Generator().manual_seed(0)
    batches = data.batches(128, steps=10_000, generator=generator)

    def step(measurement: gsure.Measurement) -> None:
        objective(denoiser, measurement, schedule.draw(128, generator), generator).mean().backward()

    step(next(batches))
    rounds = []
    for _ in range(READ):
        start = time.perf_counter()
        measurement = next(batches)
        rounds.append((time.perf_counter() - start) / seconds(lambda m=measurement: step(m)))
    print(f"time to read a batch / training step: {statistics.median(rounds):.4f}; wanted: below 0.05")


MEMORY = """
import json, re, sys, torch, gsure
data = gsure.open(sys.argv[1])
for batch in data.batches(128, steps=2 * len(data) // 128, generator=torch.Generator().manual_seed(0)):
    batch.ybar.sum()
status = open("/proc/self/status").read()  # not ru_maxrss, which starts at the peak of the parent process
print(json.dumps(int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) / 1024))
"""


def memory(folder: Path) -> None:
    data = measurements(REPEATED[0])
    peaks = []
    for repeat in (1, REPEATED[1]):
        path = folder / f"{repeat}.h5"
        write(path, data, repeat)
        done = subprocess.run([sys.executable, "-c", MEMORY, str(path)], capture_output=True, text=True, check=True)
        peaks.append(json.loads(done.stdout))
    many, few, more = REPEATED[0] * REPEATED[1], REPEATED[0], peaks[1] - peaks[0]
    print(f"peak memory, {many:,} less {few:,} samples: {more:.0f} MB of {peaks[1]:.0f}; wanted: below 50")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        writing(folder)
        other_sizes(folder)
        reading(folder)
        memory(folder)


if __name__ == "__main__":
    main()
