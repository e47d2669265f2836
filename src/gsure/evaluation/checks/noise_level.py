"""How much of the diffusion's noise is measurement noise? The paper's second limitation: high measurement noise.

At timestep t, the share ρ_t = ᾱ_t std²/(1 - ᾱ_t) of the noise in x̄_t is measurement noise. If it is near 1, the data has
little information on the error against the clean signal (docs/method.md). The diffusion cannot start at a lower noise level
than that of the measurements, so the last sampling step has to remove all noise of the first level, ς_1.
"""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor

from gsure.display import percent
from gsure.evaluation.checks.check import Check
from gsure.schedule import Schedule

NAME, TITLE = "noise", "Is the measurement noise small beside the diffusion's?"
MAX_RATIO = 0.9
"""Above this ρ, nearly all noise is measurement noise, and the loss `tweedie` damps it (its floor is 1 - ρ = 0.1)."""
MAX_SHARE_OF_TIMES = 0.05
"""The largest share of timesteps that may have such a ρ."""
MAX_FIRST_LEVEL = 0.1
"""The largest first noise level, as a share of the standard deviation of the signals."""


def noise_ratio(schedule: Schedule, std: float) -> Float[Tensor, " T"]:
    """ρ_t = ᾱ_t std²/(1 - ᾱ_t) at t = 1..T.

    >>> round(float(noise_ratio(Schedule.for_noise(0.02), 0.02)[0]), 6)
    1.0
    """
    return (std / schedule.sigma[1:]) ** 2


def check_noise(schedule: Schedule, std: Float[Tensor, " k"], signal_std: float, shown: Sequence[int]) -> Check:
    """`std` is the noise std of many measured entries, `signal_std` that of the signals, `shown` the times of the figure."""
    largest, typical = float(std.max()), float(std.median())
    ratio, common = noise_ratio(schedule, largest), noise_ratio(schedule, typical)
    near, half = int((ratio > MAX_RATIO).sum()), int((ratio > 0.5).sum())
    first = float(schedule.sigma[1])
    numbers: dict[str, Any] = {"largest_std": largest, "median_std": typical, "signal_std": signal_std, "T": schedule.T}
    numbers |= {"first_level": first, "near_one": near, "above_half": half}
    numbers["times"] = [{"t": t, "largest": float(ratio[t - 1]), "median": float(common[t - 1])} for t in shown]
    words = (
        f"Measurement noise is more than half of all noise at {half} of {schedule.T} timesteps. At {near} of them, it is more "
        f"than {100 * MAX_RATIO:.0f} % of all noise. The diffusion starts at a noise level of {first:.3g}, "
        f"{percent(first / signal_std)} of the signal's std."
    )
    verdict = "holds"
    if first > MAX_FIRST_LEVEL * signal_std:
        verdict = "doubtful"
        words += " The last sampling step has to remove all of it, which the paper warns of."
    if near > MAX_SHARE_OF_TIMES * schedule.T:
        verdict = f"doubtful for t < {near + 1}"
    if largest > 3 * typical > 0:
        words += (
            f" The largest noise std of an entry, which sets that start, is {largest / typical:.1f} times the median."
        )
    return Check(NAME, TITLE, verdict, words, numbers=numbers)
