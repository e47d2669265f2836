"""Results of experiments: a JSON file to which each case adds rows, and which is committed with the code."""

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gsure.files import Request, replacing


@dataclass(frozen=True)
class Results:
    """Rows of one experiment at one scale. A row has `case`, with a digest of the settings (`asked`), and the results."""

    path: Path

    @property
    def rows(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        try:
            rows = list(json.loads(self.path.read_text())["rows"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{self.path} is not a file of results: move it, or restore it from git.") from error
        if not all(isinstance(row, dict) and isinstance(row.get("case"), dict) for row in rows):
            raise ValueError(f"{self.path} has rows that are not results: move it, or restore it from git.")
        return rows

    def of(self, case: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["case"] == _plain(case)]

    def add(self, case: Mapping[str, Any], found: Sequence[Mapping[str, Any]], request: Request) -> None:
        """Add the results of a case to the file. They replace earlier results of the same case, whatever their settings."""
        made_on = {"torch": torch.__version__, "machine": platform.machine()}
        others = [row for row in self.rows if _name(row["case"]) != _name(_plain(case))]
        rows = [*others, *({"case": _plain(case), **row, "made_on": made_on, "request": request} for row in found)]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path) as temporary:
            lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
            temporary.write_text(f'{{"rows": [\n{lines}\n]}}\n')


def _name(case: Mapping[str, Any]) -> dict[str, Any]:
    """The case without its settings."""
    return {key: value for key, value in case.items() if key != "asked"}


def _plain(case: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(case))
