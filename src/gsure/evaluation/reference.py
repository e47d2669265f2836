"""Real signals to compare samples with: their two halves, their features, which are cached, and their pixels."""

import contextlib
import hashlib
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from gsure.data.measurements import Measurements, Signals
from gsure.display import bar
from gsure.files import replacing
from gsure.metrics.features import Features
from gsure.random import normal

MAX_SIGNALS = 256
"""Number of signals in memory at a time."""
MAX_SIDE = 32
"""Larger images are downsampled to this side before pixels are compared: their correlations would not fit into memory."""
Read = Callable[[np.ndarray], Tensor]
"""From positions to signals."""
See = Callable[[Tensor, np.ndarray, list[torch.Generator]], Tensor]
"""From signals to their measurements, with the masks and noise levels of the reference at these positions."""


@dataclass(frozen=True)
class Reference:
    """Real signals, or their measurements in signal space, to compare samples with."""

    name: str
    location: str | None
    header: Mapping[str, Any]
    shape: tuple[int, ...]
    groups: Sequence[str]
    read: Read
    see: See
    fingerprint: str

    @staticmethod
    def clean(signals: Signals) -> "Reference":
        about = signals.name, signals.location, signals.header, tuple(signals.shape), signals.groups()
        return Reference(*about, signals.__getitem__, lambda x, where, generator: x, signals.fingerprint())

    @staticmethod
    def measured(data: Measurements) -> "Reference":
        """`see` measures signals with the masks and the noise level of the file, whether simulated or real."""

        def see(x: Tensor, where: np.ndarray, generator: list[torch.Generator]) -> Tensor:
            like = data[where]
            xbar = data.basis.to_spectral(x)
            return data.basis.to_signal(like.mask * (xbar + like.std * normal(xbar.shape, generator, like=xbar)))

        about = data.name, data.location, data.header, tuple(data.shape), data.groups()
        return Reference(*about, lambda where: data.basis.to_signal(data[where].ybar), see, data.fingerprint())

    def __len__(self) -> int:
        return len(self.groups)

    def part(self, positions: np.ndarray) -> "Reference":
        return replace(
            self,
            groups=[self.groups[k] for k in positions],
            read=lambda where: self.read(positions[where]),
            see=lambda x, where, generator: self.see(x, positions[where], generator),
            fingerprint=_hash(self.fingerprint, positions.tolist())[:16],
        )

    def halves(self, generator: torch.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Positions of two disjoint halves, in random order. If there are several volumes, no volume is in both halves."""
        names, of = np.unique(np.asarray(self.groups), return_inverse=True)
        if len(names) == 1:
            of = np.arange(len(self))
        order = torch.randperm(int(of.max()) + 1, generator=generator).numpy()
        sizes = np.bincount(of)[order]
        first = np.isin(of, order[sizes.cumsum() - sizes / 2 <= len(self) / 2])
        mixed = torch.randperm(
            len(self), generator=generator
        ).numpy()  # otherwise the first N would come from few volumes
        return mixed[first[mixed]], mixed[~first[mixed]]


def features_of_reference(features: Features, reference: Reference, progress: bool) -> Tensor:
    """Features of the reference. Those of a network are cached; those fitted to the reference are cheap."""
    if "fitted_on" in features.about:
        return features_of(features, reference.read, len(reference), "the reference", progress)
    key = _hash(reference.fingerprint, features.fingerprint)
    path = cache_folder() / f"features-{key[:32]}.npz"
    with contextlib.suppress(OSError, KeyError, ValueError, zipfile.BadZipFile):  # a damaged file is written again
        with np.load(path, allow_pickle=False) as stored:
            found = torch.from_numpy(stored["features"])
        if found.shape == (len(reference), features.num_features):
            return found
    found = features_of(features, reference.read, len(reference), "the reference", progress)
    with contextlib.suppress(OSError):  # caching is optional
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as stream:
            np.savez(stream, features=found.numpy())
    return found


def features_of(features: Features, read: Read, n: int, what: str, progress: bool) -> Tensor:
    parts = []
    with bar(f"features of {what}", n, progress) as advance:
        for where in chunks(n):
            parts.append(features(read(where)))
            advance(len(where))
    return torch.cat(parts)


def pixels_of(read: Read, n: int) -> Tensor:
    """A row for each signal: all its entries, or those of a large image after downsampling."""
    parts = []
    for where in chunks(n):
        x = read(where)
        if x.ndim == 4 and max(x.shape[2:]) > MAX_SIDE:
            x = adaptive_avg_pool2d(x, (min(MAX_SIDE, x.shape[2]), min(MAX_SIDE, x.shape[3])))
        parts.append(x.flatten(1))
    return torch.cat(parts)


def chunks(n: int) -> list[np.ndarray]:
    return np.array_split(np.arange(n), -(-n // MAX_SIGNALS))


def _hash(*parts: Any) -> str:
    return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/gsure, or ~/.cache/gsure."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gsure"
