"""Settings that fit the data and the time: `--preset auto`, the default.

`choose_settings` looks at the shape of the signals, at what is missing, and at the computer. The number of steps is left open:
`fit_to_budget` times a few steps of the run itself and takes as many as fit into the minutes. That happens once, and the run
records it.
"""

import dataclasses
import math
import os
import time
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from gsure.data.measurements import Measurements
from gsure.display import duration
from gsure.training.model import choose_device, make_network
from gsure.training.settings import DataInfo, Settings, option

MINUTES = 15.0
"""Time budget, unless another is given."""
HELD_OUT = (32, 256)
"""Measurements to hold out, at least and at most; if a volume has more, at least one volume."""
RESTORING_SHARE = 2 / 3
"""Of the time, before generation and posterior draws are trained too. Mixed from the start, restoration is worse."""
RESERVED = 0.15
"""Of the time, for validation and the verdict."""
IMPUTING_SHARE = 0.05
"""Of the time, at most, for imputation."""
TIMED = 3
"""Steps to time for each number of threads and each precision."""
TIMED_BATCH = 16
"""Samples in a timed step, at most: a very large batch would take minutes to time, and ranks the choices the same."""
BATCH, POSITIONS = 16, 2**16
"""Images in a batch, and patches in it: a step of 16 images of 320 × 368 pixels would take seconds."""
SMALL_BATCH, SMALL_POSITIONS = 64, 2**14
"""The same for small images, to restore: with few hidden entries in a batch, gradients are mostly noise. Of phantoms of
32 × 32, a network learned nothing in 30,000 steps of 16 images, and within 300 steps of 64."""


class Choice(NamedTuple):
    """The value of a setting, and the reason for it.

    >>> print(Choice("hide", (0.3, 1.0), "a reason"))
    hide=(0.3, 1.0): a reason
    """

    name: str
    value: Any
    reason: str

    def __str__(self) -> str:
        """As a keyword argument of `gsure.Settings`."""
        return f"{self.name}={self.value!r}: {self.reason}"

    def as_option(self) -> str:
        """As `gsure train` takes it.

        >>> Choice("hide", (0.3, 1.0), "a reason").as_option()
        '--hide [0.3,1.0]: a reason'
        """
        if isinstance(self.value, bool):
            return f"{option(self.name, self.value)}: {self.reason}"
        value = f"[{','.join(map(str, self.value))}]" if isinstance(self.value, tuple) else self.value
        return f"{option(self.name)} {value}: {self.reason}"


class Chosen(NamedTuple):
    settings: Settings
    choices: list[Choice]
    threads: int
    """CPU threads that are fastest now."""


def choose_settings(
    data: Measurements,
    changes: Mapping[str, Any] | None = None,
    device: str | torch.device | None = None,
    timed: bool = True,
) -> Chosen:
    """Settings for these measurements. `changes` are a user's own, which win. Without `timed`, nothing is measured."""
    info, where, changes = DataInfo.of(data), choose_device(device), dict(changes or {})
    choices = [choice for choice in _choose(data, info, where, changes) if choice.name not in changes]
    settings = Settings(**({choice.name: choice.value for choice in choices} | changes))
    threads = torch.get_num_threads()
    alone = os.environ.get("WORLD_SIZE", "1") == "1"  # several processes must choose the same
    if where.type == "cpu" and timed and alone and settings.network == "unet":
        threads, precision, reason = _fastest(settings, info, data.basis.is_signal)
        if "precision" not in changes:
            settings = dataclasses.replace(settings, precision=precision)
            choices.append(Choice("precision", precision, reason))
    return Chosen(settings, choices, threads)


