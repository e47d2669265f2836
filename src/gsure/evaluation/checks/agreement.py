"""Does the model, which only ever saw incomplete signals, denoise whole ones as an oracle does? (sec:generalization)

As in the paper: the PSNR between the outputs f and g of both for the same x̄_t of whole signals, q*(x̄_t | x̄), against t;
there it is above 45 dB at most times. Decibels depend on how large networks are, so the verdict also looks at the cost:
if the oracle were the best denoiser there is, the model's squared error would exceed the oracle's by just E‖f - g‖².
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gsure.denoiser import BaseDenoiser
from gsure.evaluation.checks.check import Check, judge
from gsure.evaluation.checks.independence import Read
from gsure.evaluation.checks.windows import as_images
from gsure.metrics import psnr
from gsure.random import generators, normal

NAME, TITLE = "agreement", "Does it denoise whole signals as an oracle does?"
CLOSE = 45.0
"""Decibels that the paper calls valid."""
COST = 0.1
"""Below 45 dB, the distance may still be this share of the oracle's own squared error."""
STREAM = 12
"""Keeps this noise apart from others."""


def check_agreement(
    denoiser: BaseDenoiser,
    oracle: BaseDenoiser,
    read: Read,
    times: Sequence[int],
    is_complex: bool,
    *,
    seed: int = 0,
    advance: Callable[[int], None] = lambda done: None,
) -> Check:
    """PSNR and cost at each time, and in words what they say. Both denoisers must have the same schedule."""
    rows = []
    for t in times:
        rows.append({"t": t} | _compare(denoiser, oracle, read, t, is_complex, seed))
        advance(1)
    fails = [row["psnr"] < CLOSE and row["cost"] > COST for row in rows]
    verdict = judge(times, fails, denoiser.schedule.T)
    worst, above = max(rows, key=lambda row: row["cost"]), sum(row["psnr"] >= CLOSE for row in rows)
    words = (
        f"The outputs of model and oracle differ by up to {100 * worst['cost']:.0f} % of the oracle's own squared error "
        f"(t = {worst['t']}); up to {100 * COST:.0f} % passes. Their PSNR is {min(row['psnr'] for row in rows):.1f} to "
        f"{max(row['psnr'] for row in rows):.1f} dB, at {above} of {len(rows)} times at least the {CLOSE:g} dB of the paper."
    )
    return Check(NAME, TITLE, verdict, words, numbers={"times": rows})


@torch.no_grad()
def _compare(
    denoiser: BaseDenoiser, oracle: BaseDenoiser, read: Read, t: int, is_complex: bool, seed: int
) -> dict[str, Any]:
    decibels: list[Float[Tensor, " b"]] = []
    distance = of_oracle = of_model = 0.0
    for _, xbar, indices in read():
        assert xbar is not None
        time = torch.full((len(xbar),), t)
        alpha_bar_t = denoiser.schedule.at(time, like=xbar)
        eps = normal(xbar.shape, generators(seed, STREAM, t, indices=indices), like=xbar)
        xbar_t = alpha_bar_t.sqrt().to(xbar) * xbar + (1 - alpha_bar_t).sqrt().to(xbar) * eps
        mine, theirs = denoiser(xbar_t, time), oracle(xbar_t, time)
        x, reference = (as_images(denoiser.basis.to_signal(hat)) for hat in (mine, theirs))
        decibels.append(psnr(x, reference, is_complex).cpu())
        distance += float((mine - theirs).double().square().sum())
        of_oracle += float((theirs - xbar).double().square().sum())
        of_model += float((mine - xbar).double().square().sum())
    return {
        "psnr": float(torch.cat(decibels).mean()),
        "cost": distance / of_oracle,
        "error_ratio": of_model / of_oracle,
    }
