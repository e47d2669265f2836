"""What a matrix knows of phantoms: the best denoiser and the best restoration if they were Gaussian.

    python bench/gaussian.py

N(0, C) is fitted to 9,500 clean phantoms (none of those restored), C of k-space. Its denoiser is linear, its posterior mean
closed; a network that learned from whole phantoms and is worse than that has not learned enough. Errors and images are those
of `gsure reproduce mri-denoising` and `mri-r4 --scale small`. Takes half a minute; the numbers are in docs/results/README.md.
"""

import tempfile
from pathlib import Path

import torch
from torch import Tensor

import gsure
from gsure.corruption import Lines
from gsure.denoiser import AnyDenoiser
from gsure.metrics import psnr
from gsure.noise import generators, normal
from gsure.source import open_source

SIZE, SIGMA, DRAWS, CALLS = 32, 0.04, 8, 50
TIMES = (10, 20, 50, 100, 150, 200, 300, 400, 500, 600, 700, 800, 900, 1000)
BASIS = gsure.Fourier()


class Gaussian(AnyDenoiser):
    """E[x̄ | x̄_t] for x̄ ~ N(0, C), where C of complex vectors does not depend on their phase."""

    def __init__(self, xbar: Tensor) -> None:
        super().__init__()
        self.schedule, self.basis = gsure.Schedule.for_noise(SIGMA), BASIS
        z = as_complex(xbar)
        self.covariance = z.T @ z.conj() / len(z) / 2  # of real and of imaginary parts
        # Directions that no phantom has would be known for certain; a thousandth of the mean variance leaves some doubt.
        self.covariance += 1e-3 * self.covariance.diagonal().real.mean() * torch.eye(len(self.covariance))
        self.variances, self.directions = torch.linalg.eigh(self.covariance)

    def forward(self, xbar_t: Tensor, t: Tensor, condition: Tensor | None = None) -> Tensor:
        alpha_bar = float(self.schedule.alpha_bar[int(t[0])])
        gain = alpha_bar**0.5 * self.variances / (alpha_bar * self.variances + 1 - alpha_bar)
        z = as_complex(xbar_t) @ self.directions.conj() * gain @ self.directions.T
        return as_pairs(z).to(xbar_t)

    def restore(self, measurement: gsure.Measurement) -> Tensor:
        """The mean of the posterior, C P (P C P + std²)⁻¹ ȳ, of each measurement."""
        kept = measurement.mask.expand_as(measurement.ybar)[:, 0].flatten(1) == 1
        means = []
        for ybar, keep in zip(as_complex(measurement.ybar), kept, strict=True):
            inner = self.covariance[keep][:, keep] + SIGMA**2 * torch.eye(int(keep.sum()))
            means.append(self.covariance[:, keep] @ torch.linalg.solve(inner, ybar[keep]))
        return as_pairs(torch.stack(means)).to(measurement.ybar)


def as_complex(pairs: Tensor) -> Tensor:
    return torch.complex(*pairs.double().unbind(1)).flatten(1)


def as_pairs(z: Tensor) -> Tensor:
    return torch.stack([z.real, z.imag], 1).reshape(len(z), 2, SIZE, SIZE)


def main() -> None:
    source = open_source("phantom", size=SIZE, n=9_500, scale=0.25)
    gaussian = Gaussian(BASIS.to_spectral(torch.stack([torch.from_numpy(source[k].x) for k in range(len(source))])))
    test = open_source("phantom", size=SIZE, n=32, scale=0.25, seed=2)
    with tempfile.TemporaryDirectory() as folder:
        data, clean = Path(folder) / "measurements.h5", Path(folder) / "clean.h5"
        gsure.corrupt(test, data, Lines(R=4.0), SIGMA, clean=clean)
        measurement, x = gsure.open(data)[:32], gsure.Signals(clean)[:]
    xbar = BASIS.to_spectral(x)
    print("t, mean squared error on whole phantoms")
    for t in TIMES:
        alpha_bar = float(gaussian.schedule.alpha_bar[t])
        eps = normal(xbar.shape, generators(0, t, indices=range(len(x))), xbar)
        xbar_hat = gaussian(alpha_bar**0.5 * xbar + (1 - alpha_bar) ** 0.5 * eps, torch.full((len(x),), t))
        print(f"{t:>5} {float((xbar_hat - xbar).square().mean()):.4g}")
    draws = [
        gsure.ddrm(gaussian, measurement, CALLS, generator=generators(0, k, indices=range(len(x))))
        for k in range(DRAWS)
    ]
    rows = {
        "zero-filled": measurement.ybar,
        "posterior mean": gaussian.restore(measurement),
        "DDRM, one draw": draws[0],
        f"DDRM, mean of {DRAWS}": torch.stack(draws).mean(0),
    }
    print("R = 4, PSNR in dB (standard error over images)")
    for name, restored in rows.items():
        values = psnr(BASIS.to_signal(restored), x, True)
        print(f"{name:>16} {float(values.mean()):.2f} ({float(values.std() / len(x) ** 0.5):.2f})")


if __name__ == "__main__":
    main()
