"""Figure and table of docs/evaluation.md, from the output of the commands of that page.

    python docs/make_evaluation_figures.py FOLDER

FOLDER has runs/, samples/ and restored/ with digits, digits-clean and digits-naive in each. The figure goes to
docs/figures/evaluation/.
"""

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

FIGURES = Path(__file__).parent / "figures" / "evaluation"
NAMES = {"digits-clean": "clean-trained reference", "digits": "from measurements", "digits-naive": "naive"}
COLOURS = {"digits-clean": "tab:green", "digits": "tab:blue", "digits-naive": "tab:red"}
TITLES = {"frechet": "Fréchet", "sliced_wasserstein": "sliced\nWasserstein", "correlation": "correlations"}


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def draw(folder: Path) -> None:
    figure = Figure(figsize=(9.6, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    groups = [("evaluation.json", "against digits"), ("measured.json", "against measurements")]
    ticks, labels = [], []
    for g, (file, title) in enumerate(groups):
        for k, (metric, words) in enumerate(TITLES.items()):
            centre = 3.6 * g + k
            ticks.append(centre)
            labels.append(words)
            for shift, name in zip((-0.2, 0, 0.2), NAMES, strict=True):
                found = read(folder / "samples" / name / file)["metrics"][metric]
                value, error = found["value"] / found["floor"], 2 * found["se"] / found["floor"]
                label = NAMES[name] if g == k == 0 else None
                low = min(error, 0.9 * value)  # a logarithmic axis has no zero
                left.errorbar(
                    centre + shift,
                    value,
                    yerr=[[low], [error]],
                    fmt="o",
                    markersize=4,
                    color=COLOURS[name],
                    label=label,
                )
        left.text(3.6 * g + 1, 1.02, title, transform=left.get_xaxis_transform(), ha="center", fontsize=9)
    left.axhline(1, color="black", linewidth=0.8, linestyle=":")
    left.text(2.8, 1.03, "floor", ha="center", va="bottom", fontsize=8)
    left.set(yscale="log", ylabel="distance ÷ floor (± 2 se)")
    left.set_ylim(0.4, 60)
    left.set_xticks(ticks, labels, fontsize=8)
    left.yaxis.set_major_locator(FixedLocator([0.5, 1, 2, 5, 10, 20, 50]))
    left.yaxis.set_major_formatter("{x:g}")
    left.yaxis.set_minor_locator(NullLocator())
    left.legend(frameon=False, fontsize=8, loc="upper right")
    for name, words in NAMES.items():
        t_bins = read(folder / "runs" / name / "denoising.json")["t_bins"]
        middle, error = [sum(t_bin["t"]) / 2 for t_bin in t_bins], [t_bin["full"] for t_bin in t_bins]
        right.plot(middle, error, ".-", color=COLOURS[name], label=words, markersize=4)
    right.set(xlabel="t", ylabel="denoising error on fully sampled digits", yscale="log")
    right.yaxis.set_major_locator(FixedLocator([0.01, 0.02, 0.05, 0.1, 0.2, 0.4]))
    right.yaxis.set_major_formatter("{x:g}")
    right.yaxis.set_minor_locator(NullLocator())
    right.legend(frameon=False, fontsize=8, loc="lower right")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    FIGURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURES / "digits.png", dpi=120)


def table(folder: Path) -> list[str]:
    """Value ± standard error of each model, and the floor."""
    rows = [f"| | floor | {' | '.join(NAMES.values())} |", "|---" * (2 + len(NAMES)) + "|"]
    for where, file in (("samples", "evaluation.json"), ("samples", "measured.json"), ("restored", "evaluation.json")):
        found = [read(folder / where / name / file) for name in NAMES]
        against = Path(found[0]["reference"]["path"]).name
        for metric, first in found[0]["metrics"].items():
            if metric.endswith("_of_draw") or metric in ("ssim_of_baseline", "nmse_of_baseline"):
                continue
            floor = "" if first["floor"] is None else f"{first['floor']:.3g}"
            cells = [f"{one['metrics'][metric]['value']:.3g} ± {one['metrics'][metric]['se']:.1g}" for one in found]
            rows.append(f"| {metric} against {against} | {floor} | {' | '.join(cells)} |")
    found = [read(folder / "runs" / name / "denoising.json")["metrics"] for name in NAMES]
    for metric in found[0]:
        cells = [f"{one[metric]['value']:.4f} ± {one[metric]['se']:.4f}" for one in found]
        rows.append(f"| denoising, {metric} | | {' | '.join(cells)} |")
    return rows


def main(arguments: list[str] | None = None) -> None:
    folder = Path((arguments or sys.argv[1:])[0])
    draw(folder)
    sys.stdout.write("\n".join(table(folder)) + "\n")


if __name__ == "__main__":
    main()
