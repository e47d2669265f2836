"""Fixtures, and three small things every test of the mathematics needs: a generator, an exact denoiser, a standard score."""

from collections.abc import Iterator

import jaxtyping
import numpy as np
import pytest
import torch
from torch import Tensor, nn

torch.set_num_threads(1)  # tests run in parallel processes


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def outside() -> Iterator[None]:
    """As a user's process sees the library: no shape checking, so that it must refuse bad input by itself."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(autouse=True)
def untouched_global_state() -> Iterator[None]:
    """No test may leave the global generator changed, because no function of the library may touch it."""
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # Python's own is used by beartype
    yield
    assert torch.random.get_rng_state().equal(before[0]), "torch's global random state was changed"
    assert (np.random.get_state()[1] == before[1]).all(), "NumPy's global random state was changed"


class Function(nn.Module):
    """A plain function as a network, with one float64 parameter that tells samplers the dtype."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function
        self.dtype = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, x_t: Tensor, t: Tensor, *mask: Tensor) -> Tensor:
        return self.function(x_t, t, *mask)


def z_score(differences: Tensor) -> Tensor:
    """How many standard errors the mean over samples lies from zero."""
    return differences.mean(0) / (differences.std(0) / len(differences) ** 0.5)
