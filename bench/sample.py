"""What sampling and restoring cost, and how few network calls do: needs trained runs.

    python bench/sample.py RUN REFERENCE [--n 1000]

RUN is a run folder, REFERENCE the file of clean signals that its measurements were made of (gsure corrupt --clean). Prints
the time of a sampler over bare network calls, that of draws over measurements, and the Fréchet distance against network
calls for every sampler. Features are the first 32 principal components of the pixels of the reference; its own floor, one half
against the other, is printed beside. Ratios are medians of alternating rounds; believe them on free cores only.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import gsure
from gsure.command.sample import make_sampler
from gsure.denoiser import Denoiser
from gsure.measurement import Measurement
from gsure.metrics import frechet

CALLS = {"ddim": (5, 10, 20, 50, 100), "ddpm": (20, 50, 100), "dpm++": (5, 10, 20), "unipc": (5, 10, 20)}


def alternate(one: Callable[[], object], other: Callable[[], object], rounds: int = 15) -> tuple[float, float, float]:
    """Median and quartiles of time(one) / time(other)."""
    ratios = []
    for _ in range(rounds):
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

    samplers = {name: make_sampler(name, steps, 0.0, None) for name in ("ddim", "dpm++", "unipc")}
    for name, draw in samplers.items():
        generator = gsure.generators(0, indices=range(batch))
        middle, low, high = alternate(lambda draw=draw, g=generator: draw(denoiser, (batch, *shape), g), bare)
        print(f"{name} over {steps} bare network calls: {middle:.3f} ({low:.3f} to {high:.3f}); wanted: below 1.03")


def batching(denoiser: Denoiser, shape: tuple[int, ...]) -> None:
    generator = gsure.generators(0, indices=range(8))
    one = Measurement._trusted(torch.zeros(1, *shape), torch.ones(1, *shape), torch.full((1, *shape), 0.1))
    draws = lambda: gsure.ddrm(denoiser, Measurement.cat([one] * 8), 10, generator=generator)  # noqa: E731
    many = Measurement.cat([one] * 8)
    measurements = lambda: gsure.ddrm(denoiser, many, 10, generator=generator)  # noqa: E731
    middle, low, high = alternate(draws, measurements)
    print(f"8 draws of a measurement over 8 measurements: {middle:.3f} ({low:.3f} to {high:.3f}); wanted: about 1")


def curves(denoiser: Denoiser, shape: tuple[int, ...], reference: Tensor, n: int) -> None:
    flat = reference.flatten(1).double()
    mean = flat.mean(0)
    axes = torch.linalg.svd(flat - mean, full_matrices=False).Vh[:32]

    def features(x: Tensor) -> Tensor:
        return (x.flatten(1).double() - mean) @ axes.mT

    target = features(reference)
    halves = torch.randperm(len(target), generator=torch.Generator().manual_seed(0)).chunk(2)
    print(f"Fréchet distance of {n} samples to {len(target)} signals, in 32 principal components of the pixels")
    print(f"  floor, half against half: {frechet(target[halves[0]], target[halves[1]]):.3f}")
    for name, calls in CALLS.items():
        line = []
        for steps in calls:
            draw = make_sampler(name, steps, 0.0, None)
            parts = [
                draw(denoiser, (len(part), *shape), gsure.generators(0, indices=part))
                for part in np.array_split(np.arange(n), max(1, n // 128))
            ]
            line.append(f"{steps}: {frechet(features(denoiser.basis.to_signal(torch.cat(parts))), target):.3f}")
        print(f"  {name:6} {'   '.join(line)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--n", type=int, default=1000)
    options = parser.parse_args()
    denoiser, signals = gsure.load(options.run), gsure.Signals(options.reference)
    shape = tuple(signals.shape)
    print(f"{options.run}: shape {shape}, {torch.get_num_threads()} threads")
    overhead(denoiser, shape)
    batching(denoiser, shape)
    reference = signals[np.arange(min(len(signals), 5000))]
    curves(denoiser, shape, reference, options.n)


if __name__ == "__main__":
    main()
