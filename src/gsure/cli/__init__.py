"""The command line: the names of the commands, and what they have in common.

`COMMANDS` is the only place that knows all commands. The module of a command is imported when the command is chosen, and what
the command needs when it runs, so `--help` imports neither torch nor the other commands.
"""

import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Collection, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from gsure import __version__
from gsure.display import number
from gsure.files import command_line

COMMANDS = {
    "demo": ("demo", "run everything, from corrupting data to the report, on embedded data"),
    "corrupt": ("data", "simulate measurements of clean signals"),
    "import": ("data", "convert data that is already measured to a measurement file"),
    "train": ("train", "train a model on measurements alone"),
    "sample": ("draw", "generate signals with a trained model"),
    "restore": ("draw", "reconstruct measurements, with error bars"),
    "evaluate": ("evaluate", "measure the quality of samples, restorations or the denoiser"),
    "diagnose": ("diagnose", "check whether the assumptions of the method hold"),
    "inspect": ("data", "summarize a file or a run"),
    "report": ("report", "write a self-contained HTML page about a run"),
    "reproduce": ("reproduce", "reproduce a table or figure of the paper"),
}
"""For each command, its module in this package, which has it in a table of its own, and a line of help."""


@dataclass(frozen=True)
class Command:
    add_options: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line. Returns 0, 2 for a mistake that the user can fix, 1 for a dead worker, 130 if interrupted."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        chosen = make_parser(words[:1]).parse_args(words)
    except UnicodeDecodeError:
        return _complain("", "the file given by --config is not text: give a YAML file.", 2)
    name = chosen.subcommand
    try:
        with command_line(["gsure", *words]):
            _load(name).run(chosen[name])
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _complain(name, f"{where}{error.strerror or error}", 2)
    except ValueError as error:
        return _complain(name, str(error), 2)
    except BrokenProcessPool:
        return _complain(name, "a worker process died, perhaps because memory ran out: use fewer --workers.", 1)
    except KeyboardInterrupt:
        again = "with --resume to resume from the last checkpoint" if name == "train" else "to resume or start over"
        return _complain(name, f"interrupted. No file is left incomplete; run the command again {again}.", 130)
    return 0


def _complain(name: str, message: str, code: int) -> int:
    rank = os.environ.get("RANK")  # one of many processes: each says what is wrong where it runs
    where = f" (process {rank})" if rank else ""
    sys.stderr.write(f"{f'gsure {name}'.rstrip()}{where}: {message}\n")
    return code


def make_parser(complete: Collection[str] = tuple(COMMANDS)) -> ArgumentParser:
    """The parser of the command line. Commands that are not in `complete` get their line of help, but no options."""
    about = "Train diffusion models from noisy, incomplete measurements alone, and use them."
    parser = ArgumentParser(prog="gsure", description=about, version=__version__, allow_abbrev=False)
    commands = parser.add_subcommands()
    for name, (_, text) in COMMANDS.items():
        sub = ArgumentParser(description=text, allow_abbrev=False)
        if name in complete:
            sub.add_argument("--config", action="config", help="YAML file of these options; --print_config writes one")
            _load(name).add_options(sub)
            sub.add_argument("--json", action="store_true", help="print the result as JSON, and no progress")
        commands.add_subcommand(name, sub, help=text)
    return parser


def _load(name: str) -> Command:
    module, _ = COMMANDS[name]
    return importlib.import_module(f"gsure.cli.{module}").COMMANDS[name]


def call(function: Callable[..., Any], options: Namespace, **others: Any) -> Any:
    """Call a function with the options that have the names of its parameters, and with others.

    It shows progress unless the output is JSON.
    """
    names = inspect.signature(function).parameters
    chosen = {name: options[name] for name in names if name in options}
    if "progress" in names:
        chosen["progress"] = not options.json
    return function(**(chosen | others))


def show(summary: dict[str, Any], as_json: bool) -> None:
    """Print a summary, a line for each key."""
    if as_json:
        sys.stdout.write(json.dumps(summary, ensure_ascii=False) + "\n")
        return
    width = max(map(len, summary))
    sys.stdout.writelines(f"{key:<{width}}  {in_words(value)}\n" for key, value in summary.items())


def in_words(value: Any) -> str:
    """
    >>> in_words({"shape": [2, 8, 8], "kept": None, "range": [0.5, 1.0]}), in_words([]), in_words(["a", "b"])
    ('shape 2 × 8 × 8, range [0.5, 1]', '–', 'a; b')
    """
    match value:
        case dict():
            return ", ".join(f"{key} {in_words(item)}" for key, item in value.items() if item not in (None, {}))
        case [] | ():
            return number(None)
        case [float(), *_] | (float(), *_):
            return f"[{number(list(value))}]"
        case [str(), *_] | (str(), *_):
            return "; ".join(value)
        case list() | tuple():
            return " × ".join(map(str, value))
    return number(value)
