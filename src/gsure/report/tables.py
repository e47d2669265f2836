"""Numbers of several runs side by side, each with what it is to be compared with: a floor, the oracle, the gap closed."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from gsure.formatting import duration, number, percent, with_error
from gsure.report.collect import Facts, Trained
from gsure.report.words import learned, thing
from gsure.training.settings import Settings, option


@dataclass(frozen=True)
class Cell:
    """A value, and in smaller letters what it means beside others."""

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


def validation_table(facts: Facts) -> Table | None:
    """Of the last checkpoint of each run: the only table that needs neither clean data nor another command."""
    runs = facts.runs
    last = {run.path: run.validations[-1][1] if run.validations else {} for run in runs}
    one = thing(facts.main.config.data_info)
    wanted = (
        ("full", f"Error on complete {one}s", f"noise is added to whole clean {one}s and taken away again"),
        ("estimate", "Error on measurements, estimated", "without any clean data"),
        ("true", "The same, true", f"by the clean {one}s behind the measurements"),
    )
    rows = []
    for name, title, note in wanted:
        shown = [run for run in runs if name in last[run.path] and (name == "full" or run.role != "clean")]
        values = {run.path: last[run.path][name]["mean"] for run in shown}
        cells = [
            Cell(with_error(values[run.path], last[run.path][name]["se"]), compared(facts, run, values, "lower"))
            if run.path in values
            else Cell("–")
            for run in runs
        ]
        if values:
            rows.append(Row(title, note, tuple(cells)))
    if not rows:
        return None
    caption = (
        "Denoising error: mean squared error over all noise levels, on held-out data, at the last checkpoint, ± its standard "
        "error. Lower is better."
    )
    if (weighting := facts.main.config.settings.weighting) != "x":
        caption += f" Noise levels are weighted as in training (--weighting {weighting})."
    return Table(caption, ("", *(run.label for run in runs)), tuple(rows))


def compared(facts: Facts, run: Trained, values: dict[Any, float], better: str) -> tuple[str, ...]:
    """How a value stands between the oracle's and the naive run's. The ratio first: the gap closed flatters."""
    oracle, naive = (facts.comparable(run, role) for role in ("clean", "naive"))
    if run.role == "clean" or oracle is None or oracle.path not in values:
        return ()
    mine, best = values[run.path], values[oracle.path]
    words = []
    if better == "lower" and best > 0:
        words.append(f"{mine / best:.3g} × oracle")
    elif better != "lower":
        words.append(f"{abs(mine - best):.3g} {'below' if mine < best else 'above'} oracle")
    if run.role == "measurements" and naive is not None and naive.path in values:
        gap = values[naive.path] - best
        if (gap > 0) == (better == "lower") and gap != 0:
            words.append(f"gap closed {percent((values[naive.path] - mine) / gap)}")
    return tuple(words)


def psnr_table(facts: Facts) -> Table | None:
    """What `gsure restore` itself found, where it was given the clean signals."""
    kinds = {"baseline": "without a model", "draw": "one draw", "mean": "mean of draws"}
    found = [drawn for drawn in facts.restorations if "PSNR of mean" in drawn.summary]
    rows = [
        Row(
            drawn.label,
            f"{drawn.plan.get('method')}, {number(drawn.plan.get('draws'))} draws of {number(drawn.plan.get('steps'))} "
            f"network calls, {number(len(drawn.signals['mean']))} restored, {facts.shown(drawn.path)}",
            tuple(Cell(str(drawn.summary.get(f"PSNR of {kind}", "–"))) for kind in kinds),
        )
        for drawn in found
    ]
    caption = "Likeness to the clean ones (PSNR, mean ± standard error). Higher is better; every 6 dB halve the error."
    return Table(caption, ("", *kinds.values()), tuple(rows)) if rows else None


def settings_table(facts: Facts) -> Table:
    """Every setting of every run; those that differ between runs first."""
    values = [dataclasses.asdict(run.config.settings) for run in facts.runs]
    fields = dataclasses.fields(Settings)
    same = {field.name: all(value[field.name] == values[0][field.name] for value in values) for field in fields}
    rows = [
        Row(option(field.name), field.metadata["help"], tuple(Cell(number(value[field.name])) for value in values))
        for field in sorted(fields, key=lambda field: same[field.name])
    ]
    differ = sum(not equal for equal in same.values())
    told = (
        f" The first {differ} differ between the runs." if differ > 1 else " Only the first differs." if differ else ""
    )
    return Table(f"All settings of gsure train.{told}", ("", *(run.label for run in facts.runs)), tuple(rows))


def runs_table(facts: Facts) -> Table:
    """How far each run went, on what, and what it took."""
    rows = []
    for run in facts.runs:
        memory = max((line["memory_gb"] for line in run.lines if "memory_gb" in line), default=None)
        steps = f"{run.step:,}" if run.is_finished else f"{run.step:,} of {run.config.settings.steps:,}"
        best = "–" if run.best_step is None else f"{run.best_step:,}"
        took = (duration(run.seconds) if run.seconds else "–", "–" if memory is None else f"{memory:.1f} GB")
        rows.append(Row(run.label, learned(run), tuple(map(Cell, (steps, best, *took, run.config.gsure)))))
    head = ("", "steps", "best checkpoint at", "time of the steps", "memory", "gsure")
    return Table("The runs of this page.", head, tuple(rows))
