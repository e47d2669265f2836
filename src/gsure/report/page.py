"""Write the page: collect the results, describe and draw them, and fill the template."""

import base64
import datetime
import hashlib
import importlib.metadata
import math
import platform
import re
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

import gsure
from gsure import display
from gsure.basis import Basis
from gsure.display import number, percent
from gsure.files import Request, record_request, refuse_existing, replacing
from gsure.plotting.curves import Series, Style, choose_styles, draw_svg
from gsure.report import tables, words
from gsure.report.bars import error_bars
from gsure.report.collect import ROLES, Diagnosis, Facts, Trained, as_dict, collect
from gsure.report.gallery import Gallery, Shown


def write_report(
    path: str | PathLike[str], out: str | Path | None = None, force: bool = False, basis: Basis | None = None
) -> dict[str, Any]:
    """Write an HTML page about a run, or about a folder of runs and their results, and return a summary.

    The page goes to `out`, or to report.html in the folder. It shows the results that exist and lists the commands that add
    the others. Pass `basis` if the measurements were made in your own basis.
    """
    request = record_request("write_report", {"path": path, "out": out, "force": force or None, "basis": basis})
    target = Path(path) / "report.html" if out is None else Path(out)
    if target.suffix.lower() not in (".html", ".htm") and not target.is_dir():
        raise ValueError(f"{target} is not the name of an HTML page: give --out a name that ends in .html.")
    if target.is_dir():
        raise ValueError(f"{target} is a folder. --out is the name of the page, such as {target / 'report.html'}.")
    facts = collect(Path(path))
    refuse_existing(target, force)
    page = render(facts, request, basis).encode("utf-8", "replace")  # file names may contain bytes that are not text
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as temporary:
        temporary.write_bytes(page)
    kinds = ("runs", "samples", "restorations", "evaluations", "diagnoses")
    summary = {"page": str(target), "bytes": len(page)} | {kind: len(getattr(facts, kind)) for kind in kinds}
    return summary | ({"omitted": "; ".join(facts.troubles)} if facts.troubles else {})


def render(facts: Facts, request: Request, basis: Basis | None = None) -> str:
    """The page as HTML. It has no fonts or images from elsewhere, and tells the browser to load nothing.

    The browser runs only the script with the stated hash, and no other that a text on the page might contain.
    """
    script = (Path(__file__).parent / "page.js").read_text()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    gallery, run = Gallery(facts, basis), facts.main
    commands, unrecorded = words.recorded_commands(facts, request)
    styles = choose_styles([list(ROLES).index(one.role) for one in facts.runs])
    contents: dict[str, Any] = {
        "facts": facts,
        "script": Markup(script),
        "script_hash": Markup(f"sha256-{digest}"),
        "run": run,
        "name": facts.root.name,
        "one": words.thing(run.config.data_info),
        "words": words,
        "number": number,
        "percent": percent,
        "missing_share": gallery.missing_share(),
        "reference": facts.comparable(run, "clean"),
        "naive": facts.comparable(run, "naive"),
        "others": [other for other in facts.runs if other != run],
        "verdict": words.verdict(facts, tables.errors(facts), tables.distances(facts)),
        "hero": gallery.hero(),
        "headline": tables.headline(facts),
        "details": tables.details(facts),
        "curves": training_curves(facts.runs, styles),
        "legend": list(zip(facts.runs, styles, strict=True)),
        "samples": gallery.samples(),
        "restorations": gallery.restorations(),
        "denoised": gallery.denoised() if not facts.restorations else [],
        "error_bars": error_bars(facts),
        "judged": words.judged(facts),
        "psnr": tables.psnr_table(facts),
        "hidden": tables.hidden_table(facts),
        "diagnoses": [(diagnosis, _checks(gallery, diagnosis)) for diagnosis in facts.diagnoses],
        "settings": tables.settings_table(facts),
        "runs": tables.runs_table(facts),
        "provenance": _provenance(facts),
        "commands": commands,
        "unrecorded": unrecorded,
        "missing": words.next_commands(facts),
        "files": _files(facts),
        "version": gsure.__version__,
        "versions": _versions(),
        "date": datetime.datetime.now(tz=datetime.UTC).strftime("%-d %B %Y"),
    }
    return environment.get_template("page.html.j2").render(contents | {"notes": [*facts.troubles, *gallery.notes]})


