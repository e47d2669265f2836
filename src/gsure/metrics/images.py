"""Distances between images: PSNR, SSIM and NMSE, with fastMRI's conventions.

Complex images are compared by magnitude, relative to the largest magnitude of the reference. Real images have the range -1..1,
black to white. Every function returns one value for each image or, with `groups`, one for each volume. For a volume, errors
are averaged, and the largest magnitude is that of the volume.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import avg_pool2d

Images = Float[Tensor, "b c h w"]
Groups = Int[Tensor, " b"] | None
"""The volume of each image, as numbers from 0."""
OBJECT = 0.1
"""Share of the largest magnitude above which a pixel belongs to the object."""
WINDOW = 7
"""Side of SSIM's window."""


def magnitude(x: Float[Tensor, "b c h w"], is_complex: bool) -> Float[Tensor, "b _ h w"]:
    """|x| of complex images in (real, imaginary) channel pairs; real images are returned unchanged."""
    return torch.linalg.vector_norm(x, dim=1, keepdim=True) if is_complex else x


def psnr(x: Images, reference: Images, is_complex: bool, groups: Groups = None) -> Float[Tensor, " g"]:
    """Peak signal-to-noise ratio in decibels."""
    x, reference = _brightness(x, is_complex), _brightness(reference, is_complex)
    error = mean_of_groups(((x - reference) ** 2).flatten(1).mean(1), groups)
    return 10 * torch.log10(_peak(reference, is_complex, groups) ** 2 / error)


def psnr_in_object(x: Images, reference: Images, is_complex: bool, groups: Groups = None) -> Float[Tensor, " g"]:
    """PSNR of the pixels that show an object: those of the reference above OBJECT of its largest magnitude.

    A frame of air is easy to restore, and raises the PSNR of all pixels.
    """
    inside = in_object(reference, is_complex, groups)
    x, reference = _brightness(x, is_complex), _brightness(reference, is_complex)
    error, count = (inside * (x - reference) ** 2).flatten(1).sum(1), inside.flatten(1).sum(1)
    mean = mean_of_groups(error, groups) / mean_of_groups(count, groups).clamp(min=1e-12)
    return 10 * torch.log10(_peak(reference, is_complex, groups) ** 2 / mean)


def in_object(reference: Images, is_complex: bool, groups: Groups = None) -> Float[Tensor, "b _ h w"]:
    """1 for pixels above OBJECT of the largest magnitude; of real images, of the largest distance from black."""
    reference = _brightness(reference, is_complex)
    largest = reference.flatten(1).amax(1)
    if groups is not None:
        largest = largest.new_zeros(_count(groups)).scatter_reduce(0, groups, largest, "amax")[groups]
    return (reference > OBJECT * largest.reshape(-1, 1, 1, 1)).to(reference)


def find_object(x: Float[Tensor, "b *n"], is_complex: bool) -> Float[Tensor, "b ..."]:
    """1 inside of the object that an image shows; 1 everywhere for other signals."""
    if x.ndim != 4 or min(x.shape[2:]) < 2:
        return x.new_ones([len(x)] + [1] * (x.ndim - 1))
    return in_object(x, is_complex).to(x)


def nmse(x: Images, reference: Images, is_complex: bool, groups: Groups = None) -> Float[Tensor, " g"]:
    """Squared error divided by the squared norm of the reference; black is zero."""
    x, reference = _brightness(x, is_complex), _brightness(reference, is_complex)
    error, size = ((x - reference) ** 2).flatten(1).mean(1), (reference**2).flatten(1).mean(1)
    return mean_of_groups(error, groups) / mean_of_groups(size, groups)


def ssim(x: Images, reference: Images, is_complex: bool, groups: Groups = None) -> Float[Tensor, " g"]:
    """Structural similarity (Wang et al., 2004) as in scikit-image: a uniform 7x7 window, sample covariances."""
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
    """The data range, for each image or volume."""
    largest = reference.flatten(1).amax(1) if is_complex else reference.new_ones(len(reference))
    if groups is None:
        return largest
    return largest.new_zeros(_count(groups)).scatter_reduce(0, groups, largest, "amax")


def mean_of_groups(values: Tensor, groups: Tensor | None) -> Tensor:
    """The mean over each group; without groups, the values themselves."""
    if groups is None:
        return values
    return values.new_zeros(_count(groups)).index_add(0, groups, values) / groups.bincount()


def _count(groups: Tensor) -> int:
    return int(groups.max()) + 1
