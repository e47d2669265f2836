"""Random numbers that never touch a global generator.

Everything random takes `generator`: one `torch.Generator` for the whole batch, a sequence of them, one per sample, or a seed.
With one per sample, made by `generators(seed, ...)`, what is drawn for sample k does not depend on its batch.

Inside of the package every generator is keyed by (seed, stream, ...), and `Stream` lists all streams: no two purposes share
their random numbers, whatever seeds a user chooses.
"""

import contextlib
import enum
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

Generators = torch.Generator | Sequence[torch.Generator]
Seed = int | Generators
"""What users may give as `generator`."""


class Stream(enum.Enum):
    """What random numbers are for. Keys contain the name of a member: reorder members as you like, but do not rename them."""

    # data
    CORRUPT = enum.auto()
    COVERAGE = enum.auto()
    BATCH_ORDER = enum.auto()
    SPLIT = enum.auto()
    PHANTOM = enum.auto()
    ANATOMY = enum.auto()
    TINT = enum.auto()
    POISSON_DISC_SCALE = enum.auto()
    BLUR_ADVICE = enum.auto()
    # checks of what a user brings
    CHECK_BASIS = enum.auto()
    CHECK_CORRUPTION = enum.auto()
    SHARED_BASIS = enum.auto()
    # the Gaussian prior
    GAUSSIAN_HIDDEN = enum.auto()
    GAUSSIAN_START = enum.auto()
    # training
    WEIGHTS = enum.auto()
    TRAIN = enum.auto()
    VALIDATION_NOISE = enum.auto()
    VALIDATION_TIMES = enum.auto()
    PREVIEW_SAMPLES = enum.auto()
    PREVIEW_DENOISED = enum.auto()
    IMPUTE = enum.auto()
    IMPUTE_ERROR = enum.auto()
    TASK_ERROR = enum.auto()
    VALIDATION_HIDDEN = enum.auto()
    # inference
    SAMPLE = enum.auto()
    RESTORE = enum.auto()
    RESTORE_AGAIN = enum.auto()
    # evaluation
    REFERENCE_HALVES = enum.auto()
    REFERENCE_ORDER = enum.auto()
    MEASURE_SAMPLES = enum.auto()
    SLICES = enum.auto()
    SURVEY = enum.auto()
    AGREEMENT = enum.auto()
    INDEPENDENCE_NOISE = enum.auto()
    INDEPENDENCE_FIT = enum.auto()
    FULL_SAMPLING = enum.auto()
    # experiments
    ANALYTIC = enum.auto()
    DENOISING = enum.auto()
    CLASSIFIER_WEIGHTS = enum.auto()
    CLASSIFIER_ORDER = enum.auto()
    # judging
    TOTAL_VARIATION = enum.auto()
    JUDGED_HIDDEN = enum.auto()
    JUDGED_DRAWS = enum.auto()
    CALIBRATION_HIDDEN = enum.auto()
    CALIBRATION_NOISE = enum.auto()
    CALIBRATION_STOP = enum.auto()


Key = int | Stream


def generators(
    seed: int, *key: Key, indices: Iterable[int] | np.ndarray, device: torch.device | str = "cpu"
) -> list[torch.Generator]:
    """One generator per index, on the device, determined by (seed, *key, index) and by nothing else.

    >>> first, second = generators(0, 7, indices=[3, 4]), generators(0, 7, indices=[4])
    >>> bool(torch.rand(2, generator=first[1]).equal(torch.rand(2, generator=second[0])))
    True
    """
    where = "cpu" if torch.device(device).type == "meta" else device  # where nothing has a value
    return [torch.Generator(where).manual_seed(_hash(seed, *key, int(index))) for index in indices]


def as_generators(generator: Seed, device: torch.device | str = "cpu") -> Generators:
    """A seed as a generator on the device; generators as they are. To be called once, before the first draw."""
    if not isinstance(generator, int):
        return generator
    where = "cpu" if torch.device(device).type == "meta" else device
    return torch.Generator(where).manual_seed(generator)


def keyed_generator(seed: int, stream: Stream, *key: Key) -> torch.Generator:
    """One generator on the host, determined by (seed, stream, *key)."""
    return torch.Generator().manual_seed(_hash(seed, stream, *key))


def numpy_generator(seed: int, stream: Stream, *key: Key) -> np.random.Generator:
    """The same for NumPy."""
    return np.random.Generator(np.random.PCG64(_hash(seed, stream, *key)))


def keyed_seed(seed: int, stream: Stream, *key: Key) -> int:
    """A seed for `forked`, determined by (seed, stream, *key)."""
    return _hash(seed, stream, *key)


def _hash(*key: Key) -> int:
    words = [part.name if isinstance(part, Stream) else str(part) for part in key]
    digest = hashlib.blake2b(",".join(words).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1  # manual_seed takes 63 bits without a sign


def normal(shape: Sequence[int], generator: Generators, like: Tensor) -> Tensor:
    """Standard normal draws, `shape[0]` samples, with the dtype and on the device of `like`."""
    return _draw(torch.randn, shape, generator, like)


def uniform(shape: Sequence[int], generator: Generators, like: Tensor) -> Tensor:
    """Uniform draws on [0, 1), `shape[0]` samples, with the dtype and on the device of `like`."""
    return _draw(torch.rand, shape, generator, like)


def _draw(draw: Callable[..., Tensor], shape: Sequence[int], generator: Generators, like: Tensor) -> Tensor:
    if isinstance(generator, torch.Generator):
        drawn = draw(tuple(shape), generator=generator, dtype=like.dtype, device=generator.device)
    else:
        if len(generator) != shape[0]:
            raise ValueError(
                f"{len(generator)} generators were given for {shape[0]} samples: give one, or one per sample."
            )
        drawn = torch.stack([draw(tuple(shape[1:]), generator=g, dtype=like.dtype, device=g.device) for g in generator])
    return drawn.to(like.device)


def seed_from(generator: Generators) -> int:
    """A seed that the state of the (first) generator determines; it advances none, so that no sample depends on another."""
    first = generator if isinstance(generator, torch.Generator) else generator[0]
    if first.device.type == "cpu":
        return int(torch.randint(2**62, (), generator=first.clone_state()))
    return _hash(first.initial_seed(), first.get_offset())  # all the state of a GPU's, and known on the host


@contextlib.contextmanager
def forked(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Run what insists on the global generator (dropout, initial weights) from `seed`, then put the global state back."""
    device = torch.device(device)
    on_cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_cuda else []):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would format a traceback for each absent device
        if on_cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
