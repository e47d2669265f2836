"""Canonical correlation between windows of error and mask, linear and deep, evaluated on samples that it was not fitted to.

Linear CCA finds directions a, b for which aᵀe and bᵀm correlate most. Deep CCA (Andrew, Arora, Bilmes and Livescu, 2013) does
so for the outputs H₁, H₂ of two small networks, by maximising the sum of their canonical correlations

    corr(H₁, H₂) = ‖Σ₁₁^(-½) Σ₁₂ Σ₂₂^(-½)‖_tr.

For stability we replace the roots, whose gradients divide by differences of eigenvalues, by Cholesky factors.
L₁⁻¹ Σ₁₂ L₂⁻ᵀ has the same singular values, and the gradient of their sum has no such division.

On the samples that they are fitted to, both methods find correlations even in noise. So the samples are split into three
parts: to fit, to select (when to stop, which pair of canonical variables), and to test. The functions do not depend on the
test samples, so shuffling the masks of these samples gives the level that a correlation reaches by chance.

Windows of all places go into one analysis, and every variable is centred over samples at each place. Otherwise error and mask
would correlate over places if both change over the signal (as in a spectrum), although they are independent at each place.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from gsure.random import forked, seed_from

Method = Literal["linear", "deep"]
Maps = tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]

PAIRS = 4
"""Number of fitted pairs of canonical variables. The pair that is best on the second part is tested."""
SHARES = (0.5, 0.7)
"""Ends of the parts: half of the samples to fit, a fifth to select, the rest to test."""
MAX_DEVIATIONS = 3.0
"""The level is this many standard deviations above the mean of shuffled correlations. By chance, 1 in 700 exceeds it."""
MIN_SAMPLES = 40
"""The smallest number of samples for which correlations are tested."""
MIN_GROUPS = 10
"""With fewer groups, samples are split without regard to them."""
RIDGE = 1e-3
"""Added to the variances, relative to their mean, because masks of entries that are missing together are collinear."""


class Rows(NamedTuple):
    """Windows of error and mask, and the place of each."""

    error: Float[Tensor, "k d"]
    mask: Float[Tensor, "k m"]
    place: Int[Tensor, " k"]


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of error and mask at the same p places of n samples, with r draws of noise for the error.

    Windows that are not `present` are ignored. Samples of one group (a volume) may be dependent.
    """

    error: Float[Tensor, "n r p d"]
    mask: Float[Tensor, "n p m"]
    present: Bool[Tensor, "n p"]
    group: Int[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.group)

    def __getitem__(self, samples: Int[Tensor, " k"]) -> "Windows":
        return Windows(self.error[samples], self.mask[samples], self.present[samples], self.group[samples])

    def rows(self) -> Rows:
        """All windows that are present, as rows."""
        draws = self.error.shape[1]
        mask, place = self.mask[self.present], torch.arange(self.mask.shape[1]).expand(self.present.shape)[self.present]
        error = self.error.movedim(1, 2)[self.present].flatten(0, 1)
        return Rows(error, mask.repeat_interleave(draws, 0), place.repeat_interleave(draws))

    def standardised(self, fit: Int[Tensor, " k"]) -> "Windows":
        """Each entry at each place with mean 0 and variance 1 over the samples `fit`; 0 where it never changes."""
        here = self.present
        error = _standardise(self.error, here[:, None, :, None], fit, (0, 1))
        return Windows(error, _standardise(self.mask, here[:, :, None], fit, (0,)), here, self.group)


class Correlation(NamedTuple):
    """A correlation, and the level that it could reach by chance."""

    value: float
    level: float


def correlate(
    windows: Windows, method: Method, generator: torch.Generator, permutations: int = 199, steps: int = 200
) -> Correlation:
    """The first canonical correlation between error and mask, on samples that were not used to fit it."""
    if len(windows) < MIN_SAMPLES:
        raise ValueError(f"Correlations need at least {MIN_SAMPLES} samples, but there are {len(windows)}: use more.")
    fit, select, test = part(windows.group, generator)
    windows = windows.standardised(fit)
    rows, others, tested = windows[fit].rows(), windows[select].rows(), windows[test]
    maps = linear_cca(rows) if method == "linear" else deep_cca(rows, others, steps=steps, generator=generator)
    best = int(pair_correlations(maps, others).argmax())
    with torch.no_grad():
        u, v = maps[0](tested.error)[..., best], maps[1](tested.mask)[..., best]
    orders = [shuffle(tested.group, generator) for _ in range(permutations)]
    chance = torch.tensor([_correlation(u, v, tested.present, order) for order in orders])
    level = float(chance.mean()) + MAX_DEVIATIONS * float(chance.std())
    return Correlation(_correlation(u, v, tested.present, torch.arange(len(v))), level)


def linear_cca(rows: Rows, pairs: int = PAIRS) -> Maps:
    """Two maps to canonical variables, the most correlated pair first. There are `pairs`, or fewer if a side is smaller.

    >>> x = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
    >>> rows = Rows(x, x[:, :1] + x[:, 1:2], torch.zeros(1000, dtype=torch.int64))
    >>> [round(r, 3) for r in pair_correlations(linear_cca(rows), rows).tolist()]
    [1.0]
    """
    between, factors = _whitened(rows)
    left, _, right = torch.linalg.svd(between, full_matrices=False)
    a, b = (
        torch.linalg.solve_triangular(factor.mT, vectors[:, :pairs], upper=True)
        for factor, vectors in zip(factors, (left, right.mT), strict=True)
    )
    return lambda error: error.double() @ a, lambda mask: mask.double() @ b


