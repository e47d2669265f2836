"""Table of docs/restoration.md: are the error bars calibrated? On held-out digits, for both methods.

    python docs/make_uncertainty_table.py RUN DATA CLEAN

For each method: mean squared error of one draw and of the mean of 8, and how often the truth lies within mean ± 2 standard
deviations, on entries that were measured and on those that were not (a Gaussian posterior known exactly: 95 % for many draws;
with mean and deviation of only 8 draws, 2 standard deviations of a t distribution: about 89 %).
"""

import sys
import time

import numpy as np
import torch

import gsure
from gsure.measurement import Measurement

N, DRAWS, STEPS = 90, 8, 50


def main(arguments: list[str] | None = None) -> None:
    run, path, clean = arguments or sys.argv[1:]
    denoiser, data = gsure.load(run), gsure.open(path)
    _, held_out = data.split(0.1, seed=0)  # as the preset did
    measurement, x = held_out[:N], gsure.Signals(clean)[held_out.indices[:N]]
    many = Measurement.cat([measurement] * DRAWS)
    generator = [g for draw in range(DRAWS) for g in gsure.generators(0, draw, indices=np.arange(N))]
    rows = [
        "| method | MSE of one draw | MSE of the mean of 8 | within 2 std, missing | within 2 std, measured | time |",
        "|---|---|---|---|---|---|",
    ]
    baseline = float(((measurement.ybar - x) ** 2).mean())
    first = 0.0
    for name, eta in (("ddrm", 0.85), ("ddrm", 1.0), ("moments", 0.85), ("moments", 1.0)):
        began = time.perf_counter()
        if name == "ddrm":
            draws = gsure.ddrm(denoiser, many, STEPS, eta, generator=[g.clone_state() for g in generator])
        else:
            posterior = gsure.Posterior(denoiser, many)
            draws = gsure.ddim(posterior, many.shape, STEPS, eta, generator=[g.clone_state() for g in generator])
        took = time.perf_counter() - began
        first = first or took
        draws = draws.reshape(DRAWS, N, *x.shape[1:])
        mean, std = draws.mean(0), draws.std(0)
        inside = (x - mean).abs() <= 2 * std
        kept = measurement.mask.expand_as(x) == 1
        errors = [float(((estimate - x) ** 2).mean()) for estimate in (draws[0], mean)]
        shares = [float(inside[where].float().mean()) for where in (~kept, kept)]
        rows.append(
            f"| {name}, η = {eta:g} | {errors[0]:.4f} | {errors[1]:.4f} | {shares[0]:.0%} | {shares[1]:.0%} "
            f"| {took / first:.1f} |"
        )
        sys.stderr.write(rows[-1] + "\n")
    sys.stdout.write("\n".join(rows) + f"\n{N} held-out digits, {STEPS} steps; MSE of the baseline {baseline:.4f}\n")
    assert torch.isfinite(draws).all()


if __name__ == "__main__":
    main()
