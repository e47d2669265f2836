"""Gaussians with a covariance of blocks, of all entries or of rows in hybrid space: posterior mean, std and draws.

    v ~ N(μ, C),    ȳ = P v + z,    E[v | ȳ] = μ + C P (P C P + std²)⁻¹ (ȳ - P μ).

A block can be given its neighbours too: C is then the covariance of a window of blocks, of which the middle one is wanted.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from gsure.gaussian.base import Gaussian
from gsure.gaussian.coordinates import Coordinates, Vectors
from gsure.measurement import Measurement
from gsure.random import Generators, Seed, as_generators, normal

AT_ONCE = 2**24
"""Entries of covariances that are gathered at once: more samples are taken in turns."""


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
    always: Float[Tensor, " w"] | None = None
    """1 for entries that every measurement has: a posterior mean is quicker if it knows them."""

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
            always=None if self.always is None else self.always.to(device),
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
        """E[v | ȳ]. Entries that are always measured are eliminated for all samples at once, if their noise is equal. The
        rest is solved sample by sample: systems of their own sizes are quicker than all of the size of the largest."""
        values, mask, variance = vectors
        there, inside = self._around(values.device)
        residuals = values - mask[:, None] * self.mean
        mean = self.mean if self.positions is None else self.mean[self.positions]

        def known(entries: Tensor) -> Shaped[Tensor, "b r k"]:
            """Of the window of each block."""
            return (residuals[:, :, entries][:, there] * inside[..., None]).flatten(2)

        shared = torch.zeros_like(mask[0], dtype=torch.bool)
        if self.always is not None:
            shared = ((self.always == 1) & (mask == 1) & (variance == variance[:1])).all(0)
        common = shared.nonzero()[:, 0]
        given = self._given(common, variance[0, common])
        shift = (known(common).movedim(0, 1) @ given.gain.mT).movedim(1, 0)  # b, r, v
        found = []
        for k, (seen, noise) in enumerate(zip(mask, variance, strict=True)):
            entries = ((seen == 1) & ~shared).nonzero()[:, 0]
            index = torch.cat([entries + j * self.width for j in range(self.window)])
            across = given.covariance.index_select(1, index)  # r, k, v
            inner = across.gather(2, index.expand(len(across), len(index), -1))
            inner.diagonal(dim1=1, dim2=2).add_(noise[entries].repeat(self.window))
            away = (residuals[k][:, entries][there] * inside[..., None]).flatten(1) - shift[k][:, index]
            solved = torch.cholesky_solve(away[..., None], torch.linalg.cholesky(inner))
            found.append(mean + shift[k][:, self._middle] + (across[..., self._middle].mH @ solved)[..., 0])
        return torch.stack(found)

    def _given(self, entries: Int[Tensor, " k"], noise: Float[Tensor, " k"]) -> "_Given":
        """After these entries were measured with this noise. The last answer is kept: most batches ask the same."""
        asked = (tuple(entries.tolist()), tuple(noise.tolist()))
        if asked not in self._answers:
            self._answers.clear()
            self._answers[asked] = self._eliminate(entries, noise)
        return self._answers[asked]

    @cached_property
    def _answers(self) -> "dict[tuple[Any, ...], _Given]":
        return {}

    def _eliminate(self, entries: Int[Tensor, " k"], noise: Float[Tensor, " k"]) -> "_Given":
        if not len(entries):
            return _Given(self.covariance[:, :, :0], self.covariance)
        index = torch.cat([entries + j * self.width for j in range(self.window)])
        across = self.covariance.index_select(1, index)
        inner = across.index_select(2, index)
        inner.diagonal(dim1=1, dim2=2).add_(noise.repeat(self.window))
        factor = torch.linalg.cholesky(inner)
        explained = torch.linalg.solve_triangular(factor, across, upper=False)
        gain = torch.linalg.solve_triangular(factor.mH, explained, upper=True).mH
        covariance = self.covariance - explained.mH @ explained
        return _Given(gain, covariance)

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


class _Given(NamedTuple):
    """Windows of blocks, given some of their entries."""

    gain: Shaped[Tensor, "r v k"]
    """The posterior mean is the prior mean and gain times what was measured less its mean."""
    covariance: Shaped[Tensor, "r v v"]


@dataclass(frozen=True, eq=False)
class BlockGaussian(Gaussian):
    """v ~ N(μ, C) in some coordinates, block by block.

    Draws of windows of blocks are correlated from block to block, by a Markov chain with the covariance of neighbours; for
    single blocks they are exact.
    """

    coordinates: Coordinates
    blocks: Blocks

    @property
    def real_images(self) -> bool:
        return self.coordinates.real_images

    def to(self, device: torch.device | str) -> "BlockGaussian":
        return replace(self, blocks=self.blocks.to(torch.float32, device))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        header = {"window": self.blocks.window, **self.coordinates.header()}
        return {"mean": self.blocks.mean, "covariance": self.blocks.covariance}, header

    def mean(self, measurement: Measurement) -> Float[Tensor, "b *n"]:
        found = self.blocks.posterior_mean(self.coordinates.vectors(measurement))
        return self.coordinates.spectral(found).to(measurement.ybar)

    def denoise(self, ybar: Float[Tensor, "b *n"], sigma: Float[Tensor, " b"]) -> Float[Tensor, "b *n"]:
        """Block by block: neighbours would add little where nothing is missing."""
        fully = Measurement._trusted(ybar, ybar.new_ones([1] * ybar.ndim), sigma.reshape(-1, *[1] * (ybar.ndim - 1)))
        values, _, variance = self.coordinates.vectors(fully)
        eigenvalues, rotation = self._eigen
        gain = eigenvalues / (eigenvalues + variance[:, :1, None])  # b, r, w
        turned = torch.einsum("rvw,brv->brw", rotation.conj(), values - self.blocks.mean)
        found = self.blocks.mean + torch.einsum("rvw,brw->brv", rotation, gain * turned)
        return self.coordinates.spectral(found).to(ybar)

    @cached_property
    def _eigen(self) -> tuple[Float[Tensor, "r w"], Shaped[Tensor, "r w w"]]:
        values, vectors = torch.linalg.eigh(self.blocks.own)
        return values.clamp(min=0), vectors

    @property
    def variances(self) -> Float[Tensor, " k"]:
        return self._eigen[0].flatten() / (2 if self.coordinates.pairs else 1)

    @cached_property
    def single(self) -> "BlockGaussian":
        """Each block on its own."""
        return replace(self, blocks=replace(self.blocks, covariance=self.blocks.own.contiguous(), window=1))

    def std(self, measurement: Measurement) -> Float[Tensor, "b *n"]:
        """√ of diag(T (C - Z Zᴴ) Tᴴ), where T turns vectors into signals."""
        total = self._prior_variance
        parts = []
        for some in self._parts(measurement):
            explained = self.blocks.explained(self.coordinates.vectors(some))
            parts.append((total - self._power(explained)).clamp(min=0).sqrt())
        return torch.cat(parts).to(measurement.ybar)

    def draw(self, measurement: Measurement, generator: Seed) -> Float[Tensor, "b *n"]:
        """A draw from the prior, corrected by the posterior mean of its residual."""
        ybar, mask, std = measurement.ybar, measurement.mask, measurement.std
        generator = as_generators(generator, ybar.device)
        drawn = self.coordinates.spectral(self._prior(ybar, generator)).to(ybar)
        noise = std * normal(ybar.shape, generator, ybar)
        centred = replace(self, blocks=replace(self.blocks, mean=torch.zeros_like(self.blocks.mean)))
        residual = Measurement._trusted(mask * (ybar - drawn - noise), mask, std)
        return drawn + centred.mean(residual)

    def centred(self, measurement: Measurement) -> "BlockGaussian":
        """Without windows: the gains of overlapping windows are not symmetric."""
        blocks = self.blocks
        mean = torch.zeros_like(blocks.mean)
        return replace(self, blocks=replace(blocks, mean=mean, covariance=blocks.own, window=1))

    def _parts(self, measurement: Measurement) -> list[Measurement]:
        kept = int(measurement.mask.expand_as(measurement.ybar)[:, 0].flatten(1).sum(1).max())
        kept = kept // self.coordinates.neighbours if self.coordinates.blocks > 1 else kept
        size = self.blocks.window * max(1, kept) * (self.blocks.width + self.blocks.window * max(1, kept))
        at_once = max(1, AT_ONCE // (len(self.blocks.mean) * size))
        return [measurement[k : k + at_once] for k in range(0, len(measurement), at_once)]

    @property
    def _prior_variance(self) -> Float[Tensor, "1 *n"]:
        root = torch.linalg.cholesky(_loaded(self.blocks.own))
        return self._power(root[None])

    def _power(self, columns: Shaped[Tensor, "b r w k"]) -> Float[Tensor, "b *n"]:
        """Σ_k of the squared signals of the k-th columns; of a complex signal, half in each part."""
        b, _, _, k = columns.shape
        signals = self.coordinates.signals(columns.movedim(3, 1).flatten(0, 1))
        power = signals.unflatten(0, (b, k)).square().sum(1)
        if not self.coordinates.is_complex:
            return power
        both = (power[:, 0::2] + power[:, 1::2]) / 2
        return both.repeat_interleave(2, 1)

    def _prior(self, like: Tensor, generator: Generators) -> Shaped[Tensor, "b r w"]:
        """Draws of v."""
        blocks, width = self.blocks, self.blocks.width
        count = len(blocks.mean) * width
        white = normal(like.shape, generator, like).flatten(1)
        if self.coordinates.is_complex:
            white = torch.complex(white[:, :count], white[:, count : 2 * count]) / 2**0.5
        white = white[:, :count].reshape(len(like), len(blocks.mean), width).to(blocks.mean.dtype)
        if blocks.window == 1:
            root = torch.linalg.cholesky(_loaded(blocks.own))
            return blocks.mean + torch.einsum("rvw,brw->brv", root, white)
        steps, roots = self._chain()
        drawn: list[Tensor] = []
        for r in range(len(blocks.mean)):
            fresh = white[:, r] @ roots[r].mT
            first = r % blocks.neighbours == 0
            drawn.append(fresh if first else drawn[-1] @ steps[r].mT + fresh)
        return blocks.mean + torch.stack(drawn, 1)

    def _chain(self) -> tuple[Shaped[Tensor, "r w w"], Shaped[Tensor, "r w w"]]:
        """v_r = A_r v_{r-1} + B_r ε with the covariances of blocks r and r - 1, and of the two."""
        blocks, width = self.blocks.to(torch.float64), self.blocks.width
        middle = blocks.window // 2 * width
        joint = blocks.covariance[:, middle - width : middle + width, middle - width : middle + width]
        before, own, across = joint[:, :width, :width], joint[:, width:, width:], joint[:, width:, :width]
        steps = torch.linalg.solve(_loaded(before, own), across.mH).mH
        is_first = torch.arange(len(own), device=own.device) % blocks.neighbours == 0
        rest = torch.where(is_first[:, None, None], own, own - steps @ across.mH)
        kind = self.blocks.mean.dtype
        return steps.to(kind), torch.linalg.cholesky(_loaded(rest, own)).to(kind)


def _loaded(
    covariance: Shaped[Tensor, "r w w"], scale: Shaped[Tensor, "r w w"] | None = None
) -> Shaped[Tensor, "r w w"]:
    """With a small share of the variance `scale` on the diagonal, so that it can be factorised."""
    size = (covariance if scale is None else scale).diagonal(dim1=1, dim2=2).real.mean(1).clamp(min=1e-12)
    eye = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    return (covariance + covariance.mH) / 2 + 1e-5 * size[:, None, None] * eye