class Curves(NamedTuple):
    """A figure with its title, a sentence below it, and its alternative text."""

    svg: Markup
    title: str
    words: str
    alt: str


Styled = list[tuple[Trained, Style]]


def training_curves(runs: Sequence[Trained], styles: Sequence[Style]) -> list[Curves]:
    """Figures of all runs: the loss, the validation error and its true value, and the error over the noise level."""
    styled = list(zip(runs, styles, strict=True))
    return [curves for function in (_losses, _validation, _noise_levels) for curves in function(styled)]


def _losses(runs: Styled) -> Iterator[Curves]:
    found = [(run, style) for run, style in runs if len(run.losses) > 1]
    if not found:
        return
    series = []
    for run, style in found:
        steps, losses = zip(*run.losses, strict=True)
        series.append(Series(steps, losses, None, style.stand_in, style.dash))
    finite = sorted(value for one in series for value in one.y if math.isfinite(value))
    ylim = None
    if finite:  # omit the first steps, whose loss is so high that it hides all the others
        low, high = finite[0], finite[int(0.97 * (len(finite) - 1))]
        ylim = (low - 0.05 * (high - low or 1), high + 0.15 * (high - low or 1))
    svg = draw_svg("loss", series, "training step", "loss", ylim)
    ends = [f"{run.label}: from {number(run.losses[0][1], 3)} to {number(run.losses[-1][1], 3)}" for run, _ in found]
    about = "The curve should fall and level off."
    if len(found) > 1:
        about = (
            "Each curve should fall and level off. Models with different training data have different losses: do not "
        )
        about += "compare them here, but in the next figures."
    yield Curves(Markup(svg), "Training loss", about, f"Line chart of the loss over steps. {'; '.join(ends)}.")


def _validation(runs: Styled) -> Iterator[Curves]:
    """Of the runs that were validated like the first. Omits the reference, which is validated on clean signals and needs no
    estimate."""
    found = [(run, style) for run, style in runs if run.validations and run.role != "clean"]
    found = [entry for entry in found if entry[0].validates_restoration == found[0][0].validates_restoration]
    if not found:
        return
    known = [(run, style) for run, style in found if all("true" in v for _, v in run.validations)]
    series = []
    for run, style in found:
        steps, results = zip(*run.validations, strict=True)
        values, errors = [v["estimate"]["mean"] for v in results], [2 * v["estimate"]["se"] for v in results]
        series.append(Series(steps, values, errors, style.stand_in, mark="o"))
    for run, style in known:
        steps, results = zip(*run.validations, strict=True)
        series.append(Series(steps, [v["true"]["mean"] for v in results], None, style.stand_in, style.dash))
    error = "error on hidden entries" if found[0][0].validates_restoration else "denoising error"
    svg = draw_svg("validation", series, "training step", error)
    alt = f"Chart of the {error} of held-out measurements over training steps, as dots with error bars. "
    about = f"Dots: {error} of held-out measurements, estimated without clean data (± 2 standard errors). "
    if known:
        one = words.thing(found[0][0].config.data_info)
        worst = max(abs(v["estimate"]["mean"] / v["true"]["mean"] - 1) for run, _ in known for _, v in run.validations)
        alt += f"The largest difference from the true error, a line, is {percent(worst)}."
        about += f"Lines: true error, computed with the clean {one}s. The largest difference is {percent(worst)}."
    else:
        first, last = (number(found[0][0].validations[k][1]["estimate"]["mean"], 3) for k in (0, -1))
        alt += f"It goes from {first} to {last}."
        about += (
            "It is a share of the error of the Gaussian prior: below 1, the network adds to it."
            if found[0][0].validates_restoration
            else "It is an unbiased estimate of the true error and selects the best checkpoint."
        )
    yield Curves(Markup(svg), f"Validation error{', estimated and true' if known else ''}", about, alt)


