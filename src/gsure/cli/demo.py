"""demo: everything at once, on embedded data."""

from typing import Literal

from jsonargparse import ArgumentParser, Namespace

from gsure.cli import Command, call, show


def _options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "kind", type=Literal["digits", "mri"], nargs="?", default="digits", help="data: digits, or MRI phantom slices"
    )
    parser.add_argument("--out", type=str, default="demo", help="folder to write; an unfinished one is resumed")
    parser.add_argument("--n", type=int, default=500, help="number of samples of each model")
    parser.add_argument("--steps", type=int, help="training steps of each model, instead of the demo's own")


def _demo(options: Namespace) -> None:
    from gsure.experiments.demo import demo

    show(call(demo, options), options.json)


COMMANDS = {"demo": Command(_options, _demo)}
