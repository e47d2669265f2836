"""Write the page: collect the results, describe and draw them, and fill the template."""

import base64
import datetime
import hashlib
import importlib.metadata
import platform
import re
from os import PathLike
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

import gsure
from gsure import display
from gsure.basis import Basis
from gsure.display import number, percent
from gsure.files import Request, record_request, refuse_existing, replacing
from gsure.plotting.curves import choose_styles
from gsure.report import tables, words
from gsure.report.charts import error_bars, training_curves
from gsure.report.collect import ROLES, Diagnosis, Facts, as_dict, collect
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
