"""What a matrix knows of phantoms: the best denoiser and the best restoration if they were Gaussian.

    python bench/gaussian.py [--figure FILE]

N(0, C) is fitted to clean phantoms (none of those restored), C of k-space. Its denoiser is linear, its posterior mean closed:
a network that learned from whole phantoms and is worse than that has not learned enough. Then C is fitted to measurements of
so many phantoms instead, at R = 4: what can be learned of pairs of lines that are rarely measured together. Errors and images
are those of `gsure reproduce mri-denoising` and `mri-r4 --scale small`. Takes five minutes; docs/results/README.md has the
numbers.
"""

import argparse
import json
import tempfile
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

import gsure
from gsure.corruption import Lines
from gsure.data.sources import open_source
from gsure.denoiser import BaseDenoiser
from gsure.gaussian.blocks import BlockGaussian
from gsure.gaussian.coordinates import Entries
from gsure.gaussian.moments import Moments
from gsure.metrics import psnr
from gsure.random import generators, normal

SIZE, SIGMA, DRAWS, STEPS = 32, 0.04, 8, 50
TIMES = (10, 20, 50, 100, 150, 200, 300, 400, 500, 600, 700, 800, 900, 1000)
MORE = (1_000, 1_500, 2_500, 5_000, 10_000, 20_000, 60_000)
"""Phantoms that are added, up to 100,000."""
BASIS = gsure.Fourier()
RESULTS, PHANTOMS = Path(__file__).parents[1] / "docs" / "results" / "mri-r4-small.json", 99_500
"""What the networks reached, and from how many phantoms."""


class Linear(BaseDenoiser):
    """E[x̄ | x̄_t] for a Gaussian x̄: its mean given a whole measurement whose noise is that of t."""

    def __init__(self, prior: BlockGaussian) -> None:
        super().__init__()
        self.schedule, self.basis = gsure.Schedule.for_noise(SIGMA), BASIS
        self.variances, self.directions = torch.linalg.eigh(prior.blocks.covariance[0].to(torch.complex128))

    def forward(self, xbar_t: Tensor, t: Tensor, condition: Tensor | None = None) -> Tensor:
        alpha_bar = float(self.schedule.alpha_bar[int(t[0])])
        gain = alpha_bar**0.5 * self.variances / (alpha_bar * self.variances + 2 * (1 - alpha_bar))
        z = torch.complex(*xbar_t.double().unbind(1)).flatten(1) @ self.directions.conj() * gain @ self.directions.T
        return torch.stack([z.real, z.imag], 1).reshape(xbar_t.shape).to(xbar_t)


def measure(seed: int, n: int) -> tuple[gsure.Measurement, Tensor]:
    """n phantoms from a quarter of their lines, and as they are."""
    source = open_source("phantom", size=SIZE, n=n, scale=0.25, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        data, clean = Path(folder) / "measurements.h5", Path(folder) / "clean.h5"
        gsure.corrupt(source, data, Lines(R=4.0), SIGMA, clean=clean)
        return gsure.open(data)[:n], gsure.Signals(clean)[:]


def rate(restored: Tensor, x: Tensor) -> tuple[float, float]:
    """Mean PSNR and its standard error over images."""
    values = psnr(BASIS.to_signal(restored), x, True)
    return float(values.mean()), float(values.std() / len(x) ** 0.5)


def learn(measurement: gsure.Measurement, x: Tensor) -> tuple[BlockGaussian, dict[int, list[tuple[float, float]]]]:
    """The prior from most clean phantoms; and, by their number, how well those of measurements and of clean ones restore."""
    coordinates = Entries(BASIS, (2, SIZE, SIZE), pairs=True)
    measured, clean = (Moments(coordinates, SIZE**2) for _ in range(2))
    found = {}
    for seed, more in enumerate(MORE, start=100):
        learned_from, whole = measure(seed, more)
        measured.add(coordinates.vectors(learned_from))
        clean.add(coordinates.vectors(gsure.Measurement.clean(BASIS.to_spectral(whole))))
        priors = [BlockGaussian(coordinates, moments.blocks()) for moments in (measured, clean)]
        n = clean.n
        found[n] = [rate(prior.mean(measurement), x) for prior in priors]
        print(f"{n:>6}", *(f"{mean:.2f} ({se:.2f})" for mean, se in found[n]), flush=True)
    return priors[1], found


def draw(found: dict[int, list[tuple[float, float]]], path: Path) -> None:
    """Restorations by the number of phantoms; beside them the networks of `gsure reproduce mri-r4 --scale small`."""
    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    axes = figure.subplots()
    for k, (colour, words) in enumerate(
        (("tab:blue", "matrix, from measurements"), ("tab:green", "matrix, from clean"))
    ):
        means, errors = zip(*(pair[k] for pair in found.values()), strict=True)
        axes.errorbar(
            list(found), means, yerr=[2 * se for se in errors], fmt=".-", color=colour, label=words, capsize=2
        )
    for row in json.loads(RESULTS.read_text())["rows"]:
        ours = row["case"]["model"] == "gsure"
        colour, words = ("tab:blue", "network, from measurements") if ours else ("tab:green", "network, from clean")
        mean = float(torch.tensor(row["PSNR of mean"]).mean())
        axes.plot(PHANTOMS, mean, "D", color=colour, markerfacecolor="none", label=words)
    axes.set(xscale="log", xlabel="phantoms", ylabel="PSNR at R = 4, dB (± 2 se)")
    axes.legend(frameon=False, fontsize="small")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", type=Path, help="draw what was learned by the number of phantoms")
    figure = parser.parse_args(arguments).figure
    measurement, x = measure(seed=2, n=32)
    xbar = BASIS.to_spectral(x)
    print("phantoms, PSNR in dB (standard error) of the posterior mean at R = 4: fitted to measurements, to clean ones")
    prior, found = learn(measurement, x)
    if figure is not None:
        draw(found, figure)
    denoiser = Linear(prior)
    print("t, mean squared error on whole phantoms")
    for t in TIMES:
        alpha_bar = float(denoiser.schedule.alpha_bar[t])
        eps = normal(xbar.shape, generators(0, t, indices=range(len(x))), xbar)
        xbar_hat = denoiser(alpha_bar**0.5 * xbar + (1 - alpha_bar) ** 0.5 * eps, torch.full((len(x),), t))
        print(f"{t:>5} {float((xbar_hat - xbar).square().mean()):.4g}")
    draws = [
        gsure.ddrm(denoiser, measurement, STEPS, generator=generators(0, k, indices=range(len(x))))
        for k in range(DRAWS)
    ]
    rows = {
        "zero-filled": measurement.ybar,
        "posterior mean": prior.mean(measurement),
        "DDRM, one draw": draws[0],
        f"DDRM, mean of {DRAWS}": torch.stack(draws).mean(0),
    }
    print("R = 4, PSNR in dB (standard error over images)")
    for name, restored in rows.items():
        mean, se = rate(restored, x)
        print(f"{name:>16} {mean:.2f} ({se:.2f})")


if __name__ == "__main__":
    main()
