"""Denoising of fully sampled images against t: the errors of both models, and the PSNR between their outputs."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from gsure.basis import Basis
from gsure.data.measurements import Signals
from gsure.display import bar, with_error
from gsure.evaluation.checks import agreement
from gsure.evaluation.checks.comparison import compare_denoisers
from gsure.experiments.plan import Plan, wrapped
from gsure.experiments.restorations import MODELS, settings_of, train
from gsure.experiments.results import Results
from gsure.experiments.work import Work, digest, training
from gsure.metrics.restorations import mean_and_error
from gsure.plotting.curves import Series, draw_over_t
from gsure.random import Stream
from gsure.training.model import load

SHARES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""The timesteps of the table, as shares of T."""
BATCH = 64


@dataclass(frozen=True)
class Case:
    seed: int

    def __str__(self) -> str:
        return f"seed={self.seed}"


def cases(plan: Plan) -> list[Case]:
    return [Case(seed) for seed in plan.chosen["seeds"]]


def asked(plan: Plan, case: Case) -> dict[str, Any]:
    wanted = {key: plan.chosen[key] for key in ("images", "test", "sigma")} | {"measured": plan.common["training"]}
    wanted |= {"training": [training(*settings_of(plan, model, case.seed)) for model in MODELS]}
    return {"seed": case.seed, "asked": digest(wanted)}


def compute(plan: Plan, case: Case, work: Work) -> list[dict[str, Any]]:
    ours, oracle = (load(train(plan, model, case.seed, work)) for model in ("gsure", "oracle"))
    clean = Signals(work.measured(plan.chosen["test"], plan.common["training"], plan.chosen["sigma"]).clean)
    is_complex, rows = bool(clean.header["complex"]), []
    with bar("denoising", len(SHARES), work.progress) as advance:
        for share in SHARES:
            t, signals = max(1, round(share * ours.schedule.T)), _batches(clean, ours.basis)
            found = compare_denoisers(ours, oracle, signals, t, is_complex, Stream.DENOISING, case.seed)
            row: dict[str, Any] = {"t": t, "n": len(clean)}
            row |= dict(zip(("gsure error", "gsure se"), mean_and_error(found.error), strict=True))
            row |= dict(zip(("oracle error", "oracle se"), mean_and_error(found.reference_error), strict=True))
            rows.append(row | dict(zip(("PSNR between", "PSNR se"), mean_and_error(found.psnr), strict=True)))
            advance(1)
    return rows


def _batches(clean: Signals, basis: Basis) -> Iterator[tuple[Tensor, list[int]]]:
    for first in range(0, len(clean), BATCH):
        indices = list(range(first, min(len(clean), first + BATCH)))
        yield basis.to_spectral(clean[indices]), indices


def write(plan: Plan, results: Results, work: Work, folder: Path) -> Path:
    found = {case: rows for case in cases(plan) if (rows := results.of(asked(plan, case)))}
    page = folder / f"{plan.label}.md"
    text = plan.introduction()
    if found:
        _draw(plan, found, folder / f"{plan.label}.png")
        n = next(iter(found.values()))[0]["n"]
        about = (
            f"Both models denoise the same {n} fully sampled images, which neither saw in training, with the same noise. The "
            "ratio is our mean squared error divided by that of the reference: 1 is as good as the reference. ± is the "
            "standard error over images."
        )
        text += [*_table(found), "", wrapped(about), "", f"![{plan.title}]({plan.label}.png)"]
    page.write_text("\n".join(text).rstrip() + "\n")
    return page


def _table(found: dict[Case, list[dict[str, Any]]]) -> list[str]:
    lines = [
        "| t | seed | error of the reference | our error | ratio | PSNR between both outputs (dB) |",
        "|---|---|---|---|---|---|",
    ]
    for case, rows in found.items():
        for row in rows:
            oracle, ours, between = (
                with_error(row[name], row[se])
                for name, se in (
                    ("oracle error", "oracle se"),
                    ("gsure error", "gsure se"),
                    ("PSNR between", "PSNR se"),
                )
            )
            ratio = f"**{row['gsure error'] / row['oracle error']:.3f}**"
            lines.append(f"| {row['t']} | {case.seed} | {oracle} | {ours} | {ratio} | {between} |")
    return lines


def _draw(plan: Plan, found: dict[Case, list[dict[str, Any]]], path: Path) -> None:
    if plan.makes != "denoising":
        series = [_series(rows, "PSNR between", "PSNR se", "tab:blue") for rows in found.values()]
        limit = (agreement.MIN_PSNR, f"{agreement.MIN_PSNR:g} dB, as in the paper")
        draw_over_t(path, series, "PSNR between outputs, dB (± 2 se)", limit=limit)
        return
    models = {"oracle": ("tab:green", "clean-trained reference"), "gsure": ("tab:blue", "from measurements")}
    series = [
        _series(rows, f"{model} error", f"{model} se", colour, label if k == 0 else "")  # one label for all seeds
        for k, rows in enumerate(found.values())
        for model, (colour, label) in models.items()
    ]
    draw_over_t(path, series, "mean squared error (± 2 se)", log=True)


def _series(rows: list[dict[str, Any]], value: str, se: str, colour: str, label: str = "") -> Series:
    t, values, errors = [row["t"] for row in rows], [row[value] for row in rows], [2 * row[se] for row in rows]
    return Series(t, values, errors, colour, mark="o-", label=label)
