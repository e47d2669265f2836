"""Facts in plain words, for a reader who has not read the paper."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gsure.formatting import number, percent
from gsure.report.collect import Trained
from gsure.training.build import DataInfo


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


def is_image(data_info: DataInfo) -> bool:
    return is_picture(data_info.shape)


def thing(data_info: DataInfo) -> str:
    """What one signal is, in one word."""
    return "image" if is_image(data_info) else "signal"


def shape(data_info: DataInfo) -> str:
    """Such as grey 8 × 8."""
    if not is_image(data_info):
        return " × ".join(map(str, data_info.shape))
    channels, height, width = data_info.shape
    kind = "complex" if data_info.is_complex else {1: "grey", 3: "colour"}.get(channels, f"{channels}-channel")
    return f"{kind} {height} × {width}"


def loss_of_data(data_info: DataInfo) -> str:
    """What the corruption did to each signal, as the end of a sentence."""
    corruption = dict(data_info.made_by.get("corruption") or {})
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
        case "channels":
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


def noise(data_info: DataInfo) -> str:
    given = dict(data_info.made_by.get("sigma_0") or {}).get("given")
    scale = "" if data_info.is_complex or not is_image(data_info) else ", where black is −1 and white is 1"
    if isinstance(given, list | tuple) and len(given) == 2:
        return f"noise of standard deviation {number(given[0])} to {number(given[1])}{scale}"
    level = given if isinstance(given, int | float) else data_info.max_std
    if level == 0:
        return "no noise"
    return f"noise of standard deviation {'' if given == level else 'up to '}{number(float(level))}{scale}"


def source(data_info: DataInfo) -> str:
    """Where the signals come from: a name, or the file."""
    made = dict(data_info.made_by.get("source") or {})
    kind, options = made.get("kind"), dict(made.get("options") or {})
    path = options.get("path") or made.get("path")
    names = {"digits": "handwritten digits of scikit-learn", "phantom": "simulated phantoms"}
    return names.get(str(kind), f"{kind} {Path(str(path)).name}" if path else str(kind))


def learned(run: Trained) -> str:
    """What a run learned from, in one sentence without its subject."""
    one = thing(run.config.data_info)
    return {
        "measured": "learned from the measurements alone",
        "oracle": f"learned from the clean {one}s, which one would like to have and has not: the best to hope for",
        "naive": f"took the measurements for clean {one}s: what one would do without the method",
    }[run.role]
