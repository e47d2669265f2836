"""reproduce: the tables and figures of the paper."""

from typing import Literal

from jsonargparse import ArgumentParser, Namespace

from gsure.cli import Command, call, show

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
    parser.add_argument("name", type=str, help=f"experiment: {', '.join(NAMES)}")
    parser.add_argument(
        "--scale",
        type=Literal["tiny", "small", "paper"],
        default="small",
        help="tiny takes minutes and only shows that it runs; small is for two cores; paper, as published, for GPUs",
    )
    parser.add_argument(
        "--data", type=str, help="folder of the dataset: Fashion-MNIST (small), CelebA or fastMRI (paper)"
    )
    parser.add_argument("--out", type=str, default="results", help="folder for the page and the results as JSON")
    parser.add_argument("--work", type=str, default="work", help="folder for models and samples, which are reused")
    parser.add_argument("--only", type=str, help="run only the cases whose name contains this, such as 'gsure p=0.4'")
    parser.add_argument("--draw", action="store_true", help="compute nothing; write the page from existing results")


def _reproduce(options: Namespace) -> None:
    from gsure.experiments import reproduce

    show(call(reproduce, options), options.json)


COMMANDS = {"reproduce": Command(_options, _reproduce)}
