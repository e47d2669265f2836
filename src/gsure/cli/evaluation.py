"""evaluate: the quality of samples, restorations, and the denoiser itself. diagnose: do the method's assumptions hold?"""

import inspect
import json
import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from jsonargparse import ActionYesNo, ArgumentParser, Namespace

from gsure.cli import Command, Options, call, in_words, show
from gsure.cli.inference import ABOUT_WEIGHTS, WEIGHTS, add_computing
from gsure.display import number

# The evaluations that have an option, so that others refuse it. A test compares this with the functions.
OPTIONS = {
    "reference": ("samples",),
    "measurements": ("samples", "denoising"),
    "clean": ("restorations", "denoising"),
    "features": ("samples",),
    "n": ("samples", "restorations", "denoising"),
    "n_reference": ("samples",),
    "held_out": ("samples",),
    "full_reference": ("samples",),
    "lpips": ("restorations",),
    "t_bins": ("denoising",),
    "checkpoint": ("denoising",),
    "weights": ("denoising",),
    "batch": ("denoising",),
    "device": ("denoising",),
    "seed": ("samples", "denoising"),
    "out": ("samples", "restorations", "denoising"),
}


def _evaluate_options(parser: ArgumentParser) -> None:
    data = Options(parser, "what to evaluate")
    data.add("what", Literal["samples", "restorations", "denoising"], "what to evaluate")
    data.add("path", str, "folder of gsure sample or gsure restore; for denoising, a run")
    data.add("--reference", str, "samples: clean signals to compare with", metavar="FILE")
    about = "restorations, denoising: the clean signals behind the measurements, if you have them"
    data.add("--clean", str, about, metavar="FILE")
    about = "samples: measurements to compare with instead; denoising: measurements to use instead of the run's"
    data.add("--measurements", str, about, metavar="FILE")
    data.add("--n", int, "number to evaluate, instead of all (denoising: 256)")
    data.add("--out", str, "JSON file to write, instead of one in the folder", metavar="FILE")
    samples = Options(parser, "samples")
    samples.add("--features", str, "pca-K (pca-32), digits, fashion16, inception, or a TorchScript file")
    samples.add("--n-reference", int, "number of reference signals, instead of all")
    about = "compare only with data that the run did not train on, as with its own measurements"
    samples.group.add_argument("--held-out", action=ActionYesNo(no_prefix="no-"), default=None, help=about)
    about = "compare with the full reference instead of half of it"
    samples.group.add_argument("--full-reference", action=ActionYesNo(no_prefix="no-"), default=None, help=about)
    restorations = Options(parser, "restorations").group
    restorations.add_argument("--lpips", action=ActionYesNo(no_prefix="no-"), default=None, help="also compute LPIPS")
    denoising = Options(parser, "denoising")
    denoising.add("--t-bins", int, "number of bins of t, instead of 20")
    about = "checkpoint to use; a number is a step"
    denoising.add("--checkpoint", Literal["best", "last"] | int | None, about, metavar="best|last|N")
    denoising.add("--weights", WEIGHTS, ABOUT_WEIGHTS, metavar="averaged|raw")
    computing = Options(parser, "computing")
    computing.add("--batch", int, "denoising: batch size, instead of 64")
    computing.add("--device", str, "denoising: device, such as cpu or cuda:1; by default a GPU if there is one")
    computing.add("--seed", int, "seed of halves, projections and noise, instead of 0")


def _evaluate(options: Namespace) -> None:
    from gsure.evaluation import evaluate_denoising, evaluate_restorations, evaluate_samples

    functions: dict[str, Callable[..., dict[str, Any]]] = {
        "samples": evaluate_samples,
        "restorations": evaluate_restorations,
        "denoising": evaluate_denoising,
    }
    given = {name: options[name] for name in OPTIONS if options[name] is not None}
    if foreign := [name for name in given if options.what not in OPTIONS[name]]:
        option = foreign[0].replace("_", "-")
        raise ValueError(f"--{option} is an option of gsure evaluate {OPTIONS[foreign[0]][0]}, not of {options.what}.")
    (first, *_) = inspect.signature(functions[options.what]).parameters
    record = call(functions[options.what], Namespace(json=options.json), **given, **{first: options.path})
    if os.environ.get("RANK", "0") != "0":  # one of torchrun's: only the first prints
        return
    if options.json:
        show(record, as_json=True)
        return
    sys.stdout.write(f"{table(record)}\n")
    sys.stderr.writelines(f"Note: {warning}\n" for warning in record["warnings"])