def _choose(data: Measurements, info: DataInfo, device: torch.device, changes: Mapping[str, Any]) -> list[Choice]:
    n, is_image = info.samples, len(info.shape) == 3 and min(info.shape[1:]) >= 4 and changes.get("network") != "mlp"
    side = min(info.shape[1:]) if is_image else 0
    plain = changes.get("objective", "tweedie") != "tweedie" or changes.get("base") == "none"
    missing = float(data.coverage.min()) < 1 and changes.get("train_on") != "naive" and is_image and not plain
    restores = missing and changes.get("purpose") != "generate"
    steps = changes.get("steps")
    found = [
        _choose_batch(info, n, is_image, restores),
        Choice("lr", 1e-3, "small networks take large steps; with twice as large ones, some runs learn nothing"),
        Choice("decay", "cosine", "a rate that falls to zero needs no long average"),
        Choice("warmup", 100 if not steps else min(100, steps // 10), "Adam's second moments are poor at first"),
        Choice("beta_2", 0.99, "follows gradients that change quickly in a short run"),
        Choice("weight_decay", 0.01, "the usual one of AdamW"),
        Choice("ema", 0.998, "averages the last 500 steps at most"),
        _choose_held_out(data),
    ]
    if never := int((data.coverage == 0).sum()):
        reason = f"{never} of {data.coverage.numel()} entries are never measured: the model can only guess them"
        found.append(Choice("coverage_weighting", False, reason))
    if not steps:
        found += [
            Choice("steps", 0, "as many as fit into the minutes"),
            Choice("minutes", MINUTES, "the time of the whole run, unless you give another"),
        ]
    if not is_image:
        return [
            *found,
            *(_rhythm(steps) if steps else ()),
            Choice("network", "mlp", f"signals have shape {info.shape}"),
        ]
    found += _choose_unet(side, n, device)
    found += _rhythm(steps) if steps else []
    if not missing:
        return [
            *found,
            Choice("purpose", "generate", "nothing is missing, or other options exclude restoration in one call"),
            Choice("predicts", "v", "keeps details at low noise, and can start from noise"),
            Choice("weighting", "v", "errors in v count equally at all noise levels"),
            Choice("times", "lognormal", "most noise levels where images take shape"),
        ]
    purpose = changes.get("purpose", "both")
    if purpose == "generate" and changes.get("base") != "gaussian" and changes.get("train_on") != "clean":
        return [*found, *_choose_generation(data.basis.is_signal)]
    found += [
        Choice("purpose", "both", "restoration in one call first, then generation"),
        Choice("base", "gaussian", "the network learns a correction to the Gaussian prior"),
        Choice("hide", (0.3, 1.0), "hiding most of what was measured teaches most"),
        Choice("weighting", "wiener", "errors count relative to those of the Gaussian prior"),
        Choice("times", "lognormal" if data.basis.is_signal else "uniform", "noise levels as measured to work best"),
    ]
    if purpose == "both" and steps:
        found.append(Choice("impute_at", (round(RESTORING_SHARE * steps),), "after two thirds, also generation"))
        found.append(Choice("impute_count", min(n, 2000), "imputation takes time"))
    return found


def _choose_batch(info: DataInfo, n: int, is_image: bool, restores: bool) -> Choice:
    """Large images need smaller batches: the time of a step grows with the number of patches in it."""
    patches = max(1, math.prod(info.shape[1:]) // _patch(min(info.shape[1:])) ** 2) if is_image else 1
    wanted = min(SMALL_BATCH, max(BATCH, SMALL_POSITIONS // patches)) if restores else BATCH
    batch = max(1, min(wanted, 3 * n // 4, POSITIONS // patches))
    many, few = "fewer small images have too noisy gradients", "small batches give more steps in the same time"
    return Choice("batch", batch, many if batch > BATCH else few)


def _patch(side: int) -> int:
    return 1 if side < 24 else 2 if side <= 160 else 4


def _choose_generation(is_signal: bool) -> list[Choice]:
    """For incomplete data, and generation alone. The Gaussian imputes, and is not the base, which makes generation slower."""
    times, weighting = ("lognormal", "wiener") if is_signal else ("uniform", "eps")
    return [
        Choice("predicts", "v", "keeps details at low noise, and can start from noise"),
        Choice("impute_at", (0,), "the Gaussian prior imputes what is missing, before the first step"),
        Choice("weighting", weighting, "weights over t as measured to work best"),
        Choice("times", times, "noise levels as measured to work best"),
    ]


def _choose_unet(side: int, n: int, device: torch.device) -> list[Choice]:
    patch = _patch(side)
    wide = device.type == "cuda"
    return [
        Choice("patch", patch, f"images of {side} pixels as patches of {patch}: wider and faster"),
        Choice(
            "width", 32 if wide else 16, "a GPU has room for more" if wide else "a CPU network of about 1 M parameters"
        ),
        Choice("multipliers", (2, 3, 4) if side // patch >= 16 else (2, 4), "channels grow as resolution falls"),
        Choice("layers", 2 if wide else 1, "residual blocks per resolution"),
        Choice("groups", 4, "few groups in a narrow network"),
        Choice("dropout", 0.0 if n >= 500 else 0.1, f"{n:,} measurements"),
    ]


def _rhythm(steps: int) -> list[Choice]:
    every = max(1, -(-steps // 6))
    return [
        Choice("checkpoint_every", every, "six checkpoints, each validated"),
        Choice("picture_every", steps, "pictures at the end"),
        Choice("log_every", max(1, min(50, steps // 20)), "lines of the log"),
    ]


def _choose_held_out(data: Measurements) -> Choice:
    """A share of the groups that has enough measurements, and leaves most for training."""
    least, most = HELD_OUT
    groups = len(set(data.groups()))
    if groups == 1:
        return Choice("held_out", 0.0, "all measurements are of one group, such as a volume, which is not divided")
    wanted = min(most, max(least, len(data) // 20))
    share = round(min(0.2, max(wanted / len(data), 1.0 / groups)), 4)
    return Choice("held_out", share, "to choose the best checkpoint, and for the verdict")


def _fastest(settings: Settings, info: DataInfo, is_signal: bool) -> tuple[int, Literal["float32", "bf16"], str]:
    """Threads and precision with which a network of these settings is fastest now: others may use the computer too."""
    network = make_network(settings, info, is_signal).eval()  # dropout would draw from the global generator
    before = torch.get_num_threads()
    inputs, batch = 2 if settings.base == "gaussian" else 1, min(settings.batch, TIMED_BATCH)
    x = torch.zeros(batch, inputs * info.shape[0], *info.shape[1:])
    t = torch.ones(batch, dtype=torch.long)
    conditioned = settings.base == "gaussian" or settings.mask_conditioned
    mask = (torch.ones(batch, *info.mask_shape),) if conditioned else ()
    seconds: dict[tuple[int, Literal["float32", "bf16"]], float] = {}
    precisions: tuple[Literal["float32", "bf16"], ...] = ("float32", "bf16")
    for threads in sorted({1, before}):
        torch.set_num_threads(threads)
        for precision in precisions:
            seconds[threads, precision] = _time_step(network, precision, x, t, *mask)
    torch.set_num_threads(before)
    threads, precision = min(seconds, key=lambda key: seconds[key])
    other = seconds[threads, "float32" if precision == "bf16" else "bf16"]
    ratio = other / seconds[threads, precision]
    with_threads = f"with {threads} of {before} threads" if before > 1 else "with one thread"
    slower = "bf16" if precision == "float32" else "float32"
    return threads, precision, f"{ratio:.1f} times as fast as {slower}, {with_threads}, the fastest now"


def _time_step(network: nn.Module, precision: str, *inputs: torch.Tensor) -> float:
    times = []
    for _ in range(TIMED):
        began = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            found = network(*inputs)
        found.float().square().mean().backward()
        times.append(time.perf_counter() - began)
    network.zero_grad()
    return min(times)


def fit_to_budget(
    settings: Settings, seconds_per_step: tuple[float, float], seconds_per_imputed: float, seconds_left: float, n: int
) -> Settings:
    """As many steps as fit into the time that is left, for a run that has `steps=0`.

    `seconds_per_step` are those before and after signals are imputed; `n` is the number of measurements to train on.
    """
    available = seconds_left * (1 - RESERVED)
    first, then = seconds_per_step
    changes: dict[str, Any] = {}
    if settings.purpose == "both":
        imputes = settings.train_on == "measurements"
        count = int(np.clip(IMPUTING_SHARE * available / max(seconds_per_imputed, 1e-9), min(n, 256), n))
        imputing = count * seconds_per_imputed if imputes else 0.0
        before = max(1, int(RESTORING_SHARE * available / first))
        after = max(0, int(((1 - RESTORING_SHARE) * available - imputing) / then))
        steps = before + after
        changes = {"impute_at": (before,), "impute_count": count} if after else {}
    else:
        steps = int(available / first)
    if steps < MIN_STEPS:
        began = max(0.0, 60 * settings.minutes - seconds_left)
        needed = math.ceil((began + 2 * MIN_STEPS * first / (1 - RESERVED)) / 60 + 0.5)
        raise ValueError(
            f"{settings.minutes:g} minutes are too short: preparing took {duration(began)}, a step takes {first:.2g} s, and "
            f"at least {MIN_STEPS} steps are needed for one checkpoint that means anything. Give at least {needed} minutes, "
            "or a number of steps."
        )
    rhythm = {choice.name: choice.value for choice in _rhythm(steps)}
    return dataclasses.replace(settings, steps=steps, warmup=min(settings.warmup, steps // 10), **changes, **rhythm)


MIN_STEPS = 20
"""A run of fewer steps has learned nothing."""
