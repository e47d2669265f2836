"""sample and restore: the uses of a trained model."""

from pathlib import Path
from typing import Literal

from jsonargparse import ArgumentParser, Namespace

from gsure.cli import Command, call, show


def _add_drawing_options(parser: ArgumentParser, batch: int) -> None:
    parser.add_argument("--out", type=str, required=True, help="folder to write; an unfinished one is resumed")
    parser.add_argument(
        "--checkpoint", type=Literal["best", "last"] | int, default="best", help="checkpoint to use; a number is a step"
    )
    parser.add_argument("--batch", type=int, default=batch, help="batch size of the network")
    parser.add_argument("--seed", type=int, default=0, help="seed of the noise")


def _sample_options(parser: ArgumentParser) -> None:
    parser.add_argument("run", type=str, help="folder of a run, or a checkpoint file")
    parser.add_argument("--n", type=int, required=True, help="number of samples")
    parser.add_argument(
        "--sampler",
        type=Literal["ddim", "ddpm", "dpm++", "unipc"],
        default="ddim",
        help="sampler, see docs/sampling.md",
    )
    parser.add_argument("--steps", type=int, default=50, help="sampling steps")
    parser.add_argument("--eta", type=float, default=0.0, help="ddim: 0 is deterministic, 1 ancestral sampling")
    parser.add_argument(
        "--spacing",
        type=Literal["even", "quadratic", "logsnr"],
        help="spacing of the timesteps; each sampler has its own default",
    )
    parser.add_argument("--clip", action="store_true", help="clip each estimate to -1..1; for images only")
    _add_drawing_options(parser, batch=128)


def _sample(options: Namespace) -> None:
    from gsure.inference.sample import sample

    samples = call(sample, options, model=options.run)
    summary = {"folder": options.out, "samples": len(samples), "shape": list(samples.shape)}
    show(summary | {"picture": str(Path(options.out) / "grid.png")}, options.json)


def _restore_options(parser: ArgumentParser) -> None:
    parser.add_argument("run", type=str, help="folder of a run, or a checkpoint file")
    parser.add_argument("measurements", type=str, help="measurements to restore, a file or a folder of shards")
    parser.add_argument(
        "--draws", type=int, default=8, help="number of posterior samples used for the mean and standard deviation"
    )
    parser.add_argument(
        "--method",
        type=Literal["ddrm", "moments"],
        default="ddrm",
        help="posterior sampler; moments is more accurate and slower",
    )
    parser.add_argument("--steps", type=int, default=100, help="sampling steps of each posterior sample")
    parser.add_argument("--eta", type=float, default=0.85, help="0 is deterministic, 1 adds as much noise as possible")
    parser.add_argument(
        "--spacing",
        type=Literal["even", "quadratic", "logsnr"],
        default="even",
        help="spacing of the timesteps",
    )
    parser.add_argument("--eta-b", type=float, default=1.0, help="ddrm: weight of the measurement at measured entries")
    parser.add_argument("--clean", type=str, help="clean signals, to report PSNRs and show errors")
    parser.add_argument("--limit", type=int, help="restore only the first so many measurements")
    parser.add_argument(
        "--volumes", type=Literal["nifti", "cfl"], help="also write each group as a volume in this format"
    )
    parser.add_argument("--panels", type=int, default=8, help="number of restorations to draw")
    _add_drawing_options(parser, batch=64)


def _restore(options: Namespace) -> None:
    from gsure.inference.restore import restore

    show(call(restore, options, model=options.run).summary, options.json)


COMMANDS = {"sample": Command(_sample_options, _sample), "restore": Command(_restore_options, _restore)}
