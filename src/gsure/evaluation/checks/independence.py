"""Is the denoising error independent of the mask? Proposition 1 (thm:ensemble) assumes it; networks violate it to some degree.

As in the paper, the check computes the canonical correlation, linear and deep, between windows of the error e = f(x̄_t) - x̄
and of P at the same place, against t. Beyond the paper, it computes how large correlations are by chance, and
E‖W P e‖² / E‖e‖², the share of the error that the loss sees. The method needs this share to be 1, as it is under independence.

Without clean signals, the error is known only on measured entries, with additional noise: ((1-ρ) f + ρ x̄_t/√ᾱ - ȳ)/(1-ρ) is
f - x̄ plus Gaussian noise that is independent of x̄, x̄_t and P (docs/method.md). The error of a window is then that of its
central entry, if it was measured. Noise can hide a correlation but not create one, so a correlation that is found is real. But
the check does not see the error of entries that were not measured, where the assumption fails first.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gsure.denoiser import BaseDenoiser
from gsure.evaluation.checks.check import Check, judge, measure_at
from gsure.evaluation.checks.correlation import Windows, correlate
from gsure.evaluation.checks.held_out import HeldOut
from gsure.evaluation.checks.windows import Places, as_images, place_windows
from gsure.measurement import Measurement
from gsure.random import Stream, keyed_generator

NAME, TITLE = "independence", "Is the denoising error independent of the mask?"
MAX_DEPENDENCE = 0.1
"""Smaller correlations pass, even if significant. So does a share of the error that differs from 1 by less."""
MIN_REMAINDER = 0.1
"""Without clean signals, timesteps with a smaller 1 - ρ are skipped, because the division by it amplifies the noise."""
MIN_WINDOWS, MAX_DRAWS = 512, 4
"""With fewer measurements than the first number, each is used with several draws of noise, at most the second number."""


def check_independence(
    denoiser: BaseDenoiser,
    data: HeldOut,
    times: Sequence[int],
    advance: Callable[[int], None] = lambda done: None,
) -> Check:
    """Canonical correlations and the share of the error that the loss sees, at each timestep, and the verdict."""
    masks, max_std = [], 0.0
    for measurement, xbar, _ in data.read():  # noqa: B007
        masks.append(measurement.mask.expand(len(measurement), *measurement.mask.shape[1:]))
        max_std = max(max_std, measurement.max_std)
    places = place_windows(torch.cat(masks), measurement.shape[1:], overlap=xbar is None)
    if not places.corners:
        return Check(NAME, TITLE, "holds", "All masks are the same, so nothing can depend on them.")
    if xbar is None:
        skipped = [t for t in times if 1 - (max_std / float(denoiser.schedule.sigma[t])) ** 2 < MIN_REMAINDER]
        times = [t for t in times if t not in skipped]
        advance(len(skipped))
    draws = max(1, min(MAX_DRAWS, -(-MIN_WINDOWS // len(data))))

    def measure(t: int) -> dict[str, Any]:
        windows, row = _gather(denoiser, data, t, places, draws)
        generator = keyed_generator(data.seed, Stream.INDEPENDENCE_FIT, t)
        for kind in ("linear", "deep"):
            found = correlate(windows, kind, generator)
            row |= {kind: found.value, f"{kind}_level": found.level}
        return row

    numbers = {"window": list(places.size), "places": len(places.corners), "measurements": len(data), "draws": draws}
    numbers |= {"error": "of measured entries" if xbar is None else "of all entries"}
    numbers["times"] = measure_at(times, measure, advance)
    return _in_words(numbers, denoiser.schedule.T)


@torch.no_grad()
def denoising_error(
    denoiser: BaseDenoiser,
    measurement: Measurement,
    t: Int[Tensor, " b"],
    xbar: Float[Tensor, "b *n"] | None,
    eps: Float[Tensor, "b *n"],
) -> Float[Tensor, "b *n"]:
    """f(x̄_t) - x̄. If x̄ is not given, this has independent noise on measured entries, and is 0 on the others."""
    alpha_bar_t = denoiser.schedule.at(t, like=measurement.ybar)
    xbar_t = measurement.perturb(alpha_bar_t, eps)
    xbar_hat = denoiser(xbar_t, t, measurement.mask)
    if xbar is not None:
        return xbar_hat - xbar
    rho = (alpha_bar_t * (measurement.mask * measurement.std) ** 2 / (1 - alpha_bar_t)).to(xbar_t)
    noisy = xbar_t / alpha_bar_t.sqrt().to(xbar_t)
    return measurement.mask * ((1 - rho) * xbar_hat + rho * noisy - measurement.ybar) / (1 - rho)


def _gather(
    denoiser: BaseDenoiser, data: HeldOut, t: int, places: Places, draws: int
) -> tuple[Windows, dict[str, float]]:
    """Windows of error and mask at one timestep; and, with clean signals, the share of the error that the loss sees."""
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    sums: list[Tensor] = []
    xbar = None
    for measurement, xbar, indices in data.read():
        mask = as_images(measurement.mask)
        middle = (mask.shape[2] > 1, mask.shape[3] > 1) if xbar is None else (False, False)
        weight = data.squared_weight(measurement)
        time, errors, total = torch.full((len(measurement),), t), [], torch.zeros(())
        for draw in range(draws):
            eps = data.noise(measurement.ybar, Stream.INDEPENDENCE_NOISE, t, draw, indices=indices)
            error = denoising_error(denoiser, measurement, time, xbar, eps)
            errors.append(places.cut(error, middle).float().cpu())
            square = error.double() ** 2
            total = total + torch.stack([(weight * square).flatten(1).sum(1), square.flatten(1).sum(1)]).cpu()
        measured = places.cut(mask, middle).amin(2) == 1
        present = measured if xbar is None else torch.ones_like(measured)
        parts.append((torch.stack(errors, 1), places.cut(mask).float().cpu(), present.cpu()))
        sums.append(total)
    error, mask, present = (torch.cat(some) for some in zip(*parts, strict=True))
    windows = Windows(error, mask, present, data.group)
    if xbar is None:
        return windows, {}
    projected, full = torch.cat(sums, 1)
    seen, se = data.ratio(projected, full) if full.any() else (1.0, 0.0)  # if there is no error, the loss misses none
    return windows, {"seen": seen, "seen_se": se}


def fails(row: Mapping[str, Any]) -> bool:
    """Whether a dependence at one timestep is both significant and large enough to matter."""
    correlated = any(row[kind] > max(MAX_DEPENDENCE, row[f"{kind}_level"]) for kind in ("linear", "deep"))
    return correlated or ("seen" in row and abs(row["seen"] - 1) > max(MAX_DEPENDENCE, 3 * row["seen_se"]))


def _in_words(numbers: dict[str, Any], T: int) -> Check:
    rows = numbers["times"]
    verdict = judge([row["t"] for row in rows], [fails(row) for row in rows], T)
    most, window = max(rows, key=lambda row: row["deep"]), "×".join(map(str, numbers["window"]))
    has_all = "seen" in rows[0]
    sides = (
        f"{window} windows of the error and of the mask"
        if has_all
        else f"the error of a measured entry and the {window} mask around it"
    )
    words = (
        f"The (deep) canonical correlation between {sides} is up to {most['deep']:.2f}, at t = {most['t']}, where "
        f"{most['deep_level']:.2f} is possible by chance."
    )
    if has_all:
        seen = ", ".join(
            f"{100 * row['seen']:.0f} % at t = {row['t']}" for row in (rows[0], rows[len(rows) // 2], rows[-1])
        )
        words += f" The loss sees {seen} of the squared error."
    else:
        words += " Without clean signals the error of entries that were not measured is unknown."
        verdict = "not checked: needs --clean" if verdict == "holds" else verdict
    if verdict == "broken":
        words += (
            " At the last timesteps x̄_t is noise, in which no network can see the mask: either the masks themselves depend on "
            "the signals, or the network is mask-conditioned and uses the mask wrongly."
        )
    return Check(NAME, TITLE, verdict, words, numbers=numbers)
