"""demo: everything at once, on data that comes with the package."""

from typing import Literal

from jsonargparse import ArgumentParser, Namespace

from gsure.cli.base import Command, call, show


def _options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "kind", type=Literal["digits", "mri"], nargs="?", default="digits", help="of signals: digits, or phantom slices"
    )
    parser.add_argument("--out", type=str, default="demo", help="folder to write; one that was begun is completed")
    parser.add_argument("--n", type=int, default=500, help="samples of each model")
    parser.add_argument("--steps", type=int, help="of training of each model")


def _demo(options: Namespace) -> None:
    from gsure.experiments.demo import demo

    show(call(demo, options), options.json)


DEMO = Command("corrupt, train, sample, restore, evaluate and report, on embedded data", _options, _demo)
