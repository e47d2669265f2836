"""Calibrated error bars on Gaussian data, where the posterior is known, and which measurements are called unfamiliar."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from gsure import Fourier, Identity, Measurement, generators
from gsure.gaussian import About, Gaussian
from gsure.gaussian.blocks import Blocks
from gsure.gaussian.coordinates import Entries, Rows
from gsure.gaussian.structured import BlockGaussian
from gsure.inference.bars import Calibrator, Checker, learn
from gsure.inference.methods import Estimates
from gsure.judging import LEVEL, Reliability
from gsure.judging.coverage import LEVELS

SIZE, STD = 8, 0.1
PIXELS = About(Identity(), (1, SIZE, SIZE), False, torch.zeros(1, 1, SIZE, SIZE))
CENTRE = torch.zeros(1, 1, 1, SIZE)
CENTRE[..., 3:5] = 1
LINES = About(Fourier(), (2, SIZE, SIZE), True, CENTRE)


def smooth(width: float) -> torch.Tensor:
    x = torch.arange(SIZE, dtype=torch.float64)
    return torch.exp(-((x[:, None] - x) ** 2) / (2 * width**2)) + 1e-3 * torch.eye(SIZE)


def pixels(width: float = 1.5) -> Gaussian:
    covariance = torch.kron(smooth(width), smooth(width))
    return BlockGaussian(
        Entries(Identity(), (1, SIZE, SIZE)), Blocks(torch.zeros(1, SIZE**2).double(), covariance[None])
    )


def lines(width: float = 1.5) -> Gaussian:
    transform = torch.fft.fftshift(torch.fft.fft(torch.fft.ifftshift(torch.eye(SIZE), 0), dim=0, norm="ortho"), 0)
    transform = transform.to(torch.complex128)
    rows = (2 * transform @ smooth(width).to(transform) @ transform.mH).expand(SIZE, -1, -1)
    blocks = Blocks(torch.zeros(SIZE, SIZE, dtype=torch.complex128), rows, neighbours=SIZE)
    return BlockGaussian(Rows((2, SIZE, SIZE)), blocks)


@dataclass(frozen=True)
class Scaled:
    """The exact mean, and a spread that is wrong by a factor."""

    prior: Gaussian
    about: About
    factor: float
    draws: int = 8
    averages: ClassVar[bool] = False

    def options(self):
        return {"draws": self.draws}

    def few(self, draws: int) -> "Scaled":
        return dataclasses.replace(self, draws=draws)

    def mean(self, measurement, indices):
        return self.about.basis.to_signal(self.prior.mean(measurement))

    def __call__(self, measurement, indices) -> Estimates:
        mean, noise = self.mean(measurement, indices), [generators(0, k, indices=indices) for k in range(self.draws)]
        draws = torch.stack([self.about.basis.to_signal(self.prior.draw(measurement, g)) - mean for g in noise])
        std = self.prior.std(measurement) if self.draws > 2 else draws.std(0)
        return Estimates(mean, self.factor * std, mean + self.factor * draws)


def measure(prior: Gaussian, about: About, n: int, seed: int, keep: float = 0.5):
    """Signals of the prior, and measurements of them."""
    nothing = Measurement(torch.zeros(n, *about.shape).double(), torch.zeros(1, *about.always.shape[1:]), 0.0)
    xbar = prior.draw(nothing, generators(seed, 1, indices=range(n)))
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.rand(n, *about.always.shape[1:], generator=generator).double() < keep).double()
    mask = torch.maximum(mask, about.always)
    noise = STD * torch.randn(xbar.shape, generator=generator, dtype=torch.float64)
    return about.basis.to_signal(xbar), Measurement(mask * (xbar + noise), mask, STD)


def checker(prior: Gaussian, about: About, factor: float = 1.0, draws: int = 8) -> Checker:
    return Checker(Scaled(prior, about, factor, draws), about, tuple(about.always.shape[1:]), False, 0)


def coverage(mean, std, x, is_complex: bool) -> float:
    found = Reliability(None)
    found.add(mean, std, x, is_complex)
    return found.curve("frame")[LEVELS.index(LEVEL)]


@pytest.mark.parametrize(("make", "about"), [(pixels, PIXELS), (lines, LINES)], ids=["pixels", "lines"])
@pytest.mark.parametrize("factor", [1.0, 0.7])
def test_calibrated_intervals_cover_what_they_claim(make, about, factor):
    """Bars that are 30 % too short fail before the calibration, and pass after it."""
    prior = make()
    x, measurement = measure(prior, about, 96, seed=0)
    check = checker(prior, about, factor)
    calibration = learn(check, [(measure(prior, about, 64, seed=1)[1], list(range(64)))])
    found = check.restorer(measurement, list(range(96)))
    bars = Calibrator(check, calibration)(measurement, list(range(96)), found)
    raw, calibrated = (coverage(found.mean, std, x, about.is_complex) for std in (found.std, bars.std))
    assert calibrated == pytest.approx(0.9, abs=0.02)
    assert (raw == pytest.approx(0.9, abs=0.02)) == (factor == 1.0)
