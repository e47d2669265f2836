"""One page that tells a stranger what was learned from what, how good it is, and how to do it again."""

import datetime
import importlib.metadata
import platform
import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import gsure
from gsure import formatting
from gsure.report import evaluated, figures, repeat, tables, words
from gsure.report.collect import Diagnosis, Facts, Trained, collect
from gsure.report.gallery import Gallery, Shown

__all__ = ["collect", "render"]


def render(facts: Facts) -> str:
    """The page. It needs nothing but itself: no script, no font, no image from elsewhere, and it says so to the browser."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    gallery = Gallery(facts)
    run, data_info = facts.main, facts.main.config.data_info
    share = _missing_share(gallery, run)
    contents: dict[str, Any] = {
        "facts": facts,
        "run": run,
        "name": facts.root.name,
        "one": words.thing(data_info),
        "shape": words.shape(data_info),
        "words": words,
        "number": formatting.number,
        "missing_share": share,
        "missing_words": _missing_words(run, share),
        "unfinished": ""
        if run.is_finished
        else f"Training has come to step {run.step:,} of {run.config.settings.steps:,}.",
        "oracle": facts.comparable(run, "clean"),
        "naive": facts.comparable(run, "naive"),
        "others": [other for other in facts.runs if other != run],
        "verdict": _verdict(facts),
        "hero": gallery.hero(),
        "headline": evaluated.headline(facts),
        "details": evaluated.details(facts),
        "drawings": figures.draw(facts.runs),
        "legend": list(zip(facts.runs, figures.styles(facts.runs), strict=True)),
        "samples": gallery.samples(),
        "restorations": gallery.restorations(),
        "denoised": gallery.from_training() if not facts.restorations else [],
        "psnr": tables.psnr_table(facts),
        "diagnoses": [(diagnosis, _checks(gallery, diagnosis)) for diagnosis in facts.diagnoses],
        "settings": tables.settings_table(facts),
        "runs": tables.runs_table(facts),
        "provenance": _provenance(facts),
        "commands": repeat.commands(facts),
        "missing": repeat.missing(facts),
        "files": _files(facts),
        "version": gsure.__version__,
        "versions": _versions(),
        "date": datetime.datetime.now(tz=datetime.UTC).strftime("%-d %B %Y"),
    }
    return environment.get_template("page.html.j2").render(contents | {"notes": [*facts.troubles, *gallery.notes]})


def _missing_share(gallery: Gallery, run: Trained) -> float | None:
    """How much of a signal is not measured, on average."""
    data = gallery.data(run.config.data)
    return None if data is None else 1 - float(data.coverage.mean())


def _missing_words(run: Trained, share: float | None) -> str:
    """For corruptions of which one cannot tell it by their options."""
    options = dict(run.config.data_info.made_by.get("corruption") or {})
    return "" if not share or "p" in options else f"On average {formatting.percent(share)} is missing."


def _verdict(facts: Facts) -> str:
    """The headline in two sentences: against the oracle, and against doing nothing about it."""
    run = facts.main
    oracle, naive = (facts.comparable(run, role) for role in ("clean", "naive"))
    if run.role != "measurements" or oracle is None:
        return ""
    one, sentences = words.thing(run.config.data_info), []
    errors, distances = evaluated.errors(facts), evaluated.distances(facts)
    if {run.path, oracle.path} <= errors.keys():
        told = (
            f"On complete {one}s, its denoising error is {_beside(errors[run.path], errors[oracle.path])} the oracle's"
        )
        if naive is not None and naive.path in errors:
            told += f"; that of naive training is {_beside(errors[naive.path], errors[oracle.path])}"
        sentences.append(f"{told}.")
    if {run.path, oracle.path} <= distances.keys() and distances[oracle.path] > 0:
        ratio = {path: f"{value / distances[oracle.path]:.3g} times" for path, value in distances.items()}
        told = f"The Fréchet distance of its samples from real ones is {ratio[run.path]} the oracle's"
        if naive is not None and naive.path in ratio:
            told += f"; that of naive training is {ratio[naive.path]}"
        sentences.append(f"{told}.")
    return " ".join(sentences)


def _beside(value: float, best: float) -> str:
    """
    >>> _beside(1.027, 1.0), _beside(0.99, 1.0)
    ('2.7 % above', '1 % below')
    """
    return f"{formatting.percent(abs(value / best - 1))} {'above' if value >= best else 'below'}"


def _checks(gallery: Gallery, diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """The checks of a diagnosis, each with its figure, if that lies beside the file."""
    checks = []
    for check in diagnosis.values["checks"]:
        verdict, name = str(check.get("verdict", "")), check.get("figure")
        title, told = str(check.get("title") or check.get("name")), str(check.get("words", ""))
        shown: list[Shown] = []
        if isinstance(name, str) and Path(name).name == name:
            alt = f"Figure of the check {title}: {verdict}. {told}"
            shown = gallery.from_file(diagnosis.path.parent / name, title, told, alt)
        state = next((s for s in ("holds", "doubtful", "broken") if verdict.lower().startswith(s)), "unknown")
        numbers = check.get("numbers") if isinstance(check.get("numbers"), dict) else {}
        scalars = {key: value for key, value in numbers.items() if isinstance(value, int | float | str)}
        checks.append(
            {"title": title, "verdict": verdict, "words": told, "state": state, "figure": shown, "numbers": scalars}
        )
    return checks


def _provenance(facts: Facts) -> list[tuple[str, str]]:
    """What is known of the data: as the measurement file has it, but for lists of everything."""
    config, made = facts.main.config, facts.main.config.data_info.made_by
    parts = {name: dict(made.get(name) or {}) for name in ("source", "corruption", "sigma_0")}
    options = dict(parts["source"].pop("options", None) or {})
    told: list[tuple[str, Any]] = [("measurements", facts.shown(config.data))]
    told += [("clean, for comparison only", facts.shown(config.clean))] if config.clean else []
    named = [("source", parts["source"] | options), ("corruption", parts["corruption"]), ("noise", parts["sigma_0"])]
    told += [(f"{part}: {key}", value) for part, values in named for key, value in values.items()]
    told += [("seed of the corruption", made.get("seed")), ("basis of the masks", config.data_info.basis)]
    return [(key, formatting.number(value)) for key, value in told if value is not None]


def _versions() -> str:
    installed = [f"{name} {importlib.metadata.version(name)}" for name in ("torch", "numpy", "diffusers", "accelerate")]
    return ", ".join([f"Python {platform.python_version()}", *installed])


def _files(facts: Facts) -> list[tuple[str, str, str]]:
    """Where things are, and how large."""
    entries = [(run.path, f"run: {run.label}") for run in facts.runs]
    entries += [(drawn.path, f"samples: {drawn.label}") for drawn in facts.samples]
    entries += [(drawn.path, f"restorations: {drawn.label}") for drawn in facts.restorations]
    entries += [(evaluation.path, "evaluation") for evaluation in facts.evaluations]
    entries += [(diagnosis.path, "diagnosis") for diagnosis in facts.diagnoses]
    listed = []
    for path, what in entries:
        inside = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
        name = re.sub(r"^\.$", facts.root.name, facts.shown(path))
        listed.append((name, what, formatting.size(sum(file.stat().st_size for file in inside))))
    return listed
