"""Figures and table of docs/training.md, from the runs that the page tells how to make.

    python docs/make_training_figures.py RUNS

RUNS has the folders digits, digits-clean and digits-naive, trained with --clean. Figures go to docs/figures/training/.
"""

import shutil
import statistics
import sys
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from gsure.training.run import Run

DOCS = Path(__file__).parent
FIGURES = DOCS / "figures" / "training"
NAMES = {"digits-clean": "clean-trained reference", "digits": "from measurements", "digits-naive": "naive"}
COLOURS = {"digits-clean": "tab:green", "digits": "tab:blue", "digits-naive": "tab:red"}


def validations(run: Path) -> list[dict]:
    return [line for line in Run(run).read_metrics() if "validation" in line]


def draw_tracking(runs: Path) -> None:
    """The estimate without clean data against the true error; and the error on fully sampled digits over training."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name in ("digits", "digits-naive"):
        lines = validations(runs / name)
        for key, marker in (("t_bins", "."), (None, "o")):
            points = (
                [b for line in lines for b in line["validation"]["t_bins"]] if key else [_flat(line) for line in lines]
            )
            true, estimate, se = ([point[what] for point in points] for what in ("true", "estimate", "difference_se"))
            label = f"{NAMES[name]}, {'a bin of t' if key else 'all t'}"
            style = {"color": COLOURS[name], "markersize": 4 if key else 7, "linewidth": 0.8}
            left.errorbar(
                true, estimate, yerr=[2 * s for s in se], fmt=marker, label=label, alpha=0.5 if key else 1, **style
            )
    left.axline((0.1, 0.1), (0.2, 0.2), color="black", linewidth=0.6, zorder=0)
    left.set(xlabel="true projected error", ylabel="estimate without clean data (± 2 se)", xscale="log", yscale="log")
    for axis in (left.xaxis, left.yaxis):
        axis.set_major_locator(FixedLocator([0.03, 0.05, 0.1, 0.2, 0.4]))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())
    left.legend(fontsize=7, frameon=False)
    for name, words in NAMES.items():
        lines = validations(runs / name)
        steps, full = [line["step"] for line in lines], [line["validation"]["full"]["mean"] for line in lines]
        right.plot(steps, full, ".-", color=COLOURS[name], label=words)
    right.set(xlabel="step", ylabel="error on fully sampled digits")
    right.legend(fontsize=8, frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(FIGURES / "tracking.png", dpi=110)


def _flat(line: dict) -> dict:
    result = line["validation"]
    return {
        "true": result["true"]["mean"],
        "estimate": result["estimate"]["mean"],
        "difference_se": result["difference"]["se"],
    }


def table(runs: Path) -> str:
    rows = [
        "| | estimate without clean data | true error | difference | on fully sampled digits |",
        "|---|---|---|---|---|",
    ]
    for name, words in NAMES.items():
        result = validations(runs / name)[-1]["validation"]
        cells = [f"{result[key]['mean']:.4f} ± {result[key]['se']:.4f}" for key in ("estimate", "true")]
        cells.append(f"{result['difference']['mean']:+.5f} ± {result['difference']['se']:.5f}")
        cells.append(f"{result['full']['mean']:.4f} ± {result['full']['se']:.4f}")
        rows.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main(arguments: list[str] | None = None) -> None:
    runs = Path((arguments or sys.argv[1:])[0])
    FIGURES.mkdir(parents=True, exist_ok=True)
    draw_tracking(runs)
    for kind in ("samples", "denoised"):
        shutil.copy(sorted((runs / "digits" / kind).iterdir())[-1], FIGURES / f"{kind}.png")
    sys.stdout.write(table(runs) + "\n")
    for name in ("digits", "digits-naive"):
        points = [_flat(line) for line in validations(runs / name)]
        points += [t_bin for line in validations(runs / name) for t_bin in line["validation"]["t_bins"]]
        correlation = statistics.correlation([p["true"] for p in points], [p["estimate"] for p in points])
        worst = max(abs(p["estimate"] / p["true"] - 1) for p in points)
        sys.stdout.write(
            f"{NAMES[name]}: correlation {correlation:.6f} over {len(points)}, largest ratio off by {worst:.2%}\n"
        )


if __name__ == "__main__":
    main()
