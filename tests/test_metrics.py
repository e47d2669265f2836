import pytest
import torch

from gsure.metrics import frechet, magnitude, psnr


def test_psnr_of_images_and_of_magnitudes():
    reference = torch.zeros(2, 1, 4, 4)
    assert psnr(reference + 0.02, reference, is_complex=False).tolist() == pytest.approx([40.0, 40.0], abs=1e-4)
    pair = torch.zeros(1, 2, 4, 4)
    pair[:, 0], pair[:, 1] = 3.0, 4.0
    turned = torch.stack([-pair[:, 1], pair[:, 0]], 1)  # another phase, the same magnitude
    assert magnitude(pair, is_complex=True).unique().tolist() == [5.0]
    assert float(psnr(1.1 * turned, pair, is_complex=True)) == pytest.approx(20.0, abs=1e-4)


def test_frechet_distance_of_two_gaussians_is_the_closed_form(generator):
    """For covariances that commute: |μ-ν|² + Σ (√c - √d)²."""
    n, c, d = 200_000, torch.tensor([1.0, 4.0]), torch.tensor([2.25, 1.0])
    x = torch.randn(n, 2, generator=generator) * c.sqrt() + torch.tensor([1.0, 0.0])
    y = torch.randn(n, 2, generator=generator) * d.sqrt()
    expected = 1 + float(((c.sqrt() - d.sqrt()) ** 2).sum())
    assert frechet(x, y) == pytest.approx(expected, rel=0.02)
    assert frechet(x[: n // 2], x[n // 2 :]) < 1e-3 * expected
