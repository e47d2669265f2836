"""What `restore` and `calibrate` work with: a model, measurements that it can restore, and the method that does it."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from gsure.basis import Basis
from gsure.data.measurements import Measurements, open_measurements
from gsure.denoiser import ResidualDenoiser
from gsure.gaussian import About, Fitted, Gaussian
from gsure.inference.closed_form import ByGaussian, OneCallWithGaussian
from gsure.inference.guard import Guard
from gsure.inference.methods import Draws, Method, OneCall, Restorer, Sampling, choose_sampling
from gsure.judging import choose_judged
from gsure.measurement import Measurement
from gsure.sampling import Spacing, times
from gsure.training.model import Loaded, open_stored_prior

DrawsBy = Literal["auto", "gaussian"]
"""What gives the samples of `--method mean`: what the model was trained for, or its Gaussian prior."""


@dataclass(frozen=True)
class Setup:
    """`choose_setup` makes it."""

    loaded: Loaded
    data: Measurements
    prior: Fitted | None
    """The Gaussian of the run."""
    asked: Method
    method: Method
    """What gives the mean."""
    drawn_by: Method
    """What gives samples."""
    draws_by: DrawsBy
    sampling: Sampling
    eta_b: float
    seed: int

    @property
    def basis(self) -> Basis:
        return self.loaded.denoiser.basis

    def read(self, where: np.ndarray) -> Measurement:
        """The measurements at these positions, in the basis of the model."""
        return in_basis(self.data[where], self.data, self.basis)

    @cached_property
    def some(self) -> Measurement:
        """Measurements from all over the file."""
        return self.read(choose_judged(len(self.data), self.data.shape))

    @cached_property
    def about(self) -> About:
        data = self.data
        always = (data.coverage == 1).float() if self.prior is None else self.prior.always
        return About(self.basis, tuple(data.shape), bool(data.header["complex"]), always, data.unit)

    @cached_property
    def is_training_data(self) -> bool:
        """Whether the model learned from these measurements, all but those that were held out."""
        config = self.loaded.config
        if config is None or not Path(config.data).exists():
            return False
        return open_measurements(config.data, self.basis).fingerprint() == self.data.fingerprint()

    @property
    def is_complete(self) -> bool:
        """Whether every entry was measured, in every measurement."""
        return float(self.data.coverage.min()) == 1

    @property
    def real_images(self) -> bool:
        """Whether frequencies k and -k say the same, so that both must be hidden."""
        return self.prior is not None and self.prior.gaussian.real_images

    def with_steps(self, steps: int) -> "Setup":
        return replace(self, sampling=self.sampling._replace(steps=steps))

    def restorer(self, draws: int) -> Restorer:
        if self.method == "gaussian":
            if self.prior is None:
                raise ValueError(
                    "The method gaussian needs a run, which has a Gaussian prior: this is a denoiser alone."
                )
            return ByGaussian(self.prior.gaussian, self.basis, draws, self.seed)
        steps, eta, spacing = self.sampling
        preconditioner = self._gaussian if self.drawn_by == "moments" else None
        network = Draws(
            self.loaded.denoiser,
            self.drawn_by,
            draws,
            steps,
            eta,
            self.eta_b,
            spacing,
            self.seed,
            preconditioner,
            self._guard,
        )
        if self.draws_by == "gaussian":
            if self.method != "mean" or self._gaussian is None:
                raise ValueError(
                    "Draws by gaussian need the method mean, and a run whose Gaussian prior fits these masks: omit draws_by."
                )
            return OneCallWithGaussian(OneCall(network), ByGaussian(self._gaussian, self.basis, draws, self.seed))
        return OneCall(network) if self.method == "mean" else network

    @cached_property
    def _guard(self) -> Guard:
        return Guard.of(self.some, self.basis, self.data.coverage)

    @cached_property
    def _gaussian(self) -> Gaussian | None:
        """That of the run, if it takes masks like these; one of rows needs masks that do not vary along rows."""
        try:
            if self.prior is not None:
                self.prior.gaussian.mean(self.some)
        except ValueError:
            return None
        return None if self.prior is None else self.prior.gaussian


def choose_setup(
    loaded: Loaded,
    measurements: str | Path | Measurements,
    method: Method,
    draws_by: DrawsBy,
    steps: int | None,
    eta: float | None,
    eta_b: float,
    spacing: Spacing | None,
    seed: int,
) -> Setup:
    """The method and its options, as given, or as they suit the model and what is missing in the measurements."""
    refuse_other_than(method=(method, Method), draws_by=(draws_by, DrawsBy))
    if not ((eta is None or 0 <= eta <= 1) and 0 <= eta_b <= 1):
        raise ValueError(f"eta and eta_b must lie between 0 and 1, but are {eta} and {eta_b}.")
    data = open_for(measurements, loaded)
    is_noisy_signal = data[choose_judged(len(data), data.shape)].is_noisy_signal
    mean_by, drawn_by = choose_method(method, loaded, is_noisy_signal)
    sampling = choose_sampling(drawn_by, float(data.coverage.min()) == 1, steps, eta, spacing)
    if drawn_by not in ("context", "gaussian"):
        times(loaded.denoiser.schedule, sampling.steps, sampling.spacing)  # refuses what is impossible
    prior = open_stored_prior(loaded)
    return Setup(loaded, data, prior, method, mean_by, drawn_by, draws_by, sampling, eta_b, seed)


def refuse_other_than(**options: tuple[object, object]) -> None:
    """Options by name, with the value and the `Literal` that lists what it may be."""
    for name, (value, choices) in options.items():
        if value not in get_args(choices):
            raise ValueError(f"{name} is one of {', '.join(get_args(choices))}, not {value!r}.")


def choose_method(method: Method, loaded: Loaded, is_noisy_signal: bool) -> tuple[Method, Method]:
    """The method that gives the mean, and the one that gives samples. `auto` takes what the model was trained for.

    Any denoiser restores a noisy signal in one call, and DDRM draws from its posterior. Moment matching needs the Jacobian of
    the network. A denoiser on top of a Gaussian does not pass on the Gaussian's, and a denoiser alone has no Gaussian prior
    that would make it stable.
    """
    purpose = "generate" if loaded.config is None else loaded.config.settings.purpose
    has_jacobian = loaded.config is not None and not isinstance(loaded.denoiser, ResidualDenoiser)
    can_draw: Method = "context" if purpose == "both" else "moments" if has_jacobian else "ddrm"
    can_draw = "ddrm" if is_noisy_signal else can_draw
    if method == "auto":
        method = "mean" if is_noisy_signal or purpose != "generate" else can_draw
    needs_mask = method == "context" or (method == "mean" and not is_noisy_signal)
    if needs_mask and not loaded.denoiser.mask_conditioned:
        raise ValueError(
            f"The method {method} needs a mask-conditioned network, and that of this model is not: use the method ddrm, "
            "or train with base gaussian."
        )
    if method == "context" and not isinstance(loaded.denoiser, ResidualDenoiser):
        raise ValueError(
            "The method context needs a model that was trained with base gaussian, which knows the noise of each entry."
        )
    return method, can_draw if method == "mean" else method


def open_for(measurements: str | Path | Measurements, loaded: Loaded) -> Measurements:
    """Measurements that the model can restore, in their own basis."""
    denoiser = loaded.denoiser
    name = type(denoiser.basis).__name__ if loaded.config is None else loaded.config.data_info.basis
    data = open_measurements(measurements, denoiser.basis)
    if data.path is not None and data.header["basis"] != name:
        data = open_measurements(data.path)
    theirs = {"shape": tuple(data.shape), "basis": data.header["basis"]}
    mine = theirs | {"basis": name}
    if loaded.config is not None:
        mine["shape"] = loaded.config.data_info.shape
    if float(data.coverage.min()) == 1:
        del mine["basis"]  # fully sampled signals may be transformed into another basis
    for what in mine:
        if mine[what] != theirs[what]:
            raise ValueError(
                f"The model was trained on signals of {what} {mine[what]}, but those of {data.name} have {theirs[what]}: make "
                "a file of such measurements, or train another model."
            )
    largest = float(denoiser.schedule.sigma[-1])
    if data.max_std >= largest:
        raise ValueError(
            f"{data.name} has noise of std up to {data.max_std:.4g}, above the schedule's largest level, {largest:.4g}: such "
            "an entry carries no information; remove it from the mask."
        )
    return data


def in_basis(measurement: Measurement, data: Measurements, basis: Basis) -> Measurement:
    """In the basis of the model: white noise on a fully sampled signal is white noise in any."""
    if type(data.basis) is type(basis):
        return measurement
    if not measurement.is_noisy_signal:
        raise ValueError(
            f"{data.name} was measured in the basis {data.header['basis']}, the model works in {basis}, and only fully "
            "sampled signals with white noise can be transformed: measure in that basis, or train another model."
        )
    ybar = basis.to_spectral(data.basis.to_signal(measurement.ybar))
    return Measurement._trusted(ybar, measurement.mask, measurement.std)


def share_never_measured(loaded: Loaded) -> float:
    """The share of entries that no training measurement covered, so that nothing was learned there; 0 if that is unknown."""
    if loaded.config is None:
        return 0.0
    try:
        coverage = open_measurements(loaded.config.data, loaded.denoiser.basis).coverage
    except (OSError, ValueError):  # the data of the run is gone
        return 0.0
    return float((coverage == 0).float().mean())
