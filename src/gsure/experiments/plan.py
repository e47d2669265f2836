"""An experiment as data: a YAML file with the numbers of the paper, and what to run at each scale."""

import difflib
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

FOLDER = Path(__file__).parent
Scale = Literal["tiny", "small", "paper"]


@dataclass(frozen=True)
class Plan:
    """`common` applies to all scales (the numbers of the paper, the settings of blocks), `chosen` to this one."""

    name: str
    scale: Scale
    title: str
    makes: str
    common: dict[str, Any]
    chosen: dict[str, Any]

    @property
    def label(self) -> str:
        return f"{self.name}-{self.scale}"

    def introduction(self) -> list[str]:
        """The first lines of its page: the title, what the page shows, and the command that computes it."""
        needs = self.chosen.get("images", {}).get("needs")
        run = "This command computes the page" + (f" (`FOLDER` holds {needs}):" if needs else ":")
        command = f"gsure reproduce {self.name} --scale {self.scale}" + (" --data FOLDER" if needs else "")
        about = wrapped(f"{self.common['about']} {run}")
        return [f"# {self.title} (scale `{self.scale}`)", "", about, "", "```", command, "```", ""]


def wrapped(text: str) -> str:
    """A paragraph of a page, in lines of at most 140 columns."""
    return textwrap.fill(text, 140, break_on_hyphens=False)


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read_plan(name: str, scale: Scale) -> Plan:
    if name not in names():
        near = difflib.get_close_matches(name, names(), n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"There is no experiment {name!r}: {hint}There are {', '.join(names())}.")
    values = _read(name)
    scales, title, makes = (values.pop(key) for key in ("scales", "title", "makes"))
    if scale not in scales:
        raise ValueError(f"{name} has no scale {scale!r}; it has {', '.join(scales)}.")
    return Plan(name, scale, title, makes, values, scales[scale])


def _read(name: str) -> dict[str, Any]:
    """The values of a file. Its key `base` names another experiment, whose values are the defaults, also within a scale."""
    values = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    if (base := values.pop("base", None)) is None:
        return values
    below = _read(base)
    scales = {scale: chosen | values.get("scales", {}).get(scale, {}) for scale, chosen in below["scales"].items()}
    return below | values | {"scales": scales}
