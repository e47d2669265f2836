"""Do the masks cover the signal, and evenly? Assumption (iii) of the paper, E[P] > 0, and its third limitation.

An entry that is never measured cannot be learned. One that is hardly ever measured has a large weight 1/E[P] in the loss, and
so has its noise. Two entries that are never measured together tell nothing of how they go together. And of masks that are
biased towards a region, or of very different rank, the paper says that a network can no longer infer P from x̄_t.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.evaluation.checks.check import Check

NAME, TITLE = "coverage", "Do the masks cover the signal?"
RARE = 0.05
"""Entries measured less often than this are hardly ever measured: their weight in the loss is above 20."""
BIAS = 10.0
"""The most covered entry may be measured so many times as often as the least."""
SPREAD = 0.25
"""The rank of P may vary from sample to sample by this share of its mean (standard deviation)."""
ENTRIES = 1024
"""Of how many entries all pairs are looked at, at most."""
SHOWN = 4096
"""Entries of a mask that diagnosis.json lists, and the figure shows, at most."""


@dataclass(frozen=True, eq=False)
class Survey:
    """What masks have in common: how often each entry is kept, each pair of some entries, and how many entries in a mask."""

    samples: int
    kept: Float[Tensor, "..."]
    share: Float[Tensor, " n"]
    entries: Tensor
    together: Float[Tensor, "k k"]


def survey(masks: Iterable[Float[Tensor, "b ..."]], generator: torch.Generator) -> Survey:
    """Count, one batch of masks after the other."""
    count, kept, shares, entries, together = 0, torch.zeros(()), [], torch.zeros(0, dtype=torch.int64), torch.zeros(())
    for mask in masks:
        if not count:
            entries = torch.randperm(mask[0].numel(), generator=generator)[:ENTRIES].sort().values
        count += len(mask)
        kept = kept + mask.double().sum(0)
        shares.append(mask.double().flatten(1).mean(1))
        some = mask.flatten(1)[:, entries].double()
        together = together + some.mT @ some
    return Survey(count, kept / count, torch.cat(shares), entries, together / count)


def check_coverage(found: Survey, stated: Float[Tensor, "..."], has_closed_form: bool) -> Check:
    """`stated` is E[P] as the file has it, by which the loss is weighted; masks must agree with a closed form."""
    coverage = stated.double().expand(1, *found.kept.shape)[0]
    numbers: dict[str, Any] = {
        "masks": found.samples,
        "entries": coverage.numel(),
        "shape": list(coverage.shape),
        "least": float(coverage.min()),
        "most": float(coverage.max()),
        "never": int(((coverage == 0) | (found.kept == 0)).sum()),
        "rare": int(((coverage > 0) & (coverage < RARE)).sum()),
        "rank": {name: float(getattr(found.share, name)()) for name in ("mean", "std", "min", "max")},
        "empty": int((found.share == 0).sum()),
        "kept": found.kept.flatten().tolist() if found.kept.numel() <= SHOWN else None,
        "ranks": _histogram(found.share),
        **_pairs(found),
    }
    numbers["rank"]["spread"] = numbers["rank"]["std"] / max(1e-12, numbers["rank"]["mean"])
    if has_closed_form:
        error = (coverage * (1 - coverage) / found.samples).sqrt().clamp(min=0.5 / found.samples)
        numbers["disagreement"] = float(((found.kept - coverage).abs() / error).max())
    broken, doubts = _complaints(numbers)
    verdict = "broken" if broken else "doubtful" if doubts else "holds"
    rank = numbers["rank"]
    words = (
        f"Every entry is measured in {100 * numbers['least']:.3g} to {100 * numbers['most']:.3g} % of the samples, every pair "
        f"together in at least {100 * numbers['least_together']:.2g} %; masks keep {100 * rank['min']:.0f} to "
        f"{100 * rank['max']:.0f} % of the entries."
    )
    return Check(NAME, TITLE, verdict, " ".join([*broken, *doubts]) or words, numbers=numbers)


def _pairs(found: Survey) -> dict[str, Any]:
    """Of entries that are measured at all."""
    measured = found.together.diagonal() > 0
    together = found.together[measured][:, measured]
    pairs = together[torch.triu_indices(len(together), len(together), 1).unbind()] if len(together) > 1 else together
    return {
        "pairs": pairs.numel(),
        "pairs_apart": int((pairs == 0).sum()),
        "togethers": _histogram(pairs.flatten()),
        "least_together": float(pairs.min()) if pairs.numel() else 0.0,
    }


def _histogram(shares: Float[Tensor, " k"]) -> dict[str, list[float]]:
    """How often each share in 0..1 occurs: as they are if they are few, else in 40 bins."""
    values, counts = shares.unique(return_counts=True)
    if len(values) > 64:
        values, counts = (torch.arange(40) + 0.5) / 40, torch.histc(shares, 40, 0, 1)
    return {"share": values.tolist(), "count": counts.tolist()}


def _complaints(numbers: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Sentences on what cannot be, and on what is doubtful."""
    broken, doubts, rank = [], [], numbers["rank"]
    if numbers["never"]:
        broken.append(
            f"{numbers['never']:,} of {numbers['entries']:,} entries are never measured: nothing can be learned of them."
        )
    if numbers["rare"]:
        doubts.append(
            f"{numbers['rare']:,} of {numbers['entries']:,} entries are measured in less than {100 * RARE:g} % of the samples."
        )
    if numbers["pairs_apart"]:
        doubts.append(
            f"{numbers['pairs_apart']:,} of {numbers['pairs']:,} pairs of entries are never measured together in "
            f"{numbers['masks']:,} masks: how they go together is not in the data."
        )
    if numbers["least"] and numbers["most"] > BIAS * numbers["least"]:
        doubts.append(f"Some entries are measured {numbers['most'] / numbers['least']:.0f} times as often as others.")
    if rank["spread"] > SPREAD:
        doubts.append(
            f"Masks differ in rank: they keep {100 * rank['mean']:.0f} ± {100 * rank['std']:.0f} % of the entries."
        )
    if numbers["empty"]:
        doubts.append(f"{numbers['empty']:,} of {numbers['masks']:,} masks keep nothing.")
    if numbers.get("disagreement", 0.0) > 6:
        doubts.append(
            f"The masks do not have the coverage that the file states: some entry is off by {numbers['disagreement']:.0f} "
            "standard errors, and the loss is weighted wrongly."
        )
    return broken, doubts
