"""Validation without clean data: the exact estimate of the projected denoising error on held-out measurements, and pictures.
At the end, the verdict: does the model predict held-out measured entries better than no model does?

For each bin of t and over all of them: the mean over held-out measurements of R_t's estimate, which is unbiased, with its
standard error. Noise depends on (seed, measurement, bin) alone, so two checkpoints are compared on the same noise. Where
clean signals are given, the true error of the same outputs stands beside it, and the error on fully sampled signals.
"""

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from gsure.data.source import evenly_spread
from gsure.denoiser import BaseDenoiser, evaluating
from gsure.display import say
from gsure.divergence import Divergence
from gsure.files import replacing
from gsure.gaussian import About, Fitted
from gsure.judging import Baselines, choose_judged, predict_hidden
from gsure.measurement import Measurement
from gsure.objective import Objective, Prediction
from gsure.plotting import as_picture, draw_rows, tint_missing
from gsure.random import Stream, generators, normal, uniform
from gsure.restoration import ddrm
from gsure.sampling import dpm
from gsure.training.examples import Examples
from gsure.training.model import open_model
from gsure.training.run import Run, read_verdict

JUDGED_DRAWS, JUDGED_STEPS = 4, 10
"""Posterior samples of each measurement for the verdict, and their sampling steps: a quick look, `gsure restore` takes more.
With few steps, fresh noise at each of them (η = 1) and more of them near t = 0 restore best."""


