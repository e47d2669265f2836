"""Does the model denoise fully sampled signals like a clean-trained reference? (sec:generalization)

As in the paper, the check computes the PSNR between the outputs f of the model and g of the reference (the paper's oracle),
for the same x̄_t of fully sampled signals, q*(x̄_t | x̄), against t. In the paper it is above 45 dB at most timesteps. The PSNR
depends on the size of the networks, so the verdict also uses the cost E‖f - g‖², relative to the squared error of the
reference. If the reference were the best denoiser, the squared error of the model would be larger by this amount.
"""

from collections.abc import Callable, Sequence
from typing import Any

from gsure.denoiser import BaseDenoiser
from gsure.evaluation.checks.check import Check, judge, measure_at
from gsure.evaluation.checks.comparison import compare_denoisers
from gsure.evaluation.checks.held_out import HeldOut
from gsure.random import Stream

NAME, TITLE = "agreement", "Does it denoise fully sampled signals as a clean-trained reference does?"
MIN_PSNR = 45.0
"""The smallest PSNR in dB that the paper calls valid."""
MAX_COST = 0.1
"""Below 45 dB, the largest squared distance that passes, as a share of the reference's own squared error."""


def check_agreement(
    denoiser: BaseDenoiser,
    reference: BaseDenoiser,
    data: HeldOut,
    times: Sequence[int],
    is_complex: bool,
    advance: Callable[[int], None] = lambda done: None,
) -> Check:
    """PSNR and cost at each timestep, and the verdict. Both denoisers must have the same schedule."""

    def measure(t: int) -> dict[str, Any]:
        signals = ((xbar, indices) for _, xbar, indices in data.with_signals())
        found = compare_denoisers(denoiser, reference, signals, t, is_complex, Stream.AGREEMENT, data.seed)
        of_reference = found.reference_error.sum()
        return {
            "psnr": float(found.psnr.mean()),
            "cost": float(found.distance.sum() / of_reference),
            "error_ratio": float(found.error.sum() / of_reference),
        }

    rows = measure_at(times, measure, advance)
    fails = [row["psnr"] < MIN_PSNR and row["cost"] > MAX_COST for row in rows]
    verdict = judge(times, fails, denoiser.schedule.T)
    worst, above = max(rows, key=lambda row: row["cost"]), sum(row["psnr"] >= MIN_PSNR for row in rows)
    words = (
        f"The outputs of the model and of the clean-trained reference differ by up to {100 * worst['cost']:.0f} % of the "
        f"reference's own squared error (t = {worst['t']}); up to {100 * MAX_COST:.0f} % passes. The PSNR between them is "
        f"{min(row['psnr'] for row in rows):.1f} to {max(row['psnr'] for row in rows):.1f} dB. At {above} of {len(rows)} "
        f"timesteps it reaches the {MIN_PSNR:g} dB of the paper."
    )
    return Check(NAME, TITLE, verdict, words, numbers={"times": rows})
