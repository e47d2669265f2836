"""Train a generative diffusion model from noisy, incomplete measurements alone, and use it.

A corruption turns signals into measurements; a measurement is a spectral vector with a mask and a noise level; everything
that learns, samples or restores sees only measurements and a denoiser.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gsure import corruption
    from gsure.basis import Basis, Cosine, Dense, Fourier, Hadamard, Hartley, Identity, check_basis
    from gsure.corruption.base import Corruption
    from gsure.corruption.check import check_corruption
    from gsure.data import sources
    from gsure.data.convert import convert
    from gsure.data.corrupt import corrupt
    from gsure.data.measurements import Measurements, Signals, as_complex
    from gsure.data.measurements import open_measurements as open
    from gsure.data.memory import from_arrays, save
    from gsure.data.sources import open_source
    from gsure.denoiser import Denoiser, ResidualDenoiser
    from gsure.divergence import Divergence
    from gsure.evaluation.denoising import evaluate_denoising
    from gsure.evaluation.diagnose import diagnose
    from gsure.evaluation.restorations import evaluate_restorations
    from gsure.evaluation.samples import evaluate_samples
    from gsure.inference.calibrate import calibrate
    from gsure.inference.restore import Restored, restore
    from gsure.inference.sample import sample
    from gsure.measurement import Measurement
    from gsure.network import mlp, unet
    from gsure.objective import Objective
    from gsure.posterior import Posterior
    from gsure.random import generators
    from gsure.report.page import write_report
    from gsure.restoration import context, ddrm
    from gsure.sampling import Clipped, ddim, ddpm, dpm, unipc
    from gsure.schedule import Schedule
    from gsure.training.auto import choose_settings
    from gsure.training.model import load
    from gsure.training.run import Run, inspect
    from gsure.training.settings import Settings
    from gsure.training.train import train

__version__ = "0.1.0"

# Each public name and its module, imported when first used: `gsure --help` must not wait for torch.
_MODULES = {
    "basis": ["Basis", "Cosine", "Dense", "Fourier", "Hadamard", "Hartley", "Identity", "check_basis"],
    "corruption": ["Corruption", "check_corruption"],
    "data.convert": ["convert"],
    "data.corrupt": ["corrupt"],
    "data.measurements": ["Measurements", "Signals", "as_complex"],
    "data.memory": ["from_arrays", "save"],
    "data.sources": ["open_source"],
    "denoiser": ["Denoiser", "ResidualDenoiser"],
    "divergence": ["Divergence"],
    "evaluation.denoising": ["evaluate_denoising"],
    "evaluation.diagnose": ["diagnose"],
    "evaluation.restorations": ["evaluate_restorations"],
    "evaluation.samples": ["evaluate_samples"],
    "inference.calibrate": ["calibrate"],
    "inference.restore": ["Restored", "restore"],
    "inference.sample": ["sample"],
    "measurement": ["Measurement"],
    "network": ["mlp", "unet"],
    "objective": ["Objective"],
    "posterior": ["Posterior"],
    "random": ["generators"],
    "report.page": ["write_report"],
    "restoration": ["context", "ddrm"],
    "sampling": ["Clipped", "ddim", "ddpm", "dpm", "unipc"],
    "schedule": ["Schedule"],
    "training.auto": ["choose_settings"],
    "training.model": ["load"],
    "training.run": ["Run", "inspect"],
    "training.settings": ["Settings"],
    "training.train": ["train"],
}
_HOME = {name: (module, name) for module, names in _MODULES.items() for name in names}
_HOME["open"] = "data.measurements", "open_measurements"  # inside the package the builtin keeps its name
_PACKAGES = {"corruption": "corruption", "sources": "data.sources"}
__all__ = sorted([*_HOME, *_PACKAGES])


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"gsure.{_PACKAGES[name]}")
    if name not in _HOME:
        raise AttributeError(f"module 'gsure' has no attribute {name!r}")
    module, attribute = _HOME[name]
    return getattr(importlib.import_module(f"gsure.{module}"), attribute)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
