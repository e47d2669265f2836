"""How much of the diffusion's noise was there before? The paper's second limitation: loud measurements.

At time t the share ρ_t = ᾱ_t std²/(1 - ᾱ_t) of the noise in x̄_t is measurement noise. Where it comes near 1, measurement noise
is all the noise there is, and hardly tells the error against the clean signal (docs/method.md). And as the diffusion cannot
start more quietly than the measurements are, the last step of generation has to remove all noise of the first level, ς_1.
"""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor

from gsure.evaluation.checks.check import Check
from gsure.schedule import Schedule

NAME, TITLE = "noise", "Is the measurement noise small beside the diffusion's?"
NEAR = 0.9
"""From this ρ on, measurement noise is nearly all the noise: `tweedie` fades out (its floor is 1 - ρ = 0.1)."""
STEPS = 0.05
"""Such times may be this share of all."""
LOUD = 0.1
"""The first level may be this share of the signal's own standard deviation."""


def noise_ratio(schedule: Schedule, std: float) -> Float[Tensor, " T"]:
    """ρ_t = ᾱ_t std²/(1 - ᾱ_t) at t = 1..T.

    >>> round(float(noise_ratio(Schedule.for_noise(0.02), 0.02)[0]), 6)
    1.0
    """
    return (std / schedule.sigma[1:]) ** 2


def check_noise(schedule: Schedule, std: Float[Tensor, " k"], signal_std: float, shown: Sequence[int]) -> Check:
    """`std` is that of many kept entries, `signal_std` that of the signals' entries; `shown` are the times of the figure."""
    loudest, typical = float(std.max()), float(std.median())
    ratio, common = noise_ratio(schedule, loudest), noise_ratio(schedule, typical)
    near, half = int((ratio > NEAR).sum()), int((ratio > 0.5).sum())
    first = float(schedule.sigma[1])
    numbers: dict[str, Any] = {"largest_std": loudest, "median_std": typical, "signal_std": signal_std, "T": schedule.T}
    numbers |= {"first_level": first, "near_one": near, "above_half": half}
    numbers["times"] = [{"t": t, "largest": float(ratio[t - 1]), "median": float(common[t - 1])} for t in shown]
    words = (
        f"Measurement noise is more than half of all noise at {half} of {schedule.T} times, more than {NEAR:g} of it at "
        f"{near}. The diffusion starts at a noise of {first:.3g}, {100 * first / signal_std:.2g} % of the signal's own std."
    )
    verdict = "holds"
    if first > LOUD * signal_std:
        verdict = "doubtful"
        words += " One step of generation has to remove all of it, which the paper warns of."
    if near > STEPS * schedule.T:
        verdict = f"doubtful for t < {near + 1}"
    if loudest > 3 * typical > 0:
        words += f" One entry is {loudest / typical:.1f} times as loud as the median one, and sets that start for all."
    return Check(NAME, TITLE, verdict, words, numbers=numbers)
