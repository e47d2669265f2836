"""diagnose: are the assumptions of the method met?"""

import json
import sys
import textwrap
from pathlib import Path
from typing import Literal

from jsonargparse import ArgumentParser, Namespace

from gsure.cli import Command, call, show


def _options(parser: ArgumentParser) -> None:
    parser.add_argument("run", type=str, help="folder of a run; the diagnosis goes to its subfolder diagnosis")
    parser.add_argument(
        "--reference-run", type=str, help="a run trained on clean signals (--train-on clean), to compare with"
    )
    parser.add_argument(
        "--clean",
        type=str,
        help="the clean signals behind the run's data, for errors of entries that were not measured",
    )
    parser.add_argument("--n", type=int, default=512, help="maximum number of held-out measurements to check")
    parser.add_argument(
        "--checkpoint", type=Literal["best", "last"] | int, default="best", help="checkpoint to use; a number is a step"
    )
    parser.add_argument("--batch", type=int, default=128, help="batch size of the network")
    parser.add_argument("--seed", type=int, default=0, help="seed of noise and of deep CCA")
    parser.add_argument("--force", action="store_true", help="replace an existing diagnosis")


def _diagnose(options: Namespace) -> None:
    from gsure.evaluation.diagnose import FOLDER, diagnose

    result = call(diagnose, options, model=options.run)
    if options.json:
        sys.stdout.write(json.dumps(result, ensure_ascii=False) + "\n")
        return
    folder = Path(options.run) / FOLDER
    for check in result["checks"]:
        sys.stdout.write(f"{check['title']}  {check['verdict']}\n")
        if check["words"]:
            sys.stdout.write(textwrap.indent(textwrap.fill(check["words"], 100), "    ") + "\n")
    show({"figures": str(folder)}, as_json=False)


COMMANDS = {"diagnose": Command(_options, _diagnose)}
