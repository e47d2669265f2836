"""Do the masks cover the signal evenly? Assumption (iii) of the paper, E[P] > 0, and its third limitation.

An entry that is never measured cannot be learned. An entry that is rarely measured has a large weight 1/E[P] in the loss,
which also amplifies its noise. If two entries are never measured together, the data does not determine their correlation. If
masks are biased towards a region, or have very different ranks, the paper says that a network can no longer infer P from x̄_t.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.evaluation.checks.check import Check

NAME, TITLE = "coverage", "Do the masks cover the signal?"
MIN_COVERAGE = 0.05
"""Entries measured less often have a weight above 20 in the loss."""
MAX_BIAS = 10.0
"""The largest ratio between the coverage of two entries."""
MAX_RANK_SPREAD = 0.25
"""The largest standard deviation of the rank of P over samples, as a share of its mean."""
MAX_DISAGREEMENT = 6.0
"""The largest difference between the masks and a coverage in closed form, in standard errors."""
MAX_ENTRIES_PAIRED = 1024
"""Pairs are counted among at most this many entries."""
MAX_ENTRIES_SHOWN = 4096
"""diagnosis.json and the figure show the coverage of each entry if masks have at most this many entries."""


@dataclass(frozen=True, eq=False)
class Survey:
    """How often masks measure each entry and each pair of some entries, and the share of entries that each mask measures."""

    samples: int
    kept: Float[Tensor, "..."]
    share: Float[Tensor, " n"]
    entries: Tensor
    together: Float[Tensor, "k k"]


def survey(masks: Iterable[Float[Tensor, "b ..."]], generator: torch.Generator) -> Survey:
    """Compute the statistics over batches of masks."""
    count, kept, shares, entries, together = 0, torch.zeros(()), [], torch.zeros(0, dtype=torch.int64), torch.zeros(())
    for mask in masks:
        if not count:
            entries = torch.randperm(mask[0].numel(), generator=generator)[:MAX_ENTRIES_PAIRED].sort().values
        count += len(mask)
        kept = kept + mask.double().sum(0)
        shares.append(mask.double().flatten(1).mean(1))
        some = mask.flatten(1)[:, entries].double()
        together = together + some.mT @ some
    return Survey(count, kept / count, torch.cat(shares), entries, together / count)


def check_coverage(found: Survey, stated: Float[Tensor, "..."], has_closed_form: bool) -> Check:
    """`stated` is the E[P] of the file, which the loss uses. If it is a closed form, the masks must agree with it."""
    coverage = stated.double().expand(1, *found.kept.shape)[0]
    numbers: dict[str, Any] = {
        "masks": found.samples,
        "entries": coverage.numel(),
        "shape": list(coverage.shape),
        "least": float(coverage.min()),
        "most": float(coverage.max()),
        "never": int(((coverage == 0) | (found.kept == 0)).sum()),
        "rare": int(((coverage > 0) & (coverage < MIN_COVERAGE)).sum()),
        "rank": {name: float(getattr(found.share, name)()) for name in ("mean", "std", "min", "max")},
        "empty": int((found.share == 0).sum()),
        "kept": found.kept.flatten().tolist() if found.kept.numel() <= MAX_ENTRIES_SHOWN else None,
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
        f"Every entry is measured in {100 * numbers['least']:.3g} to {100 * numbers['most']:.3g} % of the samples, and every "
        f"pair of entries in at least {100 * numbers['least_together']:.2g} %. Masks keep {100 * rank['min']:.0f} to "
        f"{100 * rank['max']:.0f} % of the entries."
    )
    return Check(NAME, TITLE, verdict, " ".join([*broken, *doubts]) or words, numbers=numbers)


def _pairs(found: Survey) -> dict[str, Any]:
    """Statistics of pairs of entries, without entries that are never measured."""
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
    """Counts of shares in 0..1: of each value if there are few, otherwise in 40 bins."""
    values, counts = shares.unique(return_counts=True)
    if len(values) > 64:
        values, counts = (torch.arange(40) + 0.5) / 40, torch.histc(shares, 40, 0, 1)
    return {"share": values.tolist(), "count": counts.tolist()}


def _complaints(numbers: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Sentences on broken assumptions, and on doubtful ones."""
    broken, doubts, rank = [], [], numbers["rank"]
    if numbers["never"]:
        broken.append(
            f"{numbers['never']:,} of {numbers['entries']:,} entries are never measured, so they cannot be learned."
        )
    if numbers["rare"]:
        doubts.append(
            f"{numbers['rare']:,} of {numbers['entries']:,} entries are measured in less than "
            f"{100 * MIN_COVERAGE:g} % of the samples."
        )
    if numbers["pairs_apart"]:
        doubts.append(
            f"{numbers['pairs_apart']:,} of {numbers['pairs']:,} pairs of entries are never measured together in "
            f"{numbers['masks']:,} masks, so the data does not determine their correlation."
        )
    if numbers["least"] and numbers["most"] > MAX_BIAS * numbers["least"]:
        doubts.append(f"Some entries are measured {numbers['most'] / numbers['least']:.0f} times as often as others.")
    if rank["spread"] > MAX_RANK_SPREAD:
        doubts.append(
            f"Masks differ in rank: they keep {100 * rank['mean']:.0f} ± {100 * rank['std']:.0f} % of the entries."
        )
    if numbers["empty"]:
        doubts.append(f"{numbers['empty']:,} of {numbers['masks']:,} masks keep nothing.")
    if numbers.get("disagreement", 0.0) > MAX_DISAGREEMENT:
        doubts.append(
            f"The masks do not have the coverage that the file states: an entry differs by {numbers['disagreement']:.0f} "
            "standard errors, so the weights of the loss are wrong."
        )
    return broken, doubts
