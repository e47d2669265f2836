"""Pure functions of tensors: distances between images and between distributions, metrics of samples and restorations."""

from gsure.metrics.distributions import (
    correlation_error,
    correlation_strength,
    frechet,
    jackknife,
    kid,
    precision_and_recall,
    sliced_wasserstein,
)
from gsure.metrics.images import magnitude, mean_of_groups, nmse, psnr, ssim
from gsure.metrics.lpips import LPIPS

__all__ = [
    "LPIPS",
    "correlation_error",
    "correlation_strength",
    "frechet",
    "jackknife",
    "kid",
    "magnitude",
    "mean_of_groups",
    "nmse",
    "precision_and_recall",
    "psnr",
    "sliced_wasserstein",
    "ssim",
]
