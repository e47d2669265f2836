"""Fixtures, and three small things every test of the mathematics needs: a generator, an exact denoiser, a standard score."""

import gc
from collections.abc import Iterator
from pathlib import Path

import jaxtyping
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gsure import Denoiser, Identity, Schedule
from gsure.evaluation import diagnose
from gsure.judging import baselines, verdict

ROOT = Path(__file__).parent.parent

MOST, CHOICE_ITERATIONS = verdict.MOST, baselines.CHOICE_ITERATIONS

torch.set_num_threads(1)  # tests run in parallel processes


def pytest_collection_finish() -> None:
    """What was imported and collected stays: collecting garbage, which each training run does, need not look through it."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def outside() -> Iterator[None]:
    """As a user's process sees the library: no shape checking, so that it must refuse bad input by itself."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def few_times(monkeypatch) -> None:
    """Diagnose at two timesteps, which takes a fraction of the time."""
    monkeypatch.setattr(diagnose, "times_to_check", lambda T: [round(0.02 * T), T])


@pytest.fixture(scope="session", autouse=True)
def quick_judgement() -> Iterator[None]:
    """Every run ends with a verdict: on few measurements, and against a total variation that is chosen in few iterations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verdict, "MOST", 24)
        patch.setattr(baselines, "CHOICE_ITERATIONS", 5)
        yield


@pytest.fixture(scope="module")
def full_judgement() -> Iterator[None]:
    """As users get it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verdict, "MOST", MOST)
        patch.setattr(baselines, "CHOICE_ITERATIONS", CHOICE_ITERATIONS)
        yield


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


def mask_blind_denoiser(correlation: float, keep: float) -> Denoiser:
    """The exact E[x̄_i | x̄_t, P_ii = 1] of a 2-D Gaussian for a network that is not told P: a mixture over the other's mask."""
    schedule = Schedule.linear(1e-4, 0.02, 1000)
    C = torch.tensor([[1, correlation], [correlation, 1]], dtype=torch.float64)

    def given(mask, x_t, a):
        S = a * mask[:, None] * C * mask + (1 - a) * torch.eye(2, dtype=torch.float64)
        posterior = a**0.5 * (C * mask) @ torch.linalg.inv(S)
        log_density = -0.5 * torch.einsum("bi,ij,bj->b", x_t, torch.linalg.inv(S), x_t) - 0.5 * torch.logdet(S)
        return x_t @ posterior.mT, log_density

    def f(x_t, t):
        a = schedule.alpha_bar[t[0]].item()
        full, log_full = given(torch.ones(2).double(), x_t, a)
        outputs = []
        for i in range(2):
            alone, log_alone = given(torch.eye(2).double()[i], x_t, a)
            both = torch.sigmoid(log_full - log_alone + torch.logit(torch.tensor(keep, dtype=torch.float64)))
            outputs.append(both * full[:, i] + (1 - both) * alone[:, i])
        return torch.stack(outputs, 1)

    return Denoiser(Function(f), schedule, Identity())
