"""The noise schedule of a diffusion: how much signal, ᾱ_t, is left at each integer time t in 0..T.

    q*(x̄_t | x̄) = N(√ᾱ_t x̄, (1 - ᾱ_t) I),    ᾱ_t = Π_{s ≤ t} (1 - β_s),    ᾱ_0 = 1.

Measurement noise puts a limit on the first step (eq:noise-add): the noise already in a kept entry, ᾱ_t std², must fit
into what the diffusion asks for, 1 - ᾱ_t. As ᾱ_t falls, t = 1 decides: the smallest admissible β_1 is std² / (1 + std²).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from gsure.random import Seed, as_generators, uniform

TOLERANCE = 1e-6
"""Relative excess of the measurement's variance over the diffusion's that counts as float error (float32 has 1e-7)."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """A table of ᾱ_t, kept in float64 and made from the steps β_1..β_T.

    >>> schedule = Schedule.linear(beta_1=4e-4, beta_T=0.02, T=1000)
    >>> schedule.T, float(schedule.alpha_bar[0]), round(float(schedule.alpha_bar[1]), 6)
    (1000, 1.0, 0.9996)
    """

    beta: Float64[Tensor, " T"]
    alpha_bar: Float64[Tensor, " T+1"] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if (
            not isinstance(self.beta, Tensor)
            or self.beta.ndim != 1
            or len(self.beta) == 0
            or self.beta.dtype != torch.float64
        ):
            raise ValueError(
                f"A schedule needs a float64 vector of at least one beta, but was given {self.beta!r}: use "
                "Schedule.linear, cosine or for_noise, or convert it."
            )
        bad = ~((self.beta > 0) & (self.beta < 1))
        if bad.any():
            t = int(bad.nonzero()[0]) + 1
            raise ValueError(
                f"Every beta must lie strictly between 0 and 1, but beta_{t} is {float(self.beta[t - 1]):g}."
            )
        object.__setattr__(self, "beta", self.beta.cpu())
        object.__setattr__(
            self, "alpha_bar", torch.cat([torch.ones(1, dtype=torch.float64), torch.cumprod(1 - self.beta, 0)])
        )
        if float(self.alpha_bar[-1]) < 1e-30:
            raise ValueError(
                f"alpha_bar_T is {float(self.alpha_bar[-1]):.0e}, beyond what float32 can divide by: lower beta_T or T "
                "(the paper prints beta_T = 0.2 at T = 1000; its released configurations use 0.02)."
            )

    @property
    def T(self) -> int:
        return len(self.beta)

    @staticmethod
    def linear(beta_1: float = 1e-4, beta_T: float = 0.02, T: int = 1000) -> "Schedule":
        """β rises linearly from β_1 to β_T. The paper prints β_T = 0.2; its released configurations use 0.02, and so do we."""
        if T < 1 or not 0 < beta_1 <= beta_T < 1:
            raise ValueError(
                f"A linear schedule needs T >= 1 and 0 < beta_1 <= beta_T < 1, but was given T = {T}, "
                f"beta_1 = {beta_1:g}, beta_T = {beta_T:g}."
            )
        return Schedule(torch.linspace(beta_1, beta_T, T, dtype=torch.float64))

    @staticmethod
    def cosine(T: int = 1000, offset: float = 0.008, beta_max: float = 0.999) -> "Schedule":
        """ᾱ_t falls like a squared cosine (Nichol and Dhariwal, 2021)."""
        if T < 1:
            raise ValueError(f"A schedule needs T >= 1, but was given T = {T}.")
        time = torch.arange(T + 1, dtype=torch.float64) / T
        alpha_bar = torch.cos((time + offset) / (1 + offset) * torch.pi / 2) ** 2
        return Schedule((1 - alpha_bar[1:] / alpha_bar[:-1]).clamp(max=beta_max))

    @staticmethod
    def for_noise(max_std: float, beta_1: float = 1e-4, beta_T: float = 0.02, T: int = 1000) -> "Schedule":
        """The linear schedule, entered where its noise first reaches the data's, in T steps from there on.

        Departs from the paper, which raises β_1 to σ_0² and keeps β_T: that ends with ᾱ_T ≈ 0 for high noise, and has no
        answer where σ_0² > β_T. Here the last level stays that of `Schedule.linear(beta_1, beta_T, T)` for any noise,
        low noise (std² ≤ β_1, clean data too) gets that schedule itself, and the first step is just admissible.

        >>> float(Schedule.for_noise(0.4).alpha_bar[1]) * (1 + 0.4**2)
        1.0
        """
        if not 0 <= max_std < float("inf"):
            raise ValueError(
                f"max_std must be a finite number of at least 0, but is {max_std}: give the largest std of the kept entries."
            )
        linear = Schedule.linear(beta_1, beta_T, T)
        log_alpha_bar = linear.alpha_bar.log()
        first = -torch.log1p(torch.tensor(max_std, dtype=torch.float64) ** 2)  # ᾱ_1 = 1 / (1 + std²)
        if first >= log_alpha_bar[1]:
            return linear
        if first <= log_alpha_bar[-1]:
            raise ValueError(
                f"Noise of std {max_std:g} is above the schedule's last level, {float(linear.sigma[-1]):.3g}: scale the data "
                "down, so that signals are of order one, or raise beta_T or T."
            )
        # Where log ᾱ, linear between integer times, crosses the first level; then T equal strides of time to the end.
        above = int((log_alpha_bar > first).sum()) - 1
        entry = above + (log_alpha_bar[above] - first) / (log_alpha_bar[above] - log_alpha_bar[above + 1])
        time = torch.lerp(
            entry, torch.tensor(float(T), dtype=torch.float64), torch.linspace(0, 1, T, dtype=torch.float64)
        )
        floor = time.floor().clamp(max=T - 1).long()
        log_table = torch.lerp(log_alpha_bar[floor], log_alpha_bar[floor + 1], time - floor)
        log_table = torch.cat([torch.zeros(1, dtype=torch.float64), first[None], log_table[1:]])
        return Schedule(-torch.expm1(log_table.diff()))

    @property
    def sigma(self) -> Float64[Tensor, " _"]:
        """Noise level ς_t = √((1 - ᾱ_t) / ᾱ_t) of x̄_t / √ᾱ_t; the scale on which measurement noise is compared."""
        return ((1 - self.alpha_bar) / self.alpha_bar).sqrt()

    def at(self, t: Int[Tensor, " b"], like: Float[Tensor, "b *n"]) -> Float64[Tensor, "b *ones"]:
        """ᾱ_t of each sample, shaped to broadcast against `like`; in float64, as 1 - ᾱ_t loses four digits in float32."""
        if (
            t.device.type == "cpu" and len(t) and (int(t.min()) < 0 or int(t.max()) > self.T)
        ):  # a GPU would have to wait
            raise ValueError(f"Times must lie in 0..{self.T}, but {int(t.min())}..{int(t.max())} was given.")
        return self.alpha_bar.to(like.device)[t.to(like.device)].reshape(-1, *[1] * (like.ndim - 1))

    def draw(self, n: int, generator: Seed, minimum: Int[Tensor, " n"] | int = 1) -> Int[Tensor, " n"]:
        """n times, each uniform on minimum..T. For data of mixed noise, give `minimum=schedule.first(std)`, one per sample."""
        lowest = torch.as_tensor(minimum)
        if lowest.device.type == "cpu" and (int(lowest.min()) < 1 or int(lowest.max()) > self.T):
            raise ValueError(
                f"minimum must lie in 1..{self.T}, but {int(lowest.min())}..{int(lowest.max())} was given."
            )
        generator = as_generators(generator)
        first = generator if isinstance(generator, torch.Generator) else generator[0]
        lowest = lowest.to(first.device)
        u = uniform((n,), generator, like=torch.empty(0, dtype=torch.float64, device=first.device))
        return lowest + (u * (self.T + 1 - lowest)).long()

    def first(self, std: Float[Tensor, " b"]) -> Int[Tensor, " b"]:
        """The first time at which noise of each std fits into the diffusion's (T + 1 if it never does)."""
        levels = (self.sigma * (1 + TOLERANCE) ** 0.5).to(std.device)
        return torch.searchsorted(levels, std.double().contiguous()).clamp(min=1)

    def check(self, max_std: float) -> None:
        """Refuse measurements too noisy for the first step: eq:noise-add would need a negative variance."""
        if not 0 <= max_std < float("inf"):
            raise ValueError(f"max_std must be a finite number of at least 0, but is {max_std}.")
        first = int(self.first(torch.tensor([float(max_std)], dtype=torch.float64)))
        if first > 1:
            beta_1 = max_std**2 / (1 + max_std**2)
            when = f"t = {first}" if first <= self.T else "never"
            raise ValueError(
                f"The noise of the schedule starts too low for this data: at t = 1 its level is {float(self.sigma[1]):.4g}, "
                f"below the measurement noise, std = {max_std:.4g} (first high enough at: {when}). "
                f"Use beta_1 >= {beta_1:.4g}, or Schedule.for_noise({max_std:.4g})."
            )

    def to_diffusers(self) -> dict[str, Any]:
        """The part of a diffusers scheduler's configuration that is ours; its timestep k is our t = k + 1."""
        return {"num_train_timesteps": self.T, "trained_betas": self.beta.tolist()}

    @staticmethod
    def from_diffusers(config: Mapping[str, Any]) -> "Schedule":
        """The schedule of a diffusers scheduler's configuration; bit for bit the one that `to_diffusers` was called on."""
        if config.get("rescale_betas_zero_snr"):
            raise ValueError(
                "A schedule with rescale_betas_zero_snr ends at alpha_bar = 0, where x̄_T carries no signal: "
                "use one without."
            )
        if config.get("trained_betas") is not None:
            return Schedule(torch.tensor(config["trained_betas"], dtype=torch.float64))
        if "num_train_timesteps" not in config:
            raise ValueError("This is no configuration of a diffusers scheduler: it has no num_train_timesteps.")
        T, start, end = config["num_train_timesteps"], config.get("beta_start", 1e-4), config.get("beta_end", 0.02)
        match kind := config.get("beta_schedule", "linear"):
            case "linear":
                return Schedule.linear(start, end, T)
            case "scaled_linear":
                return Schedule(torch.linspace(start**0.5, end**0.5, T, dtype=torch.float64) ** 2)
            case "squaredcos_cap_v2":
                return Schedule.cosine(T)
        raise ValueError(
            f"beta_schedule {kind!r} is not known here (linear, scaled_linear, squaredcos_cap_v2 are): "
            "pass trained_betas instead."
        )
