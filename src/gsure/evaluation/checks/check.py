"""The result of a check: a verdict in words, numbers, and a figure."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

LATE = 0.9
"""From this share of T on, x̄_t is nearly pure noise. An assumption that fails at all these timesteps is broken."""


@dataclass(frozen=True)
class Check:
    """The check of one assumption. `verdict` is holds, doubtful, doubtful for t < t₀, broken, or not checked: REASON."""

    name: str
    title: str
    verdict: str
    words: str
    figure: str | None = None
    numbers: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def not_checked(name: str, title: str, why: str) -> Check:
    return Check(name, title, f"not checked: {why}", "")


def judge(times: Sequence[int], fails: Sequence[bool], T: int) -> str:
    """The verdict on an assumption, from `fails` at increasing timesteps.

    >>> times = [1, 100, 300, 1000]
    >>> judge(times, [False] * 4, 1000), judge(times, [True, True, False, False], 1000), judge(times, [True] * 4, 1000)
    ('holds', 'doubtful for t < 300', 'broken')
    """
    if not any(fails):
        return "holds"
    if all(fail for t, fail in zip(times, fails, strict=True) if t >= LATE * T):
        return "broken"
    last = max(k for k, fail in enumerate(fails) if fail)
    return f"doubtful for t < {times[last + 1]}" if last + 1 < len(times) else f"doubtful for t ≤ {T}"


def times_to_check(T: int) -> list[int]:
    """A few early timesteps, where most changes happen, and then every tenth of the range.

    >>> times_to_check(1000)
    [1, 10, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]
    """
    shares = [0.001, 0.01, 0.05, *(k / 10 for k in range(1, 11))]
    return sorted({max(1, round(share * T)) for share in shares})


def measure_at(
    times: Sequence[int], measure: Callable[[int], dict[str, Any]], advance: Callable[[int], None]
) -> list[dict[str, Any]]:
    """A row of numbers for each timestep."""
    rows = []
    for t in times:
        rows.append({"t": t} | measure(t))
        advance(1)
    return rows
