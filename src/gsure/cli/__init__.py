"""The command line: the names of the commands, and what they have in common.

`COMMANDS` is the only place that knows all commands. The module of a command is imported when the command is chosen, and what
the command needs when it runs, so `--help` imports neither torch nor the other commands. Modules are named like the packages
whose functions they call.
"""

import difflib
import importlib
import inspect
import json
import os
import re
import shutil
import sys
from argparse import Action, _HelpAction
from collections.abc import Callable, Collection, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, get_args, get_origin

from jsonargparse import SUPPRESS, ActionYesNo, ArgumentParser, DefaultHelpFormatter, Namespace

from gsure import __version__
from gsure.display import number
from gsure.files import command_line

COMMANDS = {
    "demo": ("experiments", "Try everything on built-in data: simulate, train, generate, restore, report."),
    "corrupt": ("data", "Simulate measurements of clean signals."),
    "import": ("data", "Convert data that is already measured to a measurement file."),
    "inspect": ("data", "Summarize a measurement file or a run."),
    "train": ("training", "Train a model on measurements alone."),
    "sample": ("inference", "Generate signals with a trained model."),
    "restore": ("inference", "Reconstruct measurements, with error bars."),
    "calibrate": ("inference", "Make the error bars of restorations right on average, without clean data."),
    "evaluate": ("evaluation", "Measure the quality of samples, restorations or the denoiser."),
    "diagnose": ("evaluation", "Check whether the assumptions of the method hold."),
    "report": ("report", "Write a self-contained HTML page about a run."),
    "reproduce": ("experiments", "Reproduce a table or figure of the paper."),
    "completion": ("completion", "Print a script that completes commands and options in your shell."),
}
"""For each command, its module in this package, which has it in a table of its own, and a line of help."""


@dataclass(frozen=True)
class Command:
    """A command: how it is called, its options, what it does, and two examples for the end of its help."""

    usage: str
    add_options: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], None]
    examples: tuple[str, ...]


class Help(DefaultHelpFormatter):
    """Prints the type of an option once, in place of its value, and its default if it has one. Examples stay as typed."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=min(110, shutil.get_terminal_size().columns))

    def _get_help_string(self, action: Action) -> str:
        text, default = action.help or "", action.default
        if isinstance(action, _HelpAction):
            return "show this help and exit"
        if not action.option_strings or default is None or default is False or default == SUPPRESS or "default" in text:
            return text
        return f"{text} (default: {default})"

    def _get_default_metavar_for_optional(self, action: Action) -> str:
        return METAVARS.get(str(getattr(action, "_typehint", None)), super()._get_default_metavar_for_optional(action))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:") else super()._fill_text(text, width, indent)


METAVARS = {"<class 'int'>": "N", "<class 'float'>": "X", "<class 'str'>": "NAME"}
"""What stands for the value of an option in its help."""


KINDS = {"<class 'int'>": "an integer", "<class 'float'>": "a number", "<class 'tuple'>": "a list such as '[10,40]'"}
"""Types in messages."""


class Options:
    """A titled group of options in the help of a command."""

    def __init__(self, parser: ArgumentParser, title: str) -> None:
        self.group = parser.add_argument_group(title)

    def add(
        self,
        name: str,
        kind: Any,
        about: str,
        default: Any = None,
        metavar: str | tuple[str, ...] | None = None,
        **others: Any,
    ) -> None:
        """`kind` is a type; bool is a switch, which --no-NAME turns off if it is on by default."""
        if kind is bool and default in (True, SUPPRESS):
            self.group.add_argument(name, action=ActionYesNo(no_prefix="no-"), default=default, help=about)
        elif kind is bool:
            self.group.add_argument(name, action="store_true", help=about)
        else:
            if name.startswith("-") or "nargs" in others:
                others["default"] = default
            if get_origin(kind) is Literal and name.startswith("-"):
                metavar = f"{{{','.join(map(str, get_args(kind)))}}}"
            self.group.add_argument(name, type=kind, help=about, metavar=metavar, **others)


class Parser(ArgumentParser):
    """Says what is wrong with a command line in one sentence."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        chosen: ArgumentParser = getattr(ex, "subcommand_parser", None) or self
        if found := re.fullmatch(r"the following arguments are required: (\w+)\..*", message):
            commands: Any = self._subcommands_action
            chosen = commands._name_parser_map[found[1]]
        sys.stderr.write(f"usage: {chosen.usage}\n{chosen.prog}: {_in_plain_words(message, chosen)}\n")
        sys.stderr.write(f"{chosen.prog} --help shows all options.\n")
        self.exit(2)


