"""Figures of the assumptions: the two-dimensional example, and the independence of the error of a model from the mask."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gsure.display import number
from gsure.evaluation.diagnose import diagnose
from gsure.experiments import samples
from gsure.experiments.analytic import analytic_example
from gsure.experiments.plan import Plan, wrapped
from gsure.experiments.results import Results
from gsure.experiments.work import Work, digest

MODEL = samples.Case("gsure", 0.2, 0)
"""The paper shows the model of p = 0.2."""
HEADS = {
    "seen": "share of the error that the loss sees",
    "seen_se": "its standard error",
    "linear": "linear correlation",
    "linear_level": "possible by chance",
    "deep": "deep correlation",
    "deep_level": "possible by chance",
    "snr": "signal-to-noise ratio",
    "level": "possible by chance",
    "apart": "different",
}
"""Titles of columns, where they differ from the names in the results."""


@dataclass(frozen=True)
class Case:
    makes: str

    def __str__(self) -> str:
        return self.makes


def cases(plan: Plan) -> list[Case]:
    return [Case(plan.makes)]


def asked(plan: Plan, case: Case) -> dict[str, Any]:
    if plan.makes == "analytic":
        return {"makes": "analytic"}
    return {"makes": "independence", "asked": digest(samples.asked(plan, MODEL))}


def compute(plan: Plan, case: Case, work: Work) -> list[dict[str, Any]]:
    """Numbers, and the path of the figure in the work folder."""
    if plan.makes == "analytic":
        folder = work.folder / "analytic"
        return [{"numbers": analytic_example(folder), "figure": "analytic/analytic.png"}]
    files, run = samples.train(plan, MODEL, work)
    found = diagnose(run, clean=files.clean, force=True, progress=work.progress)
    check = next(check for check in found["checks"] if check["name"] == "independence")
    if check["figure"] is None:
        raise ValueError(f"Independence was {check['verdict']}.")
    figure = run / "diagnosis" / check["figure"]
    return [{**check, "figure": str(figure.relative_to(work.folder)), "run": run.name}]


def write(plan: Plan, results: Results, work: Work, folder: Path) -> Path:
    page = folder / f"{plan.label}.md"
    text = plan.introduction()
    for row in results.of(asked(plan, Case(plan.makes))):
        figure = work.folder / row["figure"]
        if figure.exists():
            shutil.copyfile(figure, folder / f"{plan.label}.png")
        if "words" in row:
            verdict = f"The verdict is *{row['verdict']}*. {row['words']}"
            text += [wrapped(verdict), ""]
        text += [f"![{plan.title}]({plan.label}.png)", "", *_table(row["numbers"])]
    page.write_text("\n".join(text).rstrip() + "\n")
    return page


def _table(numbers: dict[str, Any]) -> list[str]:
    """A line for each timestep; the rows are named `rows` or `times`."""
    rows = numbers.get("rows") or numbers["times"]
    keys = [key for key, value in rows[0].items() if isinstance(value, str | int | float)]
    lines = [f"| {' | '.join(HEADS.get(key, key) for key in keys)} |", "|---" * len(keys) + "|"]
    cells = [[str(row[key]) if key == "t" else number(row[key], 3) for key in keys] for row in rows]
    return lines + [f"| {' | '.join(line)} |" for line in cells]
