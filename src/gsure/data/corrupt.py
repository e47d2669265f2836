"""Simulate measurements of clean signals. The clean signals go to a second file, never to the measurement file."""

import contextlib
import dataclasses
import itertools
import math
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gsure.corruption import FAMILIES, Corruption
from gsure.data.inspection import looks_like_kspace
from gsure.data.measurements import Measurements, open_measurements
from gsure.data.source import Sample, evenly_spread
from gsure.data.sources import Source
from gsure.data.writer import Writer
from gsure.display import bar
from gsure.files import record_request, refuse_existing, refuse_inputs
from gsure.measurement import Measurement
from gsure.random import Stream, generators

CHUNK, MAX_VALUES = 1024, 2**23
"""Number of samples that a worker measures at a time, and of their values, at most."""
FEW = 4
"""Complex signals that are looked at to see whether they are images."""

Batch = tuple[Tensor, Measurement, Tensor, list[Sample]]


def corrupt(
    source: Source,
    path: str | Path,
    corruption: Corruption,
    sigma_0: float | tuple[float, float],
    *,
    clean: str | Path | None = None,
    limit: int | None = None,
    shards: int = 1,
    workers: int = 1,
    seed: int = 0,
    force: bool = False,
    progress: bool = False,
) -> Measurements:
    """Measure each signal of the source once. Write the measurements to `path` and, if given, the clean signals to `clean`.

    `sigma_0` is one number, or a range from which each sample draws its own. The mask and noise of sample k depend only on
    (seed, k), not on `workers`, `limit` or `shards`.
    """
    request = record_request("corrupt", locals())
    n = len(source) if limit is None else min(limit, len(source))
    outputs = [Path(target) for target in (path, clean) if target is not None]
    _refuse_early(source, corruption, sigma_0, outputs, workers, force)
    _refuse_kspace(source, n)
    header: dict[str, Any] = {"source": source.fingerprint(), "complex": source.is_complex, "seed": seed}
    header |= {"corruption": describe(corruption), "sigma_0": {"given": sigma_0}, "request": request}
    header["geometry"] = source.geometry()
    writer = Writer(
        path,
        n,
        source.shape,
        header,
        basis=corruption.basis,
        mask_shape=corruption.svals(1, source.shape, torch.Generator()).shape[1:],
        unit=corruption.unit,
        binary=corruption.is_binary,
        coverage=corruption.coverage(source.shape).value if corruption.has_closed_form else None,
        shards=shards,
        force=force,
    )
    signals = Writer(clean, n, source.shape, header, shards=shards, force=force) if clean is not None else None
    with contextlib.ExitStack() as stack:
        stack.enter_context(writer)
        if signals is not None:
            stack.enter_context(signals)
        advance = stack.enter_context(bar("measuring", n, progress))
        for x, measurement, sigmas, samples in _batches(source, corruption, sigma_0, seed, n, workers):
            groups, scales, offsets = ([getattr(one, name) for one in samples] for name in ("group", "scale", "offset"))
            writer.append(measurement, groups, scales, sigmas, offsets)
            if signals is not None:
                signals.append(x, groups, scales, offsets=offsets)
            advance(len(groups))
    return open_measurements(path, corruption.basis)


def _refuse_kspace(source: Source, n: int) -> None:
    some = [source[int(index)].x for index in evenly_spread(FEW, n)] if source.is_complex else []
    if some and looks_like_kspace(np.stack(some)):
        raise ValueError(
            f"The signals of {source.kind} look like k-space, but corrupt needs images: transform them first (np.fft.ifft2, "
            "bart fft -u -i 3), or use gsure import if they are measurements."
        )


def _refuse_early(
    source: Source,
    corruption: Corruption,
    sigma_0: float | tuple[float, float],
    outputs: list[Path],
    workers: int,
    force: bool,
) -> None:
    """Raise an error for wrong arguments before any work is done."""
    if workers < 1:
        raise ValueError(f"workers must be at least 1, but is {workers}.")
    corruption.check_shape(source.shape)
    corruption.draw_sigma(1, sigma_0, torch.Generator())
    if len({output.resolve() for output in outputs}) < len(outputs):
        raise ValueError(
            f"Measurements and clean signals must go to two different files, but both paths are {outputs[0]}: choose another "
            "one for the clean signals."
        )
    for inner, outer in itertools.permutations(outputs, 2):
        if outer.resolve() in inner.resolve().parents:
            raise ValueError(f"{inner} lies inside {outer}, which is also an output: choose another name.")
    refuse_inputs(outputs, source.reads())
    for output in outputs:
        refuse_existing(output, force)


def describe(corruption: Corruption) -> dict[str, Any]:
    """The name and options of a corruption, from which you can create it again."""
    names = {family: name for name, family in FAMILIES.items()}
    options = {field.name: _plain(getattr(corruption, field.name)) for field in dataclasses.fields(corruption)}  # type: ignore[arg-type]
    return {"name": names.get(type(corruption), type(corruption).__name__), **options}


def _plain(value: Any) -> Any:
    """A value for JSON. An array, which only your own corruption can have, becomes its dtype and shape."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return value


def _batches(
    source: Source, corruption: Corruption, sigma_0: float | tuple[float, float], seed: int, n: int, workers: int
) -> Iterator[Batch]:
    chunk = max(1, min(CHUNK, MAX_VALUES // math.prod(source.shape)))
    jobs = [(source, corruption, sigma_0, seed, range(start, min(n, start + chunk))) for start in range(0, n, chunk)]
    if workers <= 1:
        yield from map(_measure, jobs)
        return
    spawn = multiprocessing.get_context("spawn")  # forking a process that has used OpenMP can hang
    with ProcessPoolExecutor(workers, mp_context=spawn, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        ahead = 2 * workers  # so that memory does not grow with n
        pending = [pool.submit(_measure, job) for job in jobs[:ahead]]
        for k in range(len(jobs)):
            yield pending.pop(0).result()
            if k + ahead < len(jobs):
                pending.append(pool.submit(_measure, jobs[k + ahead]))


def _measure(job: tuple[Source, Corruption, float | tuple[float, float], int, Sequence[int]]) -> Batch:
    source, corruption, sigma_0, seed, indices = job
    samples = [source[index] for index in indices]
    x = torch.stack([torch.from_numpy(sample.x) for sample in samples])
    generator = generators(seed, Stream.CORRUPT, indices=indices)
    sigmas = corruption.draw_sigma(len(x), sigma_0, generator)
    measurement = corruption.apply(x, sigmas, generator)
    return x, measurement, sigmas, [sample._replace(x=np.empty(0)) for sample in samples]
