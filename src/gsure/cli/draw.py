"""sample, restore: what a trained model is for."""

from pathlib import Path
from typing import Literal

from jsonargparse import ArgumentParser, Namespace

from gsure.cli.base import Command, call, show


def _add_drawing_options(parser: ArgumentParser, batch: int) -> None:
    parser.add_argument("--out", type=str, required=True, help="folder to write; one that was begun is completed")
    parser.add_argument(
        "--checkpoint", type=Literal["best", "last"] | int, default="best", help="checkpoint: best, last, a step"
    )
    parser.add_argument("--batch", type=int, default=batch, help="signals that go through the network at once")
    parser.add_argument("--seed", type=int, default=0, help="of the noise")


def _sample_options(parser: ArgumentParser) -> None:
    parser.add_argument("run", type=str, help="folder of a run, or a checkpoint")
    parser.add_argument("--n", type=int, required=True, help="how many")
    parser.add_argument(
        "--sampler", type=Literal["ddim", "ddpm", "dpm++", "unipc"], default="ddim", help="docs/sampling.md"
    )
    parser.add_argument("--steps", type=int, default=50, help="network calls for each")
    parser.add_argument("--eta", type=float, default=0.0, help="ddim: 0 deterministic, 1 ancestral")
    parser.add_argument(
        "--spacing", type=Literal["even", "quadratic", "logsnr"], help="of times; the sampler's own if not given"
    )
    parser.add_argument("--clip", action="store_true", help="keep each estimate within -1..1; for images only")
    _add_drawing_options(parser, batch=128)


def _sample(options: Namespace) -> None:
    from gsure.inference.sample import sample

    samples = call(sample, options)
    summary = {"folder": options.out, "samples": len(samples), "shape": list(samples.shape)}
    show(summary | {"picture": str(Path(options.out) / "grid.png")}, options.json)


def _restore_options(parser: ArgumentParser) -> None:
    parser.add_argument("run", type=str, help="folder of a run, or a checkpoint")
    parser.add_argument("measurements", type=str, help="what to restore, a file or a folder of shards")
    parser.add_argument("--draws", type=int, default=8, help="of which mean and standard deviation are taken")
    parser.add_argument(
        "--method", type=Literal["ddrm", "moments"], default="ddrm", help="moments is more accurate, and slower"
    )
    parser.add_argument("--steps", type=int, default=100, help="network calls for each draw")
    parser.add_argument("--eta", type=float, default=0.85, help="0 deterministic, 1 as random as possible")
    parser.add_argument("--spacing", type=Literal["even", "quadratic", "logsnr"], default="even", help="of times")
    parser.add_argument("--eta-b", type=float, default=1.0, help="ddrm: how firmly kept entries are held")
    parser.add_argument("--clean", type=str, help="the clean signals, to tell PSNRs and show errors")
    parser.add_argument("--limit", type=int, help="only the first so many")
    parser.add_argument(
        "--volumes", type=Literal["nifti", "cfl"], help="also write volumes for other tools, one a group"
    )
    parser.add_argument("--panels", type=int, default=8, help="of how many to draw pictures")
    _add_drawing_options(parser, batch=64)


def _restore(options: Namespace) -> None:
    from gsure.inference.restore import restore

    show(call(restore, options), options.json)


SAMPLE = Command("generate signals with a trained model", _sample_options, _sample)
RESTORE = Command("reconstruct measurements, with error bars", _restore_options, _restore)
