"""Fit a Gaussian to measurements. Every choice is made by how well it predicts measured entries that were hidden from it.

| structure | when |
|---|---|
| all entries | signals of up to `MAX_ENTRIES` entries |
| rows in hybrid space | complex images whose masks do not vary along one axis |
| rows relative to a phase reference | the same, if images are not real and their phase is smooth |
| stationary | everything else |
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.basis import Basis, Fourier
from gsure.display import bar, number
from gsure.gaussian.base import Gaussian
from gsure.gaussian.blocks import BlockGaussian, Blocks
from gsure.gaussian.coordinates import Coordinates, Entries, Rows, as_complex, unpack_hermitian
from gsure.gaussian.moments import Moments
from gsure.gaussian.phase import Reference, ReferencedGaussian
from gsure.gaussian.referenced import as_parts, to_image
from gsure.gaussian.stationary import fit_stationary
from gsure.measurement import Measurement, draw_hidden
from gsure.random import Stream, keyed_generator

MAX_ENTRIES = 2048
"""Above this, a covariance of all entries is too large to invert for each measurement."""
MAX_WINDOWED, MAX_REFERENCED = 200, 128
"""Above this width, windows of rows, or rows relative to a phase reference, take too long."""
HIDDEN_SHARE = 0.3
"""Of the measured units, hidden to choose between Gaussians."""
SMOOTHINGS = ((1,), (1, 2, 1), (1, 2, 3, 2, 1), (1, 2, 3, 4, 3, 2, 1))
"""Weights of neighbouring rows in a covariance."""
FLOORS = (1e-3, 1e-2, 3e-2, 0.1, 0.3, 0.6)
"""Smallest eigenvalues, as a share of the mean: otherwise directions that few samples show would count as known."""
REAL_COHERENCE = (0.8, 0.98)
"""Entries k and -k of real images have coherence 1, those of other images about 0. Between these, both kinds are tried."""
CHOSEN_ROWS = 16
"""Rows on which choices are made."""
EM_SAMPLES, EM_BATCH, FIRST_SAMPLES = (2000, 5000), 500, 1000
"""Measurements of the expectation-maximisation, before and after the reference is refined; of one step of it; of its start."""
EM_WORK, EM_BATCHES = 4e11, 10
"""Bounds the measurements times (rows · lines · width²) of an expectation-maximisation: two minutes on one core at most. If
it has fewer measurements for that reason, it takes so many steps."""
START_IMAGINARY = 0.3
"""Share of the imaginary part in the start of the expectation-maximisation."""

Batches = Callable[[], Iterable[Measurement]]
"""Reads all measurements, each time it is called."""


class Fitted(NamedTuple):
    """A Gaussian, the error of its predictions of hidden entries as a share of their power, and what was chosen and why."""

    gaussian: Gaussian
    error: float
    notes: list[str]
    always: Float[Tensor, "1 ..."]
    """1 for entries that every measurement had, which are never hidden to compare methods."""


@dataclass(frozen=True)
class About:
    """What a fit needs to know of measurements."""

    basis: Basis
    shape: tuple[int, ...]
    """Of a signal."""
    is_complex: bool
    """Whether channels are (real, imaginary) pairs."""
    always: Float[Tensor, "1 ..."]
    """1 for entries that every measurement has."""
    unit: Sequence[int] = ()
    """Block of mask entries that are measured or missing together."""
    n: int = 0
    """Number of measurements, for the progress bar."""


def fit_gaussian(
    batches: Batches, held_out: Measurement, about: About, seed: int = 0, progress: bool = False
) -> Fitted:
    """The Gaussian that predicts hidden entries of `held_out` best, fitted to the measurements that `batches` reads."""
    return _Fit(batches, held_out, about, seed, progress)()


class _Fit:
    def __init__(self, batches: Batches, held_out: Measurement, about: About, seed: int, progress: bool) -> None:
        self.batches, self.about, self.seed, self.progress = batches, about, seed, progress
        self.notes: list[str] = []
        generator = keyed_generator(seed, Stream.GAUSSIAN_HIDDEN)
        self.hidden = (
            draw_hidden(held_out, HIDDEN_SHARE, generator, about.unit, about.always, about.basis.conjugates)
            if held_out.mask[0].numel() > 1
            else torch.zeros_like(held_out.mask)
        )
        self.shown = held_out.hide(self.hidden)
        self.target = held_out.hide(1 - self.hidden)

    def __call__(self) -> Fitted:
        found: list[tuple[float, str, Gaussian]] = []
        blocks = self._moments()
        for coordinates, moments in blocks:
            name = _name(coordinates)
            if not moments.is_determined:
                unseen = f"{moments.unseen:,} of {moments.pairs.numel() // 2:,} pairs of entries were never measured together"
                self.notes.append(f"Gaussian of {name}: not determined, because {unseen}.")
                continue
            if not moments.shows_signal:
                self.notes.append(f"Gaussian of {name}: the stated noise is as large as all that was measured.")
                continue
            gaussian, words = self._choose(coordinates, moments)
            found.append((self.error(gaussian), f"{name}, {words}", gaussian))
            self._say(found[-1])
        if referenced := self._referenced(found):
            found.append(referenced)
            self._say(referenced)
        if not found:
            stationary = fit_stationary(self.batches, self.about.basis)
            found.append((self.error(stationary), "stationary images", stationary))
            self._say(found[-1])
        error, words, best = min(found, key=lambda one: one[0])
        self.notes.append(f"The Gaussian prior of the run: {words}.")
        return Fitted(best, error, self.notes, self.about.always)

    def _say(self, found: tuple[float, str, Gaussian]) -> None:
        self.notes.append(
            f"Gaussian of {found[1]}: its squared error on hidden entries is {number(found[0], 3)} of their power."
        )

    def error(self, gaussian: Gaussian) -> float:
        """Of its predictions of the hidden entries, as a share of their power."""
        predicted = gaussian.mean(self.shown)
        return self._share(self.target.mask * (predicted - self.target.ybar), self.target.ybar)

    @staticmethod
    def _share(error: Tensor, target: Tensor) -> float:
        power = float(target.abs().double().square().sum())
        return float(error.abs().double().square().sum()) / power if power else 0.0

    def _moments(self) -> list[tuple[Coordinates, Moments]]:
        """Second moments of all measurements, in all coordinates that may serve."""
        about, wanted = self.about, list[Coordinates]()
        rows = _rows(about, self.shown)
        entries = math.prod(about.shape) // (2 if about.is_complex else 1)
        coherence = self._coherence() if about.is_complex else 0.0
        low, high = REAL_COHERENCE
        kinds = [True] if coherence > high else [False, True] if coherence > low else [False]
        if rows is not None:
            wanted += [replace(rows, real_images=real) for real in kinds]
        if entries <= (MAX_ENTRIES if rows is None else MAX_ENTRIES // 4):
            wanted += [Entries(about.basis, about.shape, about.is_complex, real) for real in kinds]
        made = []
        for coordinates in wanted:
            width = coordinates.vectors(self.shown[:1]).mask.shape[1]
            window = 3 if coordinates.neighbours > 2 and width <= MAX_WINDOWED else 1
            made.append((coordinates, Moments(coordinates, width, window)))
        if not made:
            return made
        with bar("Gaussian prior", self.about.n, self.progress) as advance:
            for batch in self.batches():
                for coordinates, moments in made:
                    moments.add(coordinates.vectors(batch))
                advance(len(batch))
        return made

    def _coherence(self) -> float:
        """Of entry k and the conjugate of entry -k, where both were measured."""
        if not isinstance(self.about.basis, Fourier):
            return 0.0
        batch = next(iter(self.batches()))
        z, mask = as_complex(batch.ybar), batch.mask.expand_as(batch.ybar)[:, 0::2]
        other, both = self.about.basis.conjugates(z), mask * self.about.basis.conjugates(mask)
        here, there = (
            torch.arange(z[0].numel()).reshape(z.shape[1:]),
            self.about.basis.conjugates(torch.arange(z[0].numel()).reshape(1, *z.shape[1:]))[0],
        )
        both = both * (here != there)
        across = float((both * (z * other).real).sum().abs())
        power = float((both * z.abs() ** 2).sum())
        return across / power if power else 0.0

    def _choose(self, coordinates: Coordinates, moments: Moments) -> tuple[BlockGaussian, str]:
        """Smoothing, symmetry, window and floor, one after the other, on some of the blocks."""
        blocks = torch.arange(coordinates.blocks)
        some = blocks[:: max(1, len(blocks) // CHOSEN_ROWS)]
        options: dict[str, Any] = {"window": 1, "smoothing": (1,), "symmetric": False, "floor": FLOORS[0]}

        def tried(**changes: Any) -> float:
            return self._error_of_blocks(coordinates, moments.blocks(**(options | changes), chosen=some))

        best = tried()
        steps: list[tuple[str, Sequence[Any]]] = []
        if coordinates.neighbours > 1:
            steps += [("smoothing", SMOOTHINGS[1:]), ("window", (3,) if moments.window > 1 else ())]
            steps += [("smoothing", SMOOTHINGS)]
        if coordinates.pairs:
            steps += [("symmetric", (True,))]
        for name, values in [*steps, ("floor", FLOORS[1:])]:
            for value in values:
                if value != options[name] and (error := tried(**{name: value})) < best:
                    best, options[name] = error, value
        parts = [f"window of {options['window']}"] if options["window"] > 1 else []
        parts += [f"smoothed over {len(options['smoothing'])} rows"] if len(options["smoothing"]) > 1 else []
        parts += ["mirror-symmetric"] if options["symmetric"] else []
        parts += [f"eigenvalues of at least {options['floor']:g} of the mean"]
        always = coordinates.entries_of(self.about.always)
        chosen = replace(moments.blocks(**options), positions=None, always=always)
        return BlockGaussian(coordinates, chosen), ", ".join(parts)

    def _error_of_blocks(self, coordinates: Coordinates, blocks: Blocks) -> float:
        """Error on hidden entries in some blocks. Compared as complex numbers, also if vectors are real."""
        predicted = blocks.posterior_mean(coordinates.vectors(self.shown))
        target = replace(coordinates, real_images=False).vectors(self.target)  # type: ignore[type-var]
        if coordinates.real_images:
            predicted = unpack_hermitian(predicted, coordinates.mirror)
        values = target.values[:, blocks.positions]
        return self._share(target.mask[:, None] * (predicted - values), values)

    def _referenced(self, found: Sequence[tuple[float, str, Gaussian]]) -> tuple[float, str, Gaussian] | None:
        """Rows relative to a phase reference, refined if that is better."""
        best = min(found, key=lambda one: one[0])[2] if found else None
        start = [one for *_, one in found if isinstance(one, BlockGaussian) and _can_have_phase(one)]
        if not start or (isinstance(best, BlockGaussian) and best.coordinates.real_images):
            return None
        rows = start[0].coordinates
        assert isinstance(rows, Rows)
        reference = Reference.of_lines(rows, rows.entries_of(self.about.always))
        if reference is None:
            self.notes.append("Gaussian relative to a phase reference: too few central lines are always measured.")
            return None
        plain = self._expectation_maximisation(self._start(start[0], reference), EM_SAMPLES[0])
        refined = replace(plain, reference=replace(reference, refiner=plain))
        refined = self._expectation_maximisation(refined, EM_SAMPLES[1])
        errors = [(self.error(plain), plain), (self.error(refined), refined)]
        error, best = min(errors, key=lambda one: one[0])
        return error, f"rows relative to a phase reference{', refined' if best is refined else ''}", best

    def _start(self, gaussian: BlockGaussian, reference: Reference) -> ReferencedGaussian:
        """From posterior draws of the Gaussian of complex images, with a smaller imaginary part."""
        rows = gaussian.coordinates
        assert isinstance(rows, Rows)
        parts = []
        for number_of, batch in enumerate(_first(self.batches(), FIRST_SAMPLES, EM_BATCH)):
            drawn = gaussian.single.draw(batch, keyed_generator(self.seed, Stream.GAUSSIAN_START, number_of))
            fully = Measurement._trusted(drawn, torch.ones_like(batch.mask), torch.zeros_like(batch.std))
            image = to_image(rows.vectors(fully).values)
            parts.append(as_parts(image * reference(batch).conj()))
        v = torch.cat(parts).movedim(0, 1)  # r, n, v
        width = v.shape[2] // 2
        v[..., width:] *= START_IMAGINARY
        mean = v.mean(1)
        away = v - mean[:, None]
        return ReferencedGaussian(rows, mean, away.mT @ away / v.shape[1], reference)

    def _expectation_maximisation(self, start: ReferencedGaussian, most: int) -> ReferencedGaussian:
        rows, width = start.mu.shape
        lines = float(next(iter(self.batches())).mask.flatten(1).sum(1).max())
        n = min(most, int(EM_WORK / (rows * lines * width**2)))
        at_once = EM_BATCH if n == most else max(1, min(EM_BATCH, n // EM_BATCHES))

        def rate(number_of: int) -> float:
            return (number_of + 1) ** -0.5

        with bar("Gaussian prior, phase", min(n, self.about.n or n), self.progress) as advance:

            def reading() -> Iterator[Measurement]:
                for batch in _first(self.batches(), n, at_once):
                    yield batch
                    advance(len(batch))

            return start.improved(reading(), rate, lambda covariance: covariance)


def _name(coordinates: Coordinates) -> str:
    what = "rows" if coordinates.neighbours > 1 else "all entries"
    return f"{what} of real images" if coordinates.real_images else what


def _rows(about: About, measurement: Measurement) -> Rows | None:
    """If masks and noise do not vary along one axis of a Fourier transform, but do along the other."""
    if not isinstance(about.basis, Fourier) or measurement.mask.shape[1] > 1:
        return None
    for axis in (-2, -1):
        constant = measurement.mask.shape[axis] == measurement.std.shape[axis] == 1
        if constant and measurement.mask.shape[-3 - axis] > 1:
            return Rows(about.shape, axis)
    return None


def _can_have_phase(gaussian: BlockGaussian) -> bool:
    rows = gaussian.coordinates
    return rows.neighbours > 1 and not rows.real_images and gaussian.blocks.width <= MAX_REFERENCED


def _first(batches: Iterable[Measurement], n: int, at_once: int) -> Iterator[Measurement]:
    """The first n measurements, at most `at_once` at a time."""
    left = n
    for batch in batches:
        for first in range(0, min(left, len(batch)), at_once):
            yield batch[first : min(first + at_once, left, len(batch))]
        left -= len(batch)
        if left <= 0:
            return
