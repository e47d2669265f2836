"""The sentences of the page, for a reader who has not read the paper, and the commands that the page shows."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gsure.display import number, percent
from gsure.files import Request, as_request, show_request, show_resumption
from gsure.report.collect import Facts, Trained
from gsure.training.settings import DataInfo


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
    forms = {"holds": ("holds", "hold"), "doubtful": ("is doubtful", "are doubtful"), "broken": ("fails", "fail")}
    forms["unknown"] = ("was not made", "were not made")
    found = [(sum(check["state"] == state for check in checks), form) for state, form in forms.items()]
    parts = [f"{count(n)} {one if n == 1 else many}" for n, (one, many) in found if n]
    return f"Of {count(len(checks))} checks, {' and '.join(filter(None, [', '.join(parts[:-1]), *parts[-1:]]))}."


def is_picture(shape: tuple[int, ...]) -> bool:
    """Whether a signal is an image. Vectors have the shape 1 × 1 × n."""
    return len(shape) == 3 and min(shape[-2:]) > 1


def thing(data_info: DataInfo) -> str:
    """The word for one signal: image or signal."""
    return "image" if is_picture(data_info.shape) else "signal"


def shape(data_info: DataInfo) -> str:
    """A description of the shape, such as grey 8 × 8."""
    if not is_picture(data_info.shape):
        return " × ".join(map(str, data_info.shape))
    channels, height, width = data_info.shape
    kind = "complex" if data_info.is_complex else {1: "grey", 3: "colour"}.get(channels, f"{channels}-channel")
    return f"{kind} {height} × {width}"


def loss_of_data(data_info: DataInfo) -> str:
    """What is missing in each signal, as a part of a sentence."""
    corruption = dict(data_info.made_by.get("corruption") or {})
    p, R, keep = (corruption.get(name) for name in ("p", "R", "keep"))
    missing = f"is missing with probability {percent(p)}" if isinstance(p, int | float) else "may be missing"
    kept = f"about one in {R:g}" if isinstance(R, int | float) else "a part of the"
    match corruption.get("name"):
        case "patches":
            side = corruption.get("size")
            return f"each patch of {side} × {side} pixels {missing}"
        case "pixels" | "channels" as name:
            return f"each {name.removesuffix('s')} {missing}"
        case "noise":
            return "nothing is missing, but noise was added"
        case "lines" | "gaussian_lines" | "equispaced_lines":
            return f"{kept} columns of k-space was measured, as in an accelerated MRI scan"
        case "poisson_disc":
            return f"{kept} points of k-space was measured, as in an accelerated MRI scan"
        case "hadamard":
            share = percent(keep) if isinstance(keep, int | float) else "a part"
            return f"{share} of the Hadamard patterns were measured, as in a single-pixel camera"
        case "blur":
            return f"each was blurred by its own kernel ({corruption.get('kind')})"
        case "as measured":
            return "they were imported from files, not simulated"
        case name:
            return f"each was corrupted by {name}"


def noise(data_info: DataInfo) -> str:
    given = dict(data_info.made_by.get("sigma_0") or {}).get("given")
    is_simulated = dict(data_info.made_by.get("corruption") or {}).get("name") != "as measured"
    is_grey = is_picture(data_info.shape) and not data_info.is_complex and is_simulated
    scale = " (black is −1, white is 1)" if is_grey else ""
    if isinstance(given, list | tuple) and len(given) == 2:
        return f"noise of standard deviation {number(given[0])} to {number(given[1])}{scale}"
    level = given if isinstance(given, int | float) else data_info.max_std
    if level == 0:
        return "no noise"
    return f"noise of standard deviation {'' if given == level else 'up to '}{number(float(level))}{scale}"


def source(data_info: DataInfo) -> str:
    """The origin of the signals: a name, or the file."""
    made = dict(data_info.made_by.get("source") or {})
    kind, options = made.get("kind"), dict(made.get("options") or {})
    path = options.get("path") or made.get("path")
    names = {
        "digits": "handwritten digits of scikit-learn",
        "phantom": "simulated phantoms",
        "anatomy": "slices of deformed real heads",
    }
    return names.get(str(kind), f"{kind} {Path(str(path)).name}" if path else str(kind))


def trained(run: Trained) -> str:
    """What a run was trained on, as a sentence without its subject."""
    one = thing(run.config.data_info)
    return {
        "measurements": "was trained on the measurements alone",
        "clean": f"was trained on the clean {one}s and shows the best result to expect from this network",
        "naive": f"was trained as if the measurements were clean {one}s and shows the result without the method",
    }[run.role]


def judged(facts: Facts) -> str:
    """Whether the network is better than no model: of its restorations, or else as training ended."""
    mine = [drawn for drawn in facts.restorations if drawn.run == facts.main]
    by_network = [drawn.summary.get("verdict") for drawn in mine if drawn.made_of.get("method") != "gaussian"]
    for said in [*by_network, facts.main.verdict]:
        if isinstance(said, str):
            return said
    return ""


def restoring(facts: Facts) -> str:
    """What a restoration and its uncertainty are."""
    one, methods = thing(facts.main.config.data_info), {drawn.made_of.get("method") for drawn in facts.restorations}
    if methods == {"mean"}:
        return (
            f"One call of the network restores a measurement. The uncertainty is the standard deviation of several {one}s "
            "that were drawn to agree with the measurement."
        )
    if "mean" in methods:
        return f"The uncertainty is the standard deviation of several {one}s that were drawn to agree with the measurement."
    return (
        f"For each measurement, the model draws several complete {one}s that agree with it. Their mean is the restoration, "
        "their standard deviation the uncertainty."
    )


def verdict(facts: Facts, errors: Mapping[Path, float], distances: Mapping[Path, float]) -> str:
    """Sentences that compare the denoising error and the Fréchet distance with those of the reference and naive training."""
    run = facts.main
    reference, naive = (facts.comparable(run, role) for role in ("clean", "naive"))
    if run.role != "measurements" or reference is None:
        return ""
    sentences = []
    if {run.path, reference.path} <= errors.keys():
        best = errors[reference.path]
        one = thing(run.config.data_info)
        said = f"Its denoising error on fully sampled {one}s is {_beside(errors[run.path], best)} that of the reference"
        if naive is not None and naive.path in errors:
            said += f"; naive training is {_beside(errors[naive.path], best)} it"
        sentences.append(f"{said}.")
    if {run.path, reference.path} <= distances.keys() and distances[reference.path] > 0:
        ratio = {path: f"{number(value / distances[reference.path], 3)} times" for path, value in distances.items()}
        said = f"The Fréchet distance of its samples is {ratio[run.path]} that of the reference"
        if naive is not None and naive.path in ratio:
            said += f"; with naive training it is {ratio[naive.path]}"
        sentences.append(f"{said}.")
    return " ".join(sentences)


def _beside(value: float, best: float) -> str:
    """
    >>> _beside(1.027, 1.0), _beside(0.99, 1.0)
    ('2.7 % above', '1 % below')
    """
    return f"{percent(abs(value / best - 1))} {'above' if value >= best else 'below'}"


class Step(NamedTuple):
    """A command, what it is for, and the folder to run it in, if that is not the root of the report."""

    why: str
    command: str
    folder: str = ""


def recorded_commands(facts: Facts, page: Request) -> tuple[list[Step], list[str]]:
    """The recorded commands, each once and in the order of the work, and the results without a recorded command."""
    found: list[tuple[str, Any]] = [
        (f"measurements {facts.shown(run.config.data)}", run.data_request) for run in facts.runs
    ]
    found += [(f"model: {run.label}", run.request) for run in facts.runs]
    found += [(f"samples: {drawn.label}", drawn.request) for drawn in facts.samples]
    found += [(f"restorations: {drawn.label}", drawn.request) for drawn in facts.restorations]
    found += [(facts.shown(one.path), one.values.get("request")) for one in facts.evaluations]
    found += [(facts.shown(one.path), one.values.get("request")) for one in facts.diagnoses]
    commands: dict[tuple[str, str], dict[str, None]] = {}
    unrecorded: dict[str, None] = {}
    for what, given in [*found, ("this page", page)]:
        if request := as_request(given):
            commands.setdefault((show_request(request), _folder(facts, request)), {})[what] = None
        else:
            unrecorded[what] = None
    return [Step(_list(list(what)), *command) for command, what in commands.items()], list(unrecorded)


def _folder(facts: Facts, request: Request) -> str:
    """The folder in which the command ran, unless it is the root."""
    folder = str(request.get("folder") or "")
    return "" if not folder or Path(folder).resolve() == facts.root else folder


def _list(names: list[str]) -> str:
    """
    >>> _list(["measurements", "a model"]), _list(["measurements", "a model", "samples", "this page"])
    ('measurements; a model', 'measurements; a model; and two more')
    """
    return "; ".join(names if len(names) < 4 else [*names[:2], f"and {count(len(names) - 2)} more"])


def next_commands(facts: Facts) -> list[Step]:
    """What the page does not show yet, and the commands that would add it."""
    main, config = facts.main, facts.main.config
    name, data = facts.shown(main.path), facts.shown(config.data)
    steps = [_resume(facts, run) for run in facts.runs if not run.is_finished]
    if config.own_network:
        return steps

    def add(why: str, *words: str) -> None:
        steps.append(Step(why, shlex.join(["gsure", *words])))

    clean = ["--clean", facts.shown(config.clean)] if config.clean else []
    drawn = [found for found in facts.samples if found.run == main]
    if not drawn:
        add("no samples yet", "sample", name, "--n", "64", "--out", str(Path(name) / "generated"))
    if main not in [found.run for found in facts.restorations]:
        options = ["--limit", "8", *clean, "--out", str(Path(name) / "restored")]
        add("no restorations yet", "restore", name, data, *options)
    kinds = {evaluation.values.get("kind") for evaluation in facts.evaluations if evaluation.run == main}
    if drawn and "samples" not in kinds:
        known = ["--reference", facts.shown(config.clean)] if config.clean else ["--measurements", data]
        add("the samples are not evaluated", "evaluate", "samples", facts.shown(drawn[0].path), *known)
    if main.role != "clean" and main not in [diagnosis.run for diagnosis in facts.diagnoses]:
        reference = facts.comparable(main, "clean") if config.clean else None
        other = ["--reference-run", facts.shown(reference.path)] if reference is not None else []
        add("the assumptions are not checked", "diagnose", name, *clean, *other)
    return steps


def _resume(facts: Facts, run: Trained) -> Step:
    why = f"{run.label}: training is at step {run.step:,} of {run.config.settings.steps:,}"
    if not (request := run.request):
        words = ["gsure", "train", facts.shown(run.config.data), "--out", facts.shown(run.path), "--resume"]
        return Step(why, shlex.join(words))
    command = request.get("command")
    is_train = not command or command[1:2] == ["train"]  # other commands, such as demo, resume when you repeat them
    return Step(why, show_resumption(request) if is_train else show_request(request), _folder(facts, request))
