"""Tables of restorations: zero-filled, the model trained on measurements, and the oracle, for several masks."""

import itertools
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gsure.data.measurements import Signals
from gsure.display import percent, with_error
from gsure.experiments.plan import Plan, wrapped
from gsure.experiments.results import Results
from gsure.experiments.work import Work, digest, training
from gsure.metrics.images import nmse, psnr, ssim
from gsure.metrics.restorations import column, mean_and_error, score_stored
from gsure.plotting import draw_comparison

METRICS = {"psnr": psnr, "ssim": ssim, "nmse": nmse}
KINDS = ("mean", "draw", "baseline")
MODELS: dict[str, dict[str, Any]] = {"gsure": {}, "oracle": {"train_on": "clean", "impute_at": []}}


@dataclass(frozen=True)
class Case:
    """One model on one kind of masks."""

    model: str
    mask: tuple[tuple[str, Any], ...]
    seed: int

    @property
    def mask_name(self) -> str:
        options = dict(self.mask)
        return f"{options['name']}, R = {options['R']:g}" if "R" in options else str(options["name"])

    def __str__(self) -> str:
        return f"{self.model} {self.mask_name} seed={self.seed}"


def cases(plan: Plan) -> list[Case]:
    return [
        Case(model, tuple(mask.items()), seed)
        for seed in plan.chosen["seeds"]
        for model in MODELS
        for mask in plan.common["masks"]
    ]


def _noise(plan: Plan) -> float:
    return plan.common.get("noise", plan.chosen["sigma"])


def _method(plan: Plan) -> dict[str, Any]:
    return plan.common["method"] | plan.chosen.get("method", {})


def asked(plan: Plan, case: Case) -> dict[str, Any]:
    wanted = {key: value for key, value in plan.chosen.items() if key not in ("seeds", "preset", "settings")}
    wanted |= {"measured": plan.common["training"], "noise": _noise(plan), "method": _method(plan)}
    wanted |= {"training": training(*settings_of(plan, case.model, case.seed))}
    return {"model": case.model, "mask": dict(case.mask), "seed": case.seed, "asked": digest(wanted)}


def train(plan: Plan, model: str, seed: int, work: Work) -> Path:
    chosen = plan.chosen
    files = work.measured(chosen["images"], plan.common["training"], chosen["sigma"])
    return work.trained(files, *settings_of(plan, model, seed))


def settings_of(plan: Plan, model: str, seed: int) -> tuple[str, dict[str, Any]]:
    """The preset of a model, and the settings that differ from it."""
    return plan.chosen["preset"], {**plan.chosen["settings"], **MODELS[model], "seed": seed}


def compute(plan: Plan, case: Case, work: Work) -> list[dict[str, Any]]:
    run = train(plan, case.model, case.seed, work)
    test = work.measured(plan.chosen["test"], dict(case.mask), _noise(plan))
    folder = work.restored(run, test, **_method(plan))
    clean = Signals(test.clean)
    row: dict[str, Any] = {"n": len(clean), "run": run.name, "folder": folder.name}
    found = {kind: Signals(folder / kind) for kind in KINDS}
    scores = score_stored(found, clean, bool(clean.header["complex"]), clean.groups(), METRICS).by_image
    for name, kind in itertools.product(METRICS, KINDS):
        row[f"{name.upper()} of {kind}"] = [round(value, 4) for value in scores[column(name, kind)].tolist()]
    std, mean = Signals(folder / "std")[:], Signals(folder / "mean")[:]
    row["within 2 std"] = float(((mean - clean[:]).abs() <= 2 * std).double().mean())
    return [row]


def write(plan: Plan, results: Results, work: Work, folder: Path) -> Path:
    found = {case: rows[0] for case in cases(plan) if (rows := results.of(asked(plan, case)))}
    page = folder / f"{plan.label}.md"
    text = plan.introduction()
    for metric in map(str.upper, METRICS):
        text += [*_table(plan, found, metric), ""]
    text += _notes(plan, found)
    picture = folder / f"{plan.label}.png"
    if _draw(plan, found, work, picture) or picture.exists():  # it was perhaps drawn on another machine
        text += ["", f"![restorations and their standard deviations]({picture.name})"]
    page.write_text("\n".join(text) + "\n")
    return page


