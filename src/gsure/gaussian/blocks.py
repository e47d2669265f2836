"""Gaussian blocks of vectors in closed form: posterior mean, variance and draws, given what was measured.

    v ~ N(μ, C),    ȳ = P v + z,    E[v | ȳ] = μ + C P (P C P + std²)⁻¹ (ȳ - P μ).

A block can be given its neighbours too: C is then the covariance of a window of blocks, of which the middle one is wanted.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from gsure.gaussian.coordinates import Vectors


@dataclass(frozen=True, eq=False)
class Blocks:
    """R blocks of W entries, each with the covariance of a window of blocks around it (V = window · W entries).

    `neighbours` blocks in a row belong to one image; windows do not reach beyond it.
    """

    mean: Shaped[Tensor, "r w"]
    covariance: Shaped[Tensor, "k v v"]
    window: int = 1
    neighbours: int = 1
    positions: Int[Tensor, " k"] | None = None
    """The blocks that have a covariance, and so a posterior; by default all."""

    @property
    def width(self) -> int:
        return self.mean.shape[1]

    def to(self, dtype: torch.dtype, device: torch.device | str = "cpu") -> "Blocks":
        """With real or complex numbers of this precision."""
        kind = dtype.to_complex() if self.mean.is_complex() else dtype
        return replace(
            self,
            mean=self.mean.to(device, kind),
            covariance=self.covariance.to(device, kind),
            positions=None if self.positions is None else self.positions.to(device),
        )

    @property
    def own(self) -> Shaped[Tensor, "r w w"]:
        """The covariance of each block itself."""
        middle = self._middle
        return self.covariance[:, middle, middle]

    @property
    def _middle(self) -> slice:
        first = self.window // 2 * self.width
        return slice(first, first + self.width)

    def _around(self, device: torch.device) -> tuple[Int[Tensor, "r k"], Bool[Tensor, "r k"]]:
        """For each block, the blocks of its window, and whether they are in the same image."""
        here = (
            torch.arange(len(self.mean), device=device)[:, None] if self.positions is None else self.positions[:, None]
        )
        there = here + torch.arange(self.window, device=device) - self.window // 2
        inside = (there >= 0) & (there < len(self.mean))
        inside &= there.div(self.neighbours, rounding_mode="floor") == here // self.neighbours
        return there.clamp(0, len(self.mean) - 1), inside

    def posterior_mean(self, vectors: Vectors) -> Shaped[Tensor, "b r w"]:
        """E[v | ȳ], sample by sample: systems of their own sizes are quicker than all of the size of the largest."""
        values, mask, variance = vectors
        there, inside = self._around(values.device)
        residuals = values - mask[:, None] * self.mean
        mean, rows = (self.mean if self.positions is None else self.mean[self.positions]), self._middle_rows
        found = []
        for residual, seen, noise in zip(residuals, mask, variance, strict=True):
            entries = seen.nonzero()[:, 0]
            index = torch.cat([entries + k * self.width for k in range(self.window)])
            known = (residual[:, entries][there] * inside[..., None]).flatten(1)  # r, window * kept
            inner = self.covariance.index_select(1, index).index_select(2, index)
            inner.diagonal(dim1=1, dim2=2).add_(noise[entries].repeat(self.window))
            solved = torch.cholesky_solve(known[..., None], torch.linalg.cholesky(inner))
            found.append(mean + (rows.index_select(2, index) @ solved)[..., 0])
        return torch.stack(found)

    @cached_property
    def _middle_rows(self) -> Shaped[Tensor, "r w v"]:
        return self.covariance[:, self._middle].contiguous()

    def explained(self, vectors: Vectors) -> Shaped[Tensor, "b r w k"]:
        """Z with Cov[v | ȳ] = C - Z Zᴴ for each block."""
        cross, factor = self._system(vectors)
        return torch.linalg.solve_triangular(factor, cross.mH, upper=False).mH.movedim(0, 1)

    def _system(self, vectors: Vectors) -> tuple[Tensor, Tensor]:
        """C P and the Cholesky factor of P C P + std² at the measured entries (r, b, ...).

        Masks keep different numbers of entries. All systems have the size of the largest: entries that are not there have
        variance 1 and no correlation.
        """
        values, mask, variance = vectors
        kept = int(mask.sum(1).max())
        order = mask.argsort(dim=1, descending=True, stable=True)[:, :kept]
        _, inside = self._around(values.device)
        index = torch.cat([order + k * self.width for k in range(self.window)], 1)  # b, window * kept
        is_kept = mask.gather(1, order).repeat(1, self.window) > 0
        valid = is_kept & inside.repeat_interleave(kept, 1)[:, None]  # r, b, window * kept
        noise = variance.gather(1, order).repeat(1, self.window)
        inner = self.covariance[:, index[:, :, None], index[:, None, :]]
        inner = inner * (valid[..., :, None] & valid[..., None, :])
        inner = inner + torch.diag_embed(torch.where(valid, noise, 1.0)).to(inner)
        cross = self.covariance[:, self._middle][:, :, index].movedim(1, 2) * valid[..., None, :]
        return cross, torch.linalg.cholesky(inner)