@torch.no_grad()
def validate(
    denoiser: BaseDenoiser,
    held_out: Examples,
    accelerator: Accelerator,
    batch: int,
    advance: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """{"estimate": {"mean", "se"}, ..., "t_bins": [{"t", "estimate", "estimate_se", ...}]}; each process computes its share.

    `advance` is called with the number of measurements that have just been denoised in a bin.
    """
    settings = held_out.settings
    weighting = (
        "v" if settings.weighting == "wiener" else settings.weighting
    )  # as in training, so that the best is best for that
    exact = Objective(
        "exact",
        coverage=held_out.coverage,
        weighting=weighting,
        max_std=held_out.max_std,
        divergence=Divergence("finite-difference"),
    )
    plain = Objective("tweedie", coverage=1.0, weighting=weighting)
    edges = [round(denoiser.schedule.T * k / settings.t_bins) for k in range(settings.t_bins + 1)]
    positions = evenly_spread(settings.validate_on, len(held_out))  # not only from the first volumes
    n = len(positions)
    names = ("estimate",) if held_out.signals is None else ("estimate", "true", "difference", "full")
    values = {name: torch.zeros(n, settings.t_bins, dtype=torch.float64) for name in names}
    mine = np.arange(n)[accelerator.process_index :: accelerator.num_processes]
    with evaluating(denoiser):
        for rows in np.array_split(mine, -(-len(mine) // batch)):
            for t_bin, (low, high) in enumerate(itertools.pairwise(edges)):
                at = (t_bin, low, high)
                for name, value in _errors(denoiser, held_out, positions[rows], exact, plain, at, accelerator.device):
                    values[name][rows, t_bin] = value.double().cpu()
                advance(len(rows))
    values = {name: accelerator.reduce(value.to(accelerator.device), "sum").cpu() for name, value in values.items()}
    _, groups = np.unique(np.array(held_out.measurements.groups())[positions], return_inverse=True)
    return _summary(values, edges, torch.from_numpy(groups))


@torch.no_grad()
def validate_prediction(
    denoiser: BaseDenoiser, held_out: Examples, prediction: Prediction, accelerator: Accelerator, batch: int
) -> dict[str, Any]:
    """The error on hidden entries of held-out measurements, as a share of the Gaussian's; with the true error beside it, of
    the signals restored from all that was measured, where clean signals are given."""
    positions, device = evenly_spread(held_out.settings.validate_on, len(held_out)), accelerator.device
    names = ("estimate",) if held_out.signals is None else ("estimate", "full")
    values = {name: torch.zeros(len(positions), 1, dtype=torch.float64) for name in names}
    mine = np.arange(len(positions))[accelerator.process_index :: accelerator.num_processes]
    with evaluating(denoiser):
        for rows in np.array_split(mine, -(-len(mine) // batch)):
            pair, numbers = held_out.pair(positions[rows]).to(device), held_out.measurements.indices[positions[rows]]
            noise = generators(held_out.settings.seed, Stream.VALIDATION_HIDDEN, indices=numbers, device=device)
            values["estimate"][rows, 0] = prediction(denoiser, pair.measured, noise, pair.target).double().cpu()
            if held_out.signals is not None:
                away = denoiser.estimate(pair.measured) - held_out.xbar(positions[rows]).to(device)
                values["full"][rows, 0] = (away**2).flatten(1).mean(1).double().cpu()
    values = {name: accelerator.reduce(value.to(device), "sum").cpu() for name, value in values.items()}
    _, groups = np.unique(np.array(held_out.measurements.groups())[positions], return_inverse=True)
    return _summary(values, [0, 0], torch.from_numpy(groups)) | {"t_bins": []}


def _errors(
    denoiser: BaseDenoiser,
    held_out: Examples,
    positions: np.ndarray,
    exact: Objective,
    plain: Objective,
    t_bin: tuple[int, int, int],
    device: torch.device,
) -> Iterator[tuple[str, Tensor]]:
    number, low, high = t_bin
    (input, measurement, _), seed = held_out.pair(positions).to(device), held_out.settings.seed
    input = measurement if input is None else input
    numbers = held_out.measurements.indices[positions]

    def noise() -> list[torch.Generator]:
        return generators(seed, Stream.VALIDATION_NOISE, number, indices=numbers, device=device)

    times = generators(seed, Stream.VALIDATION_TIMES, number, indices=numbers, device=device)
    u = uniform((len(positions),), times, like=measurement.ybar)
    t = low + 1 + (u * (high - low)).long().clamp(max=high - low - 1)
    estimate = exact.loss(denoiser, input, measurement, t, noise())
    yield "estimate", estimate
    if held_out.signals is None:
        return
    xbar = held_out.xbar(positions).to(device)
    truth = Measurement._trusted(measurement.mask * xbar, measurement.mask, torch.zeros_like(measurement.std))
    true = exact.loss(denoiser, input, truth, t, noise())  # the same x̄_t, compared with the truth
    yield "true", true
    yield "difference", estimate - true
    yield "full", plain(denoiser, Measurement.clean(xbar), t, noise())


def _summary(values: dict[str, Tensor], edges: list[int], groups: Tensor) -> dict[str, Any]:
    t_bins: list[dict[str, Any]] = [{"t": [low + 1, high]} for low, high in itertools.pairwise(edges)]
    summary: dict[str, Any] = {}
    for name, by_bin in values.items():
        value = torch.cat([by_bin.mean(1, keepdim=True), by_bin], 1)  # over all t first, then each bin
        mean = value.mean(0)
        se = standard_error(value - mean, groups)
        summary[name] = {"mean": float(mean[0]), "se": float(se[0])}
        for t_bin, m, s in zip(t_bins, mean[1:].tolist(), se[1:].tolist(), strict=True):
            t_bin |= {name: m, f"{name}_se": s}
    return {**summary, "t_bins": t_bins}


def standard_error(deviations: Tensor, groups: Tensor) -> Tensor:
    """Of a mean over samples, given their deviations from it; those of one group (a volume) need not be independent.

    Of a single group it is not known: 0.

    >>> independent = standard_error(torch.tensor([[1.0], [-1.0], [1.0], [-1.0]]), torch.tensor([0, 1, 2, 3]))
    >>> round(float(independent), 4) == round((4 / 3) ** 0.5 / 4**0.5, 4)
    True
    >>> standard_error(torch.tensor([[0.3], [-0.3]]), torch.tensor([0, 0]))
    tensor([0.])
    """
    count = int(groups.max()) + 1
    if count == 1:
        return torch.zeros_like(deviations[0])
    by_group = torch.zeros(count, deviations.shape[1], dtype=deviations.dtype).index_add(0, groups, deviations)
    return (by_group**2).sum(0).sqrt() / len(deviations) * (count / (count - 1)) ** 0.5


def judge_run(run: Run, prior: Fitted, examples: Examples, accelerator: Accelerator, progress: bool = False) -> str:
    """Compare the best checkpoint of a run with the baselines on measurements that it did not learn from.

    Writes RUN/verdict.json, by the main process; returns the sentence.
    """
    if accelerator.is_main_process:
        loaded = open_model(run, device=accelerator.device)
        if progress:
            say("Judging the model by hidden entries ...")
        predicts = run.config.settings.purpose != "generate"
        record = _judge(loaded.denoiser, prior, examples, predicts)
        if progress and (count := record.get("total_variation_unconverged")):
            say(f"Total variation did not converge for {count:,} of {record['measurements']:,} images.")
        with replacing(run.verdict) as temporary:
            temporary.write_text(json.dumps({"step": loaded.step} | record, indent=1, ensure_ascii=False))
    accelerator.wait_for_everyone()
    return read_verdict(run)["verdict"]


def _judge(denoiser: BaseDenoiser, prior: Fitted, examples: Examples, predicts: bool) -> dict[str, Any]:
    """`predicts` says that the model was trained to restore in one call."""
    data, seed = examples.measurements, examples.settings.seed
    where = choose_judged(len(data), data.shape)
    measurement, numbers = examples.as_measured(where), data.indices[where].tolist()
    about = About(data.basis, tuple(data.shape), bool(data.header["complex"]), prior.always, data.unit)
    baselines = Baselines.choose(measurement, about, prior.gaussian, seed)
    device = next(denoiser.parameters(), torch.empty(0)).device
    steps = min(JUDGED_STEPS, denoiser.schedule.T)

    unconverged: list[int] = []

    def estimate(shown: Measurement) -> dict[str, Tensor]:
        others = baselines(shown)
        unconverged.append(others.unconverged)
        return {"mean": restored(shown)} | others.signals

    @torch.no_grad()
    def restored(shown: Measurement) -> Tensor:
        if predicts:
            return denoiser.basis.to_signal(denoiser.estimate(shown.to(device))).cpu()
        many = Measurement.cat([shown] * JUDGED_DRAWS).to(device)
        noise = [
            g
            for draw in range(JUDGED_DRAWS)
            for g in generators(seed, Stream.JUDGED_DRAWS, draw, indices=numbers, device=device)
        ]
        drawn = denoiser.basis.to_signal(
            ddrm(denoiser, many, steps, eta=1.0, spacing="quadratic", generator=noise)
        ).cpu()
        return drawn.unflatten(0, (JUDGED_DRAWS, -1)).mean(0)

    groups = data.subset(where).groups()
    found = predict_hidden(estimate, measurement, about, numbers, groups, seed, baselines.real_images)
    return found.as_dict() | ({"total_variation_unconverged": sum(unconverged)} if sum(unconverged) else {})


def draw_samples(
    path: Path, denoiser: BaseDenoiser, examples: Examples, step: int, rows: int = 4, columns: int = 8
) -> None:
    """Samples by 25 steps of DPM-Solver++, from the same noise each time."""
    data, n = examples.measurements, rows * columns
    noise = generators(examples.settings.seed, Stream.PREVIEW_SAMPLES, indices=range(n))
    steps = min(25, denoiser.schedule.T)
    x = data.basis.to_signal(dpm(denoiser, (n, *data.shape), steps, "quadratic", generator=noise)).cpu()
    pictures = [as_picture(sample, data.header["complex"], data.black) for sample in x]
    lines = [("", pictures[row * columns :][:columns]) for row in range(rows)]
    draw_rows(path, lines, f"samples after {step:,} steps ({steps} sampling steps)")


@torch.no_grad()
def draw_denoised(path: Path, denoiser: BaseDenoiser, held_out: Examples, step: int, columns: int = 8) -> None:
    """Held-out measurements, noise added to them at three levels, and what the network makes of it."""
    data = held_out.measurements
    positions = list(range(min(columns, len(data))))
    like = next(denoiser.parameters())
    pair, seed = held_out.pair(positions).to(like.device), held_out.settings.seed
    measurement, input = pair.target, pair.target if pair.input is None else pair.input

    def pictures(xbar: torch.Tensor) -> list[torch.Tensor]:
        return [as_picture(x, data.header["complex"], data.black) for x in data.basis.to_signal(xbar).cpu()]

    measured = pictures(measurement.ybar)
    if data.basis.is_signal:
        kept = measurement.mask.expand_as(measurement.ybar).amax(1).cpu()
        measured = [tint_missing(picture, mask) for picture, mask in zip(measured, kept, strict=True)]
    rows = [("measured", measured)]
    if pair.input is not None:
        rows.append(("imputed", pictures(input.ybar)))
    for share in (0.1, 0.3, 0.6):
        t = torch.full((len(positions),), max(1, round(share * denoiser.schedule.T)), device=like.device)
        alpha_bar_t = denoiser.schedule.at(t, like=measurement.ybar)
        noise = generators(seed, Stream.PREVIEW_DENOISED, int(t[0]), indices=positions)
        eps = normal(measurement.shape, noise, like=like)
        xbar_t = input.perturb(alpha_bar_t, eps)
        rows.append((f"t = {int(t[0])}", pictures(xbar_t)))
        rows.append(("denoised", pictures(denoiser(xbar_t, t, input.mask))))
    if held_out.signals is not None:
        rows.append(("clean", pictures(held_out.xbar(positions))))
    draw_rows(path, rows, f"held-out measurements after {step:,} steps")
