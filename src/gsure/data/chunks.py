"""Work done in chunks, by one process or several, that resumes where it stopped: a folder of finished chunks, and a request.

A chunk is written under a temporary name and renamed when complete, so a finished sample is never computed again, nor lost.
Processes (torchrun's) take turns at the chunks and need not talk to each other.
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
    """The range 0..n-1 in pieces of `size`, whose results go to the folder."""

    folder: Path
    n: int
    size: int

    def __len__(self) -> int:
        return math.ceil(self.n / self.size)

    def indices(self, number: int) -> range:
        return range(number * self.size, min(self.n, (number + 1) * self.size))

    @staticmethod
    def name(number: int) -> str:
        return f"shard-{number:05d}.h5"

    def is_done(self, number: int, kinds: tuple[str, ...]) -> bool:
        """Whether all its samples are there; a shorter chunk belongs to a smaller number that was asked for before."""
        paths = [self.folder / kind / self.name(number) for kind in kinds]
        return all(path.exists() and len(Signals(path)) >= len(self.indices(number)) for path in paths)

    def wait_for_first(self, kinds: tuple[str, ...]) -> None:
        """Of more processes than chunks, some make none, and would find an empty folder. The first process makes the first."""
        while not self.is_done(0, kinds):
            time.sleep(0.1)

    def mine(self) -> Iterator[int]:
        """The pieces of this process."""
        yield from range(int(os.environ.get("RANK", "0")), len(self), int(os.environ.get("WORLD_SIZE", "1")))


def open_folder(
    folder: Path, request: Request, made_of: Mapping[str, Any], inputs: Mapping[str, str] | None = None
) -> None:
    """Create the folder with its request, or resume in it if the results would be the same. Of several processes, the first
    creates it.

    Two results are the same if they are `made_of` the same. `inputs` are paths, which may change.
    """
    path = folder / REQUEST
    if os.environ.get("RANK", "0") != "0":
        waited = time.monotonic()
        while not path.exists():
            if time.monotonic() - waited > 60:
                raise OSError(f"{folder} was not created by the first process within a minute.")
            time.sleep(0.1)
    if path.exists():
        before = read_json(path).get("made_of")
        if not isinstance(before, dict):
            raise ValueError(f"{path} is damaged: choose another --out, or delete that folder.")
        made_of = json.loads(json.dumps(made_of))
        changed = [key for key in made_of if before.get(key) != made_of[key]]
        if changes := [f"{key} was {before.get(key)}, now {made_of[key]}" for key in changed]:
            raise ValueError(
                f"{folder} was written with different settings: {'; '.join(changes)}. Choose another --out, or use the same "
                "settings to resume."
            )
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} exists and was not written by this command: choose another --out.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            record = {**request, "made_of": dict(made_of), "inputs": dict(inputs or {})}
            temporary.write_text(json.dumps(record, indent=1))
    except OSError as error:
        raise OSError(
            f"The folder {folder} cannot be created: {error.strerror or error}. Choose another --out."
        ) from error


def write_chunk(
    path: Path,
    x: Tensor,
    groups: Sequence[str],
    made_of: Mapping[str, Any],
    is_complex: bool,
    scales: Sequence[float] | None = None,
    offsets: Sequence[float] | None = None,
) -> None:
    """Signals that a model made, as a file that `gsure.Signals` reads."""
    header = {"source": dict(made_of), "complex": is_complex, "corruption": {"name": "none"}, "sigma_0": None}
    with Writer(
        path, len(x), tuple(x.shape[1:]), header | {"seed": made_of["seed"]}, has_groups=True, force=True
    ) as writer:
        writer.append(x, groups, [1.0] * len(x) if scales is None else scales, offsets=offsets)
