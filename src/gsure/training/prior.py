"""The Gaussian prior of a run: fitted to what the network will learn from, and kept in the folder of the run."""

from collections.abc import Iterator

import numpy as np
from accelerate import Accelerator

from gsure.data.source import evenly_spread
from gsure.display import say
from gsure.gaussian import About, Fitted, fit_gaussian, load_gaussian, save_gaussian
from gsure.measurement import Measurement
from gsure.training.examples import Examples
from gsure.training.run import Run

BATCH = 500
MAX_FITTED, MAX_PRODUCTS = 20_000, 10**12
"""It is fitted to at most so many measurements, of which the products of entries are at most so many."""
MAX_CHOSEN_BY = 48
"""Held-out measurements by which its structure is chosen."""


def open_prior(
    run: Run, examples: Examples, held_out: Examples | None, accelerator: Accelerator, progress: bool = False
) -> Fitted:
    """The Gaussian in the folder of the run, if it is that of this data; or else it is fitted now, by the main process."""
    made_of = {"measurements": examples.measurements.fingerprint(), "trained_on": examples.settings.train_on}
    if accelerator.is_main_process and _stored(run, examples, made_of) is None:
        fitted = fit_prior(examples, held_out, progress)
        for note in fitted.notes if progress else ():
            say(note)
        save_gaussian(run.gaussian, fitted, made_of)
    accelerator.wait_for_everyone()
    found = _stored(run, examples, made_of)
    assert found is not None
    return found


def _stored(run: Run, examples: Examples, made_of: dict[str, str]) -> Fitted | None:
    if not run.gaussian.exists():
        return None
    fitted, found = load_gaussian(run.gaussian, examples.measurements.basis)
    return fitted if found == made_of else None


def fit_prior(examples: Examples, held_out: Examples | None, progress: bool = False, most: int | None = None) -> Fitted:
    """A Gaussian of the measurements to train on, of at most so many."""
    data = examples.measurements
    width = max(data.shape[-2:]) if len(data.shape) == 3 else int(np.prod(data.shape))
    most = most or max(1000, min(MAX_FITTED, MAX_PRODUCTS // (int(np.prod(data.shape)) * width)))
    chosen_by = held_out or examples
    positions = evenly_spread(most, len(examples))
    if held_out is None:  # keep some apart
        apart = evenly_spread(MAX_CHOSEN_BY, len(examples))
        positions = np.setdiff1d(positions, apart) if len(examples) > 2 * len(apart) else positions
    about = About(
        data.basis,
        tuple(data.shape),
        bool(data.header["complex"]),
        (data.coverage == 1).float(),
        data.unit,
        len(positions),
    )

    def batches() -> Iterator[Measurement]:
        for some in np.array_split(positions, -(-len(positions) // BATCH)):
            yield examples.for_prior(some)

    judged = evenly_spread(MAX_CHOSEN_BY, len(chosen_by))
    return fit_gaussian(batches, chosen_by.as_measured(judged), about, examples.settings.seed, progress)
