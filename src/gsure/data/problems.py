"""All problems of a folder at once: each with the names of its files and a remedy, before anything is written."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

NAMED = 8
"""Files with the same problem that are named, at most. The others are counted."""


@dataclass
class Problems:
    """Collects sentences. Files with the same problem share one."""

    found: dict[str, list[str]] = field(default_factory=dict)

    def add(self, sentence: str, file: str | None = None) -> None:
        files = self.found.setdefault(sentence, [])
        if file is not None and file not in files:
            files.append(file)

    def extend(self, other: "Problems") -> None:
        for sentence, files in other.found.items():
            self.found.setdefault(sentence, []).extend(files)

    @contextlib.contextmanager
    def noted(self, file: str | None = None) -> Iterator[None]:
        """An error in this block is a problem, and the program goes on after the block."""
        try:
            yield
        except (ValueError, OSError) as error:
            self.add(str(error), file)

    def stop(self) -> None:
        """Raise an error with all problems, if there are any."""
        lines = [_line(sentence, files) for sentence, files in self.found.items()]
        if len(lines) == 1:
            raise ValueError(lines[0])
        if lines:
            listed = "\n".join(f"  - {line}" for line in lines)
            raise ValueError(f"{len(lines)} problems to fix first, nothing was written:\n{listed}")


def _line(sentence: str, files: Sequence[str]) -> str:
    if not files:
        return sentence
    more = f" and {len(files) - NAMED} more" if len(files) > NAMED else ""
    return f"{', '.join(files[:NAMED])}{more}: {sentence}"
