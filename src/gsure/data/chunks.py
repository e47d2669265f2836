"""Compute results in chunks, with one or more processes, and resume after an interruption.

The folder holds the request and the finished chunks. A chunk has a temporary name until it is complete, so finished samples
are neither lost nor computed again. With torchrun, the k-th of n processes computes every n-th chunk, starting with the k-th.
Processes do not communicate.
"""

import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from gsure.data.measurements import Signals
from gsure.data.writer import Writer
from gsure.files import REQUEST, Request, read_json, replacing


@dataclass(frozen=True)
class Chunks:
    """The range 0..n-1 in chunks of `size`. The results go to the folder."""

    folder: Path
    n: int
    size: int

    def __len__(self) -> int:
        return math.ceil(self.n / self.size)

    def indices(self, number: int) -> range:
        return range(number * self.size, min(self.n, (number + 1) * self.size))

    @staticmethod
    def name(number: int, ending: str = "h5") -> str:
        return f"shard-{number:05d}.{ending}"

    def is_done(self, number: int, kinds: tuple[str, ...]) -> bool:
        """Whether the chunk has all its samples. An earlier call with a smaller n may have written a shorter chunk."""
        paths = [self.folder / kind / self.name(number) for kind in kinds]
        return all(path.exists() and len(Signals(path)) >= len(self.indices(number)) for path in paths)

    def wait_for_first(self, kinds: tuple[str, ...]) -> None:
        """Wait until the first process has written the first chunk, because a process without chunks needs one to read."""
        while not self.is_done(0, kinds):
            time.sleep(0.1)

    def mine(self) -> Iterator[int]:
        """The numbers of the chunks that this process computes."""
        yield from range(int(os.environ.get("RANK", "0")), len(self), int(os.environ.get("WORLD_SIZE", "1")))


def open_folder(
    folder: Path, request: Request, made_of: Mapping[str, Any], inputs: Mapping[str, str] | None = None
) -> None:
    """Create the folder with its request, or resume in an existing folder if `made_of` is the same.

    `made_of` is everything that the results depend on. `inputs` are paths, which may change. With several processes, the
    first one creates the folder. A folder without results is used again, whatever its settings were.
    """
    path = folder / REQUEST
    if (before := read_made_of(folder)) is not None:
        made_of = json.loads(json.dumps(made_of))
        changed = [key for key in made_of if before.get(key) != made_of[key]]
        if not changed:
            return
        if not _is_empty(folder):
            changes = [f"{key} was {before.get(key)}, now {made_of[key]}" for key in changed]
            raise ValueError(
                f"{folder} was written with different settings: {'; '.join(changes)}. Choose another folder, or use the same "
                "settings to resume."
            )
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} exists and was not written by this command: choose another folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            record = {**request, "made_of": dict(made_of), "inputs": dict(inputs or {})}
            temporary.write_text(json.dumps(record, indent=1))
    except OSError as error:
        raise OSError(
            f"The folder {folder} cannot be created: {error.strerror or error}. Choose another folder."
        ) from error


def _is_empty(folder: Path) -> bool:
    """Whether a command was interrupted here before it had any result. Several processes cannot agree on that."""
    return [path.name for path in folder.iterdir()] == [REQUEST] and os.environ.get("WORLD_SIZE", "1") == "1"


def read_made_of(folder: Path) -> dict[str, Any] | None:
    """What the results in a folder depend on; None if there are none. All but the first process wait until it has begun."""
    path = folder / REQUEST
    if os.environ.get("RANK", "0") != "0":
        waited = time.monotonic()
        while not path.exists():
            if time.monotonic() - waited > 60:
                raise OSError(f"The first process did not create {folder} within a minute: see its error message.")
            time.sleep(0.1)
    if not path.exists():
        return None
    before = read_json(path).get("made_of")
    if not isinstance(before, dict):
        raise ValueError(f"{path} is damaged: choose another folder, or delete this one.")
    return before


def write_chunk(
    path: Path,
    x: Tensor,
    groups: Sequence[str],
    made_of: Mapping[str, Any],
    is_complex: bool,
    scales: Sequence[float] | None = None,
    offsets: Sequence[float] | None = None,
    transform: Mapping[str, Any] | None = None,
) -> None:
    """Write the output of a model to a file that `gsure.Signals` reads."""
    header = {"source": dict(made_of), "complex": is_complex, "corruption": {"name": "none"}, "sigma_0": None}
    header["transform"] = transform
    with Writer(
        path, len(x), tuple(x.shape[1:]), header | {"seed": made_of["seed"]}, has_groups=True, force=True
    ) as writer:
        writer.append(x, groups, [1.0] * len(x) if scales is None else scales, offsets=offsets)


def write_records(path: Path, records: Mapping[int, Any]) -> None:
    """What there is to say about single samples of a chunk, by position."""
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(records))


def read_records(folder: Path) -> dict[int, Any]:
    """The records of all chunks."""
    paths = sorted(folder.glob("shard-*.json"))
    return {int(position): record for path in paths for position, record in read_json(path).items()}
