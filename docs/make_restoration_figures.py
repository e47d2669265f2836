"""Table and figures of docs/restoration.md: a model restores phantoms it never saw, under masks it was not trained on.

    python docs/make_restoration_figures.py RUNS

RUNS has the folders phantom32 and phantom32-oracle (docs/training.md tells how). Phantoms to test on have another seed.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import gsure
from gsure.corruption import FAMILIES
from gsure.metrics import psnr
from gsure.source import open_source

FIGURES = Path(__file__).parent / "figures" / "restoration"
CASES = {f"lines, R = {R}": FAMILIES["lines"](R=float(R)) for R in (4, 6, 8, 10, 12)}
CASES |= {
    "gaussian_lines, R = 8": FAMILIES["gaussian_lines"](R=8.0),
    "poisson_disc, R = 15": FAMILIES["poisson_disc"](R=15.0),
}
N = 16


def restore_all(runs: Path, folder: Path) -> list[str]:
    rows = [
        "| masks | zero-filled | from measurements, one draw | mean of 8 draws | oracle, mean of 8 draws | oracle less ours |",
        "|---|---|---|---|---|---|",
    ]
    source = open_source("phantom", size=32, n=N, seed=1)
    for number, (name, family) in enumerate(CASES.items()):
        data, clean = folder / f"{number}.h5", folder / f"{number}-clean.h5"
        gsure.corrupt(source, data, family, 0.01, clean=clean)
        truth = gsure.Signals(clean)[:N]
        decibels = {}
        for run in ("phantom32", "phantom32-oracle"):
            out = folder / f"{run}-{number}"
            gsure.restore(runs / run, data, out, draws=8, steps=50, clean=clean, panels=4 if run == "phantom32" else 0)
            for kind in ("baseline", "draw", "mean"):
                decibels[run, kind] = psnr(gsure.Signals(out / kind)[:N], truth, is_complex=True)
        gap = decibels["phantom32-oracle", "mean"] - decibels["phantom32", "mean"]
        shown = [decibels["phantom32", kind] for kind in ("baseline", "draw", "mean")] + [
            decibels["phantom32-oracle", "mean"],
            gap,
        ]
        cells = [f"{float(v.mean()):.2f} ± {float(v.std()) / N**0.5:.2f}" for v in shown]
        rows.append(f"| {name} | {' | '.join(cells)} |")
        sys.stderr.write(rows[-1] + "\n")
        if number in (0, 4, 6):
            FIGURES.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / f"phantom32-{number}" / "panels" / "00001.png", FIGURES / f"phantom-{number}.png")
    return rows


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        sys.stdout.write("\n".join(restore_all(Path(sys.argv[1]), Path(name))) + "\n")


if __name__ == "__main__":
    main()
