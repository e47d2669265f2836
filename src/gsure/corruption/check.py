"""Checks that every corruption family must pass, both built-in ones and your own."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gsure.basis import check_basis
from gsure.corruption.base import DOUBLE, Corruption
from gsure.random import Generators, Stream, generators, keyed_generator, normal


def check_corruption(corruption: Corruption, shape: Sequence[int], draws: int = 30_000) -> None:
    """Check everything that the method relies on, for signals of this shape (without batch). A `ValueError` lists failures.

    30,000 draws estimate the coverage of an entry with a standard error of 0.3 %; use fewer if a draw is slow. Each
    statistical test has a false-alarm probability of one in a million. Seeds are fixed, so the result is always the same.
    """
    shape = tuple(shape)
    try:
        corruption.check_shape(shape)
        failed = _check_draws(corruption, shape)
        if not failed:
            failed = [*_check_measurements(corruption, shape), *_check_coverage(corruption, shape, draws)]
    except (RuntimeError, TypeError, IndexError) as error:
        raise ValueError(f"{corruption} cannot corrupt signals of shape {shape}: {error}") from error
    try:
        check_basis(corruption.basis, shape)
    except ValueError as error:
        failed.append(f"have an orthogonal basis ({error})")
    if failed:
        raise ValueError(
            f"{corruption} is not a valid corruption of signals of shape {shape}; it does not: {'; '.join(failed)}."
        )


def _generator(number: int, indices: Sequence[int] | None = None) -> Generators:
    """The generator of one of the independent draws below, or one for each index."""
    if indices is None:
        return keyed_generator(0, Stream.CHECK_CORRUPTION, number)
    return generators(0, Stream.CHECK_CORRUPTION, number, indices=indices)


def _check_draws(corruption: Corruption, shape: tuple[int, ...]) -> list[str]:
    """Failed claims about the singular values."""
    first, again, other = (corruption.svals(32, shape, _generator(number)) for number in (0, 0, 1))
    fits = first.ndim == len(shape) + 1 and len(first) == 32
    if not (fits and all(mine in (1, theirs) for mine, theirs in zip(first.shape[1:], shape, strict=True))):
        return [f"draw svals whose shape broadcasts against 32 signals ({tuple(first.shape)} was drawn)"]
    among, alone = (corruption.svals(len(k), shape, _generator(2, k)) for k in (range(4), [2]))
    is_random = not first.equal(other)
    claims = {
        "draw svals that are finite and at least 0": bool((first.isfinite() & (first >= 0)).all()),
        "draw only 0 and 1, as is_binary states": not corruption.is_binary or bool(((first == 0) | (first == 1)).all()),
        "draw the same from the same generator": first.equal(again),
        "draw independently for each sample": not is_random
        or any((drawn != drawn[:1]).any() for drawn in (first, other)),
        "draw sample k from generator k alone": among[2:3].allclose(alone),
    }
    return [claim for claim, holds in claims.items() if not holds]


def _check_measurements(corruption: Corruption, shape: tuple[int, ...]) -> list[str]:
    """Failed claims about ȳ = P x̄ + z̄, with independent z̄_i ~ N(0, std_i²)."""
    n = max(8, min(256, 2**18 // torch.Size(shape).numel()))
    x = normal((n, *shape), _generator(3), like=DOUBLE)
    given, xbar = x.clone(), corruption.basis.to_spectral(x)
    exact, noisy, noisier = (corruption.apply(x, sigma_0, _generator(4)) for sigma_0 in (0.0, 0.3, 0.6))
    among, alone = (corruption.apply(x[k], 0.3, _generator(5, k)) for k in (list(range(4)), [2]))

    mask = noisy.mask.expand_as(x)
    z = torch.where(mask == 1, (noisy.ybar - xbar) / torch.where(mask == 1, noisy.std, 1.0), 0.0)
    beside, kept_beside = (part.flatten(1)[:, 1:] * part.flatten(1)[:, :-1] for part in (z, mask))
    between, kept_between = (part[1:] * part[:-1] for part in (z, mask))
    claims = {
        "leave its argument unchanged": x.equal(given),
        "keep or drop, P² = P": bool((mask * mask == mask).all()),
        "measure mask * xbar at sigma_0 = 0": exact.ybar.allclose(exact.mask * xbar, rtol=1e-6, atol=1e-6),
        "state a std proportional to sigma_0": noisier.std.allclose(2 * noisy.std),
        "have noise of mean 0": _by_chance(z.sum(), mask.sum()),
        "have noise of the stated std": _by_chance((z**2 - mask).sum(), 2 * mask.sum()),
        "have white noise, independent between entries": _by_chance(beside.sum(), kept_beside.sum()),
        "have independent noise for each sample": _by_chance(between.sum(), kept_between.sum()),
        "measure sample k from generator k alone": among[2].ybar.allclose(alone.ybar),
    }
    return [claim for claim, holds in claims.items() if not holds]


def _check_coverage(corruption: Corruption, shape: tuple[int, ...], draws: int) -> list[str]:
    """Failed claims about coverage = E[P], for each entry and for the share of entries that a draw keeps."""
    coverage = corruption.coverage(shape)
    stated = coverage.value
    fits = stated.ndim == len(shape) + 1 and len(stated) == 1
    if not (fits and all(mine in (1, theirs) for mine, theirs in zip(stated.shape[1:], shape, strict=True))):
        return [f"state a coverage whose shape broadcasts ({tuple(stated.shape)} was stated)"]
    if not ((stated >= 0) & (stated <= 1)).all():
        return ["state a coverage in [0, 1]"]

    generator, at_once = _generator(6), max(1, 2**22 // torch.Size(shape).numel())
    kept = torch.zeros(())
    shares: list[Tensor] = []
    for start in range(0, draws, at_once):
        mask = (corruption.svals(min(at_once, draws - start), shape, generator) > corruption.cutoff).double()
        kept = kept + mask.sum(0, keepdim=True)
        shares.append(mask.flatten(1).mean(1))
    found, share = kept / draws, torch.cat(shares)
    squared_error = (coverage.standard_error or 0.0) ** 2
    # A stated coverage of 0 or 1 implies variance 0, so use at least that of one draw. The last claim checks these entries.
    variance = (stated * (1 - stated)).clamp(min=1 / draws) / draws + squared_error
    certain = ((stated == 0) | (stated == 1)) & (coverage.standard_error is None)
    claims = {
        "cover each entry as its coverage states": _by_chance(found - stated, variance),
        "keep as much in total as its coverage states": _by_chance(
            share.mean() - stated.mean(), share.var() / draws + squared_error + 1e-18
        ),
        "always keep entries of coverage 1, and never those of coverage 0": bool(((found == stated) | ~certain).all()),
    }
    return [claim for claim, holds in claims.items() if not holds]


def _by_chance(deviation: Tensor, variance: Tensor) -> bool:
    """Whether the deviations are consistent with mean zero and this variance: a joint test, at a level of one in a million."""
    z = deviation.abs() / variance.clamp(min=1e-30).sqrt()
    return bool(z.max() < -torch.special.ndtri(torch.tensor(0.5e-6 / z.numel(), dtype=torch.float64)))
