"""Which `floor` should `tweedie` have? Its estimate is divided by max(1-ρ, floor)²: 1 never divides, 0 always does.

The mixture of examples/toy2d.py; ratio of the denoising error to that of the oracle of the same seed, at the first times,
where measurement noise is a large part ρ of all noise. `exact` and `gsure-y` compute a divergence and need no floor.
"""

import sys
from pathlib import Path

import torch

import gsure

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import toy2d

SIZE, STEPS = 50_000, 900
GRID = [1, 3, 10, 30, 94, 299]
SEEDS = range(3)
CONTESTANTS = {
    **{
        f"tweedie, floor {floor}": gsure.Objective(coverage=toy2d.KEEP, floor=floor)
        for floor in (1.0, 0.5, 0.25, 0.1, 0.01)
    },
    "exact, floor 0.1": gsure.Objective("exact", coverage=toy2d.KEEP),
    "gsure-y": gsure.Objective("gsure-y", coverage=toy2d.KEEP),
}


def error(row: str, seed: int, objective: gsure.Objective | None = None) -> torch.Tensor:
    data, default = toy2d.training_set(row, SIZE, torch.Generator().manual_seed(seed))
    return toy2d.denoising_error(toy2d.train(data, objective or default, seed, STEPS), GRID)


def main() -> None:
    oracle = [error("oracle", seed) for seed in SEEDS]
    rho = (toy2d.SIGMA_0 / toy2d.SCHEDULE.sigma[GRID]) ** 2
    print(f"Denoising error / oracle's: mean over {len(SEEDS)} seeds (standard deviation)")
    print(f"{'t':>20}" + "".join(f"{t:>16}" for t in GRID))
    print(f"{'rho':>20}" + "".join(f"{r:>16.2f}" for r in rho))
    rows = {"control": ("control", None)} | {name: ("tweedie", objective) for name, objective in CONTESTANTS.items()}
    for name, (row, objective) in rows.items():
        ratios = torch.stack([error(row, seed, objective) / oracle[seed] for seed in SEEDS])
        cells = (f"{mean:.3f} ({std:.3f})" for mean, std in zip(ratios.mean(0), ratios.std(0), strict=True))
        print(f"{name:>20}" + "".join(f"{cell:>16}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