def _table(plan: Plan, found: dict[Case, dict[str, Any]], metric: str) -> list[str]:
    unit = " (dB)" if metric == "PSNR" else ""
    columns = ["ours, one posterior sample", "ours, posterior mean", "reference, posterior mean", "reference − ours"]
    lines = [f"| {' | '.join([metric + unit, _baseline(plan), *columns])} |", "|---|---|---|---|---|---|"]
    for mask in dict.fromkeys(case.mask for case in found):
        ours = [row for case, row in found.items() if case.mask == mask and case.model == "gsure"]
        oracle = [row for case, row in found.items() if case.mask == mask and case.model == "oracle"]
        name = next(case.mask_name for case in found if case.mask == mask)
        cells = [_mean(ours, f"{metric} of {kind}") for kind in ("baseline", "draw", "mean")]
        cells.append(_mean(oracle, f"{metric} of mean"))
        cells.append(_difference(oracle, ours, f"{metric} of mean"))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _baseline(plan: Plan) -> str:
    """The name of the estimate without a model."""
    return "noisy" if all(mask["name"] == "noise" for mask in plan.common["masks"]) else "zero-filled"


def _mean(rows: list[dict[str, Any]], key: str) -> str:
    """The mean over images and seeds, with the standard error over images."""
    if not rows:
        return ""
    values = torch.tensor([row[key] for row in rows], dtype=torch.float64).mean(0)
    return with_error(*mean_and_error(values))


def _difference(oracle: list[dict[str, Any]], ours: list[dict[str, Any]], key: str) -> str:
    if not oracle or not ours:
        return ""
    parts = [torch.tensor([row[key] for row in rows], dtype=torch.float64).mean(0) for rows in (oracle, ours)]
    return with_error(*mean_and_error(parts[0] - parts[1]))


def _notes(plan: Plan, found: dict[Case, dict[str, Any]]) -> list[str]:
    missing = [str(case) for case in cases(plan) if case not in found]
    notes = []
    if found:
        row, method = next(iter(found.values())), _method(plan)
        inside = [r["within 2 std"] for case, r in found.items() if case.model == "gsure"]
        about = (
            f"Each table shows the mean over {row['n']} images that no model saw. ± is the standard error over images; in "
            f"the last column, of paired differences. The posterior mean is the mean of {method['draws']} posterior samples. "
            f"We drew each with DDRM: η = {method['eta']:g}, {method['steps']} sampling steps, "
            f"{method.get('spacing', 'even')} spacing. Training seeds: {', '.join(map(str, plan.chosen['seeds']))}."
        )
        if inside:
            about += (
                f" The true value lies within two standard deviations of our posterior mean for "
                f"{percent(statistics.mean(inside))} of the entries."
            )
        notes.append(wrapped(about))
    if missing:
        notes += ["", f"Not run yet: {'; '.join(missing)}."]
    return notes


def _draw(plan: Plan, found: dict[Case, dict[str, Any]], work: Work, path: Path, image: int = 1) -> bool:
    """One image under each mask: zero-filled, both models with their standard deviations on one scale, the truth."""
    labels = {"gsure": "from measurements", "oracle": "reference"}
    rows = []
    for mask in dict.fromkeys(case.mask for case in found):
        folders = {
            case.model: work.folder / "restored" / row["folder"]
            for case, row in found.items()
            if case.mask == mask and case.seed == plan.chosen["seeds"][0]
        }
        if len(folders) == len(MODELS) and all(folder.exists() for folder in folders.values()):
            test = work.measured(plan.chosen["test"], dict(mask), _noise(plan))
            pictures = {_baseline(plan): Signals(folders["gsure"] / "baseline")[[image]][0]}
            pictures |= {label: Signals(folders[model] / "mean")[[image]][0] for model, label in labels.items()}
            pictures["clean"] = Signals(test.clean)[[image]][0]
            stds = {f"std, {label}": Signals(folders[model] / "std")[[image]][0] for model, label in labels.items()}
            name = next(case.mask_name for case in found if case.mask == mask)
            rows.append((name, pictures, stds))
    if rows:
        draw_comparison(path, rows, is_complex=True)
    return bool(rows)
