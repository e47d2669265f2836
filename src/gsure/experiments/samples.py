"""Tables of generation: Fréchet distance of samples against sampling steps, for models trained on different data."""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gsure.data.measurements import Signals
from gsure.data.sources import Source
from gsure.display import bar, with_error
from gsure.experiments.plan import Plan, wrapped
from gsure.experiments.results import Results
from gsure.experiments.work import Measured, Work, digest, training
from gsure.metrics import frechet
from gsure.metrics.features import open_features
from gsure.plotting import as_picture, draw_rows
from gsure.plotting.curves import Series, draw_distances
from gsure.training.run import Run

COLOURS = {"oracle": "tab:green", "naive": "tab:red", "gsure": "tab:blue", "gsure+mask": "tab:purple"}
COLOURS |= {"gsure+imputed": "tab:pink", "gsure+levels": "tab:olive", "oracle+levels": "tab:gray"}
COLOURS |= {"paper": "tab:orange", "gsure-y": "tab:cyan"}
LABELS = {"oracle": "reference", "oracle+levels": "reference+levels"}
"""Names in tables and figures, where they differ from the names in the results."""
CLEAN_TRAINED = ("oracle", "oracle+levels")
ABLATIONS = ("gsure+levels-times", "gsure+levels-weights", "gsure+levels-beta2")
"""Differ from `gsure+levels` in one setting. They are in the table, and not in the figure."""
OWN_REFERENCE = dict.fromkeys(("gsure+levels", *ABLATIONS), "oracle+levels")
"""The reference with the settings of the model, if that is not `oracle`."""
TRAINED = {
    "oracle": "on clean, complete images. The paper calls it the oracle, and so does `--only`.",
    "naive": "on measurements as if they were clean",
    "gsure": "on measurements. As in the paper, the network is not given the mask. The loss is our default, `tweedie`.",
    "gsure+mask": "as `gsure`, but mask-conditioned, with a fifth of the measured patches hidden from the network",
    "gsure+imputed": "as `gsure+mask`, and the model imputes missing entries during training",
    "gsure+levels": "on measurements whose missing entries the Gaussian prior imputed once, at noise levels that are drawn "
    "log-normally, with errors relative to those of the Gaussian prior",
    "gsure+levels-times": "as `gsure+levels`, but at noise levels from t drawn uniformly",
    "gsure+levels-weights": "as `gsure+levels`, but with the weights of `gsure`",
    "gsure+levels-beta2": "as `gsure+levels`, but with β₂ = 0.999 in the optimiser instead of 0.99",
    "oracle+levels": "as `oracle`, with the noise levels and weights of `gsure+levels`",
    "paper": "as `gsure`, but with the paper's loss and weights over t, and a network that predicts x",
    "gsure-y": "as `gsure`, but with the loss `gsure-y`",
}
"""How the model of each block is trained."""


@dataclass(frozen=True)
class Case:
    """One model of the table: what it was trained on, and its seed."""

    block: str
    p: float
    seed: int

    def __str__(self) -> str:
        return f"{self.block} p={self.p} seed={self.seed}"


def cases(plan: Plan) -> list[Case]:
    return [Case(runs["block"], p, seed) for runs in plan.chosen["runs"] for p in runs["p"] for seed in runs["seeds"]]


def asked(plan: Plan, case: Case) -> dict[str, Any]:
    """A case, with a digest of everything that its result depends on."""
    wanted = {key: value for key, value in plan.chosen.items() if key not in ("runs", "preset", "settings", "blocks")}
    wanted |= {"training": training(*settings_of(plan, case)), "sigma": plan.common["noise"][case.p]}
    return {"block": case.block, "p": case.p, "seed": case.seed, "asked": digest(wanted)}


def train(plan: Plan, case: Case, work: Work) -> tuple[Measured, Path]:
    """The measurements of a case, and the run that was trained on them."""
    chosen = plan.chosen
    files = work.measured(chosen["images"], {**chosen["corruption"], "p": case.p}, plan.common["noise"][case.p])
    return files, work.trained(files, *settings_of(plan, case))


def settings_of(plan: Plan, case: Case) -> tuple[str, dict[str, Any]]:
    """The preset of a case, and the settings that differ from it."""
    preset = plan.chosen["preset"]
    preset = preset if isinstance(preset, str) else preset[case.p]
    block = plan.common["blocks"][case.block] | plan.chosen.get("blocks", {}).get(case.block, {})
    return preset, {**plan.chosen["settings"], **block, "seed": case.seed}


