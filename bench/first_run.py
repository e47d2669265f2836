"""What a first run gives without a network: zero-filled, total variation, and the Gaussian prior.

    python bench/first_run.py brains brains64.npz [--seeds N]    lines of k-space at R = 4, three kinds of images
    python bench/first_run.py large volume.nii.gz                320 × 320, 1,000 slices: time and memory
    python bench/first_run.py small [IDX-FILE]                   patches of digits and of Fashion-MNIST 16 × 16

`brains64.npz` has uint8 images `train` and `test`. PSNR in dB is the mean over test images; "object" counts pixels above a
tenth of the largest magnitude. The strength of total variation and the options of the Gaussian are chosen by hidden entries:
no clean image is used. One thread.
"""

import argparse
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

import gsure
from gsure.corruption import Corruption, Lines, Patches
from gsure.data.nifti import Nifti
from gsure.data.source import Sample, Source
from gsure.data.sources import open_source
from gsure.gaussian import About, Fitted, fit_gaussian
from gsure.gaussian import fit as fitting
from gsure.judging import Baselines
from gsure.measurement import Measurement
from gsure.metrics.images import psnr, psnr_in_object
from gsure.training.run import peak_memory

SIGMA, ACCELERATION, HELD_OUT, BATCH = 0.01, 4.0, 48, 500
LARGE, SLICES, TIMED = 320, 1000, 8


def about_of(corruption: Corruption, shape: tuple[int, ...], is_complex: bool) -> About:
    always = (corruption.coverage(shape).value == 1).float()
    return About(corruption.basis, shape, is_complex, always, corruption.unit)


def fit(measurement: Measurement, about: About) -> tuple[Fitted, float]:
    """The Gaussian of all but the last measurements, by which its structure is chosen; and the seconds it took."""
    rest, chosen_by = measurement[:-HELD_OUT], measurement[-HELD_OUT:]
    began = time.perf_counter()
    found = fit_gaussian(
        lambda: (rest[k : k + BATCH] for k in range(0, len(rest), BATCH)), chosen_by, about, progress=False
    )
    return found, time.perf_counter() - began


def compare(test: Measurement, clean: Tensor, about: About, fitted: Fitted) -> dict[str, tuple[Tensor, Tensor]]:
    """PSNR of each test image, over all pixels and in the object, by method."""
    baselines = Baselines.choose(test, about, fitted.gaussian)
    parts = [baselines(test[k : k + 50]) for k in range(0, len(test), 50)]
    found = {name: torch.cat([part.signals[name] for part in parts]) for name in baselines.kinds}
    if unconverged := sum(part.unconverged for part in parts):
        print(f"    total variation did not converge for {unconverged} images")
    kinds = (psnr, psnr_in_object)
    return {name: tuple(metric(x, clean, about.is_complex) for metric in kinds) for name, x in found.items()}


def show(found: dict[str, tuple[Tensor, Tensor]]) -> None:
    for name, (all_pixels, inside) in found.items():
        print(f"    {name:<16} {float(all_pixels.mean()):.2f} dB, object {float(inside.mean()):.2f} dB")
    ahead = found["gaussian"][0] - found["total_variation"][0]
    print(
        f"    Gaussian - TV    {float(ahead.mean()):.2f} ± {float(ahead.std() / len(ahead) ** 0.5):.2f} dB", flush=True
    )


def smooth_phase(n: int, size: int, generator: torch.Generator) -> Tensor:
    """A bicubic 4 × 4 grid of unit std, plus a constant."""
    grid = torch.randn(n, 1, 4, 4, generator=generator)
    phase = torch.nn.functional.interpolate(grid, (size, size), mode="bicubic", align_corners=True)[:, 0]
    return phase + 2 * np.pi * torch.rand(n, 1, 1, generator=generator)


def as_pairs(images: Tensor) -> Tensor:
    return torch.stack([images.real, images.imag], 1).float()


def brains(path: Path, seeds: int) -> None:
    stored = np.load(path)
    train, test = (torch.from_numpy(stored[name].astype(np.float32)) for name in ("train", "test"))
    rms = float(train.square().mean().sqrt())
    lines, before = Lines(R=ACCELERATION), (fitting.REAL_COHERENCE, fitting.MAX_REFERENCED)
    for track in ("nothing assumed", "found to be real", "smooth random phase"):
        print(track)
        for seed in range(seeds):
            generator = torch.Generator().manual_seed(seed)
            parts = []
            for images in (train / rms, test / rms):
                z = images + 0j
                if track == "smooth random phase":
                    z = torch.polar(images, smooth_phase(len(images), images.shape[-1], generator))
                x = as_pairs(z)
                parts.append((x, lines.apply(x, SIGMA, generator)))
            (_, learned_from), (clean, shown) = parts
            about = about_of(lines, tuple(clean.shape[1:]), True)
            if track == "nothing assumed":
                fitting.REAL_COHERENCE, fitting.MAX_REFERENCED = (2.0, 2.0), 0
            fitted, seconds = fit(learned_from, about)
            fitting.REAL_COHERENCE, fitting.MAX_REFERENCED = before
            print(f"  seed {seed}: {fitted.notes[-1]} Fitted in {seconds:.1f} s.")
            show(compare(shown, clean, about, fitted))


