"""Compare two denoisers on the same noisy, fully sampled signals (sec:generalization)."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.denoiser import BaseDenoiser
from gsure.evaluation.checks.windows import as_images
from gsure.measurement import Measurement
from gsure.metrics import psnr
from gsure.random import Stream, generators, normal


class Comparison(NamedTuple):
    """Values for each signal: mean squared errors of both denoisers, the squared distance and the PSNR between outputs."""

    error: Float[Tensor, " n"]
    reference_error: Float[Tensor, " n"]
    distance: Float[Tensor, " n"]
    psnr: Float[Tensor, " n"]


@torch.no_grad()
def compare_denoisers(
    denoiser: BaseDenoiser,
    reference: BaseDenoiser,
    signals: Iterable[tuple[Float[Tensor, "b *n"], Sequence[int]]],
    t: int,
    is_complex: bool,
    stream: Stream,
    seed: int,
) -> Comparison:
    """Compare two denoisers of the same schedule at one timestep.

    `signals` yields batches of x̄ and the numbers of the signals, which determine their noise.
    """
    parts: list[tuple[Tensor, ...]] = []
    for xbar, indices in signals:
        time = torch.full((len(xbar),), t)
        eps = normal(xbar.shape, generators(seed, stream, t, indices=indices, device=xbar.device), like=xbar)
        xbar_t = Measurement.clean(xbar).perturb(denoiser.schedule.at(time, like=xbar), eps)
        mine, theirs = denoiser(xbar_t, time), reference(xbar_t, time)
        x, y = (as_images(denoiser.basis.to_signal(hat)) for hat in (mine, theirs))
        errors = [
            (a - b).double().square().flatten(1).mean(1) for a, b in ((mine, xbar), (theirs, xbar), (mine, theirs))
        ]
        parts.append((*errors, psnr(x, y, is_complex)))
    return Comparison(*(torch.cat(values).cpu() for values in zip(*parts, strict=True)))
