"""Tables of restorations for several masks: without a model, by the model trained on measurements, and by the reference.

`training` is the corruption of the training data. One model of each kind restores all masks.
"""

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
from gsure.judging import relative_to_phase
from gsure.metrics.images import nmse, psnr, ssim
from gsure.metrics.restorations import column, mean_and_error, score_stored
from gsure.plotting import Picture, draw_comparison
from gsure.training.settings import INCOMPLETE_ONLY

METRICS = {"psnr": psnr, "ssim": ssim, "nmse": nmse}
KINDS = ("mean", "draw", "baseline", "total_variation", "gaussian")
"""What `restore` writes. Total variation and the Gaussian prior need images, and older results lack them."""
WITHOUT_NETWORK = {"total_variation": "total variation", "gaussian": "Gaussian prior"}
LABELS = {"gsure": "from measurements", "oracle": "reference"}
MODELS = {"gsure": "measurements", "oracle": "clean"}
"""What each model is trained on."""


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
    wanted = {key: value for key, value in plan.chosen.items() if key not in ("seeds", "preset", "settings", "shown")}
    wanted |= {"measured": plan.common["training"], "noise": _noise(plan), "method": _method(plan)}
    wanted |= {"training": training(*settings_of(plan, case.model, case.seed))}
    return {"model": case.model, "mask": dict(case.mask), "seed": case.seed, "asked": digest(wanted)}


def train(plan: Plan, model: str, seed: int, work: Work) -> Path:
    chosen = plan.chosen
    files = work.measured(chosen["images"], plan.common["training"], chosen["sigma"])
    return work.trained(files, *settings_of(plan, model, seed))


def settings_of(plan: Plan, model: str, seed: int) -> tuple[str, dict[str, Any]]:
    """The preset of a model, and the settings that differ from it."""
    preset, changes = plan.chosen["preset"], dict(plan.chosen["settings"])
    if model == "oracle" and preset != "auto":
        changes = {name: value for name, value in changes.items() if name not in INCOMPLETE_ONLY}
    return preset, {**changes, "train_on": MODELS[model], "seed": seed}


def compute(plan: Plan, case: Case, work: Work) -> list[dict[str, Any]]:
    run = train(plan, case.model, case.seed, work)
    test = work.measured(plan.chosen["test"], dict(case.mask), _noise(plan))
    method = _method(plan)
    by = {"method": "ddrm"} if "eta" in method else {}  # as the paper; `_about_method` says it
    folder = work.restored(run, test, **by, **method)
    clean = Signals(test.clean)
    row: dict[str, Any] = {"n": len(clean), "run": run.name, "folder": folder.name}
    found = {kind: Signals(folder / kind) for kind in KINDS if (folder / kind).exists()}
    scores = score_stored(found, clean, bool(clean.header["complex"]), clean.groups(), METRICS).by_image
    for name, kind in itertools.product(METRICS, found):
        row[f"{name.upper()} of {kind}"] = [round(value, 4) for value in scores[column(name, kind)].tolist()]
    std, mean = Signals(folder / "std")[:], Signals(folder / "mean")[:]
    error = relative_to_phase(mean - clean[:], mean) if clean.header["complex"] else mean - clean[:]
    row["within 2 std"] = float((error.abs() <= 2 * std).double().mean())
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
    others = {kind: name for kind, name in WITHOUT_NETWORK.items() if _has(found, f"{metric} of {kind}")}
    columns = [_baseline(plan), *others.values(), "ours, one posterior sample", "ours, posterior mean"]
    columns += ["reference, posterior mean", "reference − ours", *[f"ours − {name}" for name in others.values()]]
    lines = [f"| {' | '.join([metric + unit, *columns])} |", "|---" * (len(columns) + 1) + "|"]
    for mask in dict.fromkeys(case.mask for case in found):
        ours = [row for case, row in found.items() if case.mask == mask and case.model == "gsure"]
        oracle = [row for case, row in found.items() if case.mask == mask and case.model == "oracle"]
        name = next(case.mask_name for case in found if case.mask == mask)
        mean = f"{metric} of mean"
        cells = [_mean(ours, f"{metric} of {kind}") for kind in ("baseline", *others, "draw", "mean")]
        cells += [_mean(oracle, mean), _difference(oracle, mean, ours, mean)]
        cells += [_difference(ours, mean, ours, f"{metric} of {kind}") for kind in others]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _has(found: dict[Case, dict[str, Any]], key: str) -> bool:
    ours = [row for case, row in found.items() if case.model == "gsure"]
    return bool(ours) and all(key in row for row in ours)


def _baseline(plan: Plan) -> str:
    """The name of the estimate without a model."""
    return "noisy" if all(mask["name"] == "noise" for mask in plan.common["masks"]) else "zero-filled"


