"""What `restore` and `calibrate` restore with: the method, by what the model was trained for, and the measurements."""

from pathlib import Path
from typing import Literal

from gsure.data.measurements import Measurements, open_measurements
from gsure.denoiser import ResidualDenoiser
from gsure.gaussian import Fitted
from gsure.inference.closed_form import ByGaussian, OneCallWithGaussian
from gsure.inference.guard import Guard
from gsure.inference.methods import Draws, Method, OneCall, Restorer, Sampling, fitting, in_basis
from gsure.judging import choose_judged
from gsure.training.model import Loaded

DrawsBy = Literal["auto", "gaussian"]
"""What gives the samples of `--method mean`: what the model was trained for, or its Gaussian prior."""


def choose_method(method: Method, loaded: Loaded) -> tuple[Method, Method]:
    """The method that gives the mean, and the one that gives samples. `auto` takes what the model was trained for.

    Moment matching needs the Jacobian of the network. A denoiser on top of a Gaussian does not pass on the Gaussian's, and a
    denoiser alone has no Gaussian prior that would make it stable.
    """
    purpose = "generate" if loaded.config is None else loaded.config.settings.purpose
    has_jacobian = loaded.config is not None and not isinstance(loaded.denoiser, ResidualDenoiser)
    can_draw: Method = "context" if purpose == "both" else "moments" if has_jacobian else "ddrm"
    if method == "auto":
        method = can_draw if purpose == "generate" else "mean"
    if method in ("mean", "context") and not loaded.denoiser.mask_conditioned:
        raise ValueError(
            f"--method {method} needs a mask-conditioned network, and that of this model is not: use --method ddrm, or train "
            "with --base gaussian."
        )
    if method == "context" and not isinstance(loaded.denoiser, ResidualDenoiser):
        raise ValueError("--method context needs a model of --base gaussian, which knows the noise of each entry.")
    return method, can_draw if method == "mean" else method


def make_restorer(
    loaded: Loaded,
    prior: Fitted | None,
    data: Measurements,
    method: Method,
    draws: int,
    sampling: Sampling,
    eta_b: float,
    seed: int,
    draws_by: DrawsBy = "auto",
) -> Restorer:
    denoiser, drawn_by = loaded.denoiser, choose_method(method, loaded)[1]
    if method == "gaussian":
        if prior is None:
            raise ValueError("--method gaussian needs a run, which has a Gaussian prior: this is a denoiser alone.")
        return ByGaussian(prior.gaussian, denoiser.basis, draws, seed)
    some = in_basis(data[choose_judged(len(data), data.shape)], data, denoiser.basis)
    known = None if prior is None or drawn_by != "moments" else fitting(prior.gaussian, some)
    guard = Guard.of(some, denoiser.basis, data.coverage)
    steps, eta, spacing = sampling
    posterior = Draws(denoiser, drawn_by, draws, steps, eta, eta_b, spacing, seed, known, guard)
    if draws_by == "gaussian":
        if method != "mean" or prior is None or fitting(prior.gaussian, some) is None:
            raise ValueError(
                "--draws-by gaussian needs --method mean, and a run whose Gaussian prior fits these masks: omit it."
            )
        return OneCallWithGaussian(OneCall(posterior), ByGaussian(prior.gaussian, denoiser.basis, draws, seed))
    return OneCall(posterior) if method == "mean" else posterior


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
                f"The model was trained on signals of {what} {mine[what]}, but {data.name} has {theirs[what]}: make a file of "
                "such measurements, or train another model."
            )
    largest = float(denoiser.schedule.sigma[-1])
    if data.max_std >= largest:
        raise ValueError(
            f"{data.name} has noise of std up to {data.max_std:.4g}, above the schedule's largest level, {largest:.4g}: such "
            "an entry carries no information; remove it from the mask."
        )
    return data
