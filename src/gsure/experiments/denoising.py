"""Denoising of fully sampled images against t: errors of both models, and how far their outputs are apart."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gsure.data.measurements import Signals
from gsure.evaluation.checks import agreement
from gsure.experiments.plan import Plan
from gsure.experiments.restorations import MODELS, settings_of, train
from gsure.experiments.results import Results
from gsure.experiments.work import Work, digest, training
from gsure.metrics import psnr
from gsure.plotting.curves import Series, draw_over_t
from gsure.progress import bar
from gsure.random import generators, normal
from gsure.training.run import load

SHARES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""The times looked at, as shares of T."""


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
    denoisers = {model: load(train(plan, model, case.seed, work)) for model in MODELS}
    clean = Signals(work.measured(plan.chosen["test"], plan.common["training"], plan.chosen["sigma"]).clean)
    x, is_complex = clean[:], clean.header["complex"]
    schedule, basis = denoisers["gsure"].schedule, denoisers["gsure"].basis
    xbar, rows = basis.to_spectral(x), []
    with bar("denoising", len(SHARES), work.progress) as advance:
        for share in SHARES:
            t = max(1, round(share * schedule.T))
            alpha_bar_t = float(schedule.alpha_bar[t])
            eps = normal(xbar.shape, generators(case.seed, t, indices=range(len(x))), xbar)
            xbar_t = alpha_bar_t**0.5 * xbar + (1 - alpha_bar_t) ** 0.5 * eps
            times = torch.full((len(x),), t)
            parts = list(zip(xbar_t.split(64), times.split(64), strict=True))
            with torch.no_grad():
                out = {model: torch.cat([f(*part) for part in parts]) for model, f in denoisers.items()}
            row: dict[str, Any] = {"t": t, "n": len(x)}
            for model, xbar_hat in out.items():
                errors = (xbar_hat - xbar).square().flatten(1).mean(1).double()
                row |= {f"{model} error": float(errors.mean()), f"{model} se": float(errors.std() / len(errors) ** 0.5)}
            images = {model: basis.to_signal(xbar_hat) for model, xbar_hat in out.items()}
            between = psnr(images["gsure"], images["oracle"], is_complex)
            rows.append(row | {"PSNR between": float(between.mean()), "PSNR se": float(between.std() / len(x) ** 0.5)})
            advance(1)
    return rows


def write(plan: Plan, results: Results, work: Work, folder: Path) -> Path:
    found = {case: rows for case in cases(plan) if (rows := results.of(asked(plan, case)))}
    page = folder / f"{plan.label}.md"
    text = [f"# {plan.title}, scale `{plan.scale}`", ""]
    if found:
        text += [*_table(found), ""]
        _draw(plan, found, folder / f"{plan.label}.png")
        n = next(iter(found.values()))[0]["n"]
        text += [
            f"{n} fully sampled images that no model saw, the same noise for both; ± is the standard error over images.",
            "",
        ]
        text += [f"![{plan.title}]({plan.label}.png)", ""]
    text.append(f"Made by `gsure reproduce {plan.name} --scale {plan.scale}`.")
    page.write_text("\n".join(text) + "\n")
    return page


def _table(found: dict[Case, list[dict[str, Any]]]) -> list[str]:
    lines = [
        "| t | seed | oracle's error | from measurements | ratio | PSNR between their outputs (dB) |",
        "|---|---|---|---|---|---|",
    ]
    for case, rows in found.items():
        lines += [
            f"| {row['t']} | {case.seed} | {row['oracle error']:.4g} ± {row['oracle se']:.2g} | {row['gsure error']:.4g} ± "
            f"{row['gsure se']:.2g} | **{row['gsure error'] / row['oracle error']:.3f}** | {row['PSNR between']:.1f} ± "
            f"{row['PSNR se']:.1f} |"
            for row in rows
        ]
    return lines


def _draw(plan: Plan, found: dict[Case, list[dict[str, Any]]], path: Path) -> None:
    if plan.makes != "denoising":
        series = [_series(rows, "PSNR between", "PSNR se", "tab:blue") for rows in found.values()]
        limit = (agreement.CLOSE, f"{agreement.CLOSE:g} dB, as in the paper")
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
