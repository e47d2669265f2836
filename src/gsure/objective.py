"""What training minimises, from measurements alone: unbiased estimates of the projected denoising error

    R_t(f) = E‖W P (f(x̄_t) - x̄)‖²,    W = E[P]^(-½)        (eq:projected-diffusion-loss)

| name      | estimate, entry by entry                                              | what it costs        |
|-----------|-----------------------------------------------------------------------|----------------------|
| `tweedie` | [((1-ρ) f + ρ x̄_t/√ᾱ - ȳ)² - std² (1-ρ)] / (1-ρ)²,  ρ = ᾱ std²/(1-ᾱ) | one forward pass     |
| `gsure-y` | (f - ȳ)² - std² + 2 Λ ∂f,  Λ = √ᾱ std²   (eq:gsure-diff-loss-updated) | and a divergence     |
| `gsure`   | (f - x̄_t/√ᾱ)² - (1-ᾱ)/ᾱ + 2 λ ∂f,  λ = (1-ᾱ)/√ᾱ  (eq:gsure-diff-loss) | and a divergence     |
| `paper`   | `gsure-y` with the scalars of tab:hyperparams, λ = 10⁻⁴/γ; biased     | and a divergence     |
| `exact`   | `tweedie`, but `gsure-y` on the entries where 1-ρ < floor             | seldom a divergence  |

Departs from the paper: Proposition 2 prints λ = 1-ᾱ for `gsure`, its proof drops the √ᾱ of H = √ᾱ P; `gsure-y` needs no
hand-tuned λ, because E[z̄_i f_i] = std_i² √ᾱ E[∂_i f_i] (Stein); and `tweedie` needs no divergence, because
E[ȳ | x̄_t, P] = (1-ρ) E[x̄ | x̄_t, P] + ρ x̄_t/√ᾱ. docs/method.md derives all three.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from gsure.denoiser import BaseDenoiser
from gsure.divergence import Divergence
from gsure.measurement import Measurement, Partner, draw_hidden
from gsure.random import Generators, Seed, as_generators, forked, normal, seed_from

Name = Literal["tweedie", "gsure-y", "gsure", "paper", "exact"]
Weighting = Literal["x", "eps", "v", "wiener"]


@dataclass(frozen=True, eq=False)
class Objective:
    """A loss for each sample: γ_t R_t, estimated (without bias but for `paper`), averaged over the entries of the signal.

    An average, not the paper's sum, so that one learning rate serves all image sizes. The constant is included, so that the
    loss is the denoising error; it is an unbiased estimate, so that of a single batch may be negative.

    coverage    E[P], broadcastable against a batch of signals; 1 gives W = I
    weighting   γ_t, the weight over time: "x" is 1; "eps", ᾱ/(1-ᾱ), turns an error in x into one in ε; "v", 1/(1-ᾱ), into one
                in v; at most 1 for hidden entries, of which a mask-conditioned network predicts x; "wiener" is 1/error of the
                Wiener filter of a Gaussian with these `variances`
    hide        further corruption: this share of the kept units is hidden from the network but stays in the loss; a pair is a
                range, from which one share is drawn for each sample
    unit        block of mask entries that one corruption drops together, such as (4, 4); () takes them one by one
    floor       `tweedie` divides by max(1-ρ, floor)², and so damps entries in which measurement noise is nearly all the noise
    max_std     largest std among kept entries, if you know it: a loss that needs no divergence up to there computes none
    divergence  how `gsure-y`, `gsure`, `paper` and `exact` estimate it
    lambda_t    replaces Λ of `gsure-y` or λ of `gsure` by a function of ᾱ_t: for experiments, and biased
    """

    name: Name = "tweedie"
    coverage: Shaped[Tensor, "..."] | float = field(kw_only=True)
    weighting: Weighting = field(default="x", kw_only=True)
    hide: float | tuple[float, float] = field(default=0.0, kw_only=True)
    variances: Float[Tensor, " k"] | None = field(default=None, kw_only=True)
    unit: Sequence[int] = field(default=(), kw_only=True)
    floor: float = field(default=0.1, kw_only=True)
    max_std: float | None = field(default=None, kw_only=True)
    divergence: Divergence = field(default=Divergence(), kw_only=True)
    lambda_t: Callable[[Tensor], Tensor] | None = field(default=None, kw_only=True)
    squared_weight: Float[Tensor, "..."] = field(init=False, repr=False)  # W² = 1 / E[P]

    def __post_init__(self) -> None:
        for value, names in ((self.name, Name), (self.weighting, Weighting)):
            if value not in get_args(names):
                raise ValueError(f"{value!r} is not one of {', '.join(get_args(names))}.")
        coverage = torch.as_tensor(self.coverage, dtype=torch.float64)
        if not ((coverage >= 0) & (coverage <= 1)).all():
            raise ValueError(
                f"coverage must lie in (0, 1], but reaches from {float(coverage.min()):g} to {float(coverage.max()):g}: "
                "give E[P], not W."
            )
        if never := int((coverage == 0).sum()):
            first = ", ".join(str(tuple(entry)) for entry in (coverage == 0).nonzero()[:3].tolist())
            raise ValueError(
                f"{never} of {coverage.numel()} entries are never measured (coverage 0), the first at {first}, so nothing "
                "can be learned about them: add measurements that cover them, or take what a model says there for a guess, "
                "with --no-coverage-weighting (in Python, coverage_weighting=False, or coverage=1 of an Objective)."
            )
        check_share(self.hide)
        if (self.weighting == "wiener") != (self.variances is not None):
            raise ValueError("weighting='wiener' needs variances, those of a Gaussian, and other weightings take none.")
        if self.lambda_t is not None and self.name not in ("gsure-y", "gsure"):
            raise ValueError(f"lambda_t replaces that of gsure-y or gsure; {self.name} has none to replace.")
        if any(not isinstance(block, int) or block < 1 for block in self.unit):
            raise ValueError(f"unit is a block such as (4, 4), of integers of at least 1, but is {self.unit}.")
        if not 0 < self.floor <= 1:
            raise ValueError(f"floor must lie in (0, 1], but is {self.floor}.")
        object.__setattr__(self, "squared_weight", 1 / coverage)

    def __call__(
        self,
        denoiser: BaseDenoiser,
        measurement: Measurement,
        t: Int[Tensor, " b"],
        generator: Seed,
        input: Measurement | None = None,
        probe: Float[Tensor, "b *n"] | None = None,
    ) -> Float[Tensor, " b"]:
        """The loss of each sample at its time t. The denoiser sees `input`; without it, what is not hidden."""
        generator = as_generators(generator, measurement.ybar.device)
        if input is None:
            input = measurement
            if self.hide:
                input = measurement.hide(draw_hidden(measurement, self.hide, generator, self.unit))
        return self.loss(denoiser, input, measurement, t, generator, probe)

    def loss(
        self,
        denoiser: BaseDenoiser,
        input: Measurement,
        target: Measurement,
        t: Int[Tensor, " b"],
        generator: Seed,
        probe: Float[Tensor, "b *n"] | None = None,
    ) -> Float[Tensor, " b"]:
        """The loss on `target` of a denoiser that sees `input`: the same measurement, a part of it, or the rest imputed.

        `probe` replaces the Gaussian v of Hutchinson's estimator.
        """
        ybar, generator = target.ybar, as_generators(generator, target.ybar.device)
        self._check(ybar, t, denoiser.schedule.T)
        alpha_bar_t = denoiser.schedule.at(t, like=ybar)
        t = t.to(ybar.device)
        xbar_t = input.perturb(alpha_bar_t, normal(ybar.shape, generator, like=ybar))
        seed = seed_from(generator)

        def f(x: Tensor, samples: Tensor | slice) -> Tensor:
            with forked(seed, x.device):  # the same dropout at each call
                return denoiser(x, t[samples], input[samples].mask)

        gamma_t = self._gamma_t(alpha_bar_t).to(ybar)
        if denoiser.mask_conditioned:
            gamma_t = torch.where(input.mask == 1, gamma_t, gamma_t.clamp(max=1))
        weight = gamma_t * target.mask * self.squared_weight.to(ybar)  # γ_t P W²
        scale, goal, constant, divisor, lambda_t = self._terms(input, target, xbar_t, alpha_bar_t)
        if self._needs_divergence(denoiser):
            diagonal = (lambda_t.to(ybar) * input.mask * weight).expand_as(ybar)
            probe = normal(ybar.shape, generator, like=ybar) if probe is None else probe
            xbar_hat, divergence = self.divergence(
                f, xbar_t, diagonal, input.mask * probe, (1 - alpha_bar_t).sqrt(), generator
            )
        else:
            xbar_hat, divergence = f(xbar_t, slice(None)), ybar.new_zeros(len(ybar))
        error = ((scale.to(ybar) * xbar_hat - goal) ** 2 - constant.to(ybar)) / divisor.to(ybar)
        return (weight * error).flatten(1).mean(1) + 2 * divergence / ybar[0].numel()

    def _check(self, ybar: Tensor, t: Tensor, T: int) -> None:
        """Shapes, and values of t where reading them needs no synchronisation with a device."""
        fits = t.shape == (len(ybar),) and not t.is_floating_point()
        if not fits or (t.device.type == "cpu" and len(t) and int(t.min()) < 1):
            raise ValueError(f"t must be {len(ybar)} integers in 1..{T}, one for each sample, but is {t}.")
        fits = self.squared_weight.ndim in (0, ybar.ndim)
        if not fits or any(a not in (1, b) for a, b in zip(self.squared_weight.shape, ybar.shape, strict=False)):
            raise ValueError(
                f"coverage has shape {tuple(self.squared_weight.shape)}, which does not fit a batch of {tuple(ybar.shape)}: "
                f"give a number or {ybar.ndim} dimensions, the first of them 1."
            )

    def _needs_divergence(self, denoiser: BaseDenoiser) -> bool:
        """Whether Λ can be other than 0, as the host knows it."""
        match self.name:
            case "tweedie":
                return False
            case "gsure-y":
                return self.lambda_t is not None or self.max_std != 0
            case "exact":
                largest_rho = 1.0 if self.max_std is None else (self.max_std / float(denoiser.schedule.sigma[1])) ** 2
                return 1 - largest_rho < self.floor
            case "gsure" | "paper":
                return True

    def _gamma_t(self, alpha_bar_t: Tensor) -> Tensor:
        match self.weighting:
            case "x":
                return torch.ones_like(alpha_bar_t)
            case "eps":
                return alpha_bar_t / (1 - alpha_bar_t)
            case "v":
                return 1 / (1 - alpha_bar_t)
            case "wiener":
                assert self.variances is not None
                values, noise = self.variances.to(alpha_bar_t), (1 - alpha_bar_t) / alpha_bar_t
                error = values * noise[..., None] / (values + noise[..., None])
                return 1 / error.mean(-1)

    def _terms(self, input: Measurement, target: Measurement, xbar_t: Tensor, alpha_bar_t: Tensor) -> "Terms":
        """Coefficients of the table above, in float64. Hidden entries have ρ = Λ = 0 and the target ȳ."""
        variance = target.std.double() ** 2
        input_variance = input.mask.double() * variance
        one, zero = torch.ones_like(input_variance), torch.zeros_like(input_variance)
        rho = alpha_bar_t * input_variance / (1 - alpha_bar_t)
        rescaled = xbar_t / alpha_bar_t.sqrt().to(xbar_t)

        by_tweedie = Terms(
            scale=1 - rho,
            goal=target.ybar - rho.to(xbar_t) * rescaled,
            constant=variance * (1 - rho),
            divisor=(1 - rho).clamp(min=self.floor) ** 2,
            lambda_t=zero,
        )
        by_stein = Terms(one, target.ybar, variance, one, alpha_bar_t.sqrt() * input_variance)
        match self.name:
            case "tweedie":
                terms = by_tweedie
            case "gsure-y":
                terms = by_stein
            case "exact":
                mostly_measured = 1 - rho < self.floor
                terms = Terms(
                    *(
                        torch.where(mostly_measured, stein, tweedie)
                        for stein, tweedie in zip(by_stein, by_tweedie, strict=True)
                    )
                )
            case "paper":
                terms = by_stein._replace(lambda_t=1e-4 / self._gamma_t(alpha_bar_t))
            case "gsure":
                noise = (1 - alpha_bar_t) / alpha_bar_t
                terms = Terms(
                    scale=one,
                    goal=torch.lerp(target.ybar, rescaled, input.mask.expand_as(rescaled)),
                    constant=torch.where(input.mask == 1, noise, variance),
                    divisor=one,
                    lambda_t=noise * alpha_bar_t.sqrt(),
                )
        return terms if self.lambda_t is None else terms._replace(lambda_t=self.lambda_t(alpha_bar_t))


class Terms(NamedTuple):
    """An estimate ((scale f - goal)² - constant) / divisor + 2 lambda_t ∂f of (f - x̄)², for each kept entry."""

    scale: Tensor
    goal: Tensor
    constant: Tensor
    divisor: Tensor
    lambda_t: Tensor


@dataclass(frozen=True, eq=False)
class Prediction:
    """Hide measured units, and predict them from the others in one call of a mask-conditioned denoiser:

        ‖P_hidden (f(ȳ_shown) - ȳ)‖² / error,    averaged over the entries of the signal.

    Its minimiser is E[x̄ | ȳ_shown], because the noise of a hidden entry is independent of everything that is shown: this
    trains restoration in one call. It is `tweedie` with `hide` at the noise of the measurement itself, where ρ = 1 and shown
    entries do not count.

    hide        share of the units that is hidden; a pair is a range, from which one share is drawn for each sample
    unit, always, partner  as in `draw_hidden`: never hide what every measurement has, and hide both of two equal entries
    error       a constant, the size of errors: losses of several kinds are then comparable
    """

    hide: float | tuple[float, float] = (0.3, 1.0)
    unit: Sequence[int] = ()
    always: Shaped[Tensor, "1 ..."] | None = None
    partner: Partner | None = None
    error: float = 1.0

    def __post_init__(self) -> None:
        check_share(self.hide)

    def show(self, measurement: Measurement, generator: Generators) -> Measurement:
        """What is left when a part is hidden."""
        return measurement.hide(draw_hidden(measurement, self.hide, generator, self.unit, self.always, self.partner))

    def __call__(
        self,
        denoiser: BaseDenoiser,
        measurement: Measurement,
        generator: Seed,
        target: Measurement | None = None,
    ) -> Float[Tensor, " b"]:
        """The loss of each sample on what is not shown of `target`: the measurement itself, or the clean signal behind it."""
        target = measurement if target is None else target
        generator = as_generators(generator, measurement.ybar.device)
        shown = self.show(measurement, generator)
        with forked(seed_from(generator), measurement.ybar.device):  # dropout
            away = denoiser.estimate(shown) - target.ybar
        return (target.mask * (1 - shown.mask) * away**2).flatten(1).mean(1) / self.error

    def in_context(
        self,
        denoiser: BaseDenoiser,
        measurement: Measurement,
        imputed: Float[Tensor, "b *n"],
        s: Float[Tensor, "b *ones"],
        generator: Seed,
        target: Measurement | None = None,
    ) -> Float[Tensor, " b"]:
        """The same where all that is not shown is not missing, but there at noise level s: what posterior draws go through.

        Hidden entries of `measurement` are shown at level s with their noise, so the loss has the form of `tweedie`.
        """
        target, generator = measurement if target is None else target, as_generators(generator, imputed.device)
        shown = self.show(measurement, generator)
        rest = 1 - shown.mask
        known = (measurement.mask * measurement.std) ** 2
        noise = (s**2 - known).clamp(min=0).sqrt() * normal(imputed.shape, generator, like=imputed)
        full = torch.where(measurement.mask == 1, measurement.ybar, imputed)
        x_s = torch.where(shown.mask == 1, shown.ybar, full + noise)
        std = torch.where(shown.mask == 1, shown.std, s)
        with forked(seed_from(generator), x_s.device):  # dropout
            xbar_hat = denoiser.estimate(Measurement._trusted(x_s, x_s.new_ones([1] * x_s.ndim), std))
        rho = (target.mask * target.std) ** 2 / s**2
        away = (1 - rho) * xbar_hat + rho * x_s - target.ybar
        expected = self.error * s**2 / (self.error + s**2)
        return (target.mask * rest * away**2 / expected).flatten(1).mean(1)


def check_share(share: float | tuple[float, float]) -> None:
    low, high = share if isinstance(share, tuple) else (share, share)
    if not 0 <= low <= high <= 1 or low == 1:
        raise ValueError(
            f"hide is a share of the kept entries in [0, 1), or a range of shares such as (0.3, 1.0), but is {share}."
        )
