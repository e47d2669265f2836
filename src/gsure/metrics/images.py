"""How far is one picture from another: PSNR, SSIM and NMSE, in fastMRI's conventions.

Complex images are compared by magnitude, against the largest magnitude of the reference. Real ones have the range -1..1, black
to white. Every function gives one value for each image; or, with `groups` (numbers from 0, one an image), one for each
volume: errors are then taken over the volume as a whole, and the largest magnitude is the volume's.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import avg_pool2d

WINDOW = 7
"""Side of SSIM's window."""


def magnitude(x: Float[Tensor, "b c h w"], is_complex: bool) -> Float[Tensor, "b _ h w"]:
    """|x| of complex images in (real, imaginary) channel pairs; others as they are."""
    return torch.linalg.vector_norm(x, dim=1, keepdim=True) if is_complex else x


def psnr(
    x: Float[Tensor, "b c h w"],
    reference: Float[Tensor, "b c h w"],
    is_complex: bool,
    groups: Int[Tensor, " b"] | None = None,
) -> Float[Tensor, " g"]:
    """Peak signal-to-noise ratio in decibels."""
    x, reference = _brightness(x, is_complex), _brightness(reference, is_complex)
    error = mean_of_groups(((x - reference) ** 2).flatten(1).mean(1), groups)
    return 10 * torch.log10(_peak(reference, is_complex, groups) ** 2 / error)


def nmse(
    x: Float[Tensor, "b c h w"],
    reference: Float[Tensor, "b c h w"],
    is_complex: bool,
    groups: Int[Tensor, " b"] | None = None,
) -> Float[Tensor, " g"]:
    """Squared error as a share of the reference's squared norm; black is zero."""
    x, reference = _brightness(x, is_complex), _brightness(reference, is_complex)
    error, size = ((x - reference) ** 2).flatten(1).mean(1), (reference**2).flatten(1).mean(1)
    return mean_of_groups(error, groups) / mean_of_groups(size, groups)


def ssim(
    x: Float[Tensor, "b c h w"],
    reference: Float[Tensor, "b c h w"],
    is_complex: bool,
    groups: Int[Tensor, " b"] | None = None,
) -> Float[Tensor, " g"]:
    """Structural similarity (Wang et al., 2004) as scikit-image has it: a uniform 7x7 window, sample covariances."""
    if min(x.shape[2:]) < WINDOW:
        raise ValueError(f"SSIM has a window of {WINDOW}x{WINDOW}, but the images are only {x.shape[2]}x{x.shape[3]}.")
    x, reference = _brightness(x, is_complex), _brightness(reference, is_complex)
    peak = _peak(reference, is_complex, groups)
    peak = (peak if groups is None else peak[groups]).reshape(-1, 1, 1, 1)
    unbiased = WINDOW**2 / (WINDOW**2 - 1)
    mean_x, mean_y = avg_pool2d(x, WINDOW, 1), avg_pool2d(reference, WINDOW, 1)
    var_x = unbiased * (avg_pool2d(x * x, WINDOW, 1) - mean_x**2)
    var_y = unbiased * (avg_pool2d(reference * reference, WINDOW, 1) - mean_y**2)
    covariance = unbiased * (avg_pool2d(x * reference, WINDOW, 1) - mean_x * mean_y)
    c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    likeness = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    likeness = likeness / ((mean_x**2 + mean_y**2 + c1) * (var_x + var_y + c2))
    return mean_of_groups(likeness.flatten(1).mean(1), groups)


def _brightness(x: Tensor, is_complex: bool) -> Tensor:
    """Magnitudes, or 0..1 from black to white; in float64."""
    return magnitude(x, True).double() if is_complex else (x.double() + 1) / 2


def _peak(reference: Tensor, is_complex: bool, groups: Tensor | None) -> Tensor:
    """The data range, one for each value that is wanted."""
    largest = reference.flatten(1).amax(1) if is_complex else reference.new_ones(len(reference))
    if groups is None:
        return largest
    return largest.new_zeros(_count(groups)).scatter_reduce(0, groups, largest, "amax")


def mean_of_groups(values: Tensor, groups: Tensor | None) -> Tensor:
    """One value for each group; all of them, if there are no groups."""
    if groups is None:
        return values
    return values.new_zeros(_count(groups)).index_add(0, groups, values) / groups.bincount()


def _count(groups: Tensor) -> int:
    return int(groups.max()) + 1
