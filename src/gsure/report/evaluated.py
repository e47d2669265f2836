"""What `gsure evaluate` found: the headline, a line for each way of evaluating, and every metric of each."""

from pathlib import Path
from typing import Any

from gsure.formatting import number, with_error
from gsure.report.collect import Evaluation, Facts
from gsure.report.tables import Cell, Row, Table, compared, validation_table

METRICS = {
    "frechet": ("Fréchet distance", "between the features of generated and real, each set taken for a Gaussian"),
    "kid": ("Kernel distance (KID)", "between features, without the assumption of Gaussians"),
    "sliced_wasserstein": ("Sliced Wasserstein distance", "mean distance of the two sets along random directions"),
    "correlation": ("error of correlations", "between pixels: shows whether a model learned what belongs together"),
    "precision": ("Precision", "share of the generated that look like real ones"),
    "recall": ("Recall", "share of the real that the model could generate"),
    "psnr": ("PSNR (dB)", "likeness to the clean one; 6 dB more is half the error"),
    "ssim": ("SSIM", "structural likeness to the clean one; 1 is equal"),
    "nmse": ("NMSE", "squared error as a share of the signal"),
    "lpips": ("LPIPS", "perceptual difference from the clean one"),
    "full": ("error on complete signals", "noise is added to clean signals and taken away again"),
    "estimate": ("error on measurements, estimated", "without any clean data"),
    "true": ("the same, true", "by the clean signals behind the measurements"),
}
"""Their titles, and what they are."""
VARIANTS = {"draw": "one draw", "baseline": "no model"}
KINDS = {
    "denoising": ("Denoising", "Denoising error, mean over all noise levels"),
    "samples": ("Generating", "Generated samples"),
    "restorations": ("Restoring", "Restorations"),
}
FIRST = ("full", "estimate", "frechet", "psnr")
"""Metrics for the headline: of each way of evaluating the first of these that it has."""

Group = list[Evaluation]
"""Of several runs, evaluated in the same way."""


def headline(facts: Facts) -> Table | None:
    """What a reader wants to know first. Without any evaluation, that is what training found by itself."""
    groups = _groups(facts)
    if not groups:
        return validation_table(facts)
    base = None if _is_judged(facts) else validation_table(facts)
    rows = []
    if base is not None:  # which has no floor
        first = base.rows[0]
        rows.append(Row(f"Denoising: {first.title[0].lower()}{first.title[1:]}", first.note, (Cell("–"), *first.cells)))
    for group in groups:
        kind, _ = KINDS.get(_kind(group), (_kind(group).capitalize(), ""))
        names = list(group[0].values["metrics"])
        if chosen := next((name for name in FIRST if name in names), next(iter(names), None)):
            row = _row(facts, group, chosen, facts.runs, with_floor=True)
            note = f"{_how(facts, group[0])}; {_better(group, chosen)} is better"
            rows.append(Row(f"{kind}: {row.title}", note, row.cells))
    warnings = dict.fromkeys(str(told) for group in groups for e in group for told in e.values.get("warnings") or [])
    head = ("", "floor", *(run.label for run in facts.runs))
    caption = "What a model is for, in a number each, ± its standard error."
    return Table(caption, head, tuple(rows), tuple(warnings))


def details(facts: Facts) -> list[Table]:
    """Every metric of every way of evaluating; and of what training found, if nothing has superseded it."""
    groups = _groups(facts)
    base = validation_table(facts) if groups and not _is_judged(facts) else None
    return [*([] if base is None else [base]), *(_table(facts, group) for group in groups)]


def errors(facts: Facts) -> dict[Path, float]:
    """The denoising error of each run on complete signals."""
    if _is_judged(facts):
        return _by_run(facts, "denoising", "full")
    last = [(run, run.validations[-1][1]) for run in facts.runs if run.validations]
    return {run.path: result["full"]["mean"] for run, result in last if "full" in result}


def distances(facts: Facts) -> dict[Path, float]:
    """The Fréchet distance of each run's samples from real ones."""
    return _by_run(facts, "samples", "frechet")


def _by_run(facts: Facts, kind: str, name: str) -> dict[Path, float]:
    """A metric of each run, all evaluated in the same way: of the ways that the page's own run was, that of the most runs."""
    groups = [group for group in _groups(facts) if _kind(group) == kind and facts.main in [e.run for e in group]]
    found = [(e.run, e.values["metrics"].get(name)) for e in max(groups, key=len, default=[])]
    return {run.path: float(metric["value"]) for run, metric in found if run is not None and metric is not None}


def _is_judged(facts: Facts) -> bool:
    """Whether `gsure evaluate denoising` has judged every run: that is better than what training logged."""
    judged = [evaluation.run for evaluation in facts.evaluations if evaluation.values.get("kind") == "denoising"]
    return all(run in judged for run in facts.runs)


