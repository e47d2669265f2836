"""What one call of `restore` computes, decided before it starts: how many draws and steps, and which calibration."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gsure.data.chunks import open_folder
from gsure.data.memory import save
from gsure.data.source import evenly_spread
from gsure.files import Request
from gsure.inference.bars import SELF_IMAGES
from gsure.inference.calibration_file import Stored, describe_method, read_calibration, refuse_other
from gsure.inference.cost import Plan, Speed, fit_budget, make_plan, stored_budget, time_batch
from gsure.inference.methods import Restorer
from gsure.inference.setup import Setup
from gsure.judging import choose_judged
from gsure.judging.calibration import SPLITS
from gsure.training.run import Run

Choice = Literal["auto", "self", "none"]
"""Of the calibration of error bars."""


MAX_TIMED = 2**19
"""Entries in a timed batch, at most, unless one image has more: timing a full batch of large images would take minutes."""


@dataclass(frozen=True)
class Job:
    """What one call of `restore` computes, decided before it starts."""

    setup: Setup
    n: int
    draws: int
    batch: int
    calibration: Choice
    has_baselines: bool
    """Whether baselines other than the pseudo-inverse are computed."""
    judges_hidden: bool
    """Whether the verdict needs restorations with hidden entries."""
    seconds_per_image: float | None = None
    speed: Speed | None = None
    """As timed to choose draws and steps."""

    def within(self, seconds: float, given: tuple[int | None, int | None], out: str | Path | None) -> "Job":
        """With draws and steps that take so long, or those of the folder; `given` are the ones that a user chose."""
        budget, speed = stored_budget(out), None
        if budget is None:
            speed, schedule = self.measure_speed(), self.setup.loaded.denoiser.schedule
            budget = fit_budget(seconds, speed, self.plan, self.setup.sampling.steps, schedule.T, given)
        draws, steps = (mine or chosen for mine, chosen in zip(given, budget, strict=True))
        setup = self.setup.with_steps(steps)
        return replace(self, setup=setup, draws=draws, seconds_per_image=float(seconds), speed=speed)

    def measure_speed(self) -> Speed:
        at_once = max(1, MAX_TIMED // (self.draws * int(np.prod(self.setup.data.shape))))
        some = self.setup.read(np.arange(min(self.n, self.at_once, at_once)))
        return time_batch(self.setup.restorer(self.draws), some, self.draws)

    @property
    def at_once(self) -> int:
        """Measurements whose draws are one batch of the network."""
        return max(1, self.batch // self.draws)

    @property
    def plan(self) -> Plan:
        setup = self.setup
        teachers = () if self._has_calibration else evenly_spread(SELF_IMAGES, len(setup.data))
        judged = len(choose_judged(self.n, setup.data.shape)) if self.judges_hidden else 0
        splits = 0 if setup.is_complete else SPLITS
        elsewhere = int(sum(index >= self.n for index in teachers))
        methods, calibrated = (setup.method, setup.drawn_by), self.calibration != "none"
        return make_plan(self.n, calibrated, len(teachers), judged, *methods, splits, elsewhere)

    @cached_property
    def restorer(self) -> Restorer:
        found = self.setup.restorer(self.draws)
        return found if self.stored is None else found.stop_at(self.stored.stop)

    @cached_property
    def stored(self) -> Stored | None:
        """The calibration of the run, if it is used; refused if it was made for something else."""
        loaded = self.setup.loaded
        if not self._has_calibration or loaded.path is None:
            return None
        path = Run(loaded.path).calibration
        stored = read_calibration(path)
        refuse_other(path, stored, describe_method(self.setup.restorer(self.draws), loaded.checksum), self.setup.data)
        return stored

    @property
    def _has_calibration(self) -> bool:
        path = self.setup.loaded.path
        return self.calibration == "auto" and path is not None and Run(path).calibration.exists()

    @cached_property
    def made_of(self) -> dict[str, Any]:
        """Everything that the results depend on."""
        loaded, stored = self.setup.loaded, self.stored
        made_of: dict[str, Any] = {"step": loaded.step, "weights": loaded.checksum}
        made_of |= {"fingerprint": self.setup.data.fingerprint(), **self.restorer.options()}
        made_of |= {"batch": self.batch, "baselines": self.has_baselines}
        learned = "none" if self.calibration == "none" else "self"
        made_of["calibration"] = learned if stored is None else stored.identity
        time = {} if self.seconds_per_image is None else {"seconds_per_image": self.seconds_per_image}
        return made_of | time

    def open_folder(self, out: str | Path, request: Request) -> Path:
        """Begun, or to be resumed. It keeps measurements that are in no file."""
        folder, data = Path(out), self.setup.data
        kept = folder / "measurements.h5" if data.path is None else data.path.resolve()
        open_folder(folder, request, self.made_of, self.setup.loaded.inputs | {"data": str(kept)})
        if data.path is None and not kept.exists():
            save(kept, data)
        return folder
