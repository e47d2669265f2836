"""Images relative to a phase reference. The phase of an MR image is smooth, and so known from the centre of k-space.

    u = phase of the image that the always-measured central lines make,    conj(u) · image is nearly real.

A Gaussian of [Re; Im] of that knows that the imaginary part is small, which one of complex images cannot. Only lines that
every measurement has enter the reference, so it tells nothing of lines that are hidden to judge a model.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from gsure.gaussian.base import Gaussian
from gsure.gaussian.coordinates import Rows, Vectors
from gsure.gaussian.referenced import (
    GivenReferenced,
    System,
    Turned,
    as_parts,
    entries_at,
    first_entries,
    from_parts,
    matrix_of,
    over_rows,
    plane_of,
    to_image,
    to_spectrum,
    unit,
)
from gsure.measurement import Measurement
from gsure.random import Seed, as_generators, normal

MIN_LINES = 4
"""A phase reference needs at least so many central lines."""
SMOOTHING, SMOOTHING_REFINED = 1.0, 2.0
"""Standard deviation in rows of the smoothing of the reference."""
ROUNDS = 2
"""How often a reference is refined."""
ROUNDING = 16
"""Noise is at least so many times the rounding error of the variances of a row: clean data has no other."""
AT_ONCE = 2**24
"""Numbers of the measurement matrices that are held at once."""
KEPT = 2**28
"""Bytes of references that are kept: 8,192 of images of 64 × 64."""


@dataclass(frozen=True, eq=False)
class Reference:
    """The phase reference of measurements whose central lines are always there.

    `taper` (w,) weighs these lines and is 0 elsewhere; `refiner` is a Gaussian relative to the plain reference, whose
    posterior mean given the central lines alone has a sharper phase.
    """

    rows: Rows
    taper: Float[Tensor, " w"]
    refiner: "ReferencedGaussian | None" = None

    @staticmethod
    def of_lines(rows: Rows, always: Float[Tensor, " w"]) -> "Reference | None":
        """From the lines that are always measured; None if those around the middle are too few."""
        middle, width = len(always) // 2, len(always)
        if not always[middle]:
            return None
        first = last = middle
        while first > 0 and always[first - 1]:
            first -= 1
        while last + 1 < width and always[last + 1]:
            last += 1
        reach = min(middle - first, last - middle + 1)  # as far to the left as to the right, but for one
        if 2 * reach < MIN_LINES:
            return None
        taper = torch.zeros(width)
        taper[middle - reach : middle + reach] = 1.0
        taper[middle - reach] = 0.5  # its mirror image is missing
        return Reference(rows, taper)

    def to(self, device: torch.device | str) -> "Reference":
        refiner = None if self.refiner is None else self.refiner.to(device)
        return replace(self, taper=self.taper.to(device), refiner=refiner)

    def __call__(self, measurement: Measurement) -> Shaped[Tensor, "b r w"]:
        """u of each measurement, row by row, of modulus 1. Training asks for the same ones again and again: they are kept.

        They are found one by one, so that none depends on the others of a batch, not even by rounding.
        """
        central, found = self._central(measurement), []
        values, _, variance = self.rows.vectors(central)
        lines = (self.taper > 0).nonzero()[:, 0]
        told = torch.cat([torch.view_as_real(values[..., lines]).flatten(1), variance[:, lines]], 1).cpu().numpy()
        for k, row in enumerate(told):
            key = hashlib.blake2b(row.tobytes(), digest_size=16).digest()
            if key not in self._kept:
                u = self._of(central[k : k + 1], values[k : k + 1])
                if len(self._kept) >= KEPT // (u.numel() * u.element_size()):
                    self._kept.pop(next(iter(self._kept)))  # the oldest
                self._kept[key] = u
            found.append(self._kept[key])
        return torch.cat(found)

    @cached_property
    def _kept(self) -> dict[bytes, Tensor]:
        return {}

    def _of(self, central: Measurement, values: Shaped[Tensor, "b r w"]) -> Shaped[Tensor, "b r w"]:
        u = unit(over_rows(to_image(values * self.taper), self.rows.neighbours, SMOOTHING))
        if self.refiner is None:
            return u
        for _ in range(ROUNDS):
            rows = self.refiner.posterior_rows(central, u)
            u = unit(over_rows(rows, self.rows.neighbours, SMOOTHING_REFINED))
        return u

    def _central(self, measurement: Measurement) -> Measurement:
        """The measurement of the central lines alone."""
        is_central = (self.taper > 0).to(measurement.mask)
        shape = [1, 1, 1, 1]
        shape[-3 - self.rows.axis] = len(is_central)
        return measurement.hide(1 - is_central.reshape(shape))


@dataclass(frozen=True, eq=False)
class ReferencedGaussian(Gaussian):
    """[Re; Im] of conj(u) · rows ~ N(μ, C), row by row."""

    rows: Rows
    mu: Float[Tensor, "r v"]
    covariance: Float[Tensor, "r v v"]
    reference: Reference
    known: Shaped[Tensor, "b r w"] | None = None
    """u of each measurement, if it is not to be found anew."""

    def to(self, device: torch.device | str) -> "ReferencedGaussian":
        return replace(
            self,
            mu=self.mu.to(device),
            covariance=self.covariance.to(device),
            reference=self.reference.to(device),
        )

    def centred(self, measurement: Measurement) -> "ReferencedGaussian":
        return replace(self, mu=torch.zeros_like(self.mu), known=self.reference(measurement))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {"mean": self.mu, "covariance": self.covariance, "taper": self.reference.taper}
        if self.reference.refiner is not None:
            inner, _ = self.reference.refiner.state()
            tensors |= {f"refiner.{name}": value for name, value in inner.items()}
        return tensors, self.rows.header() | {"structure": "referenced rows"}

    def mean(self, measurement: Measurement) -> Float[Tensor, "b *n"]:
        return self.mean_and_phase(measurement)[0]

    def mean_and_phase(self, measurement: Measurement) -> tuple[Float[Tensor, "b *n"], Shaped[Tensor, "b p h w"]]:
        u = self.reference(measurement) if self.known is None else self.known
        found = [self.posterior_rows(measurement[k : k + 1], u[k : k + 1]) for k in range(len(measurement))]
        return self.rows.spectral(to_spectrum(torch.cat(found))).to(measurement.ybar), plane_of(self.rows, u)

    def denoise(self, ybar: Float[Tensor, "b *n"], sigma: Float[Tensor, " b"]) -> Float[Tensor, "b *n"]:
        return self.denoise_and_phase(ybar, sigma)[0]

    def denoise_and_phase(
        self, ybar: Float[Tensor, "b *n"], sigma: Float[Tensor, " b"]
    ) -> tuple[Float[Tensor, "b *n"], Shaped[Tensor, "b p h w"]]:
        fully = Measurement._trusted(ybar, ybar.new_ones([1] * ybar.ndim), sigma.reshape(-1, *[1] * (ybar.ndim - 1)))
        u, eigenvalues, rotation = self.reference(fully), *self._eigen
        away = as_parts(to_image(self.rows.vectors(fully).values) * u.conj()) - self.mu
        gain = eigenvalues / (eigenvalues + sigma[:, None, None] ** 2)
        found = self.mu + torch.einsum("rvw,brw->brv", rotation, gain * torch.einsum("rvw,brv->brw", rotation, away))
        return self.rows.spectral(to_spectrum(u * from_parts(found))).to(ybar), plane_of(self.rows, u)

    @cached_property
    def _eigen(self) -> tuple[Float[Tensor, "r v"], Float[Tensor, "r v v"]]:
        values, vectors = torch.linalg.eigh(self.covariance)
        return values.clamp(min=0), vectors

    @property
    def variances(self) -> Float[Tensor, " k"]:
        return self._eigen[0].flatten()

    def posterior_rows(self, measurement: Measurement, u: Shaped[Tensor, "b r w"]) -> Shaped[Tensor, "b r w"]:
        """The posterior mean of the rows of the image, given the reference."""
        system = self._system(self.rows.vectors(measurement), u)
        return u * from_parts((self.mu[:, None] + system.shift()).movedim(0, 1))

    def std(self, measurement: Measurement) -> Float[Tensor, "b *n"]:
        """Exact given the reference: real and imaginary part of u · v mix the variances of v."""
        parts = []
        for some in self._parts(measurement):
            u = self.reference(some)
            system = self._system(self.rows.vectors(some), u)
            explained = system.explained().movedim(0, 1)  # b, r, v, k
            own = torch.diagonal(self.covariance, dim1=1, dim2=2) - explained.square().sum(3)
            w = self.mu.shape[1] // 2
            mixed = torch.diagonal(self.covariance[:, :w, w:], dim1=1, dim2=2)
            mixed = mixed - (explained[..., :w, :] * explained[..., w:, :]).sum(3)
            re, im = own[..., :w], own[..., w:]
            real = u.real**2 * re + u.imag**2 * im - 2 * u.real * u.imag * mixed
            imaginary = u.imag**2 * re + u.real**2 * im + 2 * u.real * u.imag * mixed
            planes = [plane_of(self.rows, part) for part in (real, imaginary)]
            parts.append(torch.stack(planes, 2).flatten(1, 2).clamp(min=0).sqrt())
        return torch.cat(parts).to(measurement.ybar)

    def draw(self, measurement: Measurement, generator: Seed) -> Float[Tensor, "b *n"]:
        """A draw from the prior, corrected by the posterior mean of its residual; rows are drawn independently."""
        ybar, mask, std = measurement.ybar, measurement.mask, measurement.std
        generator = as_generators(generator, ybar.device)
        u = self.reference(measurement)
        white = normal(ybar.shape, generator, ybar).reshape(len(ybar), len(self.mu), -1)
        values, vectors = self._eigen  # by rounding, some may be below zero: a Cholesky factor may not exist
        root = vectors * values.sqrt()[:, None]
        v = torch.einsum("rvw,brw->brv", root, white.to(root))
        drawn = self.rows.spectral(to_spectrum(u * from_parts(v + self.mu))).to(ybar)
        residual = Measurement._trusted(mask * (ybar - drawn - std * normal(ybar.shape, generator, ybar)), mask, std)
        centred_model = replace(self, mu=torch.zeros_like(self.mu))
        shifts = []
        for k, some in self._numbered(residual):
            shifts.append(centred_model.posterior_rows(some, u[k : k + len(some)]))
        return drawn + self.rows.spectral(to_spectrum(torch.cat(shifts))).to(ybar)

    def improved(
        self, batches: Iterable[Measurement], rate: Callable[[int], float], smooth: Callable[[Tensor], Tensor]
    ) -> "ReferencedGaussian":
        """Online expectation-maximisation: after each batch, a step of this rate towards its posterior moments."""
        model = self
        for number, batch in enumerate(batches):
            mean, second = model._posterior_moments(batch)
            step = rate(number)
            covariance = smooth((1 - step) * model.covariance + step * second)
            model = replace(model, mu=(1 - step) * model.mu + step * mean, covariance=(covariance + covariance.mT) / 2)
        return model

    def _posterior_moments(self, batch: Measurement) -> tuple[Tensor, Tensor]:
        """Mean and covariance of v over a batch: of posterior means, and the posterior covariance on average."""
        shifts, information = [], torch.zeros_like(self.covariance)
        for some in self._parts(batch):
            system = self._system(self.rows.vectors(some), self.reference(some))
            shifts.append(system.shift())
            information += system.information()
        shift = torch.cat(shifts, 1)  # r, b, v
        mean = shift.mean(1)
        away = shift - mean[:, None]
        remaining = self.covariance - self.covariance @ (information / len(batch)) @ self.covariance
        return self.mu + mean, away.mT @ away / len(batch) + remaining

    def _system(self, vectors: Vectors, u: Shaped[Tensor, "b r w"]) -> System:
        values, mask, variance = vectors
        order, valid = first_entries(mask)
        matrix = matrix_of(order, valid, u)
        measured = entries_at(values, order, valid)
        rounding = ROUNDING * torch.finfo(self.mu.dtype).eps * self.covariance.diagonal(dim1=1, dim2=2).sum(1).max()
        noise = torch.where(valid > 0, torch.maximum(variance.gather(1, order) / 2, rounding), 1.0).repeat(1, 2)
        r, b, k, v = matrix.shape
        across = (matrix.reshape(r, b * k, v) @ self.covariance).reshape(r, b, k, v)
        inner = across @ matrix.mT + torch.diag_embed(noise)
        residual = measured - (matrix @ self.mu[:, None, :, None])[..., 0]
        return System(matrix, across, torch.linalg.cholesky(inner), residual)

    def given(self, measurement: Measurement) -> GivenReferenced:
        """The reference, too, comes from measured entries alone, and does not change."""
        turned, phases = [], []
        mask = self.rows.vectors(measurement).mask
        order, valid = first_entries(1 - mask)
        for k, some in self._numbered(measurement):
            u = self.reference(some)
            system = self._system(self.rows.vectors(some), u)
            missing = matrix_of(order[k : k + len(some)], valid[k : k + len(some)], u)
            explained = system.explained()
            remaining = self.covariance[:, None] - explained @ explained.mT
            turned.append(Turned.of(self.mu[:, None] + system.shift(), missing, remaining))
            phases.append(u)
        return GivenReferenced(self.rows, torch.cat(phases), order, valid, Turned.cat(turned))

    def _parts(self, measurement: Measurement) -> list[Measurement]:
        return [some for _, some in self._numbered(measurement)]

    def _numbered(self, measurement: Measurement) -> list[tuple[int, Measurement]]:
        width = self.mu.shape[1] // 2
        kept = max(1, int(measurement.mask.flatten(1).sum(1).max()))
        at_once = max(1, AT_ONCE // (4 * len(self.mu) * kept * width))
        return [(k, measurement[k : k + at_once]) for k in range(0, len(measurement), at_once)]
