"""The pictures of the page: measurements, samples, restorations and their uncertainty."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from gsure.basis import Basis
from gsure.data.measurements import Measurements, Signals, open_clean, open_measurements
from gsure.data.source import evenly_spread
from gsure.display import number
from gsure.plotting import mosaics, root_sum_of_squares
from gsure.plotting.mosaics import Picture
from gsure.report.collect import Drawn, Facts, Trained, as_dict
from gsure.report.words import is_picture, shape, source

VALUES = 1_500_000
"""The largest number of pixels of all pictures together, which keeps a page below 3 MB."""

SLICES = 24
"""Slices of a volume on the page, at most."""


@dataclass(frozen=True)
class Shown:
    """A picture with its title and a sentence below it."""

    title: str
    words: str
    picture: Picture


@dataclass(frozen=True)
class Restored:
    """Restorations of the same measurements by all models: rows of pictures, and maps on one colour scale."""

    words: str
    rows: tuple[Shown, ...]
    maps: tuple[Shown, ...]
    bar: Picture
    largest: str  # in the units of the raw data
    has_errors: bool
    is_volume: bool
    """Whether the pictures are slices of one volume."""


@dataclass
class Gallery:
    """Draws the files in `facts`. A file that cannot be opened is omitted, with one note."""

    facts: Facts
    basis: Basis | None = None
    notes: list[str] = field(default_factory=list)
    _opened: dict[str, Measurements | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        data_info = self.facts.main.config.data_info
        self.is_image = is_picture(data_info.shape)
        is_large = self.is_image and max(data_info.shape[-2:]) > 64
        self.columns, self.rows, self.across = (4, 2, 4) if is_large else (6, 6, 8)
        folders, restored = len(self.facts.samples), len(self.facts.restorations)
        most = max([self.across, *(len(self._positions(drawn)) for drawn in self.facts.restorations)])
        tiles = self.columns * self.rows * (2 + folders) + most * (2 + 3 * restored) + 48
        colours = 3 if self.is_image and data_info.shape[0] == 3 else 1
        self.side = max(24, math.isqrt(VALUES // (tiles * colours)))

    def data(self, path: str) -> Measurements | None:
        if path not in self._opened:
            try:
                self._opened[path] = self._open(path)
            except (OSError, ValueError) as error:
                self._opened[path] = None
                self.notes.append(f"Measurements are not shown: {error}")
        return self._opened[path]

    def _open(self, path: str) -> Measurements:
        own = self.basis is not None and self.facts.main.config.data_info.basis == type(self.basis).__name__
        return open_measurements(path, self.basis if own else None)

    def missing_share(self) -> float | None:
        """The share of a signal that is not measured, on average."""
        data = self.data(self.facts.main.config.data)
        return None if data is None else 1 - float(data.coverage.mean())

    def clean(self, run: Trained, data: Measurements | None, evaluated: str | None = None) -> Signals | None:
        """The clean signals of an evaluation, or those of the run if the measurements are those of the run."""
        own = run.config.clean if data is not None and _same_file(data.name, run.config.data) else None
        for path in filter(None, (evaluated, own)):
            try:
                return None if data is None else open_clean(path, data)
            except (OSError, ValueError, KeyError):
                continue
        return None

    def hero(self) -> list[Shown]:
        """The page at a glance: 4 × 4 measurements, samples and restorations."""
        run, data_info = self.facts.main, self.facts.main.config.data_info
        if not self.is_image:
            return []
        panels = []
        if (data := self.data(run.config.data)) is not None:
            first = range(min(16, len(data)))
            missing = "; missing pixels are blue" if data.basis.is_signal else "; missing values are set to zero"
            missing, incomplete = ("", "") if self.missing_share() == 0 else (missing, "incomplete, ")
            alt = f"{len(first)} measurements of {shape(data_info)} images ({source(data_info)}){missing}."
            picture = mosaics.mosaic(self._measured(data, first), 4, alt)
            words = f"{number(data_info.samples)} {incomplete}noisy measurements{missing}."
            panels.append(Shown("Measurements", words, picture))
        if drawn := next((d for d in self.facts.samples if d.run == run), None):
            x = drawn.signals[""][: min(16, len(drawn.signals[""]))]
            alt = f"{len(x)} complete images that the model generated from noise."
            picture = mosaics.mosaic(
                mosaics.as_pictures(x, data_info.is_complex, self.side, black=drawn.signals[""].black), 4, alt
            )
            never = " The model never saw a complete image." if run.role == "measurements" else ""
            panels.append(Shown("Samples", f"New, complete images generated from noise.{never}", picture))
        if drawn := next((d for d in self.facts.restorations if d.run == run), None):
            panels.append(self._restored_panel(drawn))
        return panels

    def _restored_panel(self, drawn: Drawn) -> Shown:
        n = min(4, len(drawn.signals["mean"]))
        columns = self._columns(drawn, range(n))
        spread = root_sum_of_squares(drawn.signals["std"][:n])
        largest = _largest([spread])
        uncertain = [mosaics.colormap(one, largest) for one in mosaics.shrink(spread[:, None], self.side)[:, 0]]
        has_spread = bool(spread.any())  # a single draw has none
        shown = [("measured", columns["measured"]), ("restored", columns["mean"])]
        shown += [] if "clean" in columns else [("one draw", columns["draw"])]
        shown += [("uncertainty", uncertain)] if has_spread else []
        shown += [("truth", columns["clean"])] if "clean" in columns else []
        names = ", ".join(name for name, _ in shown)
        tiles = [column[k] for k in range(n) for _, column in shown]
        alt = f"{n} rows of pictures with a measurement and its restoration. From left to right: {names}."
        return Shown("Restorations", f"From left to right: {names}.", mosaics.mosaic(tiles, len(shown), alt))

    def _positions(self, drawn: Drawn) -> list[int]:
        """Of the restorations to show: the first ones; of a volume, slices from all of it."""
        first = range(min(self.across, len(drawn.signals["mean"])))
        return evenly_spread(SLICES, drawn.slices).tolist() if drawn.slices > self.across else list(first)

    def _measured(self, data: Measurements, positions: Sequence[int]) -> list[Tensor]:
        """Measurements as pictures: missing pixels are blue; missing coefficients of other bases are zero."""
        measurement = data[list(positions)]
        kept = measurement.mask.expand_as(measurement.ybar).amax(1) if data.basis.is_signal else None
        x = data.basis.to_signal(measurement.ybar)
        return mosaics.as_pictures(x, data.header["complex"], self.side, kept, black=data.black)

    def _columns(self, drawn: Drawn, where: Sequence[int]) -> dict[str, list[Tensor]]:
        """Pictures of some restorations: measured, mean, draw, and clean if it is known."""
        mean, data = drawn.signals["mean"], self.data(drawn.data)
        kinds = [kind for kind in drawn.signals if kind != "std"]
        signals = {kind: drawn.signals[kind][list(where)] for kind in kinds}
        if (truth := self._truth(drawn, where)) is not None:
            signals["clean"] = truth
        found = {
            kind: mosaics.as_pictures(x, mean.header["complex"], self.side, black=mean.black)
            for kind, x in signals.items()
        }
        found["measured"] = found["baseline"] if data is None else self._measured(data, where)
        return found

    def _truth(self, drawn: Drawn, where: Sequence[int]) -> Tensor | None:
        run, path = drawn.run or self.facts.main, drawn.summary.get("clean")
        for evaluation in self.facts.evaluations:
            if evaluation.drawn is not None and evaluation.drawn.path == drawn.path:
                path = as_dict(evaluation.values.get("reference")).get("path", path)
        clean = self.clean(run, self.data(drawn.data), path)
        return None if clean is None else clean[list(where)]

    def samples(self) -> list[Shown]:
        """A grid of samples of each folder, and a grid of clean signals to compare with."""
        if not self.facts.samples:
            return self._previews("samples", "Samples drawn during training")
        run, grids = self.facts.main, []
        for drawn in self.facts.samples:
            signals, made_of = drawn.signals[""], drawn.made_of
            if not is_picture(tuple(signals.shape)):
                self.notes.append(f"{drawn.path} is not shown: signals of shape {tuple(signals.shape)} are not images.")
                continue
            how = f"{made_of.get('sampler')}, {number(made_of.get('steps'))} sampling steps"
            alt = f"Grid of images generated by the model {drawn.label}."
            grids.append(self._grid(drawn.label, how, signals, alt))
        data = self.data(run.config.data) if grids else None
        if data is not None and (clean := self.clean(run, data)) is not None:
            has_reference = any(found.role == "clean" for found in self.facts.runs)
            words = "only the reference saw them" if has_reference else "the model never saw them"
            grids.append(self._grid("clean images", words, clean, "Grid of clean images to compare with."))
        return grids

    def _grid(self, title: str, words: str, signals: Signals, alt: str) -> Shown:
        n = min(len(signals), self.columns * self.rows)
        tiles = mosaics.as_pictures(signals[:n], signals.header["complex"], self.side, black=signals.black)
        first = f"The first {n} of {number(len(signals))}; {words}."
        return Shown(title, first, mosaics.mosaic(tiles, self.columns, alt))

    def denoised(self) -> list[Shown]:
        return self._previews("denoised", "Held-out measurements, denoised")

    def _previews(self, kind: str, title: str) -> list[Shown]:
        """The last preview of `gsure train`, shown if no other command has drawn signals."""
        found = []
        for run in self.facts.runs:
            drawn = sorted((run.path / kind).glob("step-*.png"))
            if drawn:
                alt = f"{title}, by the model {run.label}; a preview of gsure train."
                found += self.from_file(drawn[-1], run.label, f"{title}: {drawn[-1].name}.", alt)
        return found

    def from_file(self, path: Path, title: str, words: str, alt: str) -> list[Shown]:
        try:
            return [Shown(title, words, mosaics.embed_png(path.read_bytes(), alt))]
        except (OSError, SyntaxError, ValueError) as error:  # Pillow raises these for a damaged PNG
            self.notes.append(f"{path} is not shown: {error}")
            return []

    def restorations(self) -> list[Restored]:
        """One figure for each measurement file that was restored."""
        groups: dict[str, list[Drawn]] = {}
        for drawn in self.facts.restorations:
            if is_picture(tuple(drawn.signals["mean"].shape)):
                groups.setdefault(drawn.data, []).append(drawn)
        return [self._restored(group) for group in groups.values()]

    def _restored(self, group: list[Drawn]) -> Restored:
        where = min((self._positions(drawn) for drawn in group), key=len)
        truth, names = self._truth(group[0], where), [drawn.label for drawn in group]
        maps: list[tuple[str, str, str, Tensor]] = []
        for drawn, name in zip(group, names, strict=True):
            scale = torch.from_numpy(drawn.signals["std"].scales()[where]).reshape(-1, 1, 1).float()
            spread = scale * root_sum_of_squares(drawn.signals["std"][where])
            alt = f"Maps of the standard deviation of the draws of the model {name}: bright where it is uncertain."
            if spread.any():  # a single draw has none
                maps.append((name, "uncertainty: standard deviation of the draws", alt, spread))
            if truth is not None:
                error = scale * root_sum_of_squares(drawn.signals["mean"][where] - truth)
                alt = f"Maps of the error of the restorations by the model {name}: bright where the error is large."
                maps.append((name, "error: distance from the truth", alt, error))
        largest = _largest([values for *_, values in maps])
        shown = []
        for name, words, alt, values in maps:
            tiles = list(mosaics.shrink(values[:, None], self.side)[:, 0])
            shown.append(Shown(name, words, mosaics.heat_maps(tiles, self.across, largest, alt)))
        end, rows = number(largest, 3), tuple(self._restored_rows(group, names, where))
        bar = mosaics.colour_bar(f"Colour bar from black, 0, to yellow, {end}.")
        is_volume = min(drawn.slices for drawn in group) > self.across
        about = self._seen(group[0], where, is_volume)
        return Restored(about, rows, tuple(shown), bar, end, truth is not None, is_volume)

    def _restored_rows(self, group: list[Drawn], names: list[str], where: Sequence[int]) -> list[Shown]:
        """The measurements, their restorations by each model, and the truth if it is known."""

        def row(title: str, words: str, tiles: list[Tensor], alt: str) -> Shown:
            return Shown(title, words, mosaics.mosaic(tiles, self.across, alt))

        columns, n = [self._columns(drawn, where) for drawn in group], len(where)
        rows = [row("measured", "input", columns[0]["measured"], f"{n} noisy measurements.")]
        for kind, title in (("total_variation", "total variation"), ("gaussian", "Gaussian prior")):
            for drawn, column in zip(group, columns, strict=True):
                if kind in column:
                    psnr = drawn.summary.get(f"PSNR of {kind.replace('_', ' ')}")
                    words = f"no network, PSNR {psnr}" if psnr else "no network"
                    rows.append(row(title, words, column[kind], f"The {n} measurements, restored by {title}."))
                    break
        for drawn, name, column in zip(group, names, columns, strict=True):
            psnr = drawn.summary.get("PSNR of mean")
            words = f"restored, PSNR {psnr}" if psnr else "restored"
            rows.append(row(name, words, column["mean"], f"The {n} measurements, restored by the model {name}."))
        if "clean" in columns[0]:
            alt = f"The {n} clean images behind the measurements."
            rows.append(row("truth", "clean, not an input", columns[0]["clean"], alt))
        return rows

    def _seen(self, drawn: Drawn, where: Sequence[int], is_volume: bool) -> str:
        """Whether the model was trained on these measurements."""
        total = len(drawn.signals["mean"])
        which = f"{len(where)} slices of the first volume" if is_volume else f"The first {len(where)}"
        words = f"{which} of {number(total)} restored measurements of {self.facts.shown(drawn.data)}."
        run, data = drawn.run, self.data(drawn.data)
        if run is None or data is None:
            return words
        config = run.config
        if not _same_file(drawn.data, config.data):
            same = data.header["source"] == config.data_info.made_by.get("source")
            more = ", but on other measurements of the same source" if same else ""
            return f"{words} The model was not trained on this file{more}."
        share, seed = config.settings.held_out, config.settings.seed
        unseen = int((data.split(share, seed)[1].indices < total).sum()) if share else 0
        return f"{words} {number(unseen)} of them were held out of training. The model was trained on the others."


def _largest(maps: list[Tensor]) -> float:
    """The end of the colour scale: the 99 % quantile."""
    return float(torch.cat([values.flatten() for values in maps]).quantile(0.99)) or 1.0 if maps else 1.0


def _same_file(one: str | Path, other: str | Path) -> bool:
    return Path(one).resolve() == Path(other).resolve()
