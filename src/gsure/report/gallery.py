"""What is to be looked at: what the model saw, what it generates, what it restores and how sure it is."""

import math
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from gsure.data.measurements import Measurements, Signals, open_clean, open_measurements
from gsure.formatting import number
from gsure.report import pictures
from gsure.report.collect import Drawn, Facts, Trained
from gsure.report.pictures import Picture
from gsure.report.words import is_image, is_picture, shape, source

VALUES = 1_500_000
"""Of all pixels together: a page is to stay below 3 MB."""


@dataclass(frozen=True)
class Shown:
    """A picture with its title, and a sentence below it."""

    title: str
    words: str
    picture: Picture


@dataclass(frozen=True)
class Restored:
    """Restorations of the same measurements by all models: rows of pictures, and maps on one scale of colours."""

    words: str
    rows: tuple[Shown, ...]
    maps: tuple[Shown, ...]
    bar: Picture
    largest: str
    has_errors: bool


@dataclass
class Gallery:
    """Draws from the files that the facts name. What cannot be opened is noted once, and not shown."""

    facts: Facts
    notes: list[str] = field(default_factory=list)
    _opened: dict[str, Measurements | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        data_info = self.facts.main.config.data_info
        large = is_image(data_info) and max(data_info.shape[-2:]) > 64
        self.columns, self.rows, self.across = (4, 2, 4) if large else (6, 6, 8)
        folders, restored = len(self.facts.samples), len(self.facts.restorations)
        tiles = self.columns * self.rows * (2 + folders) + self.across * (2 + 3 * restored) + 48
        colours = 3 if is_image(data_info) and data_info.shape[0] == 3 else 1
        self.side = max(24, math.isqrt(VALUES // (tiles * colours)))

    def data(self, path: str) -> Measurements | None:
        if path not in self._opened:
            try:
                self._opened[path] = open_measurements(path)
            except (OSError, ValueError) as error:
                self._opened[path] = None
                self.notes.append(f"Measurements are not shown: {error}")
        return self._opened[path]

    def clean(self, run: Trained, data: Measurements | None, told: str | None = None) -> Signals | None:
        """The clean signals behind measurements: those of an evaluation, or of the run if the measurements are its own."""
        own = run.config.clean if data is not None and _same_file(data.path, run.config.data) else None
        for path in filter(None, (told, own)):
            try:
                return None if data is None else open_clean(path, data)
            except (OSError, ValueError, KeyError):
                continue
        return None

    def hero(self) -> list[Shown]:
        """The page in one look: measurements, samples, restorations, four by four."""
        run, data_info = self.facts.main, self.facts.main.config.data_info
        if not is_image(data_info):
            return []
        panels = []
        if (data := self.data(run.config.data)) is not None:
            first = range(min(16, len(data)))
            lost = (
                "blue marks what is missing" if data.basis.is_signal else "shown with zeros for what was not measured"
            )
            alt = f"{len(first)} of the measurements, {shape(data_info)} images of {source(data_info)}, incomplete; {lost}."
            picture = pictures.mosaic(pictures.measured(data, first, self.side), 4, alt)
            what = {"measurements": "What it learned from", "naive": "What it took for clean"}.get(
                run.role, "What was measured"
            )
            words = f"{number(data_info.samples)} incomplete, noisy measurements; {lost}."
            panels.append(Shown(what, words, picture))
        if drawn := next((d for d in self.facts.samples if d.run == run), None):
            alt = "16 images that the model generated from pure noise; they are complete."
            x = drawn.signals[""][: min(16, len(drawn.signals[""]))]
            picture = pictures.mosaic(pictures.signals(x, data_info.is_complex, self.side), 4, alt)
            never = "It was never shown a complete one." if run.role == "measurements" else ""
            panels.append(Shown("What it generates", f"New, complete images out of pure noise. {never}", picture))
        if drawn := next((d for d in self.facts.restorations if d.run == run), None):
            panels.append(self._restored_panel(drawn))
        return panels

    def _restored_panel(self, drawn: Drawn) -> Shown:
        n = min(4, len(drawn.signals["mean"]))
        columns = self._columns(drawn, n)
        spread = pictures.root_sum_of_squares(drawn.signals["std"][:n])
        largest = _largest([spread])
        uncertain = [pictures.colormap(one, largest) for one in pictures.shrink(spread[:, None], self.side)[:, 0]]
        given, mean = columns["measured"], columns["mean"]
        if "clean" in columns:
            names, last = "measured, restored, uncertainty, truth", (uncertain, columns["clean"])
        else:
            names, last = "measured, restored, one draw, uncertainty", (columns["draw"], uncertain)
        tiles = [column[k] for k in range(n) for column in (given, mean, *last)]
        alt = f"{n} rows of pictures, each a measurement and its restoration. From left to right: {names}."
        return Shown("What it restores", f"From left to right: {names}.", pictures.mosaic(tiles, 4, alt))

    def _columns(self, drawn: Drawn, n: int) -> dict[str, list[Tensor]]:
        """Pictures of the first n: measured, mean, draw, and clean if it is known."""
        is_complex = drawn.signals["mean"].header["complex"]
        data = self.data(str(drawn.plan.get("data")))
        found = {kind: pictures.signals(drawn.signals[kind][:n], is_complex, self.side) for kind in ("mean", "draw")}
        found["measured"] = (
            pictures.measured(data, range(n), self.side)
            if data is not None
            else pictures.signals(drawn.signals["baseline"][:n], is_complex, self.side)
        )
        if (truth := self.truth(drawn, n)) is not None:
            found["clean"] = pictures.signals(truth, is_complex, self.side)
        return found

    def truth(self, drawn: Drawn, n: int) -> Tensor | None:
        run, told = drawn.run or self.facts.main, drawn.summary.get("clean")
        for evaluation in self.facts.evaluations:
            if evaluation.drawn is not None and evaluation.drawn.path == drawn.path:
                told = (evaluation.values.get("reference") or {}).get("path", told)
        clean = self.clean(run, self.data(str(drawn.plan.get("data"))), told)
        return None if clean is None else clean[:n]

    def samples(self) -> list[Shown]:
        """A grid of each folder, between the measurements and the clean signals, which are what to compare with."""
        if not self.facts.samples:
            return self._from_training("samples", "Samples drawn during training")
        run = self.facts.main
        data = self.data(run.config.data) if is_image(run.config.data_info) else None
        grids = []
        for drawn in self.facts.samples:
            signals, plan = drawn.signals[""], drawn.plan
            if not is_picture(tuple(signals.shape)):
                self.notes.append(
                    f"{drawn.path} is not shown: signals of shape {tuple(signals.shape)} are no pictures."
                )
                continue
            how = f"{plan.get('sampler')}, {number(plan.get('steps'))} network calls each"
            alt = f"Grid of images generated by the model {drawn.label}."
            grids.append(self._grid(drawn.label, how, signals, alt))
        if grids and data is not None and (clean := self.clean(run, data)) is not None:
            oracle = any(found.role == "clean" for found in self.facts.runs)
            words = "shown to the oracle only" if oracle else "never shown to the model"
            grids.append(self._grid("clean images", words, clean, "Grid of clean images, to compare with."))
        return grids

    def _grid(self, title: str, words: str, signals: Signals, alt: str) -> Shown:
        n = min(len(signals), self.columns * self.rows)
        tiles = pictures.signals(signals[:n], signals.header["complex"], self.side)
        return Shown(title, f"First {n} of {len(signals):,}; {words}.", pictures.mosaic(tiles, self.columns, alt))

    def _from_training(self, kind: str, title: str) -> list[Shown]:
        """The last picture that `gsure train` drew, where no command has drawn better ones."""
        found = []
        for run in self.facts.runs:
            drawn = sorted((run.path / kind).glob("step-*.png"))
            if drawn:
                alt = f"{title} of the model {run.label}, as gsure train drew them."
                found += self.from_file(drawn[-1], run.label, f"{title}: {drawn[-1].name}.", alt)
        return found

    def from_file(self, path: Path, title: str, words: str, alt: str) -> list[Shown]:
        try:
            return [Shown(title, words, pictures.figure(path.read_bytes(), alt))]
        except (OSError, SyntaxError, ValueError) as error:  # what Pillow raises for a damaged PNG
            self.notes.append(f"{path} is not shown: {error}")
            return []

    def restorations(self) -> list[Restored]:
        """One figure for each file of measurements that was restored."""
        groups: dict[str, list[Drawn]] = {}
        for drawn in self.facts.restorations:
            if is_picture(tuple(drawn.signals["mean"].shape)):
                groups.setdefault(str(drawn.plan.get("data")), []).append(drawn)
        return [self._restored(group) for group in groups.values()]

    def from_training(self) -> list[Shown]:
        return self._from_training("denoised", "Held-out measurements denoised")

    def _restored(self, group: list[Drawn]) -> Restored:
        n = min(self.across, *(len(drawn.signals["mean"]) for drawn in group)) if group else 0
        first = group[0]
        columns, truth = self._columns(first, n), self.truth(first, n)
        names = _names(group)

        def row(title: str, words: str, tiles: list[Tensor], alt: str) -> Shown:
            return Shown(title, words, pictures.mosaic(tiles, self.across, alt))

        rows = [row("measured", "what was given", columns["measured"], f"{n} measurements, incomplete and noisy.")]
        for drawn, name in zip(group, names, strict=True):
            tiles = self._columns(drawn, n)["mean"]
            words = " ".join(["restored:", str(drawn.summary.get("PSNR of mean", "mean of the draws"))])
            rows.append(row(name, words, tiles, f"The {n} measurements as the model {name} restores them."))
        if "clean" in columns:
            rows.append(
                row("truth", "clean, not given", columns["clean"], f"The {n} clean images behind the measurements.")
            )

        spreads = [pictures.root_sum_of_squares(drawn.signals["std"][:n]) for drawn in group]
        errors = (
            []
            if truth is None
            else [pictures.root_sum_of_squares(drawn.signals["mean"][:n] - truth) for drawn in group]
        )
        largest = _largest([*spreads, *errors])
        maps = []

        def show(values: Tensor, title: str, words: str, alt: str) -> None:
            tiles = list(pictures.shrink(values[:, None], self.side)[:, 0])
            maps.append(Shown(title, words, pictures.heat(tiles, self.across, largest, alt)))

        for k, name in enumerate(names):
            alt = f"Maps of the standard deviation of the draws of the model {name}: bright where it is unsure."
            show(spreads[k], name, "uncertainty: standard deviation of the draws", alt)
            if errors:
                alt = f"Maps of the error of the restorations by the model {name}: bright where they are wrong."
                show(errors[k], name, "error: distance from the truth", alt)
        bar = pictures.colour_bar(f"Colour bar from black, 0, to yellow, {largest:.3g}.")
        return Restored(self._about(first, n), tuple(rows), tuple(maps), bar, number(largest, 3), bool(errors))

    def _about(self, drawn: Drawn, n: int) -> str:
        """Whether the model has seen these measurements when it learned."""
        path = str(drawn.plan.get("data"))
        name, count = self.facts.shown(path), len(drawn.signals["mean"])
        words = f"The first {n} of {number(count)} restored measurements of {name}."
        run, data = drawn.run, self.data(path)
        if run is None or data is None or not _same_file(Path(path), run.config.data):
            known = (
                run is not None
                and data is not None
                and data.header["source"] == run.config.data_info.made_by.get("source")
            )
            seen = ", but on other measurements of the same source" if known else ""
            return f"{words} The model was not trained on that file{seen}."
        share = run.config.settings.held_out
        unseen = len([i for i in data.split(share, run.config.settings.seed)[1].indices if i < count]) if share else 0
        return f"{words} {number(unseen)} of them were held out of training; it has seen the other measurements."


def _names(group: list[Drawn]) -> list[str]:
    """Labels, with the method where a model restored the same measurements twice."""
    labels = [drawn.label for drawn in group]
    ways = [f"{drawn.plan.get('method')}, {number(drawn.plan.get('steps'))} calls" for drawn in group]
    return [f"{label} ({way})" if labels.count(label) > 1 else label for label, way in zip(labels, ways, strict=True)]


def _largest(maps: list[Tensor]) -> float:
    """The end of the scale of colours: that of the brightest pixels, but for one in a hundred."""
    return float(torch.cat([values.flatten() for values in maps]).quantile(0.99)) or 1.0


def _same_file(one: str | Path, other: str | Path) -> bool:
    return Path(one).resolve() == Path(other).resolve()
