"""How far a run is; and `inspect`, which also says what is in a file."""

from pathlib import Path
from typing import Any

from gsure.data.inspection import inspect_file
from gsure.formatting import with_error
from gsure.training import checkpoints
from gsure.training.run import Run


def inspect(
    path: str | Path, figure: str | Path | None = None, clean: str | Path | None = None, force: bool = False
) -> dict[str, Any]:
    """A summary of a run or of a file, which can be printed or turned to JSON.

    With `figure`, a PNG of the first samples of a file is drawn too, beside the signals of `clean` if given.
    """
    if not Run(Path(path)).exists():
        return inspect_file(path, figure, clean, force)
    if figure is not None or clean is not None:
        raise ValueError(f"{path} is a run: its pictures are in its folders samples and denoised.")
    return summarize(Run(Path(path)))


def summarize(run: Run) -> dict[str, Any]:
    """Step, loss, speed, validation and checkpoints."""
    config, lines = run.config, run.read_metrics()
    settings = config.settings
    logged = [line for line in lines if "loss" in line]
    validated = [line for line in lines if "validation" in line]
    steps = checkpoints.steps_of(run.checkpoints)
    summary: dict[str, Any] = {
        "run": str(run.path),
        "data": config.data,
        "trained on": settings.train_on,
        "objective": settings.objective,
        "step": max([line["step"] for line in lines] + steps, default=0),
        "of": settings.steps,
        "checkpoints": ", ".join(f"{step:,}" for step in sorted(steps)) or "none: the run cannot be resumed",
    }
    if logged:
        last = logged[-1]
        summary["loss"] = last["loss"]
        summary["speed"] = f"{last['steps_per_second']:.2g} steps/s, {last['memory_gb']:.1f} GB"
    if validated:
        result = validated[-1]["validation"]
        names = {"estimate": "held-out error", "true": "true error", "full": "error on full signals"}
        summary |= {
            words: with_error(result[name]["mean"], result[name]["se"])
            for name, words in names.items()
            if name in result
        }
    if run.best.exists():
        best = checkpoints.read(run.best).header["best"]
        summary["best"] = f"{with_error(best['mean'], best['se'])} at step {best['step']:,}"
    summary["gsure"] = config.request["gsure"]
    return summary
