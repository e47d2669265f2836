"""The held-out measurements that the checks read, and the noise that they add."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gsure.measurement import Measurement
from gsure.random import Stream, generators, normal
from gsure.training.validation import standard_error

Batch = tuple[Measurement, Tensor | None, Sequence[int]]
"""Measurements, the clean x̄ behind them if known, and their numbers in the file, which determine their noise."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Each call of `read` yields the same batches, which need not fit into memory together. `group` is the volume of each
    measurement, in the same order.
    """

    read: Callable[[], Iterator[Batch]]
    coverage: Float[Tensor, "..."]
    group: Int[Tensor, " n"]
    seed: int = 0

    def __len__(self) -> int:
        return len(self.group)

    def with_signals(self) -> Iterator[tuple[Measurement, Tensor, Sequence[int]]]:
        """The batches of `read`, which must have clean signals."""
        for measurement, xbar, indices in self.read():
            if xbar is None:
                raise ValueError("This check needs clean signals, but none were given with the measurements: add them.")
            yield measurement, xbar, indices

    def noise(self, like: Tensor, stream: Stream, *key: int, indices: Sequence[int]) -> Tensor:
        """Standard normal noise that depends on the seed, the key and the number of each measurement."""
        return normal(like.shape, generators(self.seed, stream, *key, indices=indices, device=like.device), like=like)

    def squared_weight(self, measurement: Measurement) -> Tensor:
        """(W P)² of the loss: 1/E[P] on measured entries."""
        inverse = torch.where(self.coverage > 0, 1 / self.coverage.double(), 0.0)
        return measurement.mask * inverse.to(measurement.ybar)

    def ratio(self, numerator: Float[Tensor, " n"], denominator: Float[Tensor, " n"]) -> tuple[float, float]:
        """The ratio of two means over measurements, with its standard error. Measurements of a group may be dependent."""
        ratio = numerator.sum() / denominator.sum()
        se = standard_error((numerator - ratio * denominator)[:, None], self.group) / denominator.mean()
        return float(ratio), float(se)
