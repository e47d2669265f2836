"""Random numbers that never touch a global generator.

Everything random takes `generator`: one `torch.Generator` for the whole batch, or a sequence of them, one per sample.
With one per sample, made by `generators(seed, ...)`, what is drawn for sample k does not depend on its batch.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

Generators = torch.Generator | Sequence[torch.Generator]


def generators(seed: int, *key: int, indices: Iterable[int] | np.ndarray) -> list[torch.Generator]:
    """One generator per index, determined by (seed, *key, index) and by nothing else.

    >>> first, second = generators(0, 7, indices=[3, 4]), generators(0, 7, indices=[4])
    >>> bool(torch.rand(2, generator=first[1]).equal(torch.rand(2, generator=second[0])))
    True
    """
    return [torch.Generator().manual_seed(_hash(seed, *key, int(index))) for index in indices]


def _hash(*key: int) -> int:
    digest = hashlib.blake2b(",".join(map(str, key)).encode(), digest_size=8).digest()
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
    return int(torch.randint(2**62, (), generator=first.clone_state(), device=first.device))


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