def compute(plan: Plan, case: Case, work: Work) -> list[dict[str, Any]]:
    """Train and sample one model; a row for each number of sampling steps."""
    chosen = plan.chosen
    files, run = train(plan, case, work)
    reference = _signals(work.source(chosen["reference"]), work.progress)
    extract = open_features(chosen["features"], reference)
    target = extract(reference)
    clean = Signals(files.clean)
    floor = frechet(extract(clean[: chosen["n"]]), target)
    about = {"n": chosen["n"], "features": chosen["features"], "reference": len(reference), "floor": floor}
    about |= _training(run)
    rows = []
    for calls in chosen["calls"]:
        folder = work.sampled(run, chosen["n"], sampler="ddim", steps=calls, seed=case.seed)
        rows.append({"calls": calls, "frechet": frechet(extract(Signals(folder)[: chosen["n"]]), target)} | about)
    return rows


def _signals(source: Source, progress: bool) -> torch.Tensor:
    with bar("reading the reference", len(source), progress) as advance:
        signals = []
        for index in range(len(source)):
            signals.append(torch.from_numpy(source[index].x))
            advance(1)
    return torch.stack(signals)


def _training(run: Path) -> dict[str, Any]:
    lines = Run(run).read_metrics()
    last: dict[str, Any] = next((line["validation"] for line in reversed(lines) if "validation" in line), {})
    rates = [line["steps_per_second"] for line in lines if "steps_per_second" in line]
    config = Run(run).config
    return {
        "run": run.name,
        "steps": config.settings.steps,
        "steps_per_second": statistics.median(rates) if rates else None,
        "error_on_full_signals": last.get("full", {}).get("mean"),
    }


def write(plan: Plan, results: Results, work: Work, folder: Path) -> Path:
    """The table as Markdown, with the curves and a picture of samples, from the existing cases."""
    found = {case: rows for case in cases(plan) if (rows := results.of(asked(plan, case)))}
    page = folder / f"{plan.label}.md"
    text = [*plan.introduction(), *_table(plan, found), "", *_notes(plan, found)]
    if found:
        _draw_curves(plan, found, folder / f"{plan.label}.png")
        text += ["", f"![Fréchet distance against sampling steps]({plan.label}.png)"]
    picture = folder / f"{plan.label}-samples.png"
    if _draw_samples(plan, found, work, picture) or picture.exists():  # it was perhaps drawn on another machine
        text += ["", f"![samples of the models]({picture.name})"]
    page.write_text("\n".join(text) + "\n")
    return page


Found = dict[Case, list[dict[str, Any]]]


def _values(found: Found, block: str, p: float, calls: int) -> list[float]:
    return [
        row["frechet"]
        for case, rows in found.items()
        for row in rows
        if (case.block, case.p, row["calls"]) == (block, p, calls)
    ]


def _groups(found: Found) -> Iterator[tuple[str, float]]:
    """Blocks and p, with the oracle first."""
    order = (*COLOURS, *ABLATIONS)
    yield from sorted({(case.block, case.p) for case in found}, key=lambda pair: (order.index(pair[0]), pair[1]))


def _table(plan: Plan, found: Found) -> list[str]:
    calls = plan.chosen["calls"]
    shown = 50 if 50 in calls else calls[-1]
    head = [
        "model",
        "p",
        "seeds",
        *(f"{c} steps" for c in calls),
        f"÷ reference at {shown}",
        "gap closed",
        "paper: ÷ reference",
    ]
    lines = [f"| {' | '.join([*head, 'paper: gap closed'])} |", "|---" * (len(head) + 1) + "|"]
    references = {
        b: statistics.mean(v) for b, p in _groups(found) if b in CLEAN_TRAINED and (v := _values(found, b, p, shown))
    }
    for block, p in _groups(found):
        values = {c: _values(found, block, p, c) for c in calls}
        naive = _values(found, "naive", p, shown)
        ratio, closed, own = "", "", OWN_REFERENCE.get(block, "oracle")
        if own in references and block not in CLEAN_TRAINED:
            mean = statistics.mean(values[shown])
            ratio = f"**{mean / references[own]:.2f}**"
            if naive and block != "naive" and own == "oracle":  # there is no naive model of other settings
                closed = f"{(statistics.mean(naive) - mean) / (statistics.mean(naive) - references[own]):.3f}"
        cells = [
            LABELS.get(block, block),
            "0" if block in CLEAN_TRAINED else f"{p:g}",
            str(len(values[shown])),
            *(with_error(statistics.mean(v), statistics.stdev(v) if len(v) > 1 else None) for v in values.values()),
        ]
        lines.append(f"| {' | '.join([*cells, ratio, closed, *_of_paper(plan, block, p)])} |")
    return lines


