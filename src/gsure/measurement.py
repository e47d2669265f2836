"""A measurement: a spectral vector with a mask and a noise level (eq:transformed-problem).

    ȳ = P x̄ + z̄,    z̄_i ~ N(0, std_i²) where P_ii = 1.

This is all that training, sampling and restoration ever see of y = H x + z; nothing downstream knows U, Σ or H.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from gsure.random import Seed, as_generators, uniform
from gsure.schedule import TOLERANCE

Index = int | np.integer | slice | list[int] | np.ndarray | Tensor


@dataclass(frozen=True, eq=False, init=False)
class Measurement:
    """A batch of measurements. `mask` and `std` broadcast against `ybar`; `std` counts only where the mask is 1.

    >>> Measurement(ybar=torch.tensor([[0.9, 0.0], [0.2, -1.1]]), mask=torch.tensor([[1, 0], [1, 1]]), std=0.1)
    Measurement(2 of shape (2,), 75 % kept, std up to 0.1)
    """

    ybar: Float[Tensor, "b *n"]
    mask: Float[Tensor, "..."]
    std: Float[Tensor, "..."]

    def __init__(
        self, ybar: Float[Tensor, "b *n"], mask: Shaped[Tensor, "..."] | float, std: Shaped[Tensor, "..."] | float
    ) -> None:
        """From outside, so every value is checked. Within the library, parts of a measurement are not checked again."""
        if not isinstance(ybar, Tensor):
            raise ValueError(
                f"ybar must be a torch tensor, but is {type(ybar).__name__}: use torch.from_numpy or as_tensor."
            )
        if ybar.ndim < 2 or not ybar.is_floating_point():
            raise ValueError(
                f"ybar must be floating-point with a leading batch dimension, but is {ybar.dtype} of shape "
                f"{tuple(ybar.shape)}: store complex data as (real, imaginary) channel pairs."
            )
        mask, std = _as_broadcastable("mask", mask, ybar), _as_broadcastable("std", std, ybar)
        for name, values in {"ybar": ybar, "mask": mask, "std": std}.items():
            if bad := int((~values.isfinite()).sum()):
                raise ValueError(f"{name} has {bad} values that are NaN or infinite: remove or mask them first.")
        if ((mask != 0) & (mask != 1)).any():
            raise ValueError(
                f"mask must be 0 (dropped) or 1 (kept), but has the value "
                f"{float(mask[(mask != 0) & (mask != 1)][0]):g}: singular values go to Measurement.from_svd."
            )
        if (std < 0).any():
            raise ValueError(f"std must be at least 0, but has the value {float(std.min()):g}.")
        if leaked := int(((1 - mask) * ybar != 0).sum()):
            raise ValueError(
                f"ybar must be zero where the mask is 0, but {leaked} dropped entries are not: multiply ybar by the "
                "mask, or correct the mask."
            )
        self._set(ybar, mask, std)

    def _set(self, ybar: Tensor, mask: Tensor, std: Tensor) -> None:
        for name, value in {"ybar": ybar, "mask": mask, "std": std}.items():
            object.__setattr__(self, name, value)

    @classmethod
    def _trusted(cls, ybar: Tensor, mask: Tensor, std: Tensor) -> "Measurement":
        measurement = object.__new__(cls)
        measurement._set(ybar, mask, std)
        return measurement

    @classmethod
    def clean(cls, xbar: Float[Tensor, "b *n"]) -> "Measurement":
        """Nothing dropped and no noise. It turns every objective into eq:diffusion-loss, without a branch."""
        return cls(xbar, 1.0, 0.0)

    @classmethod
    def from_svd(
        cls,
        uty: Float[Tensor, "b *n"],
        svals: Shaped[Tensor, "..."],
        sigma_0: Shaped[Tensor, "..."] | float,
        cutoff: float = 0.0,
    ) -> "Measurement":
        """ȳ = Σ†Uᵀy, P = Σ†Σ, std = σ_0 Σ† (eq:transformed-problem) for y = U Σ Vᵀ x + z.

        `uty` is Uᵀy laid out like x̄ (zero where H has no row), `svals` the diagonal of Σ in the same layout, `sigma_0` one
        number or one per sample. Singular values up to `cutoff` count as zero: they would only amplify noise.

        >>> Measurement.from_svd(torch.tensor([[2.0, 0.3, 0.0]]), torch.tensor([[2.0, 0.5, 0.0]]), sigma_0=0.1)
        Measurement(1 of shape (3,), 67 % kept, std up to 0.2)
        """
        svals = _as_broadcastable("svals", svals, uty)
        if not ((svals >= 0) & svals.isfinite()).all():
            raise ValueError(
                "Singular values must be finite and at least 0: give |d| for a signed diagonal d, and put the sign into uty."
            )
        if not cutoff >= 0:
            raise ValueError(f"cutoff must be at least 0, but is {cutoff}.")
        if isinstance(sigma_0, Tensor) and sigma_0.ndim == 1:
            sigma_0 = sigma_0.reshape(-1, *[1] * (uty.ndim - 1))
        mask = (svals > cutoff).to(uty)
        pinv = mask / torch.where(mask == 1, svals, torch.ones_like(svals))
        return cls(pinv * uty, mask, _as_broadcastable("sigma_0", sigma_0, uty) * pinv)

    @classmethod
    def from_operators(
        cls,
        y: Float[Tensor, "b m"],
        H: Float[Tensor, "*b m n"],
        V: Float[Tensor, "n n"],
        sigma_0: Shaped[Tensor, "..."] | float,
        cutoff: float = 1e-4,
    ) -> "Measurement":
        """Measurements y = H x + z as they are in the basis V = `gsure.Dense.from_operators(H).V`, of shape (b, n).

        H is one operator, or one per sample. Columns of H V = U Σ are orthogonal, so Σ are their lengths, and Σ Uᵀy = (H V)ᵀy.
        Singular values up to `cutoff` times the largest count as zero.
        """
        rotated = H.to(y) @ V.to(y)
        svals = rotated.norm(dim=-2).expand(len(y), -1)
        projected = (rotated.mT @ y[..., None])[..., 0]
        uty = projected / torch.where(svals > 0, svals, 1.0)
        return cls.from_svd(uty, svals, sigma_0, cutoff * float(svals.max()))

    @classmethod
    def cat(cls, measurements: Sequence["Measurement"]) -> "Measurement":
        """One batch of several; also what a `DataLoader` over measurements takes as its `collate_fn`."""
        full = [(m.ybar, _per_sample(m.mask, m), _per_sample(m.std, m)) for m in measurements]
        return cls._trusted(*(torch.cat(parts) for parts in zip(*full, strict=True)))

    def perturb(self, alpha_bar_t: Float[Tensor, "b *ones"], eps: Float[Tensor, "b *n"]) -> Float[Tensor, "b *n"]:
        """x̄_t = √ᾱ_t ȳ + ((1 - ᾱ_t) I - ᾱ_t σ_0² Σ†Σ†ᵀ)^½ ε (eq:noise-add).

        So x̄_t ~ N(√ᾱ_t P x̄, (1 - ᾱ_t) I), eq:xbart-marginal.
        The mask multiplies std: a std that reached dropped entries too would lower their noise, and so reveal the mask.
        """
        wanted = 1 - alpha_bar_t
        variance = wanted - alpha_bar_t * (self.mask * self.std) ** 2
        if (
            variance.device.type == "cpu" and (variance < -TOLERANCE * wanted).any()
        ):  # a GPU would have to wait: NaN there
            raise ValueError(
                f"The measurement noise, std up to {self.max_std:.4g}, exceeds the diffusion's at the earliest time given, "
                f"{float((wanted / alpha_bar_t).min().sqrt()):.4g}: use Schedule.for_noise({self.max_std:.4g}), or draw "
                "times from schedule.first(std) on."
            )
        variance = torch.where(variance.abs() <= TOLERANCE * wanted, 0.0, variance)  # equality is legal
        return alpha_bar_t.sqrt().to(self.ybar) * self.ybar + variance.sqrt().to(self.ybar) * eps

    def hide(self, hidden: Shaped[Tensor, "..."]) -> "Measurement":
        """Further corruption: what is left when the kept entries with `hidden` = 1 are dropped too."""
        mask = self.mask * (1 - hidden)
        return Measurement._trusted(self.ybar * mask, mask, self.std)

    def impute(self, xbar: Float[Tensor, "b *n"]) -> "Measurement":
        """A fully sampled signal: as measured, noise included, where it was; elsewhere `xbar`, as if that had no noise."""
        return Measurement._trusted(
            torch.where(self.mask == 1, self.ybar, xbar), self.mask.new_ones([1] * self.ybar.ndim), self.mask * self.std
        )

    @property
    def max_std(self) -> float:
        """The largest std among kept entries."""
        return float((self.mask * self.std).max()) if len(self) else 0.0

    @property
    def is_noisy_signal(self) -> bool:
        """Nothing is missing, and the noise of a sample is white: then ȳ is the signal and noise, in any orthonormal basis."""
        white = self.std.flatten(1)
        return bool((self.mask == 1).all() and (white == white[:, :1]).all())

    @property
    def shape(self) -> torch.Size:
        return self.ybar.shape

    def to(self, device: torch.device | str) -> "Measurement":
        return Measurement._trusted(self.ybar.to(device), self.mask.to(device), self.std.to(device))

    def __len__(self) -> int:
        return len(self.ybar)

    def __getitem__(self, index: Index) -> "Measurement":
        """Some of the samples; one sample stays a batch of one."""
        if not isinstance(index, slice | list) and np.ndim(index) == 0:
            index = [range(len(self))[int(index)]]
        return Measurement._trusted(
            *(part[index] if len(part) == len(self) else part for part in (self.ybar, self.mask, self.std))
        )

    def __repr__(self) -> str:
        kept = float(self.mask.expand_as(self.ybar).mean())
        shape = tuple(self.shape[1:])
        return f"Measurement({len(self)} of shape {shape}, {100 * kept:.0f} % kept, std up to {self.max_std:.3g})"


Partner = Callable[[Tensor], Tensor]
"""Takes a mask to that of the entries that say the same: of real images, frequency k and -k."""


def draw_hidden(
    measurement: Measurement,
    share: float | tuple[float, float],
    generator: Seed,
    unit: Sequence[int] = (),
    always: Shaped[Tensor, "..."] | None = None,
    partner: Partner | None = None,
) -> Float[Tensor, "..."]:
    """Which measured units to hide, at the shape of the mask: 1 is hidden. To train on them, or to judge a model by them.

    share    probability that a unit is hidden; a pair is a range, from which one is drawn for each sample. Then at least one
             unit stays, if `always` keeps none
    unit     block of mask entries that is measured or missing together, such as (4, 4); () takes entries one by one
    always   1 for entries that every measurement has, such as the centre of k-space: they are never hidden
    partner  if entries come in pairs that say the same, both are hidden
    """
    mask, generator = measurement.mask, as_generators(generator, measurement.ybar.device)
    mask = mask.expand(len(measurement), *mask.shape[1:])
    block = ([1] * mask.ndim + list(unit))[1 - mask.ndim :]
    if mask[0].numel() == 1 or any(size % side for size, side in zip(mask.shape[1:], block, strict=True)):
        raise ValueError(
            f"Units of {tuple(block)} cannot be hidden in masks of shape {tuple(mask.shape[1:])}: set unit to the block that "
            "is measured or missing together, and expand a mask that is one number."
        )
    units = [size // side for size, side in zip(mask.shape[1:], block, strict=True)]
    scores = uniform((len(mask), *units), generator, like=measurement.ybar)
    for dim, side in enumerate(block, start=1):
        scores = scores.repeat_interleave(side, dim)
    if partner is not None:
        number = torch.arange(scores[0].numel(), device=scores.device).reshape(1, *scores.shape[1:])
        scores = torch.where(number <= partner(number), scores, partner(scores))  # both get the score of the first
    low, high = share if isinstance(share, tuple) else (share, share)
    rate = torch.as_tensor(low, dtype=mask.dtype, device=mask.device)
    if high > low:
        drawn = uniform((len(mask),), generator, like=measurement.ybar)
        rate = (low + (high - low) * drawn).reshape(-1, *[1] * (mask.ndim - 1))
    hidden = mask * (scores < rate)
    if always is not None:
        return hidden * (1 - always.to(mask))
    last = (mask * scores).flatten(1).amax(1).reshape(-1, *[1] * (mask.ndim - 1))
    return hidden * (scores < last) if high > low else hidden


def _per_sample(part: Tensor, measurement: Measurement) -> Tensor:
    return part.expand(len(measurement), *part.shape[1:])


def _as_broadcastable(name: str, values: Tensor | float, ybar: Tensor) -> Tensor:
    """With ybar's dtype and number of dimensions. A vector is refused: is it one value a sample, or one a column?"""
    if values is None or (isinstance(values, Tensor) and values.is_complex()):
        raise ValueError(
            f"{name} is missing or complex: give real numbers; std is the noise of a kept entry, 0 if there is none."
        )
    values = torch.as_tensor(values, dtype=ybar.dtype, device=ybar.device)
    if values.ndim == 0:
        return values.reshape([1] * ybar.ndim)
    fits = values.ndim == ybar.ndim and all(
        mine in (1, other) for mine, other in zip(values.shape, ybar.shape, strict=True)
    )
    if not fits:
        raise ValueError(
            f"{name} has shape {tuple(values.shape)}, which does not broadcast against ybar's {tuple(ybar.shape)}: give a "
            f"number, or {ybar.ndim} dimensions, each 1 or ybar's; one value a sample has shape "
            f"{(len(ybar), *[1] * (ybar.ndim - 1))}."
        )
    return values
