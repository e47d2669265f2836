"""evaluate: the quality of samples, restorations, and the denoiser itself."""

import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from jsonargparse import ActionYesNo, ArgumentParser, Namespace

from gsure.cli import Command, call, in_words, show
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
    "batch": ("denoising",),
    "seed": ("samples", "denoising"),
    "out": ("samples", "restorations", "denoising"),
}


def _options(parser: ArgumentParser) -> None:
    parser.add_argument("what", type=Literal["samples", "restorations", "denoising"], help="what to evaluate")
    parser.add_argument("path", type=str, help="folder of gsure sample or gsure restore; for denoising, a run")
    parser.add_argument("--reference", type=str, help="samples: file of clean signals to compare with")
    parser.add_argument(
        "--measurements",
        type=str,
        help="samples: measurements to compare with instead; denoising: measurements to use instead of the run's",
    )
    parser.add_argument("--clean", type=str, help="restorations, denoising: the clean signals behind the measurements")
    parser.add_argument(
        "--features", type=str, help="samples: pca-K (pca-32), digits, fashion16, inception, or a TorchScript file"
    )
    parser.add_argument("--n", type=int, help="number to evaluate, instead of all (denoising: 256)")
    parser.add_argument("--n-reference", type=int, help="samples: number of reference signals, instead of all")
    parser.add_argument(
        "--held-out",
        action=ActionYesNo(no_prefix="no-"),
        default=None,
        help="samples: compare only with data that the run did not train on, as with its own measurements",
    )
    parser.add_argument(
        "--full-reference",
        action=ActionYesNo(no_prefix="no-"),
        default=None,
        help="samples: compare with the full reference instead of half of it",
    )
    parser.add_argument(
        "--lpips", action=ActionYesNo(no_prefix="no-"), default=None, help="restorations: also compute LPIPS"
    )
    parser.add_argument("--t-bins", type=int, help="denoising: number of bins of t, instead of 20")
    parser.add_argument("--checkpoint", type=Literal["best", "last"] | int | None, help="denoising: checkpoint to use")
    parser.add_argument("--batch", type=int, help="denoising: batch size, instead of 64")
    parser.add_argument("--seed", type=int, help="seed of halves, projections and noise, instead of 0")
    parser.add_argument("--out", type=str, help="JSON file to write, instead of one in the folder")


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
    if options.what == "restorations" and options.clean is None:
        raise ValueError("Restorations are compared with clean signals: give --clean.")
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
        rows = [["", "mean of draws", "± se", "one draw", "baseline", "better"]]
        for name in (name for name in metrics if "_of_" not in name):
            others = [metrics.get(f"{name}_of_{kind}", {}).get("value") for kind in ("draw", "baseline")]
            cells = map(number, (metrics[name]["value"], metrics[name]["se"], *others))
            rows.append([name, *cells, metrics[name]["better"]])
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
    where = _shown(reference["path"])
    about: dict[str, str | None] = {record["kind"]: f"{record['n']:,} of {_shown(record['of'])}"}
    match record["kind"]:
        case "samples":
            half = "" if reference["n"] == reference["of"] else f", half of its {reference['of']:,}"
            about["against"] = f"{reference['n']:,} {reference['holds']} of {where}{half}"
            about["features"] = f"{features['name']}, {features['dimension']:,} dimensions"
            about["floor"] = record["floor"]
        case "restorations":
            about["against"] = where
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


COMMANDS = {"evaluate": Command(_options, _evaluate)}