def _of_paper(plan: Plan, block: str, p: float) -> tuple[str, str]:
    """The ratio and the gap closed in the paper, at 50 sampling steps."""
    paper = plan.common["paper"]
    if block == "oracle" or p not in paper.get(block, {}):
        return "", ""
    oracle, value = paper["oracle"][0][2], paper[block][p][2]
    naive = paper.get("naive", {}).get(p)
    return (
        f"{value / oracle:.2f}",
        f"{(naive[2] - value) / (naive[2] - oracle):.3f}" if naive and block == "gsure" else "",
    )


def _notes(plan: Plan, found: Found) -> list[str]:
    missing = [str(case) for case in cases(plan) if case not in found]
    rows = [row for rows in found.values() for row in rows]
    notes = []
    if rows:
        row = rows[0]
        about = (
            f"The table shows the Fréchet distance between {row['n']:,} generated images and {row['reference']:,} real "
            f"images that no model saw, in the features `{row['features']}`, for several numbers of DDIM sampling steps "
            f"(η = 0, even spacing). The floor is {row['floor']:.3g}, the distance of {row['n']:,} clean training images. "
            "p is the probability that a patch is missing. ± is the standard deviation over seeds."
        )
        ratios = (
            "*÷ reference* is the distance divided by that of the reference of the same settings. This is the main result. "
            "*Gap closed* is (naive - this)/(naive - reference). It is close to 1 whenever naive training is poor, so read "
            "the ratio first."
        )
        notes += [wrapped(about), "", wrapped(ratios), "", "| model | trained |", "|---|---|"]
        blocks = dict.fromkeys(block for block, _ in _groups(found))
        notes += [f"| {LABELS.get(block, block)} | {TRAINED[block]} |" for block in blocks]
    if missing:
        notes += ["", f"Not run yet: {'; '.join(missing)}."]
    return notes


def _draw_curves(plan: Plan, found: Found, path: Path) -> None:
    """Distance over sampling steps, one panel per p; the reference, which has no p, is in every panel."""
    panels = []
    for p in sorted({case.p for case in found}):
        series = []
        for block, own in _groups(found):
            if (own == p or block == "oracle") and block not in ABLATIONS:
                drawn = [(c, v) for c in plan.chosen["calls"] if (v := _values(found, block, own, c))]
                steps, means = [c for c, _ in drawn], [statistics.mean(v) for _, v in drawn]
                errors = [statistics.stdev(v) if len(v) > 1 else 0.0 for _, v in drawn]
                series.append(Series(steps, means, errors, COLOURS[block], mark="o-", label=LABELS.get(block, block)))
        panels.append((f"p = {p:g}, noise {plan.common['noise'][p]:g}", series))
    floor = next(iter(found.values()))[0]["floor"]
    draw_distances(path, panels, "sampling steps", "Fréchet distance (dotted: floor)", floor)


def _draw_samples(plan: Plan, found: Found, work: Work, path: Path) -> bool:
    """The first samples of each model, if they are on this machine."""
    calls = plan.chosen["calls"][-2:][0]
    rows = []
    for block, p in _groups(found):
        case = next(case for case in found if (case.block, case.p) == (block, p))
        folder = work.folder_of_samples(found[case][0]["run"], sampler="ddim", steps=calls, seed=case.seed)
        if folder.exists():
            label = LABELS.get(block, block).replace("+", "\n+") + ("" if block == "oracle" else f"\np = {p:g}")
            rows.append((label, [as_picture(x, False) for x in Signals(folder)[:12]]))
    if rows:
        draw_rows(path, rows, f"{plan.title}: the first samples of each model, {calls} sampling steps", width=0.7)
    return bool(rows)
