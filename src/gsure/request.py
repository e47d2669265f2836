"""What a command was asked to do, recorded once in everything that it writes.

A request is a dictionary, so that JSON, YAML and HDF5 headers can keep it:

    function    the function of `gsure` that was called, such as "sample"
    command     the command line, as a list of words; None for a call in Python
    folder      where it was typed
    arguments   what the function was called with
    settings    what it resolved these to, where that is more than the arguments
    gsure, time the version, and when

Time and places stay out of whatever decides if two results are the same.
"""

import contextlib
import datetime
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import gsure

Request = dict[str, Any]
_typed: ContextVar[Sequence[str] | None] = ContextVar("typed", default=None)


@contextlib.contextmanager
def command_line(words: Sequence[str]) -> Iterator[None]:
    """All requests that are recorded in this block were made by this command line."""
    token = _typed.set(list(words))
    try:
        yield
    finally:
        _typed.reset(token)


def record_request(function: str, arguments: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> Request:
    """The request for a call of `gsure.<function>` with these arguments; `progress` and what was not given are omitted."""
    given = {name: _plain(value) for name, value in arguments.items() if value is not None and name != "progress"}
    request: Request = {"function": function, "command": _typed.get(), "folder": str(Path.cwd()), "arguments": given}
    request |= {} if settings is None else {"settings": {name: _plain(value) for name, value in settings.items()}}
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return request | {"gsure": gsure.__version__, "time": now}


def show_request(request: Request) -> str:
    """What to type to have it again: the command line, or the call in Python.

    >>> show_request({"function": "sample", "command": None, "arguments": {"run": "runs/a", "n": 4}})
    "gsure.sample(run='runs/a', n=4)"
    """
    if request.get("command"):
        return shlex.join(request["command"])
    arguments = ", ".join(f"{name}={value!r}" for name, value in request["arguments"].items())
    return f"gsure.{request['function']}({arguments})"


def show_resumption(request: Request) -> str:
    """What to type to resume a run: the command line that started it with `--resume`, or the call in Python."""
    if not request.get("command"):
        return show_request(request | {"arguments": request["arguments"] | {"resume": True}})
    words = [word for word in request["command"] if word not in ("--resume", "--force")]
    return shlex.join([*_launcher(), *words, "--resume"])


def _launcher() -> list[str]:
    """How torchrun started this process, as far as its processes are told."""
    nodes, each = os.environ.get("GROUP_WORLD_SIZE", "1"), os.environ.get("LOCAL_WORLD_SIZE", "1")
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return []
    several = ["--nnodes", nodes, "--rdzv-endpoint", "HOST:PORT"] if nodes != "1" else []
    return ["torchrun", *several, "--nproc-per-node", each, "-m"]


def _plain(value: Any) -> Any:
    """As JSON has it; of what JSON has not, such as a network, its name."""
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else type(value).__name__
