"""Is it k-space? Images have most of their energy at low frequencies, which are in the centre."""

import numpy as np
import torch
from torch import Tensor

from gsure.basis import Basis, Fourier
from gsure.display import number

CENTRE = 1 / 4
"""Side of the centre of k-space, as a share of each side, in which images of anything have most of their energy."""
MOST = 0.5
"""More than this share of the energy is most of it. White noise has 1/16 in the centre."""
CHECKED = 32
"""Samples to look at."""


def wrong_domain(values: np.ndarray, basis: Basis) -> str | None:
    """A sentence if values in the basis Fourier are images, or k-space with its centre in the corners."""
    if not isinstance(basis, Fourier) or min(values.shape[-2:]) < 8:
        return None
    some = torch.from_numpy(np.ascontiguousarray(values))
    given = _share_in_centre(some)
    if is_uncentred(values):
        return (
            "The data has its energy in the corners, as k-space whose centre is at the first index: give "
            "np.fft.fftshift(y, axes=(-2, -1)), and the mask likewise."
        )
    if _share_in_centre(basis.to_spectral(some)) > max(MOST, 2 * given):
        return (
            f"The data looks like images, not like k-space: {number(100 * given, 2)} % of its energy is in the centre, but "
            "most of that of its Fourier transform. Give gsure.Fourier().to_spectral(...) of it, or the basis Identity for "
            "images with missing pixels."
        )
    return None


def is_uncentred(values: np.ndarray) -> bool:
    """Whether k-space has its energy in the corners, so that its zero frequency is at the first index."""
    some = torch.from_numpy(np.ascontiguousarray(values))
    return _share_in_centre(torch.fft.fftshift(some, (-2, -1))) > max(MOST, 2 * _share_in_centre(some))


def _share_in_centre(values: Tensor) -> float:
    height, width = values.shape[-2:]
    rows, columns = (
        slice(size // 2 - round(size * CENTRE / 2), size // 2 + round(size * CENTRE / 2)) for size in (height, width)
    )
    power = values.double().square()
    return float(power[..., rows, columns].sum() / power.sum().clamp(min=1e-300))