def table(record: dict[str, Any]) -> str:
    """What was compared with what, and in which features; then a line for each metric, and for each t bin."""
    about = _about(record) | {"seed": in_words(record["seed"]), "written": _shown(record["written"])}
    lines = [f"{key:<12}  {value}" for key, value in about.items() if value is not None]
    metrics = record["metrics"]
    if record["kind"] == "restorations":
        shown = {"draw": "one draw", "baseline": "baseline", "total_variation": "TV", "gaussian": "Gaussian"}
        shown = {kind: title for kind, title in shown.items() if any(name.endswith(f"_of_{kind}") for name in metrics)}
        rows = [["", "mean", "± se", *shown.values(), "better"]]
        for name in (name for name in metrics if "_of_" not in name):
            others = [metrics.get(f"{name}_of_{kind}", {}).get("value") for kind in shown]
            cells = map(number, (metrics[name]["value"], metrics[name]["se"], *others))
            rows.append([name.replace("_", " "), *cells, metrics[name]["better"]])
        if record["verdict"] is not None:
            lines = [record["verdict"], "", *lines]
    else:
        rows = [["", "value", "± se", "floor", "better"]]
        for name, metric in metrics.items():
            rows.append([name, *map(number, (metric["value"], metric["se"], metric["floor"])), metric["better"]])
    lines += ["", *_aligned(rows)]
    if "correlation" in metrics:
        strong, real = (metrics["correlation"][key] for key in ("strength", "strength_of_floor"))
        lines += [
            "",
            f"Correlations between pixels are {strong:.2f} times those of the reference (real ones: {real:.2f}).",
        ]
    if "t_bins" in record:
        names = [name for name in ("full", "estimate", "true") if name in metrics]
        rows = [
            ["t = {}..{}".format(*t_bin["t"]), *(number(t_bin[name]) for name in names)] for t_bin in record["t_bins"]
        ]
        lines += ["", *_aligned([["", *names], *rows])]
    return "\n".join(lines)


def _about(record: dict[str, Any]) -> dict[str, str | None]:
    reference, features = record["reference"], record["features"]
    where = None if reference["path"] is None else _shown(reference["path"])
    about: dict[str, str | None] = {record["kind"]: f"{record['n']:,} of {_shown(record['of'])}"}
    match record["kind"]:
        case "samples":
            half = "" if reference["n"] == reference["of"] else f", half of its {reference['of']:,}"
            about["against"] = f"{reference['n']:,} {reference['holds']} of {where}{half}"
            about["features"] = f"{features['name']}, {features['dimension']:,} dimensions"
            about["floor"] = record["floor"]
        case "restorations":
            about["against"] = where or "measured entries that were hidden, in dB"
            about["mean over"] = None if record["volumes"] == record["n"] else f"{record['volumes']:,} volumes"
        case "denoising":
            about[record["kind"]] = f"{_shown(record['of'])}, at step {record['step']:,}"
            about["on"] = f"{record['n']:,} of the {reference['of']:,} {reference['holds']} of {where}"
            about["clean"] = None if reference["clean"] is None else _shown(reference["clean"])
    return about


def _shown(path: str) -> str:
    """Relative to the current folder, if it lies below."""
    resolved = Path(path).resolve()
    return str(resolved.relative_to(Path.cwd())) if resolved.is_relative_to(Path.cwd()) else path


def _aligned(rows: list[list[str]]) -> list[str]:
    first, *widths = (max(map(len, column)) for column in zip(*rows, strict=True))
    return [row[0].ljust(first) + "".join(f"  {c:>{w}}" for c, w in zip(row[1:], widths, strict=True)) for row in rows]


def _diagnose_options(parser: ArgumentParser) -> None:
    data = Options(parser, "model and data")
    data.add("run", str, "folder of a run; the diagnosis goes to its subfolder diagnosis")
    about = "a run trained on clean signals (--train-on clean), to compare with"
    data.add("--reference-run", str, about, metavar="FOLDER")
    about = "the clean signals behind the run's data, for errors of entries that were not measured"
    data.add("--clean", str, about, metavar="FILE")
    data.add("--n", int, "maximum number of held-out measurements to check", 512)
    checkpoint = Literal["best", "last"] | int
    data.add("--checkpoint", checkpoint, "checkpoint to use; a number is a step", "best", metavar="best|last|N")
    data.add("--weights", WEIGHTS, ABOUT_WEIGHTS, metavar="averaged|raw")
    Options(parser, "output").add("--force", bool, "replace an existing diagnosis")
    add_computing(parser, batch=128)


def _diagnose(options: Namespace) -> None:
    from gsure.evaluation.diagnose import FOLDER, diagnose

    result = call(diagnose, options, model=options.run)
    if options.json:
        sys.stdout.write(json.dumps(result, ensure_ascii=False) + "\n")
        return
    folder = Path(options.run) / FOLDER
    for check in result["checks"]:
        sys.stdout.write(f"{check['title']}  {check['verdict']}\n")
        if check["words"]:
            sys.stdout.write(textwrap.indent(textwrap.fill(check["words"], 100), "    ") + "\n")
    show({"figures": str(folder)}, as_json=False)


COMMANDS = {
    "evaluate": Command(
        "gsure evaluate {samples,restorations,denoising} PATH [options]",
        _evaluate_options,
        _evaluate,
        (
            "gsure evaluate samples samples --reference test-clean.h5",
            "gsure evaluate restorations restored --clean test-clean.h5",
            "gsure evaluate denoising runs/digits",
        ),
    ),
    "diagnose": Command(
        "gsure diagnose RUN [options]",
        _diagnose_options,
        _diagnose,
        (
            "gsure diagnose runs/digits",
            "gsure diagnose runs/digits --clean c.h5 --reference-run runs/clean",
        ),
    ),
}
