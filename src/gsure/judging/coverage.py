"""Do intervals contain what they claim? The share of entries that they cover, in the whole frame and inside of the object."""

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from scipy.special import ndtri, stdtrit  # type: ignore[import-untyped]
from torch import Tensor

from gsure.metrics.images import find_object

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Of the reliability curve."""
LEVEL = 0.9
"""Of the intervals that summaries speak of."""


def half_width(level: float, draws: int | None = None) -> float:
    """Half of an interval, in standard deviations. `draws` is how many samples the standard deviation was computed from.

    A standard deviation of few draws is often too small by chance. Student's t distribution takes this into account.

    >>> round(half_width(0.9), 3), round(half_width(0.9, draws=8), 3)
    (1.645, 1.895)
    """
    if not 0 < level < 1:
        raise ValueError(f"level is a share between 0 and 1, but is {level}.")
    if draws is None:
        return float(ndtri((1 + level) / 2))
    if draws < 2:
        raise ValueError("An interval needs a standard deviation of at least 2 draws, but there is 1: use more draws.")
    return float(stdtrit(draws - 1, (1 + level) / 2))


@dataclass
class Reliability:
    """Counts of covered entries at each of LEVELS; add images with `add`."""

    draws: int | None
    covered: dict[str, list[float]] = field(default_factory=dict)
    entries: dict[str, float] = field(default_factory=dict)
    worst: float = 1.0
    """The smallest share that the intervals of LEVEL cover inside of the object of one image."""

    def add(
        self, mean: Float[Tensor, "b *n"], std: Float[Tensor, "b *n"], truth: Float[Tensor, "b *n"], is_complex: bool
    ) -> None:
        """The object is that of the truth. Complex images are compared along the phase of their mean, as magnitudes are, and
        that is what the first channel of each pair of their standard deviations is for."""
        inside, error = find_object(truth, is_complex), truth - mean
        if is_complex:
            error, std = relative_to_phase(error, mean)[:, 0::2], std[:, 0::2]
        self.count(error, std, inside, torch.ones_like(inside))

    def count(
        self, error: Float[Tensor, "b *n"], std: Float[Tensor, "b *n"], inside: Tensor, frame: Float[Tensor, "..."]
    ) -> None:
        """`inside` and `frame` are 1 for the entries of the object, and for all that are compared."""
        for name, part in (("frame", frame), ("object", frame * inside)):
            where = part.expand_as(error)
            shares = [where * (error.abs() <= half_width(level, self.draws) * std) for level in LEVELS]
            before = self.covered.get(name, [0.0] * len(LEVELS))
            self.covered[name] = [old + float(new.sum()) for old, new in zip(before, shares, strict=True)]
            self.entries[name] = self.entries.get(name, 0.0) + float(where.sum())
            if name == "object":
                total = where.flatten(1).sum(1)
                each = shares[LEVELS.index(LEVEL)].flatten(1).sum(1)[total > 0] / total[total > 0]
                self.worst = min([self.worst, *each.tolist()])

    def curve(self, name: str) -> list[float]:
        """Observed coverage at LEVELS: of the whole frame, or of the object."""
        return [covered / max(1.0, self.entries[name]) for covered in self.covered[name]]

    def as_dict(self) -> dict[str, Any]:
        curves = {name: [round(value, 4) for value in self.curve(name)] for name in self.covered}
        return {"levels": list(LEVELS), **curves, "worst_image": round(self.worst, 4)}


def relative_to_phase(values: Float[Tensor, "*k c h w"], mean: Float[Tensor, "*b c h w"]) -> Float[Tensor, "*k c h w"]:
    """Complex numbers times conj(mean)/|mean|: in channel pairs, what is along the phase of the mean, where magnitudes change,
    and what is across it."""
    u, v = mean[..., 0::2, :, :], mean[..., 1::2, :, :]
    size = torch.hypot(u, v)
    u, v = (torch.where(size > 0, part / size.clamp(min=1e-30), alone) for part, alone in ((u, 1.0), (v, 0.0)))
    re, im = values[..., 0::2, :, :], values[..., 1::2, :, :]
    return torch.stack([u * re + v * im, u * im - v * re], -3).flatten(-4, -3)
