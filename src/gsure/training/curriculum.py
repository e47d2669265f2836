"""What the network learns from, and which tasks it gets, as training proceeds."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from gsure.denoiser import NetworkDenoiser
from gsure.training.examples import Examples
from gsure.training.tasks import Task


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