def _mean(rows: list[dict[str, Any]], key: str) -> str:
    """The mean over images and seeds, with the standard error over images."""
    if not rows:
        return ""
    values = torch.tensor([row[key] for row in rows], dtype=torch.float64).mean(0)
    return with_error(*mean_and_error(values))


def _difference(rows: list[dict[str, Any]], key: str, others: list[dict[str, Any]], other: str) -> str:
    """The mean over images and seeds of what `rows` have more than `others`, with the standard error over images."""
    if not rows or not others:
        return ""
    parts = [
        torch.tensor([row[name] for row in some], dtype=torch.float64).mean(0)
        for some, name in ((rows, key), (others, other))
    ]
    return with_error(*mean_and_error(parts[0] - parts[1]))


def _notes(plan: Plan, found: dict[Case, dict[str, Any]]) -> list[str]:
    missing = [str(case) for case in cases(plan) if case not in found]
    notes = []
    if found:
        row, method = next(iter(found.values())), _method(plan)
        inside = [r["within 2 std"] for case, r in found.items() if case.model == "gsure"]
        about = (
            f"Each table shows the mean over {row['n']} images that no model saw. ± is the standard error over images; of "
            f"differences, of paired ones. {_about_method(method)} "
            f"Training seeds: {', '.join(map(str, plan.chosen['seeds']))}."
        )
        if inside:
            about += (
                f" The true value lies within two standard deviations of our posterior mean for "
                f"{percent(statistics.mean(inside))} of the entries."
            )
        if len(plan.chosen["seeds"]) > 1:
            about += f" PSNR of the posterior mean by training seed: {_by_seed(found)}."
        notes.append(wrapped(about))
    if missing:
        notes += ["", f"Not run yet: {'; '.join(missing)}."]
    return notes


def _by_seed(found: dict[Case, dict[str, Any]]) -> str:
    """The mean over images for each mask, model and seed."""
    values: dict[str, list[str]] = {}
    for case, row in sorted(found.items(), key=lambda item: item[0].seed):
        name = f"{case.mask_name}, {LABELS[case.model]}"
        values.setdefault(name, []).append(f"{statistics.mean(row['PSNR of mean']):.2f}")
    return "; ".join(f"{name} {' / '.join(each)}" for name, each in sorted(values.items()))


def _about_method(method: dict[str, Any]) -> str:
    if "eta" not in method:
        return (
            f"The posterior mean is one call of the network. The standard deviations come from {method['draws']} posterior "
            "samples and are calibrated (`restore --method auto`)."
        )
    return (
        f"The posterior mean is the mean of {method['draws']} posterior samples. We drew each with DDRM: η = "
        f"{method['eta']:g}, {method['steps']} sampling steps, {method.get('spacing', 'even')} spacing."
    )


def _draw(plan: Plan, found: dict[Case, dict[str, Any]], work: Work, path: Path) -> bool:
    """Some images under each mask: without a network, both models with their standard deviations on one scale, the truth."""
    rows = []
    for mask in dict.fromkeys(case.mask for case in found):
        those = {
            case.model: row for case, row in found.items() if case.mask == mask and case.seed == plan.chosen["seeds"][0]
        }
        folders = {model: work.folder / "restored" / row["folder"] for model, row in those.items()}
        if len(folders) == len(MODELS) and all(folder.exists() for folder in folders.values()):
            clean = Signals(work.measured(plan.chosen["test"], dict(mask), _noise(plan)).clean)
            name = next(case.mask_name for case in found if case.mask == mask)
            rows += [(name, *_pictures(plan, those, folders, clean, at)) for at in plan.chosen.get("shown", [1])]
    if rows:
        draw_comparison(path, rows)
    return bool(rows)


def _pictures(
    plan: Plan, rows: dict[str, dict[str, Any]], folders: dict[str, Path], clean: Signals, at: int
) -> tuple[dict[str, Picture], dict[str, torch.Tensor]]:
    """One image, restored in every way, with its PSNR; and its standard deviations."""
    kinds = {"baseline": _baseline(plan)} | WITHOUT_NETWORK
    shown = {name: ("gsure", kind) for kind, name in kinds.items() if (folders["gsure"] / kind).exists()}
    shown |= {label: (model, "mean") for model, label in LABELS.items()}
    pictures = {
        name: Picture(
            Signals(folders[model] / kind)[[at]][0],
            f"{rows[model][f'PSNR of {kind}'][at]:.1f} dB" if f"PSNR of {kind}" in rows[model] else "",
        )
        for name, (model, kind) in shown.items()
    }
    pictures["clean"] = Picture(clean[[at]][0])
    return pictures, {f"std, {label}": Signals(folders[model] / "std")[[at]][0] for model, label in LABELS.items()}