@dataclass(frozen=True)
class Deformed(Source):
    """Slices of a volume, each resampled on its own smoothly deformed grid, with its own smooth phase."""

    kind: ClassVar[str] = "deformed"
    path: str
    is_complex: bool = field(default=True, init=False)
    shape: tuple[int, int, int] = field(init=False)
    slices: Nifti = field(init=False)
    usable: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        slices = Nifti(self.path, complex=True, size=LARGE)
        usable = tuple(k for k in range(len(slices)) if float((slices[k].x ** 2).mean()) > 0.3)
        self._set(shape=(2, LARGE, LARGE), slices=slices, usable=usable)

    def __len__(self) -> int:
        return SLICES

    def _content(self) -> dict[str, Any]:
        return {}

    def _read(self, index: int) -> Sample:
        generator = torch.Generator().manual_seed(index)
        plane = torch.from_numpy(self.slices[self.usable[index % len(self.usable)]].x[:1])
        shift = 0.05 * torch.randn(1, 2, 5, 5, generator=generator)
        moved = torch.nn.functional.interpolate(shift, (LARGE, LARGE), mode="bicubic", align_corners=True)[0]
        even = torch.nn.functional.affine_grid(torch.eye(2, 3)[None], [1, 1, LARGE, LARGE], align_corners=False)
        image = torch.nn.functional.grid_sample(plane[None], even + moved.movedim(0, -1), align_corners=False)[0]
        z = torch.polar(image.clamp(min=0), smooth_phase(1, LARGE, generator))
        return Sample(as_pairs(z)[0].numpy(), str(index))


def large(path: Path) -> None:
    lines = Lines(R=ACCELERATION)
    with tempfile.TemporaryDirectory() as folder:
        file, truth = Path(folder) / "measurements.h5", Path(folder) / "clean.h5"
        data = gsure.corrupt(Deformed(str(path)), file, lines, SIGMA, clean=truth)
        about = about_of(lines, (2, LARGE, LARGE), True)
        rest, few = len(data) - HELD_OUT, np.arange(len(data) - TIMED, len(data))
        before, began = peak_memory(torch.device("cpu")) / 1e9, time.perf_counter()
        fitted = fit_gaussian(
            lambda: (data[np.arange(k, min(k + 100, rest))] for k in range(0, rest, 100)),
            data[np.arange(rest, len(data))],
            about,
        )
        seconds, peak = time.perf_counter() - began, peak_memory(torch.device("cpu")) / 1e9
        print(f"{SLICES} slices of {LARGE} × {LARGE}: {fitted.notes[-1]}")
        print(f"  fitted in {seconds:.0f} s; peak memory {peak:.1f} GB, of which {before:.1f} GB before")
        began = time.perf_counter()
        fitted.gaussian.mean(data[few[:1]])
        print(f"  restored one slice in {time.perf_counter() - began:.2f} s")
        show(compare(data[few], gsure.Signals(truth)[few], about, fitted))


def small(fashion: str | None) -> None:
    sources = {"digits": open_source("digits")}
    sizes = {"digits": 2, "fashion16": 4}
    if fashion is not None:
        sources["fashion16"] = open_source(f"idx:{fashion}", size=16)
    for name, source in sources.items():
        n = min(len(source), 10_000)
        x = torch.stack([torch.from_numpy(source[k].x) for k in range(n)])
        patches, generator = Patches(p=0.4, size=sizes[name]), torch.Generator().manual_seed(0)
        measurement = patches.apply(x, 0.02, generator)
        about = about_of(patches, tuple(x.shape[1:]), False)
        apart = min(200, n // 4)
        fitted, seconds = fit(measurement[:-apart], about)
        print(f"{name}, {n - apart:,} images: {fitted.notes[-1]} Fitted in {seconds:.1f} s.")
        show(compare(measurement[-apart:], x[-apart:], about, fitted))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("brains", "large", "small"))
    parser.add_argument("path", nargs="?")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    match options.what:
        case "brains":
            brains(Path(options.path), options.seeds)
        case "large":
            large(Path(options.path))
        case "small":
            small(options.path)


if __name__ == "__main__":
    main()
