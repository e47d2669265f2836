"""A progress bar with rate and time left, for anything that may take more than two seconds."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        if not task.speed:
            return Text("")
        return Text(f"{task.speed:,.0f}/s" if task.speed >= 10 else f"{task.speed:.2g}/s")


@dataclass(frozen=True)
class Bar:
    """Call it with the number of things just done, and what there is to say about them."""

    progress: Progress
    task: TaskID

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
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[news]}"),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not shown) as progress:
        yield Bar(progress, progress.add_task(description, total=total, completed=done, news=""))


def say(line: str, console: Console | None = None) -> None:
    """A line for people, which is not part of the result."""
    (console or Console(stderr=True)).print(line, highlight=False, markup=False, soft_wrap=True)