def deep_cca(
    rows: Rows,
    others: Rows,
    *,
    pairs: int = PAIRS,
    width: int = 64,
    steps: int = 200,
    patience: int = 80,
    batch: int = 1024,
    generator: torch.Generator,
) -> Maps:
    """Two small networks, followed by linear CCA of their outputs, with early stopping on `others`."""
    with forked(seed_from(generator)):
        networks = [_network(values.shape[1], width, pairs) for values in (rows.error, rows.mask)]
    parameters = [p for network in networks for p in network.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=3e-3, weight_decay=1e-2)
    best, found = (-1.0, 0), None
    for step in range(1, steps + 1):
        some = torch.randint(len(rows.place), (min(batch, len(rows.place)),), generator=generator)
        between, _ = _whitened(_outputs(networks, Rows(*(part[some] for part in rows))))
        optimizer.zero_grad()
        (-torch.linalg.svdvals(between).sum()).backward()
        optimizer.step()
        if step % 20 == 0 or step == steps:
            maps = _compose(networks, rows)
            if (value := float(pair_correlations(maps, others).max())) > best[0] or found is None:
                best, found = (value, step), maps
            elif step - best[1] >= patience:
                break
    assert found is not None
    return found


def pair_correlations(maps: Maps, rows: Rows) -> Float[Tensor, " pairs"]:
    """Correlation between the first canonical variables of both sides, the second, and so on."""
    with torch.no_grad():
        u, v = _centre(maps[0](rows.error), rows.place), _centre(maps[1](rows.mask), rows.place)
    return (u * v).sum(0) / (u.square().sum(0) * v.square().sum(0)).sqrt().clamp(min=1e-12)


def part(group: Int[Tensor, " n"], generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Samples to fit, to select and to test. No group is in two parts, unless there are fewer than ten groups, or one is so
    large that a part would be empty.
    """
    names, group = torch.unique(group, return_inverse=True)
    alone = torch.arange(len(group))
    parts = _cut(group if len(names) >= MIN_GROUPS else alone, generator)
    return parts if min(map(len, parts)) > 0 else _cut(alone, generator)


def _cut(group: Int[Tensor, " n"], generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    order = shuffle(group, generator)
    ends = [round(share * len(order)) for share in SHARES]
    first, second = (
        next((k for k in range(end, len(order)) if group[order[k]] != group[order[k - 1]]), end) for end in ends
    )
    return order[:first], order[first:second], order[second:]


def shuffle(group: Int[Tensor, " n"], generator: torch.Generator) -> Int[Tensor, " n"]:
    """Samples in random order, with the samples of each group together."""
    rank = torch.randperm(int(group.max()) + 1, generator=generator)
    return torch.argsort(rank[group], stable=True)


def _correlation(u: Tensor, v: Tensor, present: Tensor, order: Tensor) -> float:
    """Correlation of u (n, r, p) and v (n, p), with the samples of v reordered, over windows that are present in both."""
    weight = (present & present[order]).to(u)[:, None].expand_as(u)
    share = weight / weight.sum((0, 1)).clamp(min=1)
    v = v[order][:, None]
    u, v = u - (share * u).sum((0, 1)), v - (share * v).sum((0, 1))
    return float((weight * u * v).sum() / ((weight * u * u).sum() * (weight * v * v).sum()).sqrt().clamp(min=1e-12))


def _standardise(values: Tensor, present: Tensor, fit: Tensor, over: tuple[int, ...]) -> Tensor:
    chosen = values[fit]
    weight = present[fit].to(values).expand_as(chosen)
    weight = weight / weight.sum(over, keepdim=True).clamp(min=1)
    mean = (weight * chosen).sum(over, keepdim=True)
    variance = (weight * (chosen - mean) ** 2).sum(over, keepdim=True)
    return (values - mean) * torch.where(variance > 1e-10 * (mean**2 + variance), variance.rsqrt(), 0.0)


def _whitened(rows: Rows) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """L₁⁻¹ Σ₁₂ L₂⁻ᵀ, whose singular values are the canonical correlations, and the factors L."""
    x, y = _centre(rows.error.double(), rows.place), _centre(rows.mask.double(), rows.place)
    factors = _factor(x), _factor(y)
    half = torch.linalg.solve_triangular(factors[0], x.mT @ y / len(x), upper=False)
    return torch.linalg.solve_triangular(factors[1], half.mT, upper=False).mT, factors


def _centre(values: Tensor, place: Tensor) -> Tensor:
    """Subtract the mean over all windows of the same place."""
    sums = values.new_zeros(int(place.max()) + 1, values.shape[1]).index_add(0, place, values)
    return values - (sums / place.bincount().clamp(min=1)[:, None])[place]


def _factor(centred: Tensor) -> Tensor:
    covariance = centred.mT @ centred / len(centred)
    ridge = RIDGE * covariance.diagonal().mean().clamp(min=1e-12)
    return torch.linalg.cholesky(covariance + ridge * torch.eye(len(covariance), dtype=covariance.dtype))


def _network(inputs: int, width: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, outputs)
    )


def _outputs(networks: list[nn.Sequential], rows: Rows) -> Rows:
    return Rows(networks[0](rows.error), networks[1](rows.mask), rows.place)


def _compose(networks: list[nn.Sequential], rows: Rows) -> Maps:
    """A copy of the networks, followed by linear CCA of their outputs."""
    now = copy.deepcopy(networks)
    with torch.no_grad():
        f, g = linear_cca(_outputs(now, rows))
    return lambda error: f(now[0](error)), lambda mask: g(now[1](mask))
