"""How far is one picture from another."""

import torch
from jaxtyping import Float
from torch import Tensor


def magnitude(x: Float[Tensor, "b c h w"], is_complex: bool) -> Float[Tensor, "b _ h w"]:
    """|x| of complex images in (real, imaginary) channel pairs; others as they are."""
    return torch.linalg.vector_norm(x, dim=1, keepdim=True) if is_complex else x


def psnr(x: Float[Tensor, "b c h w"], reference: Float[Tensor, "b c h w"], is_complex: bool) -> Float[Tensor, " b"]:
    """Peak signal-to-noise ratio of each image in decibels: of magnitudes against the largest, if complex; else of -1..1."""
    x, reference = magnitude(x, is_complex).double(), magnitude(reference, is_complex).double()
    peak = reference.flatten(1).amax(1) if is_complex else torch.tensor(2.0, dtype=torch.float64)
    return 10 * torch.log10(peak**2 / ((x - reference) ** 2).flatten(1).mean(1))


def frechet(x: Float[Tensor, "m d"], reference: Float[Tensor, "n d"]) -> float:
    """Fréchet distance of two sets of features, each taken for a Gaussian: |μ-ν|² + tr(C + D - 2 (C D)^½).

    >>> features = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    >>> round(frechet(features + torch.tensor([3.0, 0.0, 4.0]), features), 3)
    25.0
    """
    means = [values.double().mean(0) for values in (x, reference)]
    covariances = [values.double().mT.cov() for values in (x, reference)]
    root = torch.linalg.eigvals(covariances[0] @ covariances[1]).real.clamp(min=0).sqrt().sum()  # real but for rounding
    return float((means[0] - means[1]).square().sum() + sum(c.trace() for c in covariances) - 2 * root)
