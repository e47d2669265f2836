"""Files: written completely or not at all, never over what a user did not name, and with the request that they answer.

Every command records once what it was asked to do. A request is a dictionary, so that JSON, YAML and HDF5 can keep it:

    function    the function of `gsure` that was called, such as "sample"
    command     the command line, as a list of words; None for a call in Python
    folder      where it was typed
    arguments   what the function was called with, defaults included
    gsure, time the version, and when

Time and paths stay out of whatever decides if two results are the same.
"""

import contextlib
import datetime
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gsure

if TYPE_CHECKING:
    import h5py


def open_hdf5(path: str | Path) -> "h5py.File":
    """The file, for reading; or a sentence that says why not."""
    import h5py  # here, because sources are listed without it

    if Path(path).is_dir():
        raise ValueError(f"{path} is a folder, but an HDF5 file is needed.")
    try:
        return h5py.File(path, "r")
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no file {path}.") from None
    except OSError as error:
        why = "of another format" if "signature not found" in str(error) else f"truncated or damaged ({error})"
        raise ValueError(
            f"{path} is not a complete HDF5 file: it is {why}. If it holds an array, images or scans, make a measurement file "
            "from it with gsure import."
        ) from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name to write to, which becomes `path` once all of it is on the disk."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        yield temporary
        descriptor = os.open(temporary, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OSError(
            f"{path} could not be written: {error.strerror or error}. Nothing that was there before is lost."
        ) from error


def refuse_existing(path: Path, force: bool) -> None:
    """Nothing is replaced without `force`; and even so nothing but a file, or a folder of shards. It can be written."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"You have no permission to write to the folder {folder}: choose another one for {path}.")
    if path.exists() and not force:
        raise FileExistsError(
            f"{path} exists already: choose another name, or replace it with --force (in Python, force=True)."
        )
    if path.is_dir() and (foreign := [p.name for p in sorted(path.iterdir()) if not p.match("shard-*.h5")]):
        raise FileExistsError(f"{path} is a folder with other things in it ({foreign[0]}): choose another name.")


def refuse_inputs(outputs: Sequence[str | Path], inputs: Sequence[str | Path]) -> None:
    """No output may be one of the inputs, or lie among them: `force` must not cost anyone their raw data."""
    for output in outputs:
        for given in (file for path in inputs for file in _both(Path(path))):
            target, source = Path(output).resolve(), given.resolve()
            if target == source or target in source.parents or (source in target.parents and target.exists()):
                raise ValueError(f"{output} is to be written, but {given} is to be read: choose another name.")


def _both(path: Path) -> tuple[Path, ...]:
    """BART's files are two, and named by either."""
    return (path.with_suffix(".cfl"), path.with_suffix(".hdr")) if path.suffix in (".cfl", ".hdr") else (path,)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; a sentence if it is damaged."""
    try:
        values = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: it is not JSON.") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} is damaged: it is JSON, but not an object.")
    return values


REQUEST = "request.json"
"""Where a folder of results keeps its request."""
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


def record_request(function: str, arguments: Mapping[str, Any]) -> Request:
    """The request for a call of `gsure.<function>` with these arguments, of which `progress` does not matter."""
    given = {name: _plain(value) for name, value in arguments.items() if name != "progress"}
    request: Request = {"function": function, "command": _typed.get(), "folder": str(Path.cwd()), "arguments": given}
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return request | {"gsure": gsure.__version__, "time": now}


def as_request(value: Any) -> Request:
    """A value from a file, if it is a request that can be shown, or else an empty one.

    >>> as_request({"command": ["gsure", "demo"]}), as_request({"command": "gsure"}), as_request(None)
    ({'command': ['gsure', 'demo']}, {}, {})
    """
    if not isinstance(value, dict):
        return {}
    command = value.get("command")
    if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
        return value
    is_call = isinstance(value.get("function"), str) and isinstance(value.get("arguments"), dict)
    return value if is_call and command is None else {}


def show_request(request: Request) -> str:
    """What to type to have it again: the command line, or the call in Python.

    >>> show_request({"function": "sample", "command": None, "arguments": {"run": "runs/a", "n": 4}})
    "gsure.sample(run='runs/a', n=4)"
    """
    if not request:
        return "(not recorded)"
    if request.get("command"):
        return shlex.join(request["command"])
    given = {name: value for name, value in request["arguments"].items() if value is not None and value is not False}
    return f"gsure.{request['function']}({', '.join(f'{name}={_show(value)}' for name, value in given.items())})"


def _show(value: Any) -> str:
    if isinstance(value, dict):  # settings of training
        return f"gsure.Settings({', '.join(f'{name}={_show(item)}' for name, item in value.items())})"
    return value if isinstance(value, str) and value.startswith("<") else repr(value)


def show_resumption(request: Request, force: bool = False) -> str:
    """What to type to resume training: the command line that started it with `--resume`, or the call in Python.

    A command that trains among other things, such as `gsure demo`, resumes by itself.

    >>> show_resumption({"function": "train", "command": ["gsure", "train", "d.h5", "--out", "run"], "arguments": {}})
    'gsure train d.h5 --out run --resume'
    >>> show_resumption({"function": "train", "command": ["gsure", "demo", "digits"], "arguments": {}})
    'gsure demo digits'
    """
    if not request:
        return "gsure train DATA --out RUN --resume"
    if not request.get("command"):
        given = {
            name: value for name, value in request["arguments"].items() if name != "settings"
        }  # the run keeps them
        given |= {"resume": True} | ({"force": True} if force else {})
        return show_request(request | {"arguments": given})
    if request["command"][1:2] != ["train"]:
        return show_request(request)
    words = [word for word in request["command"] if word not in ("--resume", "--force")]
    return shlex.join([*_launcher(), *words, "--resume", *(["--force"] if force else [])])


def _launcher() -> list[str]:
    """How torchrun started this process, as far as the environment shows it."""
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
    return os.fspath(value) if isinstance(value, os.PathLike) else f"<{type(value).__name__}>"
