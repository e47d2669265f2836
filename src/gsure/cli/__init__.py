"""The command line: names, types and help of options. Everything else is imported when a command runs: --help is quick."""

import os
import sys
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool

from jsonargparse import ArgumentParser

from gsure import __version__
from gsure.cli.data import CORRUPT, IMPORT, INSPECT
from gsure.cli.demo import DEMO
from gsure.cli.diagnose import DIAGNOSE
from gsure.cli.draw import RESTORE, SAMPLE
from gsure.cli.evaluate import EVALUATE
from gsure.cli.report import REPORT
from gsure.cli.reproduce import REPRODUCE
from gsure.cli.train import TRAIN

COMMANDS = {
    "demo": DEMO,
    "corrupt": CORRUPT,
    "import": IMPORT,
    "train": TRAIN,
    "sample": SAMPLE,
    "restore": RESTORE,
    "evaluate": EVALUATE,
    "diagnose": DIAGNOSE,
    "inspect": INSPECT,
    "report": REPORT,
    "reproduce": REPRODUCE,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0; 2 and one sentence for what the person at the keyboard can mend; 130 when interrupted."""
    try:
        chosen = make_parser().parse_args(arguments)
    except UnicodeDecodeError:
        return _complain("", "the file given by --config is not a text: give YAML.", 2)
    name = chosen.subcommand
    try:
        COMMANDS[name].run(chosen[name])
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _complain(name, f"{where}{error.strerror or error}", 2)
    except ValueError as error:
        return _complain(name, str(error), 2)
    except BrokenProcessPool:
        return _complain(name, "a worker process died, perhaps for want of memory: use fewer --workers.", 1)
    except KeyboardInterrupt:
        again = "with --resume to go on from the last checkpoint" if name == "train" else "to go on or start over"
        return _complain(name, f"interrupted; nothing is left half-written, run it again {again}.", 130)
    return 0


def _complain(name: str, message: str, code: int) -> int:
    rank = os.environ.get("RANK")  # one of many processes: each says what is wrong where it runs
    where = f" (process {rank})" if rank else ""
    sys.stderr.write(f"{f'gsure {name}'.rstrip()}{where}: {message}\n")
    return code


def make_parser() -> ArgumentParser:
    about = "Train diffusion models from noisy, incomplete measurements alone, and use them."
    parser = ArgumentParser(prog="gsure", description=about, version=f"gsure {__version__}", allow_abbrev=False)
    commands = parser.add_subcommands()
    for name, command in COMMANDS.items():
        sub = ArgumentParser(description=command.help, allow_abbrev=False)
        sub.add_argument("--config", action="config", help="a YAML file of these options; --print_config writes one")
        command.add_options(sub)
        sub.add_argument("--json", action="store_true", help="print what was done as JSON, and no progress")
        commands.add_subcommand(name, sub, help=command.help)
    return parser
