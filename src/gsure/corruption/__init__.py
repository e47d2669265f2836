"""Corruption families: each draws its singular values, knows its basis and coverage, and measures signals."""

from gsure.corruption.base import Corruption, Coverage
from gsure.corruption.blur import Blur
from gsure.corruption.check import check_corruption
from gsure.corruption.hadamard import HadamardPatterns
from gsure.corruption.inpainting import Channels, Noise, Patches, Pixels
from gsure.corruption.lines import EquispacedLines, GaussianLines, Lines
from gsure.corruption.poisson_disc import PoissonDisc

FAMILIES: dict[str, type[Corruption]] = {
    "patches": Patches,
    "pixels": Pixels,
    "noise": Noise,
    "lines": Lines,
    "gaussian_lines": GaussianLines,
    "equispaced_lines": EquispacedLines,
    "poisson_disc": PoissonDisc,
    "blur": Blur,
    "hadamard": HadamardPatterns,
    "channels": Channels,
}
"""Every family by the name that the command line and measurement files use."""

__all__ = [
    "FAMILIES",
    "Blur",
    "Channels",
    "Corruption",
    "Coverage",
    "EquispacedLines",
    "GaussianLines",
    "HadamardPatterns",
    "Lines",
    "Noise",
    "Patches",
    "Pixels",
    "PoissonDisc",
    "check_corruption",
]
