"""Work done in chunks, by one process or several, that goes on where it stopped: a folder of finished chunks, and a plan.

A piece is written under a temporary name and renamed when complete, so a finished sample is never computed again, nor lost.
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

import torch
from torch import Tensor

from gsure.data.measurements import Signals
from gsure.data.writer import Writer
from gsure.files import replacing

PLAN = "plan.json"


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
        """Whether all its samples are there; a shorter piece is of a smaller number that was asked for before."""
        paths = [self.folder / kind / self.name(number) for kind in kinds]
        return all(path.exists() and len(Signals(path)) >= len(self.indices(number)) for path in paths)

    def wait_for_first(self, kinds: tuple[str, ...]) -> None:
        """Of more processes than chunks, some make none, and would find an empty folder. The first process makes the first."""
        while not self.is_done(0, kinds):
            time.sleep(0.1)

    def mine(self) -> Iterator[int]:
        """The pieces of this process."""
        yield from range(int(os.environ.get("RANK", "0")), len(self), int(os.environ.get("WORLD_SIZE", "1")))


def open_folder(folder: Path, plan: Mapping[str, Any]) -> None:
    """Make the folder with its plan, or go on in it if the plan is the same. Of several processes, the first makes it."""
    path = folder / PLAN
    if os.environ.get("RANK", "0") != "0":
        waited = time.monotonic()
        while not path.exists():
            if time.monotonic() - waited > 60:
                raise OSError(f"{folder} was not made by the first process within a minute.")
            time.sleep(0.1)
    if path.exists():
        try:
            before = dict(json.loads(path.read_text()))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is damaged: choose another --out, or delete that folder.") from error
        if changes := [f"{key} was {before.get(key)}, now {plan[key]}" for key in plan if before.get(key) != plan[key]]:
            raise ValueError(
                f"{folder} holds something else: {'; '.join(changes)}. Choose another --out, or leave that as it was to go on."
            )
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} exists and is not a folder of this command: choose another --out.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(plan, indent=1))
    except OSError as error:
        raise OSError(
            f"The folder {folder} cannot be made: {error.strerror or error}. Choose another --out."
        ) from error


def write_chunk(
    path: Path, x: Tensor, groups: Sequence[str], scales: Sequence[float], plan: Mapping[str, Any], is_complex: bool
) -> None:
    """Signals that were made by a plan, as a file that `gsure.Signals` reads."""
    header = {"source": dict(plan), "complex": is_complex, "corruption": {"name": "none"}, "sigma_0": None}
    with Writer(
        path, len(x), tuple(x.shape[1:]), header | {"seed": plan["seed"]}, has_groups=True, force=True
    ) as writer:
        writer.append(x, groups, scales)


def device() -> torch.device:
    """A GPU for each process, or the CPU."""
    return (
        torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        if torch.cuda.is_available()
        else torch.device("cpu")
    )
