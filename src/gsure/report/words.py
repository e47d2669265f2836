"""Facts in plain words, for a reader who has not read the paper."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gsure.report.collect import Trained
from gsure.training.build import About


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


def count(n: int) -> str:
    """
    >>> count(2), count(12)
    ('two', '12')
    """
    small = ("no", "one", "two", "three", "four", "five", "six")
    return small[n] if n < len(small) else number(n)


def tally(checks: Sequence[Mapping[str, Any]]) -> str:
    """
    >>> tally([{"state": "holds"}, {"state": "holds"}, {"state": "doubtful"}])
    'Of three checks, two hold and one is doubtful.'
    """
    told = {"holds": ("holds", "hold"), "doubtful": ("is doubtful", "are doubtful"), "broken": ("fails", "fail")}
    told["unknown"] = ("was not made", "were not made")
    found = [(sum(check["state"] == state for check in checks), forms) for state, forms in told.items()]
    parts = [f"{count(n)} {one if n == 1 else many}" for n, (one, many) in found if n]
    return f"Of {count(len(checks))} checks, {' and '.join(filter(None, [', '.join(parts[:-1]), *parts[-1:]]))}."


def is_picture(shape: tuple[int, ...]) -> bool:
    """Vectors are kept as 1 × 1 × n."""
    return len(shape) == 3 and min(shape[-2:]) > 1


def is_image(about: About) -> bool:
    return is_picture(about.shape)


def thing(about: About) -> str:
    """What one signal is, in one word."""
    return "image" if is_image(about) else "signal"


def shape(about: About) -> str:
    """Such as grey 8 × 8."""
    if not is_image(about):
        return " × ".join(map(str, about.shape))
    channels, height, width = about.shape
    kind = "complex" if about.is_complex else {1: "grey", 3: "colour"}.get(channels, f"{channels}-channel")
    return f"{kind} {height} × {width}"


def loss_of_data(about: About) -> str:
    """What the corruption did to each signal, as the end of a sentence."""
    corruption = dict(about.made_by.get("corruption") or {})
    p, R = corruption.get("p"), corruption.get("R")
    lost = percent(float(p)) if isinstance(p, int | float) else "some"
    kept = f"about one in {R:g}" if isinstance(R, int | float) else "some"
    space = "of its Fourier transform (k-space), as in a fast MRI scan, only"
    match corruption.get("name"):
        case "patches":
            side = corruption.get("size")
            return f"each patch of {side} × {side} pixels was lost with a probability of {lost}"
        case "pixels":
            return f"each pixel was lost with a probability of {lost}"
        case "bands":
            return f"each channel was lost with a probability of {lost}"
        case "noise":
            return "no part was lost, but noise was added"
        case "lines" | "gaussian_lines" | "equispaced_lines":
            return f"{space} {kept} columns was measured"
        case "poisson_disc":
            return f"{space} {kept} points was measured"
        case "hadamard":
            keep = corruption.get("keep")
            share = percent(float(keep)) if isinstance(keep, int | float) else "some"
            return f"only {share} of its patterns (Hadamard, as in a single-pixel camera) were measured"
        case "blur":
            return f"it was blurred ({corruption.get('kind')}), by a kernel of its own"
        case "as measured":
            return "only a part was measured, by a real instrument"
        case name:
            return f"it was corrupted by {name}"


def noise(about: About) -> str:
    given = dict(about.made_by.get("sigma_0") or {}).get("given")
    scale = "" if about.is_complex or not is_image(about) else ", where black is −1 and white is 1"
    if isinstance(given, list | tuple) and len(given) == 2:
        return f"noise of standard deviation {number(given[0])} to {number(given[1])}{scale}"
    level = given if isinstance(given, int | float) else about.max_std
    if level == 0:
        return "no noise"
    return f"noise of standard deviation {'' if given == level else 'up to '}{number(float(level))}{scale}"


def source(about: About) -> str:
    """Where the signals come from: a name, or the file."""
    made = dict(about.made_by.get("source") or {})
    kind, options = made.get("kind"), dict(made.get("options") or {})
    path = options.get("path") or made.get("path")
    names = {"digits": "handwritten digits of scikit-learn", "phantom": "simulated phantoms"}
    return names.get(str(kind), f"{kind} {Path(str(path)).name}" if path else str(kind))


def learned(run: Trained) -> str:
    """What a run learned from, in one sentence without its subject."""
    one = thing(run.config.about)
    return {
        "measured": "learned from the measurements alone",
        "oracle": f"learned from the clean {one}s, which one would like to have and has not: the best to hope for",
        "naive": f"took the measurements for clean {one}s: what one would do without the method",
    }[run.role]
