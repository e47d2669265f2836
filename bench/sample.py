"""What sampling and restoring cost, and how few sampling steps are enough.

    python bench/sample.py speed [RUN]
    python bench/sample.py curves RUN REFERENCE FEATURES [--n 1000]
    python bench/sample.py memory RUN MEASUREMENTS

RUN is a run folder, REFERENCE a file of clean signals that it was not trained on. `speed` prints the time of a sampler over
bare network calls, and that of draws over measurements: medians of alternating rounds, to be believed on free cores only.
`curves` prints the Fréchet distance against sampling steps for every sampler and spacing, and the reference's own floor, one
half against the other. Speed does not depend on the weights: without RUN it is that of an untrained network of the digits
preset. `memory` restores few and many measurements in processes of their own and compares their peaks.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import gsure
from gsure.denoiser import Denoiser
from gsure.inference.sample import make_sampler
from gsure.measurement import Measurement
from gsure.metrics import frechet
from gsure.metrics.features import open_features
from gsure.training.model import make_denoiser
from gsure.training.run import Run
from gsure.training.settings import DataInfo, Settings, read_preset

STEPS = {"ddim": (5, 10, 20, 50, 100), "ddpm": (20, 50, 100), "dpm++": (5, 10, 20), "unipc": (5, 10, 20)}
SPACINGS = {"ddim": ("even", "quadratic"), "ddpm": ("even",)} | dict.fromkeys(
    ("dpm++", "unipc"), ("even", "quadratic", "logsnr")
)
ROUNDS, RESTORED = 15, (64, 256)
RESTORE = """
import sys, gsure
run, data, out, n = sys.argv[1:]
gsure.restore(run, data, out, draws=1, steps=100, limit=int(n), panels=0)
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def untrained() -> tuple[Denoiser, tuple[int, ...]]:
    settings, shape = Settings(**read_preset("digits")), (1, 8, 8)
    info = DataInfo(shape, "Identity", shape, (1, 2, 2), False, 0.02, 1797, {})
    return make_denoiser(settings, info, gsure.Identity()).eval(), shape


def alternate(
    one: Callable[[], object], other: Callable[[], object], rounds: int | None = None
) -> tuple[float, float, float]:
    """Median and quartiles of time(one) / time(other)."""
    ratios = []
    for _ in range(rounds or ROUNDS):
        times = []
        for action in (one, other):
            began = time.perf_counter()
            action()
            times.append(time.perf_counter() - began)
        ratios.append(times[0] / times[1])
    low, middle, high = statistics.quantiles(ratios[2:], n=4)
    return middle, low, high


def overhead(denoiser: Denoiser, shape: tuple[int, ...]) -> None:
    steps, batch = 10, 64
    x, t = torch.zeros(batch, *shape), torch.full((batch,), 500)

    @torch.no_grad()
    def bare() -> None:
        for _ in range(steps):
            denoiser(x, t)

    for name in ("ddim", "dpm++", "unipc"):
        draw, generator = make_sampler(name, steps, 0.0, None), gsure.generators(0, indices=range(batch))

        def sampling(draw=draw, generator=generator) -> None:
            draw(denoiser, (batch, *shape), generator)

        middle, low, high = alternate(sampling, bare)
        print(f"{name} over {steps} bare network calls: {middle:.3f} ({low:.3f} to {high:.3f}); wanted: below 1.03")


def batching(denoiser: Denoiser, shape: tuple[int, ...]) -> None:
    """Eight draws of one measurement against one draw of eight measurements, from the measurement on."""
    generator = gsure.generators(0, indices=range(8))
    one = Measurement._trusted(torch.zeros(1, *shape), torch.ones(1, *shape), torch.full((1, *shape), 0.1))
    eight = Measurement._trusted(torch.zeros(8, *shape), torch.ones(8, *shape), torch.full((8, *shape), 0.1))

    def draws() -> None:
        gsure.ddrm(denoiser, Measurement.cat([one] * 8), 10, generator=generator)

    def measurements() -> None:
        gsure.ddrm(denoiser, eight, 10, generator=generator)

    middle, low, high = alternate(draws, measurements)
    print(f"8 draws of a measurement over 8 measurements: {middle:.3f} ({low:.3f} to {high:.3f}); wanted: about 1")


def curves(denoiser: Denoiser, reference: Tensor, features: str, n: int) -> None:
    extract = open_features(features, reference)
    target = extract(reference)
    halves = torch.randperm(len(target), generator=torch.Generator().manual_seed(0)).chunk(2)
    print(f"Fréchet distance of {n} samples to {len(target)} signals, in the features {features}")
    print(f"  floor, half against half: {frechet(target[halves[0]], target[halves[1]]):.3f}")
    for name, choices in STEPS.items():
        for spacing in SPACINGS[name]:
            line = []
            for steps in choices:
                draw = make_sampler(name, steps, 0.0, spacing)
                parts = [
                    draw(denoiser, (len(part), *reference.shape[1:]), gsure.generators(0, indices=part))
                    for part in np.array_split(np.arange(n), max(1, n // 128))
                ]
                line.append(f"{steps}: {frechet(extract(denoiser.basis.to_signal(torch.cat(parts))), target):.3f}")
            print(f"  {name:6} {spacing:10} {'   '.join(line)}", flush=True)


def memory(run: Path, data: Path) -> None:
    peaks = {}
    with tempfile.TemporaryDirectory() as folder:
        for n in RESTORED:
            command = [sys.executable, "-c", RESTORE, str(run), str(data), f"{folder}/{n}", str(n)]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            peaks[n] = int(re.search(r"VmHWM:\s+(\d+) kB", printed)[1]) / 1024
    few, many = peaks
    told = f"{few} restored: {peaks[few]:.0f} MB; {many}: {peaks[many]:.0f} MB"
    print(f"peak memory, 100 steps: {told}; wanted: independent of N")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("speed", "curves", "memory"))
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("features", nargs="?")
    parser.add_argument("--n", type=int, default=1000)
    options = parser.parse_args(arguments)
    if options.run is None and options.part != "speed":
        parser.error(f"{options.part} needs a trained RUN")
    if options.run is None:
        denoiser, shape = untrained()
    else:
        denoiser, shape = gsure.load(options.run), Run(options.run).config.data_info.shape
    print(f"{options.run or 'untrained digits network'}: shape {shape}, {torch.get_num_threads()} threads")
    if options.part == "speed":
        overhead(denoiser, shape)
        batching(denoiser, shape)
    elif options.part == "curves":
        signals = gsure.Signals(options.data)
        curves(denoiser, signals[np.arange(min(len(signals), 10_000))], options.features, options.n)
    else:
        memory(options.run, options.data)


if __name__ == "__main__":
    main()
