"""Images of any height and width: the U-Net trains and restores, and its padding leaves no trace at the border."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gsure
from gsure.training.settings import Settings

BOUND = 1.25
"""How much larger the error may be beside the padding than in the interior, each relative to that of the exact denoiser."""


@pytest.mark.parametrize(("size", "patch"), [((45, 32), 1), ((33, 47), 1), ((640, 368), 8)])
def test_a_unet_trains_and_restores_at_this_size(size, patch, tmp_path, monkeypatch):
    monkeypatch.setattr("gsure.training.train.judge_run", lambda *_: "")  # its baselines are slow at 640 × 368
    rng = np.random.Generator(np.random.PCG64(0))
    kspace = rng.normal(size=(2, *size)) + 1j * rng.normal(size=(2, *size))
    mask = np.stack([np.arange(size[1]) % 2 == k for k in range(2)])[:, None]  # so the Gaussian prior is a simple one
    data = gsure.from_arrays(kspace, mask, sigma=0.1, verbose=False)
    settings = Settings(
        network="unet", width=8, multipliers=(1, 2), layers=1, patch=patch, attention=(), steps=1, batch=2, held_out=0.0,
        warmup=0, ema=0.0, picture_every=0,
    )  # fmt: skip
    run = gsure.train(data, tmp_path / "run", settings)
    before = gsure.unet(size, 2, 8, (1, 2), (), groups=settings.groups, patch=patch, layers=1, seed=settings.seed)
    pairs = zip(run.denoiser.network.parameters(), before.parameters(), strict=True)
    assert any(not after.equal(start) for after, start in pairs)  # it did train
    restored = gsure.restore(run, data, draws=1, steps=1, limit=1, baselines=False, calibration="none")
    assert restored.mean.shape == (1, 1, *size)
    assert restored.mean.is_complex()
    assert bool(restored.mean.isfinite().all())


def test_a_run_refuses_other_sizes_and_a_bare_network_takes_them(tmp_path):
    rng = np.random.Generator(np.random.PCG64(0))

    def images(*size: int) -> gsure.Measurements:
        x = rng.normal(size=(2, 1, *size)).astype(np.float32)
        return gsure.from_arrays(x, rng.random(x.shape) < 0.6, 0.1, basis=gsure.Identity(), verbose=False)

    network = gsure.unet((16, 16), 1, 8, (1, 2), (), groups=4)
    denoiser = gsure.Denoiser(network, gsure.Schedule.for_noise(0.1), gsure.Identity())
    options = {"draws": 1, "steps": 2, "baselines": False, "calibration": "none"}
    assert gsure.restore(denoiser, images(33, 47), **options).mean.shape == (2, 1, 33, 47)
    settings = Settings(
        width=8, multipliers=(1, 2), groups=4, steps=1, batch=2, held_out=0.0, coverage_weighting=False, picture_every=0
    )
    run = gsure.train(images(16, 16), tmp_path / "run", settings)
    with pytest.raises(ValueError, match=r"trained on signals of shape \(1, 16, 16\), but those .* have \(1, 33, 47\)"):
        gsure.restore(run, images(33, 47), **options)


# Borders


def smooth(white: Tensor) -> Tensor:
    """A stationary Gaussian field of standard deviation 0.8: no border is special. It is smaller than `white` by 8 pixels."""
    return 3 * nn.functional.avg_pool2d(nn.functional.avg_pool2d(white, 5, 1), 5, 1)


def least_error(size: tuple[int, int]) -> Tensor:
    """The variance of each pixel of `smooth`, given all pixels with noise of standard deviation 1, in closed form."""
    rows, columns = size[0] + 8, size[1] + 8
    root = smooth(torch.eye(rows * columns).reshape(-1, 1, rows, columns)).flatten(1).double()
    covariance = root.mT @ root
    gain = torch.linalg.solve(covariance + torch.eye(len(covariance)), covariance)
    return (covariance - covariance @ gain).diagonal().reshape(size)


def beside_padding(error: Tensor, least: Tensor) -> float:
    """The error of the last two rows and columns, relative to that of the interior, and to what the least error has there."""
    squares = (error**2).mean((0, 1))
    interior = (slice(4, -4), slice(4, -4))
    sides = [(slice(-2, None), slice(None)), (slice(None), slice(-2, None))]
    excess = [float(squares[side].mean() / least[side].mean()) for side in (interior, *sides)]
    return max(excess[1:]) / excess[0]


def test_padding_makes_no_error_at_the_border(generator, outside):
    size, steps = (21, 19), 100  # padded to 24 × 24
    network = gsure.unet(size, 1, 8, (1, 2, 2), (), dropout=0.0, groups=4, patch=2, layers=1)
    assert network.multiple == 8
    optimizer = torch.optim.Adam(network.parameters(), 4e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)

    def noisy(n: int) -> tuple[Tensor, Tensor, Tensor]:
        x = 2 + smooth(torch.randn(n, 1, size[0] + 8, size[1] + 8, generator=generator))
        return x, x + torch.randn(x.shape, generator=generator), torch.ones(n, dtype=torch.long)

    for _ in range(steps):
        x, y, t = noisy(8)
        optimizer.zero_grad()
        ((network(y, t) - x) ** 2).mean().backward()
        optimizer.step()
        schedule.step()
    least = least_error(size)
    x, y, t = noisy(300)
    with torch.no_grad():
        found = network(y, t) - x
        control = network(nn.functional.pad(y, (0, 5, 0, 3)), t)[..., :21, :19] - x  # zeros in place of border pixels
    assert beside_padding(found, least) < BOUND
    assert beside_padding(control, least) > BOUND
