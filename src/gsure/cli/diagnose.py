"""diagnose: can a model be trusted."""

import json
import sys
import textwrap
from pathlib import Path
from typing import Literal

from jsonargparse import ArgumentParser, Namespace

from gsure.cli.base import Command, call, show


def _diagnose_options(parser: ArgumentParser) -> None:
    parser.add_argument("run", type=str, help="folder of a run; its folder diagnosis is written")
    parser.add_argument("--oracle", type=str, help="a run that learned from clean signals, to compare with")
    parser.add_argument(
        "--clean", type=str, help="the clean signals behind the run's data: for dropped entries and whole signals"
    )
    parser.add_argument("--n", type=int, default=512, help="held-out measurements to look at, at most")
    parser.add_argument(
        "--checkpoint", type=Literal["best", "last"] | int, default="best", help="checkpoint: best, last, a step"
    )
    parser.add_argument("--batch", type=int, default=128, help="signals that go through the network at once")
    parser.add_argument("--seed", type=int, default=0, help="of noise and of deep CCA")
    parser.add_argument("--force", action="store_true", help="replace a diagnosis that is there")


def _diagnose(options: Namespace) -> None:
    from gsure.evaluation.diagnose import FOLDER, diagnose

    result = call(diagnose, options)
    if options.json:
        sys.stdout.write(json.dumps(result, ensure_ascii=False) + "\n")
        return
    folder = Path(options.run) / FOLDER
    for check in result["checks"]:
        sys.stdout.write(f"{check['title']}  {check['verdict']}\n")
        if check["words"]:
            sys.stdout.write(textwrap.indent(textwrap.fill(check["words"], 100), "    ") + "\n")
    show({"figures": str(folder)}, as_json=False)


DIAGNOSE = Command("say whether the method's assumptions are met", _diagnose_options, _diagnose)
