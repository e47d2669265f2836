"""Gaussian priors, against distributions that are known and against each other."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import gsure
from gsure import Fourier, Hartley, Identity, Measurement
from gsure.gaussian import About, fit_gaussian, load_gaussian, save_gaussian
from gsure.gaussian import fit as fitting
from gsure.gaussian.blocks import BlockGaussian, Blocks
from gsure.gaussian.coordinates import Entries, Rows, Vectors, as_complex, as_pairs, pack_hermitian, unpack_hermitian
from gsure.gaussian.fit import Fitted
from gsure.gaussian.moments import Moments
from gsure.gaussian.phase import Reference, ReferencedGaussian
from gsure.gaussian.stationary import StationaryGaussian, fit_stationary, hartley
from gsure.random import generators

N, STD, KEEP = 20_000, 0.5, 0.5


def covariance_of(n: int, pairs: bool, blocks: int = 1, seed: int = 1) -> Tensor:
    """Covariances of n entries, complex if they are pairs, with correlations that matter."""
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(blocks, n, n, generator=generator, dtype=torch.complex64 if pairs else torch.float32)
    return root @ root.mH / n + 0.2 * torch.eye(n)


def entries_gaussian(n: int, pairs: bool) -> BlockGaussian:
    shape = (2 if pairs else 1, 1, n)
    covariance = covariance_of(n, pairs)
    basis = Identity()
    return BlockGaussian(Entries(basis, shape, pairs), Blocks(torch.ones(1, n, dtype=covariance.dtype), covariance))


def prior_draws(gaussian, n: int, generator) -> Tensor:
    """x̄ of the prior: draws for measurements of nothing."""
    shape = gaussian.coordinates.shape
    nothing = Measurement._trusted(torch.zeros(n, *shape), torch.zeros(n, 1, 1, shape[-1]), torch.zeros(1, 1, 1, 1))
    return gaussian.draw(nothing, generator)


def measure(x: Tensor, generator: torch.Generator, std: float = STD, keep: float = KEEP) -> Measurement:
    mask = (torch.rand(len(x), 1, 1, x.shape[-1], generator=generator) < keep).float()
    return Measurement(mask * (x + std * torch.randn(x.shape, generator=generator)), mask, std)


# Moments


@pytest.mark.parametrize("pairs", [False, True])
def test_half_of_the_entries_under_noise_show_mean_and_covariance(pairs, generator):
    truth = entries_gaussian(5, pairs)
    measurement = measure(prior_draws(truth, N, generator), generator)
    moments = Moments(truth.coordinates, 5)
    for part in (measurement[:7000], measurement[7000:]):
        moments.add(truth.coordinates.vectors(part))
    fitted = moments.blocks(floor=0.0)
    covariance = truth.blocks.covariance
    power = float(covariance.abs().max()) + 1 + (2 if pairs else 1) * STD**2
    se = 2**0.5 * power / (N * KEEP**2) ** 0.5  # at most, of a product of two entries that are measured together
    assert float((fitted.covariance - covariance).abs().max()) < 5 * se
    assert float((fitted.mean - 1).abs().max()) < 5 * se
    silent = Moments(truth.coordinates, 5)
    silent.add(truth.coordinates.vectors(Measurement(measurement.ybar, measurement.mask, 0.0)))
    apart = float((silent.blocks(floor=0.0).covariance - covariance).abs().max())
    assert apart > 5 * se, "control: noise that is not known of is taken for signal"


def test_entries_never_measured_together_are_counted(generator):
    coordinates = Entries(Identity(), (1, 1, 2))
    x = torch.randn(500, 1, 1, 1, generator=generator).expand(500, 1, 1, 2)
    mask = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(250, 1)[:, None, None]
    moments = Moments(coordinates, 2)
    moments.add(coordinates.vectors(Measurement(mask * x, mask, 0.0)))
    assert moments.unseen == 1
    assert not moments.is_determined
    assert float(moments.blocks().covariance[0, 0, 1]) == pytest.approx(0, abs=1e-6)


def test_noise_that_is_stated_larger_than_what_was_measured_is_refused(generator):
    coordinates = Entries(Identity(), (1, 1, 3))
    moments = Moments(coordinates, 3)
    moments.add(coordinates.vectors(Measurement(0.05 * torch.randn(200, 1, 1, 3, generator=generator), 1.0, 0.06)))
    with pytest.raises(ValueError, match="is as large as all that was measured"):
        moments.blocks()


def test_the_spectrum_of_a_real_signal_packs_into_real_numbers(generator):
    for n in (7, 8):
        x = torch.randn(3, 2, n, generator=generator, dtype=torch.float64)
        spectrum = torch.fft.fftshift(torch.fft.fft(x, norm="ortho"), -1)
        coordinates = Rows((2, 2, n), real_images=True)
        vectors = Vectors(spectrum, torch.ones(3, n), torch.full((3, n), 0.5))
        packed = pack_hermitian(vectors, coordinates.mirror)
        torch.testing.assert_close(unpack_hermitian(packed.values, coordinates.mirror), spectrum)
        torch.testing.assert_close(packed.values.norm(), x.norm())
        assert packed.mask.eq(1).all()
        half = pack_hermitian(
            Vectors(
                spectrum * (torch.arange(n) >= n // 2),
                (torch.arange(n) >= n // 2).float().expand(3, n),
                packed.variance,
            ),
            coordinates.mirror,
        )
        kept = half.mask == 1
        torch.testing.assert_close((half.values * half.mask[:, None]), packed.values * half.mask[:, None])
        assert float(kept.float().mean()) > 0.8, "one of k and -k tells both"


def test_noise_of_packed_entries_is_that_of_their_mean(generator):
    n, coordinates = 8, Rows((2, 1, 8), real_images=True)
    mask = torch.tensor([1.0, 1, 1, 1, 1, 0, 1, 1]).expand(N, n)
    noise = torch.complex(*torch.randn(2, N, 1, n, generator=generator)) * mask[:, None] * 0.3
    packed = pack_hermitian(Vectors(noise, mask, torch.full((N, n), 0.09)), coordinates.mirror)
    found, claimed = packed.values[:, 0].square().mean(0), packed.variance[0] * packed.mask[0]
    torch.testing.assert_close(found, claimed, rtol=5 * (2 / N) ** 0.5, atol=1e-6)


# Posterior


@pytest.mark.parametrize("pairs", [False, True])
def test_the_mean_is_the_linear_estimate_that_no_other_beats(pairs, generator):
    gaussian = entries_gaussian(5, pairs)
    x = prior_draws(gaussian, 4000, generator)
    measurement = measure(x, generator)
    means = gaussian.mean(measurement)
    errors = (means - x).square().flatten(1).sum(1)
    own = gaussian.blocks.own
    unrelated = replace(
        gaussian, blocks=replace(gaussian.blocks, covariance=torch.diag_embed(own.diagonal(dim1=1, dim2=2)))
    )
    others = {
        "larger": 1.2 * means,
        "smaller": 0.8 * means,
        "as measured": measurement.ybar,
        "without correlations": unrelated.mean(measurement),
    }
    for name, other in others.items():
        worse = (other - x).square().flatten(1).sum(1) - errors
        assert float(worse.mean()) > 3 * float(worse.std() / len(x) ** 0.5), name


def _products(a: Tensor, b: Tensor) -> Tensor:
    return (a.flatten(1)[:, :, None] * b.flatten(1)[:, None, :]).flatten(1)


@pytest.mark.parametrize("pairs", [False, True])
def test_draws_for_measurements_have_the_distribution_of_signals(pairs, generator):
    """x ~ p(x), y ~ p(y | x), draw ~ p(x | y): the draw and x have the same distribution, also jointly with y."""
    gaussian = entries_gaussian(4, pairs)
    x = prior_draws(gaussian, 8000, generator)
    measurement = measure(x, generator)
    drawn, means = gaussian.draw(measurement, generator), gaussian.mean(measurement)
    for name, estimate, same in (("draws", drawn, True), ("means", means, False)):
        difference = _products(estimate, estimate) - _products(x, x)
        z = (difference.mean(0) / (difference.std(0) / len(x) ** 0.5)).abs().max()
        assert (float(z) < 4.5) == same, name
        joint = _products(estimate, measurement.ybar) - _products(x, measurement.ybar)
        assert float((joint.mean(0) / (joint.std(0) / len(x) ** 0.5)).abs().max()) < 4.5, name


def rows_gaussian(real: bool, window: int = 1, height: int = 4, width: int = 6) -> BlockGaussian:
    coordinates = Rows((2, height, width), real_images=real)
    covariance = covariance_of(window * width, not real, height)
    mean = 0.3 * torch.ones(height, width, dtype=covariance.dtype)
    return BlockGaussian(coordinates, Blocks(mean, covariance, window, height))


def as_entries(gaussian: BlockGaussian) -> BlockGaussian:
    """The same distribution as one covariance of all entries, from a basis of the vectors of rows."""
    rows, blocks = gaussian.coordinates, gaussian.blocks
    r, w = blocks.mean.shape
    kind = torch.complex64 if rows.is_complex else torch.float32
    unit = torch.eye(r * w, dtype=kind).reshape(r * w, r, w)
    spectral = rows.spectral(unit)
    columns = as_complex(spectral).flatten(1).T  # entries, vectors
    joint = torch.block_diag(*blocks.own)
    mean = as_complex(rows.spectral(blocks.mean[None])).flatten(1)
    if rows.is_complex:
        covariance = columns @ joint @ columns.mH
        return BlockGaussian(Entries(Fourier(), rows.shape, True), Blocks(mean, covariance[None]))
    packed = Entries(Fourier(), rows.shape, True, real_images=True)
    ones = torch.ones(len(columns.T), columns.shape[0])
    turn = pack_hermitian(Vectors(columns.T[:, None], ones, ones), packed.mirror).values[:, 0].T
    flat = pack_hermitian(Vectors(mean[:, None], ones[:1], ones[:1]), packed.mirror).values[:, 0]
    return BlockGaussian(packed, Blocks(flat, (turn @ joint @ turn.mT)[None]))


@pytest.mark.parametrize("real", [False, True])
def test_rows_and_all_entries_are_the_same_gaussian(real, generator):
    rows = rows_gaussian(real)
    full = as_entries(rows)
    measurement = measure(prior_draws(rows, 20, generator), generator, std=0.2)
    torch.testing.assert_close(rows.mean(measurement), full.mean(measurement), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(rows.std(measurement), full.std(measurement), rtol=1e-3, atol=1e-3)


def test_a_window_of_all_rows_is_the_covariance_of_all_entries(generator):
    """Three rows with a window of three: the middle one is given everything."""
    height, width = 3, 5
    joint = covariance_of(height * width, True, 1)
    shifted = torch.zeros(height, height * width, height * width, dtype=joint.dtype)
    for r in range(height):  # the window of row r holds rows r-1, r, r+1
        for a in range(height):
            for b in range(height):
                i, j = r - 1 + a, r - 1 + b
                if 0 <= i < height and 0 <= j < height:
                    block = joint[0, i * width : (i + 1) * width, j * width : (j + 1) * width]
                    shifted[r, a * width : (a + 1) * width, b * width : (b + 1) * width] = block
    mean = torch.zeros(height, width, dtype=joint.dtype)
    rows = Blocks(mean, shifted, window=3, neighbours=height)
    vectors = torch.complex(*torch.randn(2, 8, height, width, generator=generator))
    mask = (torch.rand(8, width, generator=generator) < 0.6).float()
    given = Vectors(vectors * mask[:, None], mask, torch.full((8, width), 0.1))
    whole = Vectors(given.values.flatten(1)[:, None], mask.repeat(1, height), torch.full((8, height * width), 0.1))
    expected = Blocks(mean.reshape(1, -1), joint).posterior_mean(whole).reshape(8, height, width)
    torch.testing.assert_close(rows.posterior_mean(given)[:, 1], expected[:, 1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("real", [False, True])
def test_error_bars_of_rows_are_those_of_draws(real, generator):
    rows = rows_gaussian(real)
    measurement = measure(prior_draws(rows, 1, generator), generator, std=0.2)
    many = Measurement.cat([measurement] * 4000)
    drawn = Fourier().to_signal(rows.draw(many, generator))
    torch.testing.assert_close(drawn.mean(0), Fourier().to_signal(rows.mean(measurement))[0], atol=0.1, rtol=0.0)
    torch.testing.assert_close(drawn.std(0), rows.std(measurement)[0], rtol=5 / (2 * 4000) ** 0.5, atol=1e-3)
    if real:
        assert float(drawn[:, 1].abs().max()) < 1e-5, "real images have no imaginary part"


def test_draws_of_windows_are_correlated_from_row_to_row(generator):
    """Rows that are a Markov chain: C between rows r and s is 0.8^|r-s| C."""
    height, width, window = 5, 4, 3
    one = covariance_of(width, True)[0]
    lags = 0.8 ** (torch.arange(window)[:, None] - torch.arange(window)).abs()
    blocks = Blocks(
        torch.zeros(height, width, dtype=one.dtype), torch.kron(lags, one).expand(height, -1, -1), 3, height
    )
    gaussian = BlockGaussian(Rows((2, height, width)), blocks)
    drawn = Measurement._trusted(
        prior_draws(gaussian, N, generator), torch.ones(1, 1, 1, width), torch.zeros(1, 1, 1, 1)
    )
    v = gaussian.coordinates.vectors(drawn).values
    for r, lag in ((0, 0), (3, 0), (1, 1), (4, 1), (4, 3)):
        found = v[:, r].mT @ v[:, r - lag].conj() / N
        torch.testing.assert_close(found, 0.8**lag * one, atol=5 * float(one.abs().max()) / N**0.5, rtol=0.0)


def test_a_draw_agrees_with_a_measurement_without_noise_and_depends_on_its_own_generator(generator):
    gaussian = rows_gaussian(False)
    measurement = measure(prior_draws(gaussian, 9, generator), generator, std=0.0)
    drawn = gaussian.draw(measurement, generators(0, indices=range(9)))
    assert float((measurement.mask * (drawn - measurement.ybar)).abs().max()) < 1e-3
    alone = gaussian.draw(measurement[4:5], generators(0, indices=[4]))
    torch.testing.assert_close(alone[0], drawn[4], atol=1e-4, rtol=1e-4)


# Stationary


def spectrum_of(height: int, width: int) -> Tensor:
    """A smooth power spectrum of real images, the same at k and -k."""
    rows, columns = (torch.fft.fftfreq(size).abs() for size in (height, width))
    return (1 / (0.05 + rows[:, None] ** 2 + columns**2))[None, None] / 20


def test_the_stationary_gaussian_is_exact_for_stationary_images(generator):
    power, n = spectrum_of(6, 8), 4000
    x = hartley(power.sqrt() * torch.randn(n, 1, 6, 8, generator=generator)) + 0.5
    mask = (torch.rand(n, 1, 6, 8, generator=generator) < 0.5).float()
    measurement = Measurement(mask * (x + 0.2 * torch.randn(x.shape, generator=generator)), mask, 0.2)
    fitted = fit_stationary(lambda: [measurement[:3000], measurement[3000:]], Identity())
    torch.testing.assert_close(fitted.power, power.expand_as(fitted.power), rtol=0.2, atol=0.05)
    torch.testing.assert_close(fitted.mu, torch.full_like(fitted.mu, 0.5), atol=0.12, rtol=0.0)
    # against the covariance matrix of all pixels, in closed form
    exact = StationaryGaussian(Identity(), torch.full((1, 1, 6, 8), 0.5), power)
    unit = torch.eye(48).reshape(48, 1, 6, 8)
    matrix = exact._covariance(unit).reshape(48, 48)
    dense = BlockGaussian(Entries(Identity(), (1, 6, 8)), Blocks(torch.full((1, 48), 0.5), matrix[None]))
    torch.testing.assert_close(exact.mean(measurement[:16]), dense.mean(measurement[:16]), atol=1e-3, rtol=1e-3)
    truth, spread = dense.std(measurement[:4]), exact.std(measurement[:4])
    assert float((spread / truth).log().abs().mean()) < 0.2
    better = (dense.mean(measurement[:500]) - x[:500]).square().mean()
    assert float((fitted.mean(measurement[:500]) - x[:500]).square().mean()) < 1.05 * float(better)


def test_in_a_spectral_basis_the_stationary_gaussian_is_known_entry_by_entry(generator):
    power = torch.rand(1, 1, 4, 4, generator=generator) + 0.1
    gaussian = StationaryGaussian(Hartley(), torch.zeros(1, 1, 4, 4), power)
    x = power.sqrt() * torch.randn(5, 1, 4, 4, generator=generator)
    mask = (torch.rand(5, 1, 4, 4, generator=generator) < 0.5).float()
    measurement = Measurement(mask * x, mask, 0.3)
    torch.testing.assert_close(gaussian.mean(measurement), mask * x * power / (power + 0.09))


# Relative to a phase reference


def smooth_phase(n: int, size: int, generator) -> Tensor:
    grid = torch.randn(n, 1, 3, 3, generator=generator)
    phase = torch.nn.functional.interpolate(grid, size=(size, size), mode="bicubic", align_corners=True)[:, 0]
    return phase + 2 * math.pi * torch.rand(n, 1, 1, generator=generator)


def scans(n: int, generator, phase: str = "smooth", size: int = 16) -> tuple[Tensor, Measurement, Tensor]:
    """Complex images of boxes, line measurements of them with a centre that is always there, and that centre."""
    y, x = torch.meshgrid(*[torch.linspace(-1, 1, size)] * 2, indexing="ij")
    cy, cx, a, b = (torch.rand(4, n, 1, 1, generator=generator) - 0.5) * 0.6
    images = torch.sigmoid(12 * (0.6 + a - (y - cy).abs())) * torch.sigmoid(12 * (0.6 + b - (x - cx).abs())) * 2
    match phase:
        case "smooth":
            images = torch.polar(images, smooth_phase(n, size, generator))
        case "random":
            images = torch.polar(images, 2 * math.pi * torch.rand(n, size, size, generator=generator))
        case "zero":
            images = images + 0j
    kspace = Fourier().to_spectral(as_pairs(images[:, None]))
    mask = (torch.rand(n, 1, 1, size, generator=generator) < 0.35).float()
    always = torch.zeros(1, 1, 1, size)
    always[..., size // 2 - 2 : size // 2 + 2] = 1
    mask = torch.maximum(mask, always)
    ybar = mask * (kspace + 0.02 * torch.randn(kspace.shape, generator=generator))
    return images, Measurement(ybar, mask, 0.02), always


def fitted_to(measurement: Measurement, always: Tensor, held_out: int = 48):
    about = About(Fourier(), tuple(measurement.shape[1:]), True, always)
    rest = measurement[held_out:]
    batches = [rest[k : k + 500] for k in range(0, len(rest), 500)]
    return fit_gaussian(lambda: batches, measurement[:held_out], about)


@pytest.mark.parametrize(("phase", "real"), [("zero", True), ("random", False), ("smooth", False)])
def test_images_are_found_to_be_real_if_they_are(phase, real, generator, monkeypatch):
    monkeypatch.setattr(fitting, "MAX_REFERENCED", 0)
    _, measurement, always = scans(1500, generator, phase)
    fitted = fitted_to(measurement, always)
    assert fitted.gaussian.coordinates.real_images == real
    assert any("real images" in note for note in fitted.notes) == real


def test_smooth_phase_is_found_and_pays(generator):
    images, measurement, always = scans(2500, generator)
    fitted = fitted_to(measurement, always)
    assert isinstance(fitted.gaussian, ReferencedGaussian)
    assert any("relative to a phase reference" in note for note in fitted.notes)
    test = measurement[:48]
    plain = next(note for note in fitted.notes if note.startswith("Gaussian of rows,"))
    assert fitted.error < 0.9 * float(plain.split(" is ")[1].split(" of ")[0])
    x = Fourier().to_signal(fitted.gaussian.mean(test))
    truth = as_pairs(images[:48, None])
    error = (x - truth).square().mean()
    assert float(error) < 0.5 * float((Fourier().to_signal(test.ybar) - truth).square().mean())
    spread = fitted.gaussian.std(test)
    assert 0.7 < float((spread.square().mean() / error).sqrt()) < 1.4


def test_clean_images_with_an_empty_background_have_a_reference_too(generator):
    """Without noise and without signal, a system of equations is singular."""
    images, measurement, always = scans(600, generator, size=32)
    images = images * (torch.linspace(-1, 1, 32).abs() < 0.7)
    images = images * (torch.linspace(-1, 1, 32).abs() < 0.7)[:, None]
    kspace = Fourier().to_spectral(as_pairs(images[:, None]))
    zero = torch.zeros_like(measurement.std)
    clean = Measurement._trusted(kspace[48:], torch.ones_like(measurement.mask[48:]), zero)
    test = Measurement._trusted(measurement.mask[:48] * kspace[:48], measurement.mask[:48], zero)
    about = About(Fourier(), (2, 32, 32), True, always)
    fitted = fit_gaussian(lambda: [clean[k : k + 200] for k in range(0, len(clean), 200)], test, about)
    assert any("relative to a phase reference" in note for note in fitted.notes)
    errors = [(ybar - kspace[:48]).square().mean() for ybar in (fitted.gaussian.mean(test), test.ybar)]
    assert float(errors[0]) < 0.5 * float(errors[1])


def test_the_reference_does_not_see_lines_that_are_not_always_measured(generator):
    _, measurement, always = scans(4, generator)
    reference = Reference.of_lines(Rows((2, 16, 16)), always.flatten())
    assert reference is not None
    u = reference(measurement)
    torch.testing.assert_close(u.abs(), torch.ones_like(u.abs()))
    outer = (1 - always) * torch.randn(measurement.shape, generator=generator)
    changed = Measurement._trusted(measurement.ybar + outer, torch.ones_like(measurement.mask), measurement.std)
    torch.testing.assert_close(reference(changed), u)
    assert Reference.of_lines(Rows((2, 16, 16)), torch.zeros(16)) is None
    two = torch.zeros(16)
    two[7:9] = 1
    assert Reference.of_lines(Rows((2, 16, 16)), two) is None


def test_the_referenced_gaussian_is_that_of_its_covariance(generator):
    """Relative to a known reference, against the covariance of all real and imaginary parts of a row in image space."""
    height, width = 2, 6
    rows = Rows((2, height, width))
    covariance = covariance_of(2 * width, False, height)
    mean = 0.5 * torch.randn(height, 2 * width, generator=generator)
    _, measurement, _ = scans(3, generator, size=16)
    ybar = measurement.ybar[:, :, :height, :width] * measurement.mask[..., :width]
    measurement = Measurement._trusted(ybar, measurement.mask[..., :width], measurement.std)
    u = torch.polar(torch.ones(3, height, width), 6.28 * torch.rand(3, height, width, generator=generator))
    gaussian = ReferencedGaussian(rows, mean, covariance, Reference(rows, torch.zeros(width)))
    found = gaussian.posterior_rows(measurement, u)
    vectors = rows.vectors(measurement)
    transform = torch.fft.fftshift(torch.fft.fft(torch.fft.ifftshift(torch.eye(width), 0), dim=0, norm="ortho"), 0)
    for k in range(3):
        kept = vectors.mask[k] == 1
        for r in range(height):
            A = (transform @ torch.diag(u[k, r]))[kept]
            matrix = torch.cat([torch.cat([A.real, -A.imag], 1), torch.cat([A.imag, A.real], 1)])
            y = vectors.values[k, r, kept]
            residual = torch.cat([y.real, y.imag]) - matrix @ mean[r]
            inner = matrix @ covariance[r] @ matrix.T + 0.02**2 * torch.eye(len(residual))
            v = mean[r] + covariance[r] @ matrix.T @ torch.linalg.solve(inner, residual)
            expected = u[k, r] * torch.complex(v[:width], v[width:])
            torch.testing.assert_close(found[k, r], expected, rtol=1e-3, atol=1e-3)


# Choosing


def test_too_few_measurements_fall_back_to_a_simpler_structure_and_say_so(generator):
    _, measurement, always = scans(70, generator, "random")
    fitted = fitted_to(measurement, always, held_out=48)
    assert isinstance(fitted.gaussian, StationaryGaussian)
    assert any("pairs of entries were never measured together" in note for note in fitted.notes)


def test_vectors_and_pixels_get_a_covariance_of_all_entries(generator):
    truth = entries_gaussian(12, False)
    measurement = measure(prior_draws(truth, 1500, generator), generator, std=0.1, keep=0.6)
    about = About(Identity(), (1, 1, 12), False, torch.zeros(1, 1, 1, 12))
    fitted = fit_gaussian(lambda: [measurement[48:]], measurement[:48], about)
    assert isinstance(fitted.gaussian, BlockGaussian)
    x = prior_draws(truth, 400, generator)
    test = measure(x, generator, std=0.1, keep=0.6)
    errors = [(g.mean(test) - x).square().mean() for g in (fitted.gaussian, truth)]
    assert float(errors[0]) < 1.1 * float(errors[1])


def test_without_anything_to_hide_it_is_fitted_all_the_same(generator):
    x = torch.randn(300, 1, 4, 4, generator=generator)
    noisy = Measurement(x + 0.5 * torch.randn(x.shape, generator=generator), 1.0, 0.5)
    about = About(Identity(), (1, 4, 4), False, torch.ones(1, 1, 1, 1))
    fitted = fit_gaussian(lambda: [noisy], noisy[:32], about)
    error = (fitted.gaussian.mean(noisy) - x).square().mean()
    assert float(error) < 0.9 * float((noisy.ybar - x).square().mean())


# The file


def knowing(gaussian: BlockGaussian, always: Tensor) -> BlockGaussian:
    """The same, told which entries every measurement has."""
    entries = gaussian.coordinates.entries_of(always)
    return replace(gaussian, blocks=replace(gaussian.blocks, always=entries))


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("noise", ["equal", "unequal"])
def test_entries_that_are_always_measured_are_eliminated_exactly(real, noise, generator):
    _, measurement, always = scans(6, generator)
    if noise == "unequal":
        std = 0.1 + torch.rand(6, 1, 1, 1, generator=generator)
        measurement = Measurement._trusted(measurement.ybar, measurement.mask, std)
    gaussian = rows_gaussian(real, 3, 16, 16)
    quick = knowing(gaussian, always)
    torch.testing.assert_close(quick.mean(measurement), gaussian.mean(measurement), rtol=1e-3, atol=1e-4)
    hidden = measurement.hide(always * (torch.arange(16) < 8))  # a measurement without some of these entries
    torch.testing.assert_close(quick.mean(hidden), gaussian.mean(hidden), rtol=1e-3, atol=1e-4)
    assert len(quick.blocks._answers) == 1
    wrong = knowing(gaussian, torch.ones_like(always))  # entries that some measurements lack are not counted as known
    torch.testing.assert_close(wrong.mean(measurement), gaussian.mean(measurement), rtol=1e-3, atol=1e-4)


def test_phase_references_are_kept_and_do_not_depend_on_the_batch(generator, monkeypatch):
    _, measurement, always = scans(6, generator)
    rows = Rows((2, 16, 16))
    reference = Reference.of_lines(rows, always.flatten())
    inner = ReferencedGaussian(rows, torch.zeros(16, 32), covariance_of(32, False, 16), reference)
    reference = replace(reference, refiner=inner)
    u = reference(measurement)
    hidden = measurement.hide(measurement.mask * (1 - always))
    assert reference(hidden).equal(u), "they come from entries that every measurement has"
    assert len(reference._kept) == 6
    monkeypatch.setattr("gsure.gaussian.phase.KEPT", 2 * u[0].numel() * u.element_size())
    few = replace(reference)
    assert few(measurement[3:]).equal(u[3:])
    assert len(few._kept) == 2
    other = Measurement._trusted(measurement.ybar, measurement.mask, 2 * measurement.std)
    assert not few(other).equal(u), "another noise level gives another reference"


@pytest.mark.parametrize("kind", ["rows", "real rows", "entries", "stationary", "referenced"])
def test_a_gaussian_can_be_stored(kind, tmp_path, generator):
    _, measurement, always = scans(6, generator)
    basis = Fourier()
    covariance = covariance_of(32, False, 16)
    match kind:
        case "rows":
            gaussian = knowing(rows_gaussian(False, 3, 16, 16), always)
        case "real rows":
            gaussian = knowing(rows_gaussian(True, 1, 16, 16), always)
        case "entries":
            basis, gaussian = Identity(), entries_gaussian(16, True)
            measurement = measure(prior_draws(gaussian, 6, generator), generator)
        case "stationary":
            gaussian = StationaryGaussian(basis, torch.zeros(1, 2, 16, 16), torch.ones(1, 2, 16, 16))
        case "referenced":
            rows = Rows((2, 16, 16))
            reference = Reference.of_lines(rows, always.flatten())
            inner = ReferencedGaussian(rows, torch.zeros(16, 32), covariance, reference)
            gaussian = ReferencedGaussian(rows, torch.ones(16, 32), covariance, replace(reference, refiner=inner))
    save_gaussian(tmp_path / "g.safetensors", Fitted(gaussian, 0.5, ["a note"], always), {"measurements": "abc"})
    (found, error, notes, kept), made_of = load_gaussian(tmp_path / "g.safetensors", basis)
    assert (error, notes, made_of) == (0.5, ["a note"], {"measurements": "abc"})
    assert kept.equal(always)
    assert found.mean(measurement).equal(gaussian.mean(measurement))
    assert found.std(measurement).equal(gaussian.std(measurement))
    assert found.draw(measurement, 3).equal(gaussian.draw(measurement, 3))
    (tmp_path / "torn").write_bytes((tmp_path / "g.safetensors").read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"is damaged.*Delete it, and it is fitted again"):
        load_gaussian(tmp_path / "torn", basis)


def test_rows_run_along_the_axis_of_the_masks(generator):
    """Masks of rows instead of columns: the same image, transposed."""
    gaussian = rows_gaussian(False, 1, 4, 6)
    measurement = measure(prior_draws(gaussian, 3, generator), generator, std=0.2)
    turned = replace(gaussian, coordinates=Rows((2, 6, 4), axis=-1))
    parts = (measurement.ybar.mT, measurement.mask.mT, measurement.std.mT)
    other = Measurement._trusted(*(part.contiguous() for part in parts))
    torch.testing.assert_close(turned.mean(other).mT, gaussian.mean(measurement), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(turned.std(other).mT, gaussian.std(measurement), rtol=1e-4, atol=1e-5)


def test_hiding_keeps_the_centre_pairs_and_units_together(generator):
    mask = (torch.rand(2000, 1, 1, 16, generator=generator) < 0.5).float()
    always = torch.zeros(1, 1, 1, 16)
    always[..., 7:10] = 1
    mask = torch.maximum(mask, always)
    measurement = Measurement._trusted(mask.expand(-1, 2, 4, -1).clone(), mask, torch.zeros(1, 1, 1, 1))
    hidden = gsure.measurement.draw_hidden(measurement, 0.3, 7, always=always, partner=Fourier().conjugates)
    assert not (hidden * (1 - mask)).any()
    assert not (hidden * always).any()
    other = Fourier().conjugates(hidden)
    both = mask * Fourier().conjugates(mask) * (1 - always) * (1 - Fourier().conjugates(always))
    assert (both * hidden).equal(both * other), "k and -k are hidden together"
    share = float(hidden.sum() / (mask * (1 - always)).sum())
    assert share == pytest.approx(0.3, abs=5 * 0.5 / 2000**0.5)
    patches = (torch.rand(500, 1, 2, 2, generator=generator) < 0.6).float()
    patches = patches.repeat_interleave(2, 2).repeat_interleave(2, 3)
    pixels = Measurement._trusted(patches.clone(), patches, torch.zeros(1, 1, 1, 1))
    hidden = gsure.measurement.draw_hidden(pixels, (0.3, 1.0), 7, unit=(2, 2))
    blocks = hidden.unfold(2, 2, 2).unfold(3, 2, 2)
    assert (blocks == blocks[..., :1, :1]).all(), "a unit is hidden as a whole"
    with pytest.raises(ValueError, match="cannot be hidden in masks of shape"):
        gsure.measurement.draw_hidden(pixels, 0.5, 0, unit=(3, 3))
