"""The verdict at the end of training: does the model predict held-out measured entries better than no model does?"""

import json
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from gsure.denoiser import BaseDenoiser
from gsure.display import say
from gsure.files import replacing
from gsure.gaussian import About, Fitted
from gsure.judging import Baselines, choose_judged, predict_hidden
from gsure.measurement import Measurement
from gsure.random import Stream, generators
from gsure.restoration import ddrm
from gsure.training.examples import Examples
from gsure.training.model import open_model
from gsure.training.run import Run, read_verdict

DRAWS, STEPS = 4, 10
"""Posterior samples of each measurement, and their sampling steps: a quick look, `gsure restore` takes more. With few steps,
fresh noise at each of them (η = 1) and more of them near t = 0 restore best."""


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
    steps = min(STEPS, denoiser.schedule.T)

    unconverged: list[int] = []

    def estimate(shown: Measurement) -> dict[str, Tensor]:
        others = baselines(shown)
        unconverged.append(others.unconverged)
        return {"mean": restored(shown)} | others.signals

    @torch.no_grad()
    def restored(shown: Measurement) -> Tensor:
        if predicts:
            return denoiser.basis.to_signal(denoiser.estimate(shown.to(device))).cpu()
        many = Measurement.cat([shown] * DRAWS).to(device)
        noise = [
            g
            for draw in range(DRAWS)
            for g in generators(seed, Stream.JUDGED_DRAWS, draw, indices=numbers, device=device)
        ]
        drawn = denoiser.basis.to_signal(
            ddrm(denoiser, many, steps, eta=1.0, spacing="quadratic", generator=noise)
        ).cpu()
        return drawn.unflatten(0, (DRAWS, -1)).mean(0)

    groups = data.subset(where).groups()
    found = predict_hidden(estimate, measurement, about, numbers, groups, seed, baselines.real_images)
    return found.as_dict() | ({"total_variation_unconverged": sum(unconverged)} if sum(unconverged) else {})