def _groups(facts: Facts) -> list[Group]:
    """In the order denoising, samples, restorations; in each, runs as on the whole page."""
    order = {run.path: k for k, run in enumerate(facts.runs)}
    groups: dict[tuple[Any, ...], Group] = {}
    for evaluation in facts.evaluations:
        key = _way(evaluation)
        taken = [other.run for other in groups.get(key, [])]
        groups.setdefault((*key, str(evaluation.path)) if evaluation.run in taken else key, []).append(evaluation)
    found = [sorted(group, key=lambda e: order[e.run.path] if e.run else len(order)) for group in groups.values()]
    ranks = list(KINDS)
    return sorted(found, key=lambda group: ranks.index(_kind(group)) if _kind(group) in ranks else len(ranks))


def _way(evaluation: Evaluation) -> tuple[Any, ...]:
    values, plan = evaluation.values, evaluation.drawn.plan if evaluation.drawn else {}
    features, reference = _part(values, "features"), _part(values, "reference")
    made = [plan.get(name) for name in ("sampler", "steps", "method", "draws", "data", "spacing")]
    return tuple(map(str, (values.get("kind"), values.get("n"), features.get("name"), reference.get("path"), made)))


def _part(values: dict[str, Any], name: str) -> dict[str, Any]:
    found = values.get(name)
    return found if isinstance(found, dict) else {}


def _kind(group: Group) -> str:
    return str(group[0].values.get("kind"))


def _table(facts: Facts, group: Group) -> Table:
    names = [name for name in dict.fromkeys(n for e in group for n in e.values["metrics"]) if "_of_" not in name]
    has_floor = any(metric.get("floor") is not None for e in group for metric in e.values["metrics"].values())
    columns = [e.run for e in group]
    rows = [_capital(_row(facts, group, name, columns, has_floor)) for name in names]
    labels = [e.run.label if e.run else e.drawn.label if e.drawn else "?" for e in group]
    _, title = KINDS.get(_kind(group), ("", _kind(group)))
    told = group[0].values.get("floor")
    floor = f" Floor: {told}." if isinstance(told, str) else ""
    caption = f"{title}: {_how(facts, group[0])}; ± standard errors.{floor}"
    return Table(caption, ("", *(["floor"] if has_floor else []), *labels), tuple(rows))


def _row(facts: Facts, group: Group, name: str, columns: Any, with_floor: bool) -> Row:
    """A metric of the runs that are the columns, with its floor before them."""
    by_run = {None if e.run is None else e.run.path: e.values["metrics"] for e in group}
    values = {path: float(metrics[name]["value"]) for path, metrics in by_run.items() if name in metrics}
    better = _better(group, name)
    floors = [m[name]["floor"] for m in by_run.values() if name in m and isinstance(m[name].get("floor"), int | float)]
    cells = [Cell(number(sum(floors) / len(floors), 3) if floors else "–")] if with_floor else []
    for run in columns:
        metrics = by_run.get(None if run is None else run.path, {})
        if name not in metrics:
            cells.append(Cell("–"))
            continue
        beside = compared(facts, run, values, better) if run is not None else ()
        variants = [(words, metrics.get(f"{name}_of_{kind}")) for kind, words in VARIANTS.items()]
        told = tuple(f"{words} {number(float(metric['value']), 3)}" for words, metric in variants if metric is not None)
        cells.append(Cell(with_error(float(metrics[name]["value"]), metrics[name].get("se")), (*beside, *told)))
    title, note = METRICS.get(name, (name.replace("_", " "), ""))
    return Row(title, "; ".join(filter(None, [note, f"{better} is better"])), tuple(cells))


def _capital(row: Row) -> Row:
    return Row(row.title[:1].upper() + row.title[1:], row.note, row.cells)


def _better(group: Group, name: str) -> str:
    return next(
        (str(e.values["metrics"][name].get("better", "lower")) for e in group if name in e.values["metrics"]), "lower"
    )


def _how(facts: Facts, evaluation: Evaluation) -> str:
    """How many, made how, compared with what."""
    values, plan = evaluation.values, evaluation.drawn.plan if evaluation.drawn else {}
    features, reference = _part(values, "features"), _part(values, "reference")
    words: list[str] = []
    where = facts.shown(str(reference["path"])) if reference.get("path") else None
    n, of = number(values.get("n")), number(reference.get("n"))
    if values.get("kind") == "denoising":
        words.append(f"{n} measurements{f' of {where}' if where else ''}")
    else:
        words.append(f"{n} of each model")
    if plan.get("sampler"):
        words.append(f"{plan['sampler']} with {number(plan.get('steps'))} network calls")
    if plan.get("method"):
        words.append(
            f"{plan['method']}, {number(plan.get('draws'))} draws of {number(plan.get('steps'))} network calls"
        )
    if where and values.get("kind") != "denoising":
        kind = "measurements" if reference.get("holds") == "measurements" else "clean ones"
        words.append(f"against {of} {kind} of {where}")
    if features.get("name"):
        words.append(f"features {features['name']}")
    if values.get("seed") is not None:
        words.append(f"seed {number(values['seed'])}")
    return ", ".join(words)
