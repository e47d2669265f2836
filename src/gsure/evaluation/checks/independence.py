"""Is the denoising error independent of the mask? Proposition 1 (thm:ensemble) needs it, and no network quite obeys.

As in the paper: canonical correlation, linear and deep, between windows of the error e = f(x̄_t) - x̄ and of P at the same
place, against t. Beyond the paper: how far chance reaches, and what the assumption is for: E‖W P e‖² / E‖e‖², the share of the
error that the loss sees, which independence makes 1.

Without clean signals the error is known on kept entries only, and there but for noise: ((1-ρ) f + ρ x̄_t/√ᾱ - ȳ)/(1-ρ) is f - x̄
and Gaussian noise that is independent of x̄, x̄_t and P (docs/method.md). Then the error of a window is that of the entry in its
middle, where it was kept. Noise can hide a correlation but not make one, so what is found is there; but the error of dropped
entries, by which the assumption fails first, is not seen.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gsure.denoiser import BaseDenoiser
from gsure.evaluation.checks.check import Check, judge
from gsure.evaluation.checks.correlation import Windows, correlate
from gsure.evaluation.checks.windows import Places, as_images, place_windows
from gsure.measurement import Measurement
from gsure.random import Generators, generators, normal

NAME, TITLE = "independence", "Is the denoising error independent of the mask?"
WEAK = 0.1
"""Correlations up to this are too weak to matter, even where they are certain; so is a share of the error within this of 1."""
LEAST = 0.1
"""Without clean signals, times at which 1 - ρ is below it are left out: noise would be divided by it."""
ROWS = 512
"""Fewer measurements than this are looked at under several draws of noise, 4 at most."""
STREAM = 11
"""Keeps this noise apart from that of training and validation."""

Batch = tuple[Measurement, Tensor | None, Sequence[int]]
"""Measurements, the clean x̄ behind them if there is one, and their numbers in the file, which determine their noise."""
Read = Callable[[], Iterator[Batch]]
"""Reads the same measurements again for each time; so they need not fit into memory."""


def check_independence(
    denoiser: BaseDenoiser,
    read: Read,
    times: Sequence[int],
    coverage: Float[Tensor, "..."],
    group: Int[Tensor, " n"],
    *,
    seed: int = 0,
    advance: Callable[[int], None] = lambda done: None,
) -> Check:
    """Canonical correlations and the share of the error that the loss sees, at each time, and in words what they say.

    `group` says which measurements, in the order of `read`, are of one volume.
    """
    masks, loudest = [], 0.0
    for measurement, xbar, _ in read():  # noqa: B007
        masks.append(measurement.mask.expand(len(measurement), *measurement.mask.shape[1:]))
        loudest = max(loudest, measurement.max_std)
    places = place_windows(torch.cat(masks), measurement.shape[1:], overlap=xbar is None)
    if not places.corners:
        return Check(NAME, TITLE, "holds", "All masks are the same, so nothing can depend on them.")
    if xbar is None:
        quiet = [t for t in times if 1 - (loudest / float(denoiser.schedule.sigma[t])) ** 2 < LEAST]
        times = [t for t in times if t not in quiet]
        advance(len(quiet))
    draws = max(1, min(4, -(-ROWS // len(group))))
    rows = []
    for t in times:
        windows, row = _gather(denoiser, read, t, places, coverage, group, draws, seed)
        (generator,) = generators(seed, STREAM, indices=[t])
        for kind in ("linear", "deep"):
            found = correlate(windows, kind, generator)
            row |= {kind: found.value, f"{kind}_level": found.level}
        rows.append({"t": t, **row})
        advance(1)
    numbers = {"window": list(places.size), "places": len(places.corners), "measurements": len(group), "draws": draws}
    numbers |= {"error": "of kept entries" if xbar is None else "of all entries", "times": rows}
    return _in_words(numbers, denoiser.schedule.T)


@torch.no_grad()
def denoising_error(
    denoiser: BaseDenoiser,
    measurement: Measurement,
    t: Int[Tensor, " b"],
    xbar: Float[Tensor, "b *n"] | None,
    generator: Generators,
) -> Float[Tensor, "b *n"]:
    """f(x̄_t) - x̄; without x̄, that and independent noise on kept entries, and 0 on the others."""
    alpha_bar_t = denoiser.schedule.at(t, like=measurement.ybar)
    xbar_t = measurement.perturb(alpha_bar_t, normal(measurement.shape, generator, like=measurement.ybar))
    xbar_hat = denoiser(xbar_t, t, measurement.mask)
    if xbar is not None:
        return xbar_hat - xbar
    rho = (alpha_bar_t * (measurement.mask * measurement.std) ** 2 / (1 - alpha_bar_t)).to(xbar_t)
    noisy = xbar_t / alpha_bar_t.sqrt().to(xbar_t)
    return measurement.mask * ((1 - rho) * xbar_hat + rho * noisy - measurement.ybar) / (1 - rho)


def _gather(
    denoiser: BaseDenoiser,
    read: Read,
    t: int,
    places: Places,
    coverage: Tensor,
    group: Tensor,
    draws: int,
    seed: int,
) -> tuple[Windows, dict[str, float]]:
    """Windows of error and mask at one time; and the share of the error that the loss sees, where all of it is known."""
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    sums: list[Tensor] = []
    xbar = None
    for measurement, xbar, indices in read():
        mask = as_images(measurement.mask)
        middle = (mask.shape[2] > 1, mask.shape[3] > 1) if xbar is None else (False, False)
        weight = torch.where(coverage > 0, 1 / coverage, 0.0).to(measurement.ybar) * measurement.mask
        time, errors, total = torch.full((len(measurement),), t), [], torch.zeros(())
        for draw in range(draws):
            error = denoising_error(
                denoiser, measurement, time, xbar, generators(seed, STREAM, t, draw, indices=indices)
            )
            errors.append(places.cut(error, middle).float().cpu())
            square = error.double() ** 2
            total = total + torch.stack([(weight * square).flatten(1).sum(1), square.flatten(1).sum(1)]).cpu()
        kept = places.cut(mask, middle).amin(2) == 1
        parts.append(
            (
                torch.stack(errors, 1),
                places.cut(mask).float().cpu(),
                (kept if xbar is None else torch.ones_like(kept)).cpu(),
            )
        )
        sums.append(total)
    error, mask, present = (torch.cat(some) for some in zip(*parts, strict=True))
    projected, full = torch.cat(sums, 1)
    return Windows(error, mask, present, group), {} if xbar is None else _share(projected, full, group)


def _share(projected: Float[Tensor, " n"], full: Float[Tensor, " n"], group: Int[Tensor, " n"]) -> dict[str, float]:
    """E‖W P e‖² / E‖e‖² with its standard error; samples of one group need not be independent."""
    if not full.any():
        return {"seen": 1.0, "seen_se": 0.0}  # there is no error to miss
    share = projected.sum() / full.sum()
    by_group = torch.zeros(int(group.max()) + 1, dtype=full.dtype).index_add(0, group, projected - share * full)
    return {"seen": float(share), "seen_se": float(by_group.square().sum().sqrt() / full.sum())}


def fails(row: Mapping[str, Any]) -> bool:
    """Whether a dependence at one time is both certain and large enough to matter."""
    correlated = any(row[kind] > max(WEAK, row[f"{kind}_level"]) for kind in ("linear", "deep"))
    return correlated or ("seen" in row and abs(row["seen"] - 1) > max(WEAK, 3 * row["seen_se"]))


def _in_words(numbers: dict[str, Any], T: int) -> Check:
    rows = numbers["times"]
    verdict = judge([row["t"] for row in rows], [fails(row) for row in rows], T)
    most, window = max(rows, key=lambda row: row["deep"]), "×".join(map(str, numbers["window"]))
    has_all = "seen" in rows[0]
    sides = (
        f"{window} windows of the error and of the mask"
        if has_all
        else f"a kept entry's error and the {window} mask around it"
    )
    words = (
        f"Between {sides}, the (deep) canonical correlation is up to {most['deep']:.2f}, at t = {most['t']}, where "
        f"chance reaches {most['deep_level']:.2f}."
    )
    if has_all:
        seen = ", ".join(
            f"{100 * row['seen']:.0f} % at t = {row['t']}" for row in (rows[0], rows[len(rows) // 2], rows[-1])
        )
        words += f" Of the squared error, the loss sees {seen}."
    else:
        words += " Without clean signals the error of dropped entries is not known."
        verdict = "not checked: needs --clean" if verdict == "holds" else verdict
    if verdict == "broken":
        words += (
            " At the last times x̄_t is noise, in which no network can see the mask: the masks themselves depend on the "
            "signals, or the network is told the mask and errs by it."
        )
    return Check(NAME, TITLE, verdict, words, numbers=numbers)
