from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from conftest import z_score
from torch import Tensor

from gsure import Basis, Fourier, Hadamard, Hartley, Identity, Measurement, generators
from gsure.corruption import (
    FAMILIES,
    Blur,
    Channels,
    Corruption,
    Coverage,
    EquispacedLines,
    GaussianLines,
    HadamardPatterns,
    Lines,
    Noise,
    Patches,
    Pixels,
    PoissonDisc,
    check_corruption,
)
from gsure.corruption.lines import systematic
from gsure.corruption.poisson_disc import throw
from gsure.random import normal, uniform

CASES: list[tuple[Corruption, tuple[int, ...], int]] = [  # and the number of draws, fewer where one is slow
    (Patches(p=0.4, size=4), (3, 16, 16), 30_000),
    (Patches(p=0.2, size=3), (1, 9, 15), 30_000),
    (Pixels(p=0.3), (1, 9, 7), 30_000),
    (Pixels(p=0.0), (2, 4, 4), 1_000),
    (Noise(), (1, 8, 8), 1_000),
    (Noise(), (5,), 1_000),
    (Lines(R=4), (2, 6, 32), 30_000),
    (Lines(R=3), (4, 5, 33), 30_000),
    (GaussianLines(R=4), (2, 6, 32), 30_000),
    (GaussianLines(R=1.2), (2, 5, 15), 30_000),
    (EquispacedLines(R=4), (2, 6, 32), 30_000),
    (EquispacedLines(R=2.5), (2, 5, 33), 30_000),
    (PoissonDisc(R=4), (2, 16, 16), 3_000),
    (PoissonDisc(R=4), (2, 9, 11), 3_000),
    (Blur(), (1, 16, 16), 30_000),
    (Blur(), (3, 9, 7), 30_000),
    (Blur("motion", width=(1, 5)), (1, 16, 15), 30_000),
    (HadamardPatterns(keep=0.3), (1, 8, 16), 30_000),
    (HadamardPatterns(keep=0.6), (3, 4, 4), 30_000),
    (Channels(p=0.3), (5, 3, 4), 30_000),
]
NAMES = [f"{family}-{shape}" for family, shape, _ in CASES]


@pytest.mark.parametrize(("family", "shape", "draws"), CASES, ids=NAMES)
def test_every_family_passes_all_checks(family, shape, draws):
    check_corruption(family, shape, draws)


def test_every_family_has_a_name_and_is_checked():
    names = "patches pixels noise lines gaussian_lines equispaced_lines poisson_disc blur hadamard channels"
    assert list(FAMILIES) == names.split()
    assert set(FAMILIES.values()) == {type(family) for family, _, _ in CASES}


# ---- the checks themselves


@dataclass(frozen=True)
class Overstated(Pixels):
    """States a coverage 1.5 % higher than it has."""

    def coverage(self, shape: Sequence[int]) -> Coverage:
        return Coverage(super().coverage(shape).value + 0.015)


@dataclass(frozen=True)
class Averaged(Lines):
    """States the mean coverage, as if all columns were equally likely."""

    def coverage(self, shape: Sequence[int]) -> Coverage:
        return Coverage(super().coverage(shape).value.mean().reshape(1, 1, 1, 1))


@dataclass(frozen=True)
class OneForAll(Pixels):
    """One mask for the complete batch."""

    def svals(self, n, shape, generator):
        return super().svals(n, shape, generator)[[0] * n]


@dataclass(frozen=True)
class Noisier(Pixels):
    """Its noise level is 10 % higher than it states."""

    def apply(self, x, sigma_0, generator):
        measurement = super().apply(x, 1.1 * sigma_0, generator)
        return Measurement(measurement.ybar, measurement.mask, measurement.std / 1.1)


@dataclass(frozen=True)
class Coloured(Pixels):
    """Its noise has the right std but is smooth along rows."""

    def apply(self, x, sigma_0, generator):
        mask = self.svals(len(x), x.shape[1:], generator)
        noise = normal(x.shape, generator, like=x)
        return Measurement(mask * (x + sigma_0 * (0.8 * noise + 0.6 * noise.roll(1, -1))), mask, sigma_0)


