"""What a matrix knows of phantoms: the best denoiser and the best restoration if they were Gaussian.

    python bench/gaussian.py

N(0, C) is fitted to clean phantoms (none of those restored), C of k-space. Its denoiser is linear, its posterior mean closed:
a network that learned from whole phantoms and is worse than that has not learned enough. Then C is fitted to measurements of
so many phantoms instead, at R = 4: what can be learned of pairs of lines that are rarely measured together. Errors and images
are those of `gsure reproduce mri-denoising` and `mri-r4 --scale small`. Takes three minutes; docs/results/README.md has the
numbers.
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
MORE = (1_000, 1_500, 2_500, 5_000, 10_000, 20_000)
"""Phantoms that are added, up to 40,000."""
BASIS = gsure.Fourier()


class Gaussian(AnyDenoiser):
    """E[x̄ | x̄_t] for x̄ ~ N(0, C), where C of complex vectors does not depend on their phase."""

    def __init__(self, covariance: Tensor) -> None:
        super().__init__()
        self.schedule, self.basis = gsure.Schedule.for_noise(SIGMA), BASIS
        variances, self.directions = torch.linalg.eigh((covariance + covariance.mH) / 2)
        # Directions that no phantom has would be known for certain, and differences of counts can leave less than nothing;
        # a thousandth of the mean variance leaves some doubt.
        self.variances = variances.clamp(min=1e-3 * float(variances.mean()))
        self.covariance = self.directions * self.variances @ self.directions.mH

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


class Moments:
    """Second moments of real and of imaginary parts, over all phantoms in which both entries were measured."""

    def __init__(self) -> None:
        self.sums = torch.zeros(SIZE**2, SIZE**2, dtype=torch.complex128)
        self.counts = torch.zeros(SIZE**2, SIZE**2)

    def add(self, measurement: gsure.Measurement) -> None:
        z = as_complex(measurement.ybar)
        mask = measurement.mask.expand_as(measurement.ybar)[:, 0].flatten(1)
        self.sums += z.T @ z.conj() / 2  # ȳ is 0 where nothing was measured
        self.counts += mask.T @ mask

    def covariance(self, sigma: float) -> Tensor:
        return self.sums / self.counts.clamp(min=1) - sigma**2 * torch.eye(SIZE**2)


def measure(seed: int, n: int) -> tuple[gsure.Measurement, Tensor]:
    """n phantoms from a quarter of their lines, and as they are."""
    source = open_source("phantom", size=SIZE, n=n, scale=0.25, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        data, clean = Path(folder) / "measurements.h5", Path(folder) / "clean.h5"
        gsure.corrupt(source, data, Lines(R=4.0), SIGMA, clean=clean)
        return gsure.open(data)[:n], gsure.Signals(clean)[:]


def as_complex(pairs: Tensor) -> Tensor:
    return torch.complex(*pairs.double().unbind(1)).flatten(1)


def as_pairs(z: Tensor) -> Tensor:
    return torch.stack([z.real, z.imag], 1).reshape(len(z), 2, SIZE, SIZE)


def rate(restored: Tensor, x: Tensor) -> str:
    values = psnr(BASIS.to_signal(restored), x, True)
    return f"{float(values.mean()):.2f} ({float(values.std() / len(x) ** 0.5):.2f})"


def main() -> None:
    measurement, x = measure(seed=2, n=32)
    xbar = BASIS.to_spectral(x)
    measured, clean, n = Moments(), Moments(), 0
    print("phantoms, PSNR in dB (standard error) of the posterior mean at R = 4: fitted to measurements, to clean ones")
    for seed, more in enumerate(MORE, start=100):
        learned_from, whole = measure(seed, more)
        measured.add(learned_from)
        clean.add(gsure.Measurement.clean(BASIS.to_spectral(whole)))
        n += more
        gaussian = Gaussian(clean.covariance(0.0))
        estimates = (g.restore(measurement) for g in (Gaussian(measured.covariance(SIGMA)), gaussian))
        print(f"{n:>6}", *(rate(restored, x) for restored in estimates), flush=True)
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
        print(f"{name:>16} {rate(restored, x)}")


if __name__ == "__main__":
    main()
