"""demo: everything at once, on embedded data. reproduce: the tables and figures of the paper."""

from typing import Literal

from jsonargparse import ArgumentParser, Namespace

from gsure.cli import Command, Options, call, show

NAMES = (
    "table1",
    "table-colour",
    "mri-denoising",
    "mri-r4",
    "mri-accelerations",
    "mri-masks",
    "mri-brains",
    "uncertainty",
    "generalization",
    "independence",
    "analytic",
)


def _demo_options(parser: ArgumentParser) -> None:
    data = Options(parser, "data")
    data.add(
        "kind", Literal["digits", "mri"], "digits, or MR slices of real heads (default: digits)", "digits", nargs="?"
    )
    training = Options(parser, "training and sampling")
    training.add("--steps", int, "training steps of each model, instead of the demo's own")
    training.add("--n", int, "number of samples of each model", 180)
    output = Options(parser, "output")
    output.add("--out", str, "folder to write; an unfinished one is resumed", "demo", metavar="FOLDER")


def _demo(options: Namespace) -> None:
    from gsure.experiments.demo import demo

    show(call(demo, options), options.json)


def _reproduce_options(parser: ArgumentParser) -> None:
    experiment = Options(parser, "experiment")
    experiment.add("name", str, f"experiment: {', '.join(NAMES)}")
    about = "tiny takes minutes and only shows that it runs; small is for two cores; paper, as published, for GPUs"
    experiment.add("--scale", Literal["tiny", "small", "paper"], about, "small")
    about = "folder of the dataset: Fashion-MNIST (small), CelebA or fastMRI (paper)"
    experiment.add("--data", str, about, metavar="FOLDER")
    experiment.add("--only", str, "run only the cases whose name contains this, such as 'gsure p=0.4'", metavar="TEXT")
    output = Options(parser, "output")
    output.add("--out", str, "folder for the page and the results as JSON", "results", metavar="FOLDER")
    output.add("--work", str, "folder for models and samples, which are reused", "work", metavar="FOLDER")
    output.add("--draw", bool, "compute nothing; write the page from existing results")


def _reproduce(options: Namespace) -> None:
    from gsure.experiments import reproduce

    show(call(reproduce, options), options.json)


COMMANDS = {
    "demo": Command(
        "gsure demo [digits|mri] [options]",
        _demo_options,
        _demo,
        ("gsure demo", "gsure demo mri --out demo-mri"),
    ),
    "reproduce": Command(
        "gsure reproduce NAME [options]",
        _reproduce_options,
        _reproduce,
        (
            "gsure reproduce analytic --scale tiny",
            "gsure reproduce table1 --scale small --data fashion-mnist",
        ),
    ),
}
