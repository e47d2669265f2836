"""What a restoration costs: network calls and seconds, from one timed batch; and the draws and steps that fit into a time."""

import time
from pathlib import Path
from typing import NamedTuple

import torch

from gsure.data.chunks import read_made_of
from gsure.display import duration
from gsure.inference.hidden import CHECK_DRAWS
from gsure.inference.methods import Method, Restorer
from gsure.judging.calibration import SPLITS
from gsure.measurement import Measurement

DRAWS = 8
"""Draws of each measurement, if nothing else is asked for."""
FEWEST_DRAWS, MOST_DRAWS = 4, 64
"""Below this number, error bars are poor: a short time then takes from the steps. Above, more draws hardly help."""
FEWEST_STEPS = 5
"""Fewer do not give a draw from the posterior."""
TIMED = 2, 5
"""Steps of the two timed restorations."""


class Speed(NamedTuple):
    """Seconds for one image within a batch."""

    restoration: float
    """For each restoration, whatever its draws and steps are."""
    step: float
    """In addition for each step of each draw."""


class Plan(NamedTuple):
    """How often a measurement is restored, on average."""

    complete: float = 1.0
    """With all draws: once, and again if it is among those that the verdict is from."""
    checks: float = 0.0
    """With hidden entries and CHECK_DRAWS draws, for calibrated error bars."""
    single: int = 0
    """Network calls of each restoration beside those of the steps."""

    def calls(self, draws: int, steps: int) -> float:
        """Network calls per image."""
        return self.complete * (draws * steps + self.single) + self._checks(draws) * (CHECK_DRAWS * steps + self.single)

    def seconds(self, speed: Speed, draws: int, steps: int) -> float:
        """Per image."""
        whole = speed.restoration + speed.step * draws * steps
        check = speed.restoration + speed.step * CHECK_DRAWS * steps
        return self.complete * whole + self._checks(draws) * check

    def _checks(self, draws: int) -> float:
        return self.checks if draws > 1 else 0.0  # one draw has no spread to calibrate


def make_plan(
    n: int,
    calibrated: bool,
    learned_from: int,
    judged: int,
    method: Method,
    drawn_by: Method,
    splits: int = SPLITS,
    elsewhere: int = 0,
) -> Plan:
    """Of n measurements, `learned_from` teach a calibration, and `judged` are restored again for the verdict.

    What teaches is restored with noise added too. `elsewhere` of it are not among the n.

    >>> make_plan(16, True, 0, 0, "mean", "context").calls(8, 20)
    330.0
    """
    checks = splits + (learned_from + splits * elsewhere) / n if calibrated else 0.0
    again = 0.0 if method == "mean" else judged / n  # the mean alone is quick
    return Plan(1 + again, checks, (method == "mean") + (drawn_by == "context"))


class Budget(NamedTuple):
    draws: int
    steps: int


def stored_budget(out: str | Path | None) -> Budget | None:
    """What was chosen when the folder was begun, so that a resumed job does the same; None for a new one."""
    made_of = None if out is None else read_made_of(Path(out))
    if made_of is None:
        return None
    draws, steps = made_of.get("draws"), made_of.get("steps")
    return Budget(draws, steps) if isinstance(draws, int) and isinstance(steps, int) else None


