"""Calibrated error bars on Gaussian data, where the posterior is known, and which measurements are called unfamiliar."""

import dataclasses
import math
from dataclasses import dataclass

import pytest
import torch

from gsure import Fourier, Identity, Measurement, generators
from gsure.gaussian import About, Gaussian
from gsure.gaussian.blocks import BlockGaussian, Blocks
from gsure.gaussian.coordinates import Entries, Rows
from gsure.inference.bars import Calibrator, spread_of
from gsure.inference.hidden import Checker, learn
from gsure.inference.methods import Estimates, Restorer
from gsure.judging import (
    LEVEL,
    Evidence,
    Reliability,
    fit_calibration,
    group_units,
    half_width,
    relative_to_phase,
    split_units,
)
from gsure.judging.calibration import SPLITS
from gsure.judging.coverage import LEVELS

SIZE, STD = 8, 0.1
PIXELS = About(Identity(), (1, SIZE, SIZE), False, torch.zeros(1, 1, SIZE, SIZE))
CENTRE = torch.zeros(1, 1, 1, SIZE)
CENTRE[..., 3:5] = 1
LINES = About(Fourier(), (2, SIZE, SIZE), True, CENTRE)


def smooth(width: float) -> torch.Tensor:
    x = torch.arange(SIZE, dtype=torch.float64)
    return torch.exp(-((x[:, None] - x) ** 2) / (2 * width**2)) + 1e-3 * torch.eye(SIZE)


def pixels(width: float = 1.0) -> Gaussian:
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
class Scaled(Restorer):
    """The exact mean, and a spread that is wrong by a factor."""

    prior: Gaussian
    about: About
    factor: float
    draws: int = 8

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
def test_calibrated_intervals_cover_what_they_claim(make, about):
    """Bars that are 30 % too short fail before the calibration, and pass after it."""
    prior, numbers = make(), list(range(96))
    x, measurement = measure(prior, about, 96, seed=0)
    check = checker(prior, about, factor=0.7)
    calibration = learn(check, [(measure(prior, about, 128, seed=1)[1], list(range(128)))])
    found = check.restorer(measurement, numbers)
    bars = Calibrator(check, calibration)(measurement, numbers, found)
    assert coverage(found.mean, bars.std, x, about.is_complex) == pytest.approx(0.9, abs=0.02)
    assert coverage(found.mean, found.std, x, about.is_complex) < 0.85
    parts = [
        Calibrator(check, calibration)(
            measurement[some], numbers[some], Estimates(*(v[some] for v in found[:2]), found.draws[:, some])
        )
        for some in (slice(0, 5), slice(5, 12))
    ]
    torch.testing.assert_close(torch.cat([part.std for part in parts]), bars.std[:12])  # in batches of another size


def test_bars_of_complete_signals_are_calibrated_by_added_noise():
    """Nothing is missing, so that nothing need be hidden; bars that are twice too short are found out."""
    prior, numbers = pixels(), list(range(96))
    x, measurement = measure(prior, PIXELS, 96, seed=0, keep=1.0)
    check = dataclasses.replace(checker(prior, PIXELS, factor=0.5), is_complete=True)
    calibration = learn(check, [(measure(prior, PIXELS, 128, seed=1, keep=1.0)[1], list(range(128)))])
    assert calibration.units == 0
    found = check.restorer(measurement, numbers)
    bars = Calibrator(check, calibration)(measurement, numbers, found)
    assert coverage(found.mean, bars.std, x, False) == pytest.approx(0.9, abs=0.02)
    assert coverage(found.mean, found.std, x, False) < 0.7


def test_unfamiliar_sets_are_told_from_familiar_ones():
    """20 sets of 8 measurements each: of the distribution that the calibration knows, and of one that varies more quickly."""
    prior, other, n = lines(1.5), lines(0.4), 160
    check = checker(prior, LINES)
    calibration = learn(check, [(measure(prior, LINES, 48, seed=1)[1], list(range(48)))])
    flagged = {}
    for name, signals in {"same": prior, "other": other}.items():
        hidden = check.restore(measure(signals, LINES, n, seed=2)[1], list(range(n)))
        assert hidden is not None
        chi_squared = calibration.chi_squared(check.evidence(hidden))
        sets = [calibration.times_worse_together(part) for part in chi_squared.split(8)]
        flagged[name] = sum(found is not None and found[1] for found in sets)
        if name == "same":
            assert int(calibration.unfamiliar(chi_squared).sum()) <= 2
    assert flagged == {"same": 0, "other": 20}