def _noise_levels(runs: Styled) -> Iterator[Curves]:
    """The last validation over t: on fully sampled signals if all runs have them, so that you can compare the runs."""
    found = [(run, style, run.validations[-1][1]) for run, style in runs if run.validations]
    found = [entry for entry in found if entry[2]["t_bins"]]  # restoration in one call is validated at no timestep
    key = "full" if found and all("full" in result for _, _, result in found) else "estimate"
    found = [entry for entry in found if key == "full" or entry[0].role != "clean"]
    if not found:
        return
    series = []
    for _, style, result in found:
        t, values, errors = zip(*((sum(b["t"]) / 2, b[key], 2 * b[f"{key}_se"]) for b in result["t_bins"]), strict=True)
        series.append(Series(t, values, errors, style.stand_in, style.dash, "o-"))
    log = all(value > 0 for one in series for value in one.y)
    svg = draw_svg("levels", series, "timestep t (small: low noise)", "denoising error", log=log)
    what = f"complete {words.thing(found[0][0].config.data_info)}s" if key == "full" else "held-out measurements"
    about = "Sampling goes from high noise (right) to low noise (left), so a model must be good at all levels. "
    about += f"Error on {what} at the last checkpoint, ± 2 standard errors."
    low = "; ".join(f"{run.label} {number(one.y[0], 3)}" for (run, *_), one in zip(found, series, strict=True))
    alt = f"Chart of the denoising error on {what} over the timestep t. At the lowest noise: {low}."
    yield Curves(Markup(svg), "Error by noise level", about, alt)


def _checks(gallery: Gallery, diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """The checks of a diagnosis with their figures, which must be in the same folder."""
    checks = []
    for check in diagnosis.values["checks"]:
        verdict, name = str(check.get("verdict", "")), check.get("figure")
        title, about = str(check.get("title") or check.get("name")), str(check.get("words", ""))
        figure: list[Shown] = []
        if isinstance(name, str) and Path(name).name == name:
            alt = f"Figure of the check {title}: {verdict}. {about}"
            figure = gallery.from_file(diagnosis.path.parent / name, title, about, alt)
        state = next((s for s in ("holds", "doubtful", "broken") if verdict.lower().startswith(s)), "unknown")
        scalars = {k: v for k, v in as_dict(check.get("numbers")).items() if isinstance(v, int | float | str)}
        parts = {"title": title, "verdict": verdict, "words": about, "state": state}
        checks.append(parts | {"figure": figure, "numbers": scalars})
    return checks


def _provenance(facts: Facts) -> list[tuple[str, str]]:
    """What the measurement file says about its origin, without long lists."""
    config, made = facts.main.config, facts.main.config.data_info.made_by
    parts = {name: dict(made.get(name) or {}) for name in ("source", "corruption", "sigma_0")}
    options = dict(parts["source"].pop("options", None) or {})
    known: list[tuple[str, Any]] = [("measurements", facts.shown(config.data))]
    known += [("clean, for comparison only", facts.shown(config.clean))] if config.clean else []
    named = [("source", parts["source"] | options), ("corruption", parts["corruption"]), ("noise", parts["sigma_0"])]
    known += [(f"{part}: {key}", value) for part, values in named for key, value in values.items()]
    known += [("seed of the corruption", made.get("seed")), ("basis of the masks", config.data_info.basis)]
    return [(key, number(value)) for key, value in known if value is not None]


def _versions() -> str:
    installed = [f"{name} {importlib.metadata.version(name)}" for name in ("torch", "numpy", "diffusers", "accelerate")]
    return ", ".join([f"Python {platform.python_version()}", *installed])


def _files(facts: Facts) -> list[tuple[str, str, str]]:
    """Name, kind and size of every result."""
    entries = [(run.path, f"run: {run.label}") for run in facts.runs]
    entries += [(drawn.path, f"samples: {drawn.label}") for drawn in facts.samples]
    entries += [(drawn.path, f"restorations: {drawn.label}") for drawn in facts.restorations]
    entries += [(evaluation.path, "evaluation") for evaluation in facts.evaluations]
    entries += [(diagnosis.path, "diagnosis") for diagnosis in facts.diagnoses]
    listed = []
    for path, what in entries:
        inside = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
        name = re.sub(r"^\.$", facts.root.name, facts.shown(path))
        listed.append((name, what, display.size(sum(file.stat().st_size for file in inside))))
    return listed
