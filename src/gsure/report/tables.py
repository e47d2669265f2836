"""Tables of numbers: what training and `gsure evaluate` found, side by side for all runs, and the settings.

Each value is shown with what to compare it with: a floor, the clean-trained reference, and the share of the gap closed.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gsure.display import duration, number, percent, with_error
from gsure.report.collect import Evaluation, Facts, Trained, as_dict
from gsure.report.words import thing, trained
from gsure.training.settings import Settings, option

METRICS = {
    "frechet": ("Fréchet distance", "between generated and real features, each modelled as a Gaussian"),
    "kid": ("Kernel distance (KID)", "between generated and real features, without assuming Gaussians"),
    "sliced_wasserstein": ("Sliced Wasserstein distance", "mean distance along random directions"),
    "correlation": ("Error of correlations", "between pixels"),
    "precision": ("Precision", "share of the generated signals that look real"),
    "recall": ("Recall", "share of the real signals that the model can generate"),
    "hidden": ("Hidden entries (dB)", "prediction of measured entries that were hidden; 0 predicts nothing"),
    "psnr": ("PSNR (dB)", "similarity to the clean signal; 6 dB more is half the error"),
    "object_psnr": ("PSNR in the object (dB)", "the same for pixels above 10 % of the largest magnitude"),
    "ssim": ("SSIM", "structural similarity to the clean signal; 1 is equal"),
    "nmse": ("NMSE", "squared error divided by the power of the signal"),
    "lpips": ("LPIPS", "perceptual difference from the clean signal"),
    "full": ("Error on fully sampled signals", "noise is added to clean signals and removed again"),
    "estimate": ("Error on measurements, estimated", "without clean data"),
    "true": ("Error on measurements, true", "computed with the clean signals"),
}
"""Title and meaning of each metric."""
RESTORING = {
    "estimate": (
        "Error on hidden entries",
        "measured entries that were hidden, as a share of the Gaussian prior's error",
    ),
    "full": ("Error of restorations", "mean squared distance from the clean signal"),
}
"""The same, where validation restores in one call."""
VARIANTS = {
    "draw": "one draw",
    "baseline": "no model",
    "total_variation": "total variation",
    "gaussian": "Gaussian prior",
}
KINDS = {"denoising": "Denoising", "samples": "Samples", "restorations": "Restorations"}
FIRST = ("full", "estimate", "frechet", "psnr")
"""Metrics for the headline: the first of these that an evaluation has."""


@dataclass(frozen=True)
class Cell:
    """A value, with notes in small print."""

    text: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    title: str
    note: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    caption: str
    head: tuple[str, ...]
    rows: tuple[Row, ...]
    warnings: tuple[str, ...] = ()


Group = list[Evaluation]
"""Evaluations of several runs in the same way."""


def headline(facts: Facts) -> Table | None:
    """One metric of each kind of evaluation. Without evaluations, the validation errors of training."""
    groups = _groups(facts)
    base = validation_table(facts)
    if not groups:
        return base
    has_floor, rows = any(map(_has_floor, groups)), []
    if base is not None and not _has_denoising(facts):
        first = base.rows[0]
        note = f"{first.note}; lower is better"
        task = "Restoration in one call" if facts.main.validates_restoration else "Denoising"
        floor = (Cell("–"),) if has_floor else ()
        rows.append(Row(f"{task}: {first.title}", note, (*floor, *first.cells)))
    for group in groups:
        names = list(group[0].values["metrics"])
        if chosen := next((name for name in FIRST if name in names), next(iter(names), None)):
            row = _row(facts, group, chosen, facts.runs, has_floor)
            note = f"{_how(facts, group[0])}; {_better(group, chosen)} is better"
            rows.append(Row(f"{KINDS.get(_kind(group), _kind(group))}: {row.title}", note, row.cells))
    warnings = dict.fromkeys(str(text) for group in groups for e in group for text in e.values.get("warnings") or [])
    head = ("", *(["floor"] if has_floor else []), *(run.label for run in facts.runs))
    return Table("The main metric of each evaluation, ± its standard error.", head, tuple(rows), tuple(warnings))


def details(facts: Facts) -> list[Table]:
    """Every metric of every evaluation, and the validation errors of training unless a better evaluation replaces them."""
    groups = _groups(facts)
    base = validation_table(facts) if groups and not _has_denoising(facts) else None
    return [*([] if base is None else [base]), *(_table(facts, group) for group in groups)]


def validation_table(facts: Facts) -> Table | None:
    """Validation errors at the last checkpoint of each run. They need no other command, and some need no clean data.

    They can be compared among runs that were validated like the main one.
    """
    restores = facts.main.validates_restoration
    runs = [run for run in facts.runs if run.validations and run.validates_restoration == restores]
    last = {run.path: run.validations[-1][1] for run in runs}
    one, titles, rows = thing(facts.main.config.data_info), RESTORING if restores else METRICS, []
    for name in (name for name in ("full", "estimate", "true") if name in titles):
        shown = [run for run in runs if name in last[run.path] and (name == "full" or run.role != "clean")]
        values = {run.path: last[run.path][name]["mean"] for run in shown}
        cells = [
            Cell(with_error(values[run.path], last[run.path][name]["se"]), compare(facts, run, values, "lower"))
            if run.path in values
            else Cell("–")
            for run in facts.runs
        ]
        if values:
            title, note = (text.replace("signal", one) for text in titles[name])
            rows.append(Row(title, note, tuple(cells)))
    if not rows:
        return None
    what = "Denoising error: mean squared error over all noise levels"
    if restores:
        what = "Restoration in one call: squared error"
    caption = f"{what}, on held-out data, at the last checkpoint, ± its standard error. Lower is better."
    weighting = facts.main.config.settings.weighting
    if weighting != "x" and not restores:
        caption += f" Noise levels are weighted as in training (--weighting {weighting})."
    return Table(caption, ("", *(run.label for run in facts.runs)), tuple(rows))


def compare(facts: Facts, run: Trained, values: dict[Any, float], better: str) -> tuple[str, ...]:
    """A value relative to the reference and to naive training: the ratio, then the gap closed.

    The ratio comes first, because the gap closed is close to 1 whenever naive training is poor.
    """
    reference, naive = (facts.comparable(run, role) for role in ("clean", "naive"))
    if run.role == "clean" or reference is None or reference.path not in values:
        return ()
    mine, best = values[run.path], values[reference.path]
    notes = []
    if better == "lower" and best > 0:
        notes.append(f"{number(mine / best, 3)} × reference")
    elif better != "lower":
        notes.append(f"{number(abs(mine - best), 3)} {'below' if mine < best else 'above'} reference")
    if run.role == "measurements" and naive is not None and naive.path in values:
        gap = values[naive.path] - best
        if (gap > 0) == (better == "lower") and gap != 0:
            notes.append(f"gap closed {percent((values[naive.path] - mine) / gap)}")
    return tuple(notes)


def errors(facts: Facts) -> dict[Path, float]:
    """The denoising error of each run on fully sampled signals."""
    if _has_denoising(facts):
        return _by_run(facts, "denoising", "full")
    last = [(run, run.validations[-1][1]) for run in facts.runs if run.validations and not run.validates_restoration]
    return {run.path: result["full"]["mean"] for run, result in last if "full" in result}


def distances(facts: Facts) -> dict[Path, float]:
    """The Fréchet distance between the samples of each run and real signals."""
    return _by_run(facts, "samples", "frechet")


def _by_run(facts: Facts, kind: str, name: str) -> dict[Path, float]:
    """A metric of each run, from the largest group of evaluations that includes the main run."""
    groups = [group for group in _groups(facts) if _kind(group) == kind and facts.main in [e.run for e in group]]
    found = [(e.run, e.values["metrics"].get(name)) for e in max(groups, key=len, default=[])]
    return {run.path: float(metric["value"]) for run, metric in found if run is not None and metric is not None}


def _has_denoising(facts: Facts) -> bool:
    """Whether `gsure evaluate denoising` has evaluated every run. It is more precise than the validation of training."""
    evaluated = [evaluation.run for evaluation in facts.evaluations if evaluation.values.get("kind") == "denoising"]
    return all(run in evaluated for run in facts.runs)


def _groups(facts: Facts) -> list[Group]:
    """Evaluations that can be compared, in the order of KINDS, with runs in the order of the page."""
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
    """How an evaluation was made. Evaluations with the same key can be compared."""
    values, drawn = evaluation.values, evaluation.drawn
    features, reference = as_dict(values.get("features")), as_dict(values.get("reference"))
    names = ("sampler", "steps", "method", "draws", "spacing")
    made = [drawn.data, *(drawn.made_of.get(name) for name in names)] if drawn else []
    return tuple(map(str, (values.get("kind"), values.get("n"), features.get("name"), reference.get("path"), made)))


def _has_floor(group: Group) -> bool:
    return any(metric.get("floor") is not None for e in group for metric in e.values["metrics"].values())


def _kind(group: Group) -> str:
    return str(group[0].values.get("kind"))


def _table(facts: Facts, group: Group) -> Table:
    names = [name for name in dict.fromkeys(n for e in group for n in e.values["metrics"]) if "_of_" not in name]
    has_floor = _has_floor(group)
    rows = [_row(facts, group, name, [e.run for e in group], has_floor) for name in names]
    labels = [e.run.label if e.run else e.drawn.label if e.drawn else "?" for e in group]
    floor = f" Floor: {text}." if isinstance(text := group[0].values.get("floor"), str) else ""
    caption = f"{KINDS.get(_kind(group), _kind(group))}: {_how(facts, group[0])}; ± standard error.{floor}"
    return Table(caption, ("", *(["floor"] if has_floor else []), *labels), tuple(rows))


def _row(facts: Facts, group: Group, name: str, columns: Sequence[Trained | None], with_floor: bool) -> Row:
    """One metric, with its floor first and then a column for each run."""
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
        beside = compare(facts, run, values, better) if run is not None else ()
        variants = [(label, metrics.get(f"{name}_of_{kind}")) for kind, label in VARIANTS.items()]
        more = tuple(f"{label} {number(float(metric['value']), 3)}" for label, metric in variants if metric is not None)
        cells.append(Cell(with_error(float(metrics[name]["value"]), metrics[name].get("se")), (*beside, *more)))
    title, note = METRICS.get(name, (name.replace("_", " ").capitalize(), ""))
    return Row(title, "; ".join(filter(None, [note, f"{better} is better"])), tuple(cells))


def _better(group: Group, name: str) -> str:
    found = [e.values["metrics"][name].get("better", "lower") for e in group if name in e.values["metrics"]]
    return str(next(iter(found), "lower"))


def _how(facts: Facts, evaluation: Evaluation) -> str:
    """The number of signals, how they were made, and what they are compared with."""
    values, made_of = evaluation.values, evaluation.drawn.made_of if evaluation.drawn else {}
    features, reference = as_dict(values.get("features")), as_dict(values.get("reference"))
    where = facts.shown(str(reference["path"])) if reference.get("path") else None
    is_denoising = values.get("kind") == "denoising"
    unit = f"measurements{f' of {where}' if where else ''}" if is_denoising else "from each model"
    parts = [f"{number(values.get('n'))} {unit}", *([how_drawn(made_of)] if made_of else [])]
    if where and not is_denoising:
        kind = "measurements" if reference.get("holds") == "measurements" else "clean signals"
        parts.append(f"compared with {number(reference.get('n'))} {kind} of {where}")
    if features.get("name"):
        parts.append(f"features {features['name']}")
    if values.get("seed") is not None:
        parts.append(f"seed {number(values['seed'])}")
    return ", ".join(parts)


def how_drawn(made_of: dict[str, Any]) -> str:
    """The sampler, or the restoration method, and its cost."""
    steps = f"{number(made_of.get('steps'))} sampling steps"
    if made_of.get("method") == "gaussian":
        return "Gaussian prior"
    draws = f"{number(made_of.get('draws'))} draws"
    if made_of.get("method") == "mean":
        of_each = f" with {steps} each" if made_of.get("steps") else ""
        return f"mean by one call, {draws} by {made_of.get('drawn_by')}{of_each}"
    if made_of.get("method"):
        return f"{made_of['method']}, {draws} with {steps} each"
    return f"{made_of.get('sampler')} with {steps}"


def psnr_table(facts: Facts) -> Table | None:
    """The PSNRs that `gsure restore --clean` writes."""
    caption = "PSNR of the restorations, mean ± standard error. Higher is better; 6 dB more is half the error."
    return _table_of_restorations(facts, "PSNR of ", caption)


def hidden_table(facts: Facts) -> Table | None:
    """What `gsure restore` writes if it has no clean signals."""
    caption = (
        "Prediction of measured entries that were hidden from all methods, in dB: power of these entries over the squared "
        "error. Higher is better; 0 dB predicts nothing. This comparison needs no clean signals."
    )
    return _table_of_restorations(facts, "hidden entries, ", caption)


def _table_of_restorations(facts: Facts, prefix: str, caption: str) -> Table | None:
    kinds = {"baseline": "no model", "total variation": "total variation", "gaussian": "Gaussian prior"}
    kinds |= {"draw": "one draw", "mean": "restored"}
    found = [drawn for drawn in facts.restorations if f"{prefix}mean" in drawn.summary]
    kinds = {kind: name for kind, name in kinds.items() if any(f"{prefix}{kind}" in drawn.summary for drawn in found)}
    rows = [
        Row(
            drawn.label,
            f"{how_drawn(drawn.made_of)}, {number(len(drawn.signals['mean']))} restored, {facts.shown(drawn.path)}",
            tuple(Cell(str(drawn.summary.get(f"{prefix}{kind}", "–"))) for kind in kinds),
        )
        for drawn in found
    ]
    return Table(caption, ("", *kinds.values()), tuple(rows)) if rows else None


def settings_table(facts: Facts) -> Table:
    """Every setting of every run. Settings that differ between runs come first."""
    values = [dataclasses.asdict(run.config.settings) for run in facts.runs]
    fields = dataclasses.fields(Settings)
    same = {field.name: all(value[field.name] == values[0][field.name] for value in values) for field in fields}
    rows = [
        Row(option(field.name), field.metadata["help"], tuple(Cell(number(value[field.name])) for value in values))
        for field in sorted(fields, key=lambda field: same[field.name])
    ]
    differ = sum(not equal for equal in same.values())
    first = f" The first {differ} differ between the runs." if differ > 1 else " Only the first differs."
    head = ("", *(run.label for run in facts.runs))
    return Table(f"All settings of gsure train.{first if differ else ''}", head, tuple(rows))


def runs_table(facts: Facts) -> Table:
    """The progress, time and memory of each run."""
    rows = []
    for run in facts.runs:
        memory = max((line["memory_gb"] for line in run.lines if "memory_gb" in line), default=None)
        steps = number(run.step) if run.is_finished else f"{number(run.step)} of {number(run.config.settings.steps)}"
        took = (duration(run.seconds) if run.seconds else "–", "–" if memory is None else f"{memory:.1f} GB")
        cells = (steps, number(run.best_step), *took, number(run.version))
        rows.append(Row(run.label, trained(run), tuple(map(Cell, cells))))
    head = ("", "steps", "best checkpoint", "training time", "memory", "gsure")
    return Table("The runs on this page.", head, tuple(rows))