def _in_plain_words(message: str, parser: ArgumentParser) -> str:
    """What jsonargparse complains of, without its vocabulary."""
    options = {name: action for action in parser._actions for name in (action.dest, *action.option_strings)}

    def shown(name: str) -> str:
        action = options.get(name)
        return action.option_strings[0] if action is not None and action.option_strings else name.upper()

    if found := re.fullmatch(r"the following arguments are required: (.*)", message):
        missing = [shown(name.partition(".")[2]) for name in found[1].split(", ")]
        return f"{' and '.join(missing)} must be given."
    key = r'Parser key "([\w.]+)"(?: element \d+)?:\s+'
    if found := re.fullmatch(key + r"Expected a (.*)\. Got value: (.*)", message, re.DOTALL):
        name, kind, value = found.groups()
        if kind.startswith("typing.Literal"):
            values = ", ".join(word.strip("'\" ") for word in kind.partition("[")[2].rstrip("]").split(","))
            return f"{shown(name)} is one of {values}; {value} is not."
        return f"{shown(name)} is {KINDS.get(kind, kind)}, but {value} was given."
    if found := re.fullmatch(key + r".*Subtypes: \[(.*)\]\n.*Given value: (.*)", message, re.DOTALL):
        name, kinds, value = found.groups()
        wanted = [word for kind, word in KINDS.items() if kind in kinds]
        wanted += [word for listed in re.findall(r"Literal\[(.*?)\]", kinds) for word in re.findall(r"'(.*?)'", listed)]
        return f"{shown(name)} is {' or '.join(wanted)}, but {value} was given."
    if found := re.fullmatch(r"unrecognized arguments: (.*)", message):
        word = found[1].split()[0].partition("=")[0]
        known = [name for action in parser._actions for name in action.option_strings]
        near = difflib.get_close_matches(word, known, 1)
        return f"there is no {'option' if word.startswith('-') else 'argument'} {word}" + (
            f"; did you mean {near[0]}?" if near else "."
        )
    if found := re.fullmatch(r"argument subcommand: invalid choice: '(.*)' \(choose from .*\)", message):
        near = difflib.get_close_matches(found[1], COMMANDS, 1)
        return f"there is no command {found[1]}" + (f"; did you mean {near[0]}?" if near else ".")
    return message


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line. Returns 0, 2 for a mistake that the user can fix, 1 for a dead worker, 130 if interrupted."""
    os.environ.setdefault(
        "OPENBLAS_NUM_THREADS", "1"
    )  # NumPy's products are small here: threads would wait for each other
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
        has_run = name == "train" and os.path.exists(os.path.join(chosen[name].out, "config.yaml"))
        again = "with --resume to resume from the last checkpoint" if has_run else "to resume or start over"
        return _complain(name, f"interrupted. No file is left incomplete; run the command again {again}.", 130)
    return 0


def _complain(name: str, message: str, code: int) -> int:
    rank = os.environ.get("RANK")  # one of many processes: each says what is wrong where it runs
    where = f" (process {rank})" if rank else ""
    sys.stderr.write(f"{f'gsure {name}'.rstrip()}{where}: {message}\n")
    return code


def make_parser(complete: Collection[str] = tuple(COMMANDS)) -> Parser:
    """The parser of the command line. Commands that are not in `complete` get their line of help, but no options."""
    about = "Train diffusion models from noisy, incomplete measurements alone, and use them."
    first = "examples:\n  gsure demo\n  gsure train measurements.h5 --out runs/first"
    parser = Parser(
        prog="gsure",
        usage="gsure COMMAND [options]",
        description=about,
        epilog=first,
        version=__version__,
        allow_abbrev=False,
        formatter_class=Help,
    )
    commands = parser.add_subcommands(
        title="commands", description="gsure COMMAND --help shows the options of a command."
    )
    for name, (_, text) in COMMANDS.items():
        sub = Parser(description=text, allow_abbrev=False, formatter_class=Help)
        if name in complete:
            command = _load(name)
            sub.usage = command.usage
            sub.epilog = "examples:\n" + "\n".join(f"  {example}" for example in command.examples)
            command.add_options(sub)
            sub.add_argument("--json", action="store_true", help="print the result as JSON, and no progress")
            about = "YAML file with values of these options; --print_config writes one"
            sub.add_argument("--config", action="config", metavar="FILE", help=about)
            _put_last(sub)
        commands.add_subcommand(name, sub, help=text)
        sub.prog = f"gsure {name}"
    return parser


def _put_last(parser: ArgumentParser) -> None:
    """The options that all commands have, after those of the command."""
    parser._optionals.title = "other options"
    groups: Any = parser._action_groups
    groups.append(groups.pop(groups.index(parser._optionals)))
    for action in parser._optionals._group_actions:
        if "--print_config" in action.option_strings:
            action.help = SUPPRESS  # --config mentions it


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
    summary = {key: value for key, value in summary.items() if value not in (None, [], ())}
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