def test_every_measured_unit_outside_the_centre_is_hidden_once():
    _, measurement = measure(lines(), LINES, 5, seed=0)
    hidden = split_units(measurement, LINES, range(5), 0)
    assert hidden is not None
    assert torch.stack(hidden).sum(0).equal(measurement.mask * (1 - CENTRE))
    assert split_units(measurement, dataclasses.replace(LINES, always=torch.ones(1, 1, 1, SIZE)), range(5), 0) is None


def test_what_cannot_be_hidden_cannot_be_calibrated():
    """An empty mask, and too few units."""
    _, measurement = measure(lines(), LINES, 4, seed=0)
    empty = Measurement(torch.zeros_like(measurement.ybar), torch.zeros_like(measurement.mask), STD)
    for some, units in ((empty, 0), (measurement[:1], r"\d")):
        with pytest.raises(ValueError, match=f"only {units} of the measured units could be hidden, and at least 20"):
            learn(checker(lines(), LINES), [(some, list(range(len(some))))])


def test_many_units_are_grouped_in_rings():
    groups = group_units((1, 64, 64), ())
    assert int(groups.max()) == 63
    assert [int(groups[0, 0, k, k]) for k in (32, 0)] == [0, 63]


def test_intervals_of_few_draws_are_wider(generator):
    """Standard deviations of 4 draws: mean ± half_width covers 90 % of normal values, and the normal quantile does not."""
    x = torch.randn(20000, 5, generator=generator, dtype=torch.float64)
    error, std = x[:, 0].abs(), x[:, 1:].std(1)
    shares = [float((error <= half_width(0.9, draws) * std).double().mean()) for draws in (4, None)]
    assert shares[0] == pytest.approx(0.9, abs=0.01)
    assert shares[1] < 0.85
    with pytest.raises(ValueError, match="at least 2 draws"):
        half_width(0.9, 1)


def evidence_of(pair: float, spread: float, n: int, generator: torch.Generator) -> Evidence:
    """Of n measurements with 24 missing units: 4 splits hide two units each, whose errors have variance 1 and correlation
    `pair`; draws have variance `spread` and no correlation."""
    root = torch.linalg.cholesky(torch.tensor([[1.0, pair], [pair, 1.0]]))
    errors = torch.randn(n, SPLITS, 2, generator=generator) @ root.mT
    ones = torch.ones(n, SPLITS, 1)
    error, product = errors.sum(2, keepdim=True).square(), 2 * errors.prod(2, keepdim=True)
    return Evidence(
        error, 2 * spread * ones, 0 * ones, 2 * ones, product, 0 * ones, 2 * ones, 2 * ones, 24 * ones, ones, ones
    )


@pytest.mark.parametrize("pair", [0.0, 0.2])
def test_errors_that_add_up_make_bars_longer(pair, generator):
    """Σ of 24 errors of correlation r has variance 24 (1 + 23 r). Factors see 1 + r of it, from two hidden units."""
    many = fit_calibration(evidence_of(pair, 0.5, 4000, generator))
    found = float(many.factors[0]) * many.together
    assert found == pytest.approx((2 * (1 + 23 * pair)) ** 0.5, rel=0.06)
    assert float(many.factors[0]) == pytest.approx((2 * (1 + pair)) ** 0.5, rel=0.03)
    few = fit_calibration(evidence_of(pair, 0.5, 8, generator))
    assert abs(math.log(few.together)) < abs(math.log(many.together)) + 0.1, "few measurements are not believed"


def test_error_bars_of_complex_images_are_those_of_magnitudes(generator):
    z = torch.randn(500, 2, 4, 4, generator=generator) + 5
    change = 0.01 * torch.randn(500, 2, 4, 4, generator=generator)
    along = relative_to_phase(change, z)
    magnitude = [torch.hypot(x[:, 0], x[:, 1]) for x in (z, z + change)]
    torch.testing.assert_close(along[:, 0], magnitude[1] - magnitude[0], atol=2e-4, rtol=0.0)
    torch.testing.assert_close(along.square().sum(1), change.square().sum(1))
    mean = z[:8]
    draws = mean + 0.1 * mean * torch.randn(2000, 8, 1, 4, 4, generator=generator)  # only magnitudes vary
    std = spread_of(Estimates(mean, draws.std(0), draws), True)
    torch.testing.assert_close(std[:, 0], 0.1 * torch.hypot(mean[:, 0], mean[:, 1]), rtol=0.1, atol=0.0)
    assert float(std[:, 1].max()) < 1e-3, "phases do not"
