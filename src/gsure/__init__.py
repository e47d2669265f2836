"""Train a generative diffusion model from noisy, incomplete measurements alone, and use it.

A corruption turns signals into measurements; a measurement is a spectral vector with a mask and a noise level; everything
that learns, samples or restores sees only measurements and a denoiser.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gsure import corruption, source
    from gsure.basis import Basis, Cosine, Dense, Fourier, Hadamard, Hartley, Identity, check_basis
    from gsure.command.corrupt import corrupt
    from gsure.command.diagnose import diagnose
    from gsure.command.evaluate import evaluate_denoising, evaluate_restorations, evaluate_samples
    from gsure.command.inspect import inspect
    from gsure.command.measured import import_
    from gsure.command.restore import restore
    from gsure.command.sample import sample
    from gsure.command.train import train
    from gsure.corruption.base import Corruption
    from gsure.corruption.check import check_corruption
    from gsure.denoiser import Denoiser
    from gsure.divergence import Divergence
    from gsure.measurement import Measurement
    from gsure.network import mlp, unet
    from gsure.noise import generators
    from gsure.objective import Objective
    from gsure.posterior import Posterior
    from gsure.restoration import ddrm
    from gsure.run.folder import load
    from gsure.run.settings import Settings
    from gsure.sampling import Clipped, ddim, ddpm, dpm, unipc
    from gsure.schedule import Schedule
    from gsure.store import Measurements, Signals, open

__version__ = "0.1.0"

# Each public name and its module, imported when first used: `gsure --help` must not wait for torch.
_MODULES = {
    "basis": ["Basis", "Cosine", "Dense", "Fourier", "Hadamard", "Hartley", "Identity", "check_basis"],
    "command.corrupt": ["corrupt"],
    "command.diagnose": ["diagnose"],
    "command.evaluate": ["evaluate_denoising", "evaluate_restorations", "evaluate_samples"],
    "command.inspect": ["inspect"],
    "command.measured": ["import_"],
    "command.restore": ["restore"],
    "command.sample": ["sample"],
    "command.train": ["train"],
    "corruption": ["Corruption", "check_corruption"],
    "denoiser": ["Denoiser"],
    "divergence": ["Divergence"],
    "measurement": ["Measurement"],
    "network": ["mlp", "unet"],
    "noise": ["generators"],
    "objective": ["Objective"],
    "posterior": ["Posterior"],
    "restoration": ["ddrm"],
    "run.folder": ["load"],
    "run.settings": ["Settings"],
    "sampling": ["Clipped", "ddim", "ddpm", "dpm", "unipc"],
    "schedule": ["Schedule"],
    "store": ["Measurements", "Signals", "open"],
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}
_PACKAGES = ["corruption", "source"]
__all__ = sorted([*_HOME, *_PACKAGES])


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"gsure.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'gsure' has no attribute {name!r}")
    return getattr(importlib.import_module(f"gsure.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
