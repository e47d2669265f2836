"""What all commands have in common: their shape, how options become a call, how a summary is shown."""

import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jsonargparse import ArgumentParser, Namespace


@dataclass(frozen=True)
class Command:
    help: str
    add_options: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], None]


def call(function: Callable[..., Any], options: Namespace, **others: Any) -> Any:
    """The function with those options that bear the names of its parameters, and with others; it shows progress unless JSON
    was asked for.
    """
    names = inspect.signature(function).parameters
    chosen = {name: options[name] for name in names if name in options}
    if "progress" in names:
        chosen["progress"] = not options.json
    return function(**(chosen | others))


def plain(value: Any) -> Any:
    """As YAML has it."""
    return list(value) if isinstance(value, tuple) else value


def show(summary: dict[str, Any], as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(summary, ensure_ascii=False) + "\n")
        return
    width = max(map(len, summary))
    sys.stdout.writelines(f"{key:<{width}}  {in_words(value)}\n" for key, value in summary.items())


def in_words(value: Any) -> str:
    match value:
        case dict():
            return ", ".join(f"{key} {in_words(item)}" for key, item in value.items() if item not in (None, {}))
        case [] | ():
            return "-"
        case list() | tuple():
            return f"[{value[0]:g}, {value[1]:g}]" if isinstance(value[0], float) else " × ".join(map(str, value))
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}"
        case int():
            return f"{value:,}"
        case None:
            return "-"
    return str(value)
