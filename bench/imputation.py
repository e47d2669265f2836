"""How measurements are best imputed: the Fréchet distance of imputed signals to clean ones, for several ways to draw.

    python bench/imputation.py RUN MEASUREMENTS REFERENCE FEATURES [--n 600]

RUN is a run folder, MEASUREMENTS the file it was trained on, REFERENCE a file of clean signals of other samples. What was
measured stays as it is, the rest is one draw of the model. The numbers of fashion16 are in docs/method.md.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

import gsure
from gsure.data.source import evenly_spread
from gsure.denoiser import Denoiser
from gsure.measurement import Measurement
from gsure.metrics import frechet
from gsure.metrics.features import open_features
from gsure.random import Generators, generators
from gsure.sampling import Spacing

AT_ONCE = 100


def by_ddrm(steps: int, eta: float, spacing: Spacing) -> Callable[..., Tensor]:
    def draw(denoiser: Denoiser, measurement: Measurement, generator: Generators) -> Tensor:
        return gsure.ddrm(denoiser, measurement, steps, eta, spacing=spacing, generator=generator)

    return draw


def by_moments(steps: int, iterations: int) -> Callable[..., Tensor]:
    def draw(denoiser: Denoiser, measurement: Measurement, generator: Generators) -> Tensor:
        posterior = gsure.Posterior(denoiser, measurement, tolerance=0.0, max_iterations=iterations)
        return gsure.ddim(posterior, measurement.shape, steps, 0.85, "quadratic", generator=generator)

    return draw


WAYS = {
    "ddrm, 10 steps, eta 0.85, even": by_ddrm(10, 0.85, "even"),
    "ddrm, 10 steps, eta 0.85, quadratic": by_ddrm(10, 0.85, "quadratic"),
    "ddrm, 10 steps, eta 1, even": by_ddrm(10, 1.0, "even"),
    "ddrm, 10 steps, eta 1, quadratic": by_ddrm(10, 1.0, "quadratic"),
    "ddrm, 20 steps, eta 1, quadratic": by_ddrm(20, 1.0, "quadratic"),
    "ddrm, 50 steps, eta 0.85, even": by_ddrm(50, 0.85, "even"),
    "moments, 10 steps, 1 iteration": by_moments(10, 1),
    "moments, 10 steps, 3 iterations": by_moments(10, 3),
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("run", "measurements", "reference", "features"):
        parser.add_argument(name)
    parser.add_argument("--n", type=int, default=600)
    options = parser.parse_args(arguments)
    denoiser, data = gsure.load(options.run), gsure.open(options.measurements)
    reference = gsure.Signals(options.reference)[:]
    extract = open_features(options.features, reference)
    target, positions = extract(reference), evenly_spread(options.n, len(data))
    for name, draw in WAYS.items():
        began, imputed = time.monotonic(), []
        for some in np.array_split(positions, -(-len(positions) // AT_ONCE)):
            measurement = data[some]
            xbar = draw(denoiser, measurement, generators(0, indices=some))
            imputed.append(data.basis.to_signal(measurement.impute(xbar).ybar))
        distance = frechet(extract(torch.cat(imputed)), target)
        print(f"{name:>36}: {distance:.2f}, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
