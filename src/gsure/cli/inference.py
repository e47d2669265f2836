"""sample, restore and calibrate: the uses of a trained model."""

from pathlib import Path
from typing import Literal

from jsonargparse import ActionYesNo, ArgumentParser, Namespace

from gsure.cli import Command, Options, call, show

CHECKPOINT = Literal["best", "last"] | int
WEIGHTS = Literal["averaged", "raw"] | None
ABOUT_WEIGHTS = "weights to use, instead of those that validated best"
SPACING = Literal["even", "quadratic", "logsnr"]


def add_computing(parser: ArgumentParser, batch: int) -> None:
    """Options of everything that runs a network."""
    computing = Options(parser, "computing")
    computing.add("--batch", int, "batch size of the network", batch)
    computing.add("--device", str, "device, such as cpu or cuda:1; by default a GPU if there is one")
    computing.add("--seed", int, "seed of the noise", 0)


def _sample_options(parser: ArgumentParser) -> None:
    model = Options(parser, "model")
    model.add("run", str, "folder of a run, or a checkpoint file")
    model.add("--checkpoint", CHECKPOINT, "checkpoint to use; a number is a step", "best", metavar="best|last|N")
    model.add("--weights", WEIGHTS, ABOUT_WEIGHTS, metavar="averaged|raw")
    sampling = Options(parser, "sampling")
    sampling.add("--n", int, "number of samples", required=True)
    sampling.add("--sampler", Literal["ddim", "ddpm", "dpm++", "unipc"], "sampler, see docs/sampling.md", "ddim")
    sampling.add("--steps", int, "sampling steps", 50)
    sampling.add("--spacing", SPACING, "spacing of the timesteps; each sampler has its own default")
    sampling.add("--eta", float, "ddim: 0 is deterministic, 1 ancestral sampling", 0.0)
    sampling.add("--clip", bool, "clip each estimate to -1..1; for images only")
    output = Options(parser, "output")
    output.add("--out", str, "folder to write; an unfinished one is resumed", metavar="FOLDER", required=True)
    add_computing(parser, batch=128)


def _sample(options: Namespace) -> None:
    from gsure.inference.sample import sample

    samples = call(sample, options, model=options.run)
    summary = {"folder": options.out, "samples": len(samples), "shape": list(samples.shape)}
    show(summary | {"picture": str(Path(options.out) / "grid.png")}, options.json)


def _restore_options(parser: ArgumentParser) -> None:
    data = Options(parser, "model and data")
    data.add("run", str, "folder of a run, or a checkpoint file")
    data.add("measurements", str, "measurements to restore, a file or a folder of shards")
    data.add("--checkpoint", CHECKPOINT, "checkpoint to use; a number is a step", "best", metavar="best|last|N")
    data.add("--weights", WEIGHTS, ABOUT_WEIGHTS, metavar="averaged|raw")
    data.add("--clean", str, "clean signals, to report PSNRs and show errors", metavar="FILE")
    data.add("--limit", int, "restore only the first N measurements")
    method = Options(parser, "method")
    about = (
        "auto: the best that the model was trained for; mean: one call of the network; gaussian: the Gaussian prior, in "
        "closed form; context, moments, ddrm: means of posterior samples"
    )
    method.add("--method", Literal["auto", "mean", "gaussian", "context", "moments", "ddrm"], about, "auto")
    about = (
        "with --method mean, where draws come from; gaussian: the spread of the Gaussian prior, without network calls"
    )
    method.add("--draws-by", Literal["auto", "gaussian"], about, "auto")
    about = (
        "how error bars are corrected. auto: by the calibration of the run, if there is one, and otherwise as self; self: by "
        "hidden entries of these measurements; none: not at all"
    )
    method.add("--calibration", Literal["auto", "self", "none"], about, "auto")
    about = "number of posterior samples used for the mean and standard deviation (default: 8)"
    method.add("--draws", int, about)
    about = "sampling steps of each posterior sample (default: context and moments 20, ddrm 100)"
    method.add("--steps", int, about)
    about = "choose draws and steps so that an image takes at most this long; if you give one, only the other is chosen"
    method.add("--seconds-per-image", float, about)
    method.add("--spacing", SPACING, "spacing of the timesteps; by default what suits the method and what is missing")
    about = "0 is deterministic, 1 adds as much noise as possible; by default what suits the method and what is missing"
    method.add("--eta", float, about)
    method.add("--eta-b", float, "ddrm: weight of the measurement at measured entries", 1.0)
    output = Options(parser, "output")
    output.add("--out", str, "folder to write; an unfinished one is resumed", metavar="FOLDER", required=True)
    output.add("--volumes", Literal["nifti", "cfl"], "also write each group as a volume in this format")
    output.add("--panels", int, "number of restorations to draw", 8)
    about = "also restore by total variation and the Gaussian prior, and judge the model by them (default: yes)"
    output.group.add_argument("--baselines", action=ActionYesNo(no_prefix="no-"), default=True, help=about)
    add_computing(parser, batch=64)


def _restore(options: Namespace) -> None:
    from gsure.inference.restore import restore

    show(call(restore, options, model=options.run).summary, options.json)


def _calibrate_options(parser: ArgumentParser) -> None:
    data = Options(parser, "model and data")
    data.add("run", str, "folder of a run")
    about = "measurements that the model did not learn from; by default those that training held out"
    data.add("measurements", str | None, about, nargs="?")
    data.add("--checkpoint", CHECKPOINT, "checkpoint to use; a number is a step", "best", metavar="best|last|N")
    data.add("--weights", WEIGHTS, ABOUT_WEIGHTS, metavar="averaged|raw")
    data.add("--limit", int, "number of measurements to use, from all over the file", 64)
    method = Options(parser, "method, as you will give it to gsure restore")
    method.add("--method", Literal["auto", "mean", "gaussian", "context", "moments", "ddrm"], "as in restore", "auto")
    method.add("--draws-by", Literal["auto", "gaussian"], "as in restore", "auto")
    method.add("--draws", int, "as in restore", 8)
    method.add("--steps", int, "as in restore")
    method.add("--spacing", SPACING, "as in restore")
    method.add("--eta", float, "as in restore")
    method.add("--eta-b", float, "as in restore", 1.0)
    add_computing(parser, batch=64)


def _calibrate(options: Namespace) -> None:
    from gsure.inference.calibrate import calibrate

    show(call(calibrate, options), options.json)


COMMANDS = {
    "calibrate": Command(
        "gsure calibrate RUN [MEASUREMENTS] [options]",
        _calibrate_options,
        _calibrate,
        (
            "gsure calibrate runs/digits",
            "gsure calibrate runs/brains more-scans.h5 --limit 200",
        ),
    ),
    "sample": Command(
        "gsure sample RUN --n N --out FOLDER [options]",
        _sample_options,
        _sample,
        (
            "gsure sample runs/digits --n 64 --out samples",
            "gsure sample runs/digits --n 1000 --sampler dpm++ --steps 10 --out samples-fast",
        ),
    ),
    "restore": Command(
        "gsure restore RUN MEASUREMENTS --out FOLDER [options]",
        _restore_options,
        _restore,
        (
            "gsure restore runs/digits new.h5 --out restored",
            "gsure restore runs/brains scans.h5 --volumes nifti --out restored",
        ),
    ),
}
