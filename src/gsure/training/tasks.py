"""What a training step asks of the denoiser, and when. All samples of a step have the same task; steps take turns.

| task | the denoiser sees | the loss counts |
|---|---|---|
| `Diffusing` | the measurement, or an imputed signal, with the noise of a timestep | what was measured |
| `Restoring` | a part of the measurement, at its own noise | measured entries that were hidden |
| `Drawing` | the same, and the rest of an imputed signal at some noise level | measured entries that were hidden |

The first trains generation, the second restoration in one call, the third posterior draws. A `Curriculum` says what the
network learns from, and which tasks it gets, as training proceeds.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from gsure.denoiser import BaseDenoiser, NetworkDenoiser
from gsure.gaussian import Fitted
from gsure.objective import Objective, Prediction
from gsure.random import Generators, Stream, keyed_generator, normal, uniform
from gsure.training.examples import Examples, Pair
from gsure.training.settings import Settings

LEVELS = (0.02, 3.0)
"""Noise levels of what is missing in posterior draws, in units of the data, which have a root mean square of about 1."""
LOG_NORMAL = (-0.7, 1.4)
"""Mean and standard deviation of log ς where noise levels are drawn log-normally: most of them where images take shape."""
COMPARED = 64
"""Measurements on which the error of the Gaussian is computed, so that the losses of tasks are comparable."""


@runtime_checkable
class Task(Protocol):
    def __call__(self, denoiser: BaseDenoiser, pair: Pair, generator: Generators) -> tuple[Tensor, Tensor]:
        """The loss of each sample, and its timestep (0 for the noise of the measurement itself)."""


@dataclass(frozen=True, eq=False)
class Diffusing:
    objective: Objective
    log_normal: bool = False

    def __call__(self, denoiser: BaseDenoiser, pair: Pair, generator: Generators) -> tuple[Tensor, Tensor]:
        t = self._times(denoiser, pair, generator)
        return self.objective(denoiser, pair.target, t, generator, pair.input), t

    def _times(self, denoiser: BaseDenoiser, pair: Pair, generator: Generators) -> Tensor:
        schedule = denoiser.schedule
        if not self.log_normal:
            return schedule.draw(len(pair.target), generator)
        mean, spread = LOG_NORMAL
        level = (mean + spread * normal((len(pair.target),), generator, like=pair.target.ybar)).exp()
        return schedule.first(level).clamp(max=schedule.T)


@dataclass(frozen=True, eq=False)
class Restoring:
    prediction: Prediction

    def __call__(self, denoiser: BaseDenoiser, pair: Pair, generator: Generators) -> tuple[Tensor, Tensor]:
        loss = self.prediction(denoiser, pair.measured, generator, pair.target)
        return loss, torch.zeros(len(loss), dtype=torch.long, device=loss.device)


@dataclass(frozen=True, eq=False)
class Drawing:
    prediction: Prediction

    def __call__(self, denoiser: BaseDenoiser, pair: Pair, generator: Generators) -> tuple[Tensor, Tensor]:
        ybar, (low, high) = pair.target.ybar, (max(LEVELS[0], float(denoiser.schedule.sigma[1])), LEVELS[1])
        u = uniform((len(ybar),), generator, like=ybar)
        s = (math.log(low) + u * math.log(high / low)).exp()
        full = ybar if pair.input is None else pair.input.ybar
        s_wide = s.reshape(-1, *[1] * (ybar.ndim - 1))
        loss = self.prediction.in_context(denoiser, pair.measured, full, s_wide, generator, pair.target)
        return loss, denoiser.schedule.first(s)


class Tasks(NamedTuple):
    """Of the steps before signals are imputed, and of those after."""

    first: tuple[Task, ...]
    then: tuple[Task, ...]


def make_tasks(settings: Settings, objective: Objective, examples: Examples, prior: Fitted | None = None) -> Tasks:
    """By the purpose of the run. `prior` is its Gaussian, if it is known."""
    diffusing = Diffusing(objective, settings.times == "lognormal")
    if settings.purpose == "generate":
        return Tasks((diffusing,), (diffusing,))
    prediction = make_prediction(settings, examples, prior)
    restoring, drawing = Restoring(prediction), Drawing(prediction)
    if settings.purpose == "restore":
        return Tasks((restoring,), (restoring,))
    return Tasks((restoring,), (restoring, diffusing, restoring, drawing))


def make_prediction(settings: Settings, examples: Examples, prior: Fitted | None) -> Prediction:
    data = examples.measurements
    always = data.coverage == 1
    if bool(always.all()):
        raise ValueError(
            "Nothing can be hidden: every measurement has all entries. Restoration in one call is learned by predicting "
            "measured entries that were hidden, so use --purpose generate for such data."
        )
    real = prior is not None and prior.gaussian.real_images
    hide = settings.hide if isinstance(settings.hide, tuple) or settings.hide > 0 else (0.3, 1.0)
    prediction = Prediction(
        hide,
        tuple(data.unit),
        always.float() if bool(always.any()) else None,
        data.basis.conjugates if real else None,
    )
    if prior is None:
        return prediction
    return replace(prediction, error=_gaussian_error(prediction, prior, examples))


@torch.no_grad()
def _gaussian_error(prediction: Prediction, prior: Fitted, examples: Examples) -> float:
    """Mean squared error of the Gaussian on what is hidden, averaged over the entries of the signal."""
    pair = examples.spread(COMPARED).pair(range(min(COMPARED, len(examples))))
    shown = prediction.show(pair.measured, keyed_generator(examples.settings.seed, Stream.TASK_ERROR))
    away = prior.gaussian.mean(shown) - pair.target.ybar
    error = float((pair.target.mask * (1 - shown.mask) * away**2).flatten(1).mean())
    return error if error > 0 else 1.0


class Stage(NamedTuple):
    """A stretch of training: what to learn from, what was held out, and the tasks, of which each step has the next."""

    examples: Examples
    held_out: Examples | None
    tasks: tuple[Task, ...]


@runtime_checkable
class Curriculum(Protocol):
    @property
    def changes_at(self) -> tuple[int, ...]:
        """Steps at which the stage changes."""

    def at(self, step: int, averaged: NetworkDenoiser) -> Stage:
        """The stage after this many steps; `averaged` is the model after these steps."""


@dataclass(frozen=True)
class Unchanging:
    """The same from the first step to the last."""

    examples: Examples
    held_out: Examples | None
    tasks: tuple[Task, ...]
    changes_at: tuple[int, ...] = ()

    def at(self, step: int, averaged: NetworkDenoiser) -> Stage:
        return Stage(self.examples, self.held_out, self.tasks)