def fit_budget(
    seconds: float, speed: Speed, plan: Plan, usual_steps: int, most_steps: int, given: tuple[int | None, int | None]
) -> Budget:
    """Draws and steps that take at most so many seconds per image; `given` are those that you chose yourself.

    Time goes into draws, of the usual number of steps. If it is too short for FEWEST_DRAWS, it takes from the steps; and
    then only one draw is left, without error bars.

    >>> fit_budget(1.0, Speed(0.0, 0.001), Plan(), 20, 1000, (None, None))
    Budget(draws=50, steps=20)
    """
    draws, steps = given

    def fits(budget: Budget) -> bool:
        return plan.seconds(speed, *budget) <= seconds

    def most(low: int, high: int, of_draws: int | None, of_steps: int | None) -> Budget | None:
        """The largest number from low to high that fits, of draws or of steps, whichever is not given."""
        tried = (
            Budget(k if of_draws is None else of_draws, k if of_steps is None else of_steps)
            for k in range(high, low - 1, -1)
        )
        return next((budget for budget in tried if fits(budget)), None)

    if draws is not None:
        found, least = most(min(FEWEST_STEPS, most_steps), most_steps, draws, None), Budget(draws, FEWEST_STEPS)
    elif steps is not None:
        found, least = most(1, MOST_DRAWS, None, steps), Budget(1, steps)
    else:
        found = most(usual_steps, most_steps, MOST_DRAWS, None) or most(FEWEST_DRAWS, MOST_DRAWS, None, usual_steps)
        found = found or most(FEWEST_STEPS, usual_steps, FEWEST_DRAWS, None) or most(FEWEST_STEPS, usual_steps, 1, None)
        least = Budget(1, FEWEST_STEPS)
    if found is None:
        needed = plan.seconds(speed, *least)
        raise ValueError(
            f"{seconds:g} seconds per image are too short for {_count(least.draws, 'draw')} of "
            f"{_count(least.steps, 'step')}: give at least {_rounded_up(needed)} seconds."
        )
    return found


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _rounded_up(seconds: float) -> str:
    """To two digits, and a tenth more, because the next timing differs a little."""
    return f"{1.1 * seconds:.2g}"


def time_batch(restorer: Restorer, measurement: Measurement, draws: int) -> Speed:
    """From restorations of one batch in few steps, after one that is not timed: the first one also prepares."""
    seconds = []
    for steps in (TIMED[0], *TIMED):
        if measurement.ybar.is_cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        restorer.short(draws, steps)(measurement, list(range(len(measurement))))  # results come to the CPU
        seconds.append((time.perf_counter() - began) / len(measurement))
    _, few, many = seconds
    step = max(0.0, many - few) / (draws * (TIMED[1] - TIMED[0]))
    return Speed(max(0.0, few - step * draws * TIMED[0]), step)


def describe_choice(asked: Method, method: Method, drawn_by: Method, is_complete: bool) -> str:
    """What restores, and why.

    >>> describe_choice("auto", "mean", "context", False)
    'Mean: one network call, because the network is mask-conditioned. Samples: by the method context.'
    """
    if method == "gaussian":
        return "Mean and samples: by the Gaussian prior, without network calls."
    if method == "mean":
        reason = "nothing is missing" if is_complete else "the network is mask-conditioned"
        return f"Mean: one network call, because {reason}. Samples: by the method {drawn_by}."
    why = ", because the model was not trained to restore in one call" if asked == "auto" else ""
    return f"Mean and samples: by the method {drawn_by}{why}."


def describe_cost(
    plan: Plan, speed: Speed, draws: int, steps: int, n: int, drawn_by: Method, baselines: float = 0.0
) -> str:
    """What it costs, before it starts. `baselines` are the seconds per image of total variation and of the Gaussian prior.

    >>> describe_cost(Plan(1.0, 0.0, 2), Speed(0.0, 0.001), 8, 20, 100, "context")
    'About 16 seconds in all, 0.16 s per image (one batch was timed). 8 draws of 20 steps: 162 network calls per image.'
    >>> describe_cost(Plan(1.0, 0.0, 2), Speed(0.0, 0.001), 8, 20, 100, "context", baselines=1.0).partition('. ')[0]
    'About 2 minutes in all, 1.2 s per image (one batch was timed; 1 s are for the baselines)'
    >>> describe_cost(Plan(1.0, 0.0, 0), Speed(0.0, 0.001), 1, 20, 100, "ddrm").partition("). ")[2]
    '1 draw of 20 steps, too few for error bars: 20 network calls per image.'
    """
    calls, without = plan.calls(draws, steps), plan._replace(checks=0.0).calls(draws, steps)
    each = plan.seconds(speed, draws, steps) + baselines
    timed = "one batch was timed" + (f"; {baselines:.2g} s are for the baselines" if baselines > 0.05 * each else "")
    said = f"About {duration(n * each)} in all, {each:.2g} s per image ({timed}). "
    few = ", too few for error bars" if draws == 1 else ""
    said += f"{_count(draws, 'draw')} of {_count(steps, 'step')}{few}: " if steps else ""
    said += f"{calls:,.0f} network calls per image"
    if calls > without:
        said += f", {calls - without:,.0f} of them to calibrate the error bars"
    if drawn_by == "moments":
        said += "; each call also takes at least two vector-Jacobian products"
    return f"{said}."
