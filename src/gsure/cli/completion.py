"""completion: a script that completes commands, options, their values and file names in your shell."""

import sys
from typing import Any, Literal, get_args, get_origin

from jsonargparse import ArgumentParser, Namespace

from gsure.cli import Command, Options, make_parser

NAMES = ("FILE", "FOLDER", "RUN")
"""Values of options that are paths."""
POSITIONAL = ("data", "measurements", "out", "path", "run", "signals")


def _options(parser: ArgumentParser) -> None:
    Options(parser, "data").add("shell", Literal["bash", "zsh", "tcsh"], "your shell")


def _completion(options: Namespace) -> None:
    try:
        import shtab
    except ImportError as error:
        raise ValueError("Completion needs the package shtab: pip install 'gsure-diffusion[completion]'.") from error
    parser = make_parser()
    subcommands: Any = parser._subcommands_action
    for command in subcommands._name_parser_map.values():
        for action in command._actions:
            kind = getattr(action, "_typehint", None)
            if get_origin(kind) is Literal:
                action.choices = list(get_args(kind))
            elif action.metavar in NAMES or (not action.option_strings and action.dest in POSITIONAL):
                action.complete = shtab.FILE
    sys.stdout.write(shtab.complete(parser, options.shell) + "\n")


COMMANDS = {
    "completion": Command(
        "gsure completion {bash,zsh,tcsh}",
        _options,
        _completion,
        (
            "gsure completion bash > ~/.local/share/bash-completion/completions/gsure",
            'eval "$(gsure completion bash)"',
        ),
    )
}