@dataclass(frozen=True)
class Biased(Pixels):
    """Measures a little less than x."""

    def apply(self, x, sigma_0, generator):
        return super().apply(0.99 * x, sigma_0, generator)


@dataclass(frozen=True)
class Flipped(Basis):
    def to_spectral(self, x):
        return 2 * x.flip(-1)

    def to_signal(self, xbar):
        return xbar.flip(-1) / 2


@dataclass(frozen=True)
class Skewed(Pixels):
    """In a basis that is not orthogonal."""

    basis = Flipped()


@dataclass(frozen=True)
class Negative(Pixels):
    def svals(self, n, shape, generator):
        return super().svals(n, shape, generator) - 0.5


@dataclass(frozen=True)
class Flat(Pixels):
    def svals(self, n, shape, generator):
        return super().svals(n, shape, generator)[:, 0]


@dataclass(frozen=True)
class Fickle(Pixels):
    """A sample's mask depends on the size of its batch."""

    def svals(self, n, shape, generator):
        return super().svals(n, shape, generator).roll(n, -1)


@dataclass(frozen=True)
class Broken(Pixels):
    def svals(self, n, shape, generator):
        return torch.ones(3) + torch.ones(4)


@pytest.mark.parametrize(
    ("family", "claims"),
    [
        (Overstated(0.4), "as its coverage states; keep as much in total as its coverage states"),
        (OneForAll(0.4), "it does not: draw independently for each sample"),
        (Noisier(0.4), "it does not: have noise of the stated std"),
        (Coloured(0.4), "it does not: have white noise, independent between entries"),
        (Biased(0.4), r"it does not: measure mask \* xbar at sigma_0 = 0"),
        (Skewed(0.4), "it does not: have an orthogonal basis .*keep lengths"),
        (Negative(0.4), "it does not: draw svals that are finite and at least 0"),
        (Flat(0.4), r"draw svals whose shape broadcasts against 32 signals \(\(32, 6, 8\) was drawn\)"),
        (Fickle(0.4), "draw sample k from generator k alone"),
        (Broken(0.4), r"cannot corrupt signals of shape \(2, 6, 8\): .*must match"),
        (Averaged(2), "it does not: cover each entry as its coverage states.$"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Corruption) else "",
)
def test_the_checks_name_what_is_wrong(family, claims):
    with pytest.raises(ValueError, match=claims):
        check_corruption(family, (2, 6, 8))


def test_a_custom_family_is_a_small_class():
    @dataclass(frozen=True)
    class Attenuation(Corruption):
        """Scales each channel by a random factor; up to the cutoff it is lost."""

        cutoff: float = 0.25
        basis = Identity()

        def svals(self, n, shape, generator):
            return uniform((n, shape[0], 1, 1), generator, like=torch.zeros((), dtype=torch.float64))

    family = Attenuation()
    check_corruption(family, (3, 4, 4), 10_000)
    coverage = family.coverage((3, 4, 4))  # by Monte Carlo, with its standard error
    assert coverage.standard_error == pytest.approx((0.75 * 0.25 / 10_000) ** 0.5, rel=0.05)
    assert ((coverage.value - 0.75).abs() < 5 * coverage.standard_error).all()
    assert family.apply(torch.ones(64, 3, 4, 4), 0.1, torch.Generator().manual_seed(0)).max_std < 0.1 / 0.25


# ---- against dense matrices


def columns_of(basis: Basis, shape: Sequence[int]) -> Tensor:
    n = torch.Size(shape).numel()
    return basis.to_signal(torch.eye(n, dtype=torch.float64).reshape(n, *shape)).reshape(n, n).mT


def convolution(kernel: Tensor) -> Tensor:
    """H of y_i = Σ_j h_(i-j) x_j on the torus, written out entry by entry."""
    h, w = kernel.shape
    H = torch.zeros(h * w, h * w, dtype=torch.float64)
    for i in range(h * w):
        for j in range(h * w):
            H[i, j] = kernel[(i // w - j // w) % h, (i % w - j % w) % w]
    return H


DENSE = [
    (Patches(p=0.4, size=2), (1, 4, 6)),
    (Pixels(p=0.4), (2, 3, 4)),
    (Noise(), (1, 3, 3)),
    (Lines(R=2), (2, 3, 8)),
    (GaussianLines(R=2), (2, 3, 8)),
    (EquispacedLines(R=2), (2, 3, 7)),
    (PoissonDisc(R=2), (2, 6, 8)),
    (HadamardPatterns(keep=0.5), (1, 4, 8)),
    (Channels(p=0.4), (4, 2, 3)),
]


@pytest.mark.parametrize(("family", "shape"), DENSE, ids=[type(family).__name__ for family, _ in DENSE])
def test_every_sampling_family_agrees_with_its_matrix(family, shape, generator):
    x = torch.randn(5, *shape, generator=generator, dtype=torch.float64)
    measurement = family.apply(x, 0.0, torch.Generator().manual_seed(1))
    svals = family.svals(5, shape, torch.Generator().manual_seed(1)).expand_as(x).flatten(1)
    V = columns_of(family.basis, shape)
    for k in range(5):
        H = svals[k].diag() @ V.mT
        restored = torch.linalg.pinv(H) @ (H @ x[k].flatten())  # from y alone
        torch.testing.assert_close(measurement.ybar[k].flatten(), V.mT @ restored)


@pytest.mark.parametrize("family", [Blur(), Blur("motion", width=(1, 4))], ids=["gaussian", "motion"])
@pytest.mark.parametrize("size", [(5, 6), (7, 4)])
def test_blur_is_a_circular_convolution(family, size, generator):
    x = torch.randn(4, 1, *size, generator=generator, dtype=torch.float64)
    measurement = family.apply(x, 0.3, torch.Generator().manual_seed(1))
    exact = family.apply(x, 0.0, torch.Generator().manual_seed(1))
    kernels = family.kernels(4, (1, *size), torch.Generator().manual_seed(1))
    svals = family.svals(4, (1, *size), torch.Generator().manual_seed(1)).flatten(1)
    V = columns_of(Hartley(), (1, *size))
    assert (svals <= family.cutoff).any()
    for k in range(4):
        H = convolution(kernels[k])
        torch.testing.assert_close(V.mT @ H.mT @ H @ V, (svals[k] ** 2).diag())
        pinv = torch.linalg.pinv(H, atol=family.cutoff, rtol=0.0)
        torch.testing.assert_close(exact.ybar[k].flatten(), V.mT @ pinv @ H @ x[k].flatten())
        # White z turns into noise of covariance diag(std²).
        torch.testing.assert_close(0.3**2 * V.mT @ pinv @ pinv.mT @ V, (measurement.std[k].flatten() ** 2).diag())


# ---- line masks


@pytest.mark.parametrize(("R", "centre", "others"), [(4, 30, 50), (6, 20, 33), (8, 15, 25), (10, 12, 20), (12, 10, 17)])
def test_lines_are_the_papers_at_320(R, centre, others, generator):
    mask = Lines(R=R).svals(200, (2, 320, 320), generator)
    assert mask.shape == (200, 1, 1, 320)
    assert (mask.sum(-1) == centre + others).all()
    always = (mask[:, 0, 0] == 1).all(0)
    start = 160 - centre // 2
    assert always[start : start + centre].all()
    coverage = Lines(R=R).coverage((2, 320, 320)).value.flatten()
    assert (coverage == 1).nonzero().flatten().tolist() == list(range(start, start + centre))
    torch.testing.assert_close(
        coverage[coverage < 1], torch.full((320 - centre,), others / (320 - centre), dtype=torch.float64)
    )


def test_coverage_of_lines_at_r_4_is_one_in_5_8():
    assert 1 / float(Lines(R=4).coverage((2, 320, 320)).value.min()) == pytest.approx(5.8)


@pytest.mark.parametrize("family", [Lines, GaussianLines, EquispacedLines])
@pytest.mark.parametrize("width", [1, 16, 33, 100, 321])
def test_every_line_family_meets_r_within_rounding(family, width, generator):
    for R in (1, 1.1, 2, 3.7):
        if width > 1 or R == 1:
            kept = family(R=R).svals(50, (2, 4, width), generator).sum((1, 2, 3))
            assert (kept == kept[0]).all()
            assert abs(float(kept[0]) - width / R) <= (1 if family is Lines else 0.5)
            assert family(R=R).coverage((2, 4, width)).value.sum() == pytest.approx(float(kept[0]))


@pytest.mark.parametrize("family", [Lines, GaussianLines, EquispacedLines])
def test_lines_include_the_mean(family, generator):
    x = torch.ones(3, 2, 8, 33)
    mask = family(R=4).apply(x, 0.0, generator).mask
    assert mask.shape == (3, 1, 1, 33)  # compact
    assert (mask * Fourier().to_spectral(x)).norm() == pytest.approx(float(x.norm()), rel=1e-5)


def test_gaussian_lines_have_gaussian_coverage_with_a_floor():
    coverage = GaussianLines(R=8).coverage((2, 320, 320)).value.flatten()
    outside = coverage < 1
    assert int((~outside).sum()) == 15
    distance = (torch.arange(320) - 160)[outside]
    slope = (coverage[outside].log() - coverage[outside].log().max()) / (distance**2 - (distance**2).min()).clamp(min=1)
    torch.testing.assert_close(slope[distance.abs() > 20], torch.full_like(slope[distance.abs() > 20], -0.5 / 80**2))
    assert 1 / float(coverage.min()) == pytest.approx(52.1, abs=0.1)


def test_systematic_sampling_in_random_order_leaves_no_pair_out(generator):
    """In the order of the columns, neighbours are never kept together: the negative control."""
    probability = torch.tensor([0.5, 0.5, 0.2, 0.3, 0.25, 0.25], dtype=torch.float64)
    offset = torch.rand(20_000, 1, generator=generator, dtype=torch.float64)
    order = torch.rand(20_000, 6, generator=generator).argsort(1)
    kept = systematic(probability, order, offset)
    assert (kept.sum(1) == 2).all()
    assert z_score(kept - probability).abs().max() < 5
    assert (kept.mT @ kept > 0).all()
    natural = systematic(probability, torch.arange(6).expand(20_000, 6), offset)
    assert z_score(natural - probability).abs().max() < 5
    assert (natural.mT @ natural)[0, 1] == 0


@pytest.mark.parametrize(("R", "gaps"), [(4, {5, 6}), (8, {12, 13}), (2, {2, 3})])
def test_equispaced_lines_are_evenly_spaced_outside_the_centre(R, gaps, generator):
    family = EquispacedLines(R=R)
    mask = family.svals(300, (2, 8, 320), generator)[:, 0, 0]
    outside = mask[:, ~family.centre(320)]  # the spacing continues as if the centre were cut out
    found = {int(gap) for row in outside for gap in row.nonzero().flatten().diff()}
    assert found == gaps
    random = Lines(R=R).svals(300, (2, 8, 320), generator)[:, 0, 0][:, ~family.centre(320)]
    assert {int(gap) for row in random for gap in row.nonzero().flatten().diff()} > gaps


# ---- Poisson discs


@pytest.mark.parametrize("R", [4, 15])
@pytest.mark.parametrize(("size", "n"), [((32, 32), 50), ((64, 64), 20), ((48, 65), 20), ((320, 320), 2)])
def test_poisson_discs_meet_r_in_every_sample(R, size, n, generator):
    mask = PoissonDisc(R=R).svals(n, (2, *size), generator)
    assert mask.shape == (n, 1, *size)
    accelerations = mask[0].numel() / mask.sum((1, 2, 3))
    assert (accelerations / R - 1).abs().max() < 0.02
    assert (mask[:, 0] >= PoissonDisc(R=R).centre((2, *size)).double()).all()
    outside = mask[:, 0][:, ~PoissonDisc(R=R).centre((2, *size))]
    shared = (outside[1:] * outside[:-1]).sum(1) / outside[1:].sum(1)
    assert shared.max() < 0.8  # fresh masks, which overlap only as much as coverage makes them


def closest(mask: Tensor, radius: Tensor) -> Tensor:
    """For each kept entry, the distance on the torus to the next over the smaller of their radii."""
    h, w = mask.shape
    points = mask.nonzero().double()
    apart = (points[:, None] - points).abs()
    size = torch.tensor([h, w], dtype=torch.float64)
    distance = torch.minimum(apart, size - apart).norm(dim=-1).fill_diagonal_(torch.inf)
    r = radius[mask != 0]
    return (distance / torch.minimum(r[:, None], r)).amin(1)


@pytest.mark.parametrize("R", [4, 15])
def test_no_two_poisson_discs_overlap(R, generator):
    shape = (2, 64, 64)
    family = PoissonDisc(R=R)
    centre, radius = family.centre(shape), family.radius(shape)
    order = torch.randperm(64 * 64, generator=generator).tolist()
    mask = torch.zeros(64 * 64)
    mask[throw(order, centre.numpy(), radius.numpy(), 64 * 64)] = 1
    assert (closest(mask.reshape(64, 64), radius) >= 1).all()
    for drawn in family.svals(5, shape, generator)[:, 0]:  # the radius may have been shrunk by 2 % a few times
        assert (closest(drawn * ~centre, radius) >= 0.9).all()
    random = (torch.rand(64, 64, generator=generator) < 1 / R).double() * ~centre
    assert (closest(random, radius) < 0.9).any()


def test_poisson_discs_grow_from_the_centre(generator):
    shape = (2, 96, 96)
    family = PoissonDisc(R=15)
    y, x = torch.meshgrid(torch.arange(96) - 48, torch.arange(96) - 48, indexing="ij")
    d = torch.hypot(y.double(), x.double()) / 48
    assert family.radius(shape)[48, 0] / family.radius(shape)[48, 48] == pytest.approx(3)
    mask = family.svals(40, shape, generator)[:, 0]
    density = [float(mask[:, (d >= low) & (d < low + 0.2)].mean()) for low in (0.2, 0.4, 0.6, 0.8, 1.0, 1.2)]
    assert density == sorted(density, reverse=True)
    # As 1/r²; nearer the centre, where r is a pixel or two, the grid matters.
    assert density[2] / density[4] == pytest.approx((1 + 2 * 1.1) ** 2 / (1 + 2 * 0.7) ** 2, rel=0.1)


def test_every_entry_has_a_chance_and_mirror_images_have_the_same(generator):
    family = PoissonDisc(R=15)
    value = family.coverage((2, 32, 32)).value
    assert value.min() > 0.02
    mean = family.svals(1_500, (2, 32, 32), generator).mean(0)
    mirrored = mean.flip(-1).roll(1, -1)
    pooled = ((mean + mirrored) / 2).clamp(min=1e-3)
    z = (mean - mirrored) / (2 * pooled * (1 - pooled) / 1_500).clamp(min=1e-12).sqrt()
    assert z[:, :, 1:].abs().max() < 5
    # Negative control: without the roll, by which the grid's mean maps to itself, images do not match.
    off = (mean - mean.flip(-1)).abs().max()
    assert off > 0.5


def test_r_of_one_keeps_everything(generator):
    for family in (PoissonDisc(R=1), Lines(R=1), GaussianLines(R=1), EquispacedLines(R=1)):
        assert (family.svals(2, (2, 12, 12), generator) == 1).all()
        assert (family.coverage((2, 12, 12)).value == 1).all()


# ---- blur


@pytest.mark.parametrize("family", [Blur(), Blur("motion", width=(1, 5))], ids=["gaussian", "motion"])
@pytest.mark.parametrize("size", [(16, 16), (9, 12)])
def test_kernels_sum_to_one_and_are_centred_at_the_origin(family, size, generator):
    kernels = family.kernels(100, (1, *size), generator)
    assert kernels.shape == (100, *size)
    assert (kernels >= 0).all()
    torch.testing.assert_close(kernels.sum((1, 2)), torch.ones(100, dtype=torch.float64))
    torch.testing.assert_close(kernels, kernels.flip(1, 2).roll((1, 1), (1, 2)))  # h(-i) = h(i)
    assert len({tuple(kernel.flatten().tolist()) for kernel in kernels}) == 100


def spread(kernels: Tensor) -> Tensor:
    """Covariance matrices of kernels around the origin of the torus."""
    h, w = kernels.shape[1:]
    y, x = h * torch.fft.fftfreq(h, dtype=torch.float64)[:, None], w * torch.fft.fftfreq(w, dtype=torch.float64)
    yy, xx, xy = ((kernels * m).sum((1, 2)) for m in (y**2 + 0 * x, x**2 + 0 * y, x * y))
    return torch.stack([yy, xy, xy, xx], 1).reshape(-1, 2, 2)


def test_kernels_have_the_requested_width(generator):
    widths = spread(Blur(width=(1, 3)).kernels(500, (1, 33, 33), generator)).diagonal(dim1=1, dim2=2).sqrt()
    torch.testing.assert_close(widths[:, 0], widths[:, 1])
    assert widths.min() == pytest.approx(1, abs=0.03)
    assert widths.max() == pytest.approx(3, abs=0.03)
    # A line of length L has variance L²/12 along it and none across; sharing among pixels adds at most 1/4 to each.
    long = torch.linalg.eigvalsh(spread(Blur("motion", width=(12, 12)).kernels(500, (1, 33, 33), generator)))
    assert (long[:, 1] - 12**2 / 12 - 0.25).abs().max() < 0.75
    assert long[:, 0].max() < 0.26


def test_motion_goes_in_every_direction(generator):
    matrix = spread(Blur("motion", width=(8, 8)).kernels(2_000, (1, 17, 17), generator))
    angle = 0.5 * torch.atan2(2 * matrix[:, 0, 1], matrix[:, 1, 1] - matrix[:, 0, 0])
    for harmonic in (2, 4):
        assert z_score(torch.stack([(harmonic * angle).cos(), (harmonic * angle).sin()], 1)).abs().max() < 5


def test_the_cutoff_bounds_the_noise(generator):
    x = torch.zeros(50, 1, 16, 16)
    measurement = Blur().apply(x, 0.02, generator)
    assert measurement.mask.shape == measurement.std.shape == (50, 1, 16, 16)
    assert 0.1 < measurement.max_std < 0.02 / 0.1
    assert (measurement.mask[..., 0, 0] == 1).all()  # the mean is never lost


def test_blur_says_what_its_cutoff_always_loses():
    assert Blur().advice((1, 16, 16)) is None
    assert not Blur().lost((1, 16, 16)).any()
    wide = Blur(width=(1.5, 2))
    lost = wide.lost((1, 16, 16))
    # The narrowest kernel decides: exp(-2π² 1.5² f²) <= 0.1 from f = 0.228 on.
    f = torch.hypot(torch.fft.fftfreq(16)[:, None], torch.fft.fftfreq(16))
    assert lost.equal(f > 0.23)
    message = wide.advice((1, 16, 16))
    assert f"always loses {int(lost.sum())} of 256 frequencies, from 0.25 cycles a pixel on: use narrower" in message
    message = Blur(width=(0.7, 1.0), cutoff=0.1).advice((1, 16, 16))
    cutoff = float(message.split("cutoff below ")[1].split(",")[0])
    assert not Blur(width=(0.7, 1.0), cutoff=0.9 * cutoff).lost((1, 16, 16)).any()


# ---- the others


def test_patches_are_dropped_completely_and_in_all_channels(generator):
    family = Patches(p=0.5, size=4)
    mask = family.apply(torch.zeros(20, 3, 16, 8), 0.1, generator).mask
    assert mask.shape == (20, 1, 16, 8)
    assert family.unit == (4, 4)
    blocks = mask.unfold(2, 4, 4).unfold(3, 4, 4)
    assert (blocks.amin((-1, -2)) == blocks.amax((-1, -2))).all()
    assert 0 < mask.mean() < 1


def test_hadamard_keeps_an_exact_count_and_the_mean(generator):
    mask = HadamardPatterns(keep=0.3).svals(100, (1, 8, 8), generator)
    assert (mask.sum((1, 2, 3)) == 19).all()
    assert (mask[:, 0, 0, 0] == 1).all()
    mean = Hadamard().to_spectral(torch.ones(1, 1, 8, 8))
    assert mean[0, 0, 0, 0] == pytest.approx(8)
    assert HadamardPatterns(keep=0.3).coverage((1, 8, 8)).value[0, 0, 3, 3] == pytest.approx(18 / 63)


def test_masks_stay_compact(generator):
    x = torch.zeros(4, 6, 8, 8)
    shapes = {
        Noise(): (4, 1, 1, 1),
        Channels(p=0.5): (4, 6, 1, 1),
        Lines(R=2): (4, 1, 1, 8),
        Pixels(p=0.5): (4, 1, 8, 8),
    }
    for family, shape in shapes.items():
        measurement = family.apply(x, 0.1, generator)
        assert measurement.mask.shape == measurement.std.shape == shape


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_measurements_have_the_dtype_of_the_signal_and_masks_do_not_depend_on_it(dtype):
    x = torch.zeros(3, 2, 16, 16, dtype=dtype)
    for family in (Patches(p=0.4), Lines(R=2), Blur()):
        measurement = family.apply(x, 0.1, torch.Generator().manual_seed(0))
        assert measurement.ybar.dtype == measurement.mask.dtype == dtype
        double = family.apply(x.double(), 0.1, torch.Generator().manual_seed(0))
        assert measurement.mask.double().equal(double.mask)


@pytest.mark.parametrize("family", [Pixels(p=0.3), Lines(R=3), GaussianLines(R=3), PoissonDisc(R=4), Blur()])
def test_a_sample_depends_on_its_own_generator_alone(family):
    x = torch.randn(5, 2, 16, 16, generator=torch.Generator().manual_seed(0))
    together = family.apply(x, (0.1, 0.5), generators(7, indices=range(5)))
    for k in range(5):
        alone = family.apply(x[k : k + 1], (0.1, 0.5), generators(7, indices=[k]))
        assert alone.mask.equal(together[k].mask)
        torch.testing.assert_close(alone.std, together[k].std)
        torch.testing.assert_close(alone.ybar, together[k].ybar)


def test_sigma_0_may_be_drawn_for_each_sample(generator):
    n = 20_000
    measurement = Noise().apply(torch.ones(n, 1, 2, 2, dtype=torch.float64), (0.1, 0.4), generator)
    std = measurement.std.flatten()
    assert measurement.std.shape == (n, 1, 1, 1)
    assert 0.1 <= std.min() < 0.101
    assert 0.399 < std.max() <= 0.4
    assert abs(z_score(std - 0.25)) < 5
    standardised = (measurement.ybar - 1) / measurement.std
    assert z_score(standardised**2 - 1).abs().max() < 5
    assert z_score(((measurement.ybar - 1) / 0.25) ** 2 - 1).abs().min() > 5  # one std for all would be wrong
    assert Noise().apply(torch.ones(2, 3), (0.1, 0.1), generator).max_std == pytest.approx(0.1)


def test_sigma_0_may_be_drawn_beforehand():
    x = torch.ones(4, 1, 8, 8)
    once, twice = generators(0, indices=range(4)), generators(0, indices=range(4))
    together = Pixels(p=0.4).apply(x, (0.1, 0.4), once)
    sigma = Pixels(p=0.4).draw_sigma(4, (0.1, 0.4), twice)
    apart = Pixels(p=0.4).apply(x, sigma, twice)
    assert apart.ybar.equal(together.ybar)
    assert apart.std.amax((1, 2, 3)).equal(sigma.float())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Patches(p=1.0, size=4), r"p, the probability .* must lie in \[0, 1\), but is 1\.0"),
        (lambda: Pixels(p=-0.1), "p, the probability"),
        (lambda: Channels(p=float("nan")), "p, the probability"),
        (lambda: Patches(p=0.5, size=0), "size, the side of a patch .* but is 0"),
        (lambda: Patches(p=0.5, size=4).check_shape((1, 16, 18)), "4x4 do not tile images of 16x18: choose a size"),
        (lambda: Pixels(p=0.5).check_shape((16, 16)), r"\(channels, height, width\), but was given \(16, 16\)"),
        (lambda: Noise().check_shape((3, 0)), "at least one entry"),
        (lambda: Lines(R=0.5), "R, the acceleration, must be a finite number of at least 1, but is 0.5"),
        (lambda: PoissonDisc(R=float("inf")), "R, the acceleration"),
        (lambda: Lines(R=4).check_shape((1, 8, 32)), r"Lines\(R=4\) acts on \(real, imaginary\) .* 1 channels"),
        (lambda: PoissonDisc(R=4).coverage((3, 32, 32)), "3 channels"),
        (lambda: Lines(R=60).coverage((2, 8, 32)), "keeps 0 central and 0 other columns of 32"),
        (lambda: GaussianLines(R=40).apply(torch.zeros(1, 2, 8, 16), 0.1, torch.Generator()), "smaller R or wider"),
        (lambda: PoissonDisc(R=15).check_shape((2, 8, 8)), "R = 15 cannot be met within 2 % by 4 of 8x8 entries"),
        (lambda: Blur("box"), "kind must be gaussian or motion, but is 'box'"),
        (lambda: Blur(width=(2, 1)), r"0 < low <= high, in pixels, but is \(2, 1\)"),
        (lambda: Blur(cutoff=0.0), r"cutoff must lie in \(0, 1\), but is 0.0"),
        (lambda: Blur(width=(1, 9)).check_shape((1, 8, 16)), "up to 9 pixels wide do not fit images of 8x16"),
        (lambda: HadamardPatterns(keep=0.0), r"in \(0, 1\], but is 0.0"),
        (lambda: HadamardPatterns(keep=0.5).check_shape((1, 8, 12)), "powers of two, but the images are 8x12"),
        (
            lambda: HadamardPatterns(keep=0.02).check_shape((1, 8, 8)),
            "at most the mean, and never the other 63 patterns",
        ),
        (lambda: Noise().apply(torch.zeros(1, 4), -0.1, torch.Generator()), "sigma_0 must be .* but is -0.1"),
        (lambda: Noise().apply(torch.zeros(1, 4), (0.2, 0.1), torch.Generator()), r"but is \(0.2, 0.1\)"),
        (lambda: Noise().apply(torch.zeros(2, 4), 0.1, [torch.Generator()]), "1 generators were given for 2 samples"),
        (
            lambda: Noise().apply(torch.full((1, 4), torch.nan), 0.1, torch.Generator()),
            "ybar has 4 values that are NaN",
        ),
        (lambda: check_corruption(Lines(R=2), (3, 8, 8)), "3 channels"),
    ],
)
def test_impossible_corruptions_are_refused_in_a_sentence(make, message, outside):
    with pytest.raises(ValueError, match=message):
        make()
