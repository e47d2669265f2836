"""Ready for a GPU, on a machine without one: on the device "meta" nothing has a value, so nothing can be read on the host.

There `.item()` and `bool(tensor)` raise, and so does mixing host and device elementwise. Other operations accept mixed
tensors, so a dispatch mode rejects those.
"""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import gsure
from gsure import Fourier, Identity, Measurement, Schedule
from gsure.corruption import Lines, Patches
from gsure.training.checkpoints import TrainState
from gsure.training.examples import Examples, Pair
from gsure.training.loop import Loop
from gsure.training.settings import Settings
from gsure.training.tasks import Diffusing

COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default, torch.ops.aten.lift_fresh.default)


class NoMixing(TorchDispatchMode):
    """Rejects an operation on tensors of the host and of the device, except for copies and numbers."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        tensors = [leaf for leaf in tree_leaves((args, kwargs or {})) if isinstance(leaf, torch.Tensor)]
        devices = {tensor.device.type for tensor in tensors if tensor.ndim > 0}
        assert len(devices) < 2 or function in COPIES, f"{function} mixes {devices}"
        return function(*args, **(kwargs or {}))


def on_meta(measurement: Measurement) -> Measurement:
    return measurement.to("meta")


class Fixed:
    """Examples that are always the same, on the device already."""

    def __init__(self, measurement: Measurement) -> None:
        self.measurement = measurement

    def pair(self, positions) -> Pair:
        return Pair(None, self.measurement)

    def augment(self, pair: Pair, generator) -> Pair:
        return Examples.augment(type("E", (), {"settings": Settings(flip=True)})(), pair, generator)


def make(basis: str, generator: torch.Generator) -> tuple[gsure.Denoiser, Measurement]:
    channels, family = (1, Patches(p=0.4, size=2)) if basis == "Identity" else (2, Lines(R=2.0))
    network = gsure.unet(16, channels, 8, (1, 2), (8,), groups=4).to("meta")
    denoiser = gsure.Denoiser(network, Schedule.for_noise(0.1), Identity() if basis == "Identity" else Fourier())
    return denoiser, on_meta(family.apply(torch.zeros(4, channels, 16, 16), 0.1, generator))


@pytest.mark.parametrize("basis", ["Identity", "Fourier"])
@pytest.mark.parametrize("hide", [0.0, 0.2])
def test_a_whole_training_step_reads_nothing_on_the_host(basis, hide, generator, outside):
    denoiser, measurement = make(basis, generator)
    settings = Settings(batch=4, hide=hide)
    state = TrainState(denoiser, denoiser.network, make(basis, generator)[0], torch.optim.Adam(denoiser.parameters()))

    class Device:
        device, process_index, num_processes = torch.device("meta"), 0, 1
        clip_grad_norm_ = staticmethod(torch.nn.utils.clip_grad_norm_)

    loop = Loop(Device(), None, type("C", (), {"settings": settings}), None)
    coverage = torch.full((1, 1, 1, 1), 0.5)
    objective = gsure.Objective("tweedie", coverage=coverage, hide=hide, unit=(2, 2) if basis == "Identity" else ())
    with NoMixing():
        for _ in range(2):
            loop.step(state, Fixed(measurement), Diffusing(objective), [(range(4), range(4))])
    assert state.step == 2
    with pytest.raises((RuntimeError, NotImplementedError)):  # the control: what is read would be noticed
        state.read_losses()


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_ddim_reads_nothing_on_the_host(eta, generator, outside):
    denoiser, _ = make("Fourier", generator)
    with NoMixing():
        samples = gsure.ddim(denoiser, (4, 2, 16, 16), 3, eta, generator=generator)
    assert (samples.device.type, samples.shape) == ("meta", (4, 2, 16, 16))


@pytest.mark.parametrize("basis", ["Identity", "Fourier"])
def test_ddrm_reads_nothing_on_the_host(basis, generator, outside):
    denoiser, measurement = make(basis, generator)
    with NoMixing():
        restored = gsure.ddrm(denoiser, measurement, 3, generator=generator)
    assert (restored.device.type, restored.shape) == ("meta", measurement.shape)


def test_the_dispatch_mode_rejects_what_the_device_would_accept():
    with NoMixing(), pytest.raises(AssertionError, match="mixes"):
        torch.nn.functional.linear(torch.zeros(2, 3, device="meta"), torch.zeros(4, 3))
