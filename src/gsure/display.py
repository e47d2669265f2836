"""What people read: formatted numbers, and progress bars with rate and time left for anything over two seconds.

Every table, message and page formats its numbers here.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, Task, TaskID
    from rich.text import Text

AVERAGED = 300.0
"""Seconds over which a bar averages the speed: with fewer, slow steps have no time left, and a pause makes it jump."""


def number(value: Any, digits: int = 4) -> str:
    """
    >>> number(0.123456), number(1797), number(None), number(float("nan"))
    ('0.1235', '1,797', '–', 'not a number')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.{digits}g}" if math.isfinite(value) else "not a number"
    if isinstance(value, list | tuple):
        return ", ".join(number(item, digits) for item in value) or "none"
    return "–" if value is None else str(value)


def with_error(value: float, se: Any = None) -> str:
    """A value to the digits that its standard error leaves.

    >>> with_error(0.210759, 0.003008), with_error(18.06, 1.61), with_error(0.21)
    ('0.2108 ± 0.0030', '18.1 ± 1.6', '0.21')
    """
    if not isinstance(se, int | float) or not math.isfinite(value) or not 0 < se < math.inf:
        return number(float(value))
    decimals = max(0, 1 - math.floor(math.log10(se)))
    return f"{value:.{decimals}f} ± {se:.{decimals}f}"


def percent(share: float) -> str:
    """
    >>> percent(0.4), percent(0.0273), percent(0.998), percent(1.2345)
    ('40 %', '2.7 %', '100 %', '123 %')
    """
    return f"{100 * share:.2g} %" if abs(share) < 0.995 else f"{100 * share:.0f} %"


def duration(seconds: float) -> str:
    """
    >>> duration(42.0), duration(500.0), duration(9000.0)
    ('42 seconds', '8 minutes', '2.5 hours')
    """
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def size(count: int) -> str:
    """
    >>> size(512), size(484648), size(63370240)
    ('512 bytes', '485 kB', '63.4 MB')
    """
    if count < 1000:
        return f"{count} bytes"
    return f"{count / 1e3:.0f} kB" if count < 1e6 else f"{count / 1e6:.1f} MB"


@dataclass(frozen=True)
class Bar:
    """Call it with the number of things just done, and what there is to say about them."""

    progress: "Progress"
    task: "TaskID"

    def __call__(self, done: int, news: str = "") -> None:
        self.progress.advance(self.task, done)
        if news:
            self.progress.update(self.task, news=news)

    def say(self, line: str, always: bool = False) -> None:
        """A line above the bar, which stays; `always` also where no bar is shown."""
        if always or not self.progress.disable:
            say(line, self.progress.console)


@contextmanager
def bar(description: str, total: int, shown: bool = True, done: int = 0) -> Iterator[Bar]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _rate_column(),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[news]}"),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not shown, speed_estimate_period=AVERAGED) as progress:
        yield Bar(progress, progress.add_task(description, total=total, completed=done, news=""))


def _rate_column() -> "ProgressColumn":
    from rich.progress import ProgressColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: "Task") -> "Text":
            if not task.speed or task.finished:  # the last speed is that of a pause, such as a validation
                return Text("")
            return Text(f"{task.speed:,.0f}/s" if task.speed >= 10 else f"{task.speed:.2g}/s")

    return Rate()


def say(line: str, console: "Console | None" = None) -> None:
    """A line for people, which is not part of the result."""
    from rich.console import Console

    (console or Console(stderr=True)).print(line, highlight=False, markup=False, soft_wrap=True)
