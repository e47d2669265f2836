"""reproduce: the paper's tables and figures."""

from typing import Literal

from jsonargparse import ArgumentParser, Namespace

from gsure.cli.base import Command, call, show

NAMES = (
    "table1",
    "table-colour",
    "mri-denoising",
    "mri-r4",
    "mri-accelerations",
    "mri-masks",
    "uncertainty",
    "generalization",
    "independence",
    "analytic",
)


def _options(parser: ArgumentParser) -> None:
    parser.add_argument("name", type=str, help=f"one of {', '.join(NAMES)}")
    parser.add_argument(
        "--scale",
        type=Literal["tiny", "small", "paper"],
        default="small",
        help="tiny: minutes, to see it run; small: for two cores; paper: as published, for GPUs",
    )
    parser.add_argument(
        "--data", type=str, help="folder of the data set: Fashion-MNIST (small), CelebA or fastMRI (paper)"
    )
    parser.add_argument("--out", type=str, default="results", help="folder of the page and of what was found, as JSON")
    parser.add_argument(
        "--work", type=str, default="work", help="folder of models and samples; they are never made twice"
    )
    parser.add_argument("--only", type=str, help="only cases with this in their name, such as 'gsure p=0.4'")
    parser.add_argument(
        "--draw", action="store_true", help="compute nothing; write the page from what was found before"
    )


def _reproduce(options: Namespace) -> None:
    from gsure.experiments import reproduce

    show(call(reproduce, options), options.json)


REPRODUCE = Command("make a table or figure of the paper", _options, _reproduce)
