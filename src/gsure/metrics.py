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
