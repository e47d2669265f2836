"""Numbers for people: every table, message and page formats them here."""

import math
from typing import Any


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
    >>> percent(0.4), percent(0.0273), percent(1.2345)
    ('40 %', '2.7 %', '123 %')
    """
    return f"{100 * share:.2g} %" if abs(share) < 1 else f"{100 * share:.0f} %"


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
