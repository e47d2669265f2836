"""What a first run gives: zero-filled, total variation, the Gaussian prior, and `gsure train` without any settings.

    python bench/first_run.py brains brains64.npz [--seeds N]    lines of k-space at R = 4, three kinds of images
    python bench/first_run.py default brains64.npz --minutes 15 [--seeds N]    the same images, with a trained network; with
        --train-on clean, one that learned from the images themselves
    python bench/first_run.py images NAME=SOURCE:SIZE ... --minutes 5    missing patches of images: with a trained network
    python bench/first_run.py base brains64.npz                  what the Gaussian costs in a training step of these
    python bench/first_run.py large volume.nii.gz                320 × 320, 1,000 slices: time and memory
    python bench/first_run.py small [IDX-FILE]                   patches of digits and of Fashion-MNIST 16 × 16

`brains64.npz` has uint8 images `train` and `test`. PSNR in dB is the mean over test images; "object" counts pixels above a
tenth of the largest magnitude. The strength of total variation and the options of the Gaussian are chosen by hidden entries:
no clean image is used. One thread, except for `default` and `images`, where training takes what is fastest.
"""

import argparse
import itertools
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
from gsure.data.measurements import Measurements
from gsure.data.nifti import Nifti
from gsure.data.source import Sample, Source
from gsure.data.sources import open_source
from gsure.gaussian import About, Fitted, fit_gaussian
from gsure.gaussian import fit as fitting
from gsure.judging import Baselines
from gsure.measurement import Measurement, draw_hidden
from gsure.metrics.images import psnr, psnr_in_object
from gsure.training.run import peak_memory

SIGMA, ACCELERATION, HELD_OUT, BATCH = 0.01, 4.0, 48, 500
SIGMA_IMAGES, FASHION, MOST = 0.02, 16, 10_000
LARGE, SLICES, TIMED = 320, 1000, 8
EPOCH, STEP = 448, 16
"""Measurements, and those in a step: all are seen often, as in a real run."""


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


def read_brains(path: Path, has_phase: bool, generator: torch.Generator) -> list[tuple[Tensor, Measurement]]:
    """Clean slices and their measurements, to learn from and to test on. The root mean square is 1."""
    stored = np.load(path)
    train, test = (torch.from_numpy(stored[name].astype(np.float32)) for name in ("train", "test"))
    rms = float(train.square().mean().sqrt())
    parts = []
    for images in (train / rms, test / rms):
        phase = smooth_phase(len(images), images.shape[-1], generator) if has_phase else torch.zeros_like(images)
        x = as_pairs(torch.polar(images, phase))
        parts.append((x, Lines(R=ACCELERATION).apply(x, SIGMA, generator)))
    return parts


def brains(path: Path, seeds: int) -> None:
    before = (fitting.REAL_COHERENCE, fitting.MAX_REFERENCED)
    for track in ("nothing assumed", "found to be real", "smooth random phase"):
        print(track)
        for seed in range(seeds):
            generator = torch.Generator().manual_seed(seed)
            (_, learned_from), (clean, shown) = read_brains(path, track == "smooth random phase", generator)
            about = about_of(Lines(R=ACCELERATION), tuple(clean.shape[1:]), True)
            if track == "nothing assumed":
                fitting.REAL_COHERENCE, fitting.MAX_REFERENCED = (2.0, 2.0), 0
            fitted, seconds = fit(learned_from, about)
            fitting.REAL_COHERENCE, fitting.MAX_REFERENCED = before
            print(f"  seed {seed}: {fitted.notes[-1]} Fitted in {seconds:.1f} s.")
            show(compare(shown, clean, about, fitted))


def default(path: Path, seeds: list[int], minutes: float, tracks: list[str], folder: Path, train_on: str) -> None:
    """`gsure train` without settings, and `gsure restore --method mean`: the means of both and of the baselines."""
    for track, seed in itertools.product(tracks, seeds):
        generator = torch.Generator().manual_seed(seed)
        (x, learned_from), (clean, shown) = read_brains(path, track == "phase", generator)
        data, test = (in_memory(measurement) for measurement in (learned_from, shown))
        run_folder, changes = folder / f"{track}-{seed}", dict[str, Any]()
        if train_on == "clean":
            run_folder, scale = folder / f"{track}-{seed}-clean", float(data.scales()[0])
            files = Path(f"{run_folder}.h5"), Path(f"{run_folder}-signals.h5")
            data = gsure.corrupt(
                Held(x / scale), files[0], Lines(R=ACCELERATION), SIGMA / scale, clean=files[1], seed=seed
            )
            changes = {"train_on": "clean"}
        train_and_compare(data, test, clean, minutes, seed, run_folder, changes, files[1] if changes else None)


def train_and_compare(
    data: Measurements,
    test: Measurements,
    clean: Tensor,
    minutes: float,
    seed: int,
    run_folder: Path,
    changes: dict[str, Any] | None = None,
    signals: Path | None = None,
) -> None:
    chosen = gsure.choose_settings(data, {"minutes": minutes, "seed": seed} | (changes or {}))
    torch.set_num_threads(chosen.threads)
    began, is_complex = time.perf_counter(), bool(data.header["complex"])
    run = gsure.train(data, run_folder, chosen.settings, clean=signals)
    print(
        f"{run_folder.name}: {(time.perf_counter() - began) / 60:.1f} minutes with {chosen.threads} threads, "
        f"{run.config.settings.steps} steps. {run.summary()['verdict']}"
    )
    restored = gsure.restore(run, test, method="mean", draws=1, steps=1)
    found = {
        name: as_pairs(signals.raw()[:, 0]) if is_complex else signals.raw()
        for name, signals in restored.signals.items()
    }
    scores = {name: psnr(x, clean, is_complex) for name, x in found.items()}
    for name in ("baseline", "total_variation", "gaussian", "mean"):
        ahead = scores["mean"] - scores[name]
        print(
            f"    {name:<16} {float(scores[name].mean()):.2f} dB; the network is better by "
            f"{float(ahead.mean()):.2f} ± {float(ahead.std() / len(ahead) ** 0.5):.2f} dB",
            flush=True,
        )


def images(cases: list[str], seeds: list[int], minutes: float, folder: Path) -> None:
    """Like `default`, for patches of SIZE pixels, of which 40 % are missing. The last tenth of the images is the test."""
    for case, seed in itertools.product(cases, seeds):
        name, _, asked = case.partition("=")
        path, _, size = asked.rpartition(":")
        source = open_source(path, **({"size": FASHION} if path.startswith("idx:") else {}))
        x = torch.stack([torch.from_numpy(source[k].x) for k in range(min(len(source), MOST))])
        shown = Patches(p=0.4, size=int(size)).apply(x, SIGMA_IMAGES, torch.Generator().manual_seed(seed))
        first, unit = len(x) - len(x) // 10, (int(size), int(size))
        data, test = (
            gsure.from_arrays(part.ybar, part.mask, SIGMA_IMAGES, scale=1, unit=unit, verbose=False)
            for part in (shown[:first], shown[first:])
        )
        train_and_compare(data, test, x[first:], minutes, seed, folder / f"{name}-{seed}")


def base(path: Path, tracks: list[str], folder: Path) -> None:
    """A step of restoration on the Gaussian base, and the same step with the posterior mean given, in alternation, in bf16."""
    for track in tracks:
        (_, learned_from), _ = read_brains(path, track == "phase", torch.Generator().manual_seed(0))
        data = in_memory(learned_from)
        run = gsure.train(data, folder / track, gsure.choose_settings(data, {"steps": 2}, timed=False).settings)
        denoiser, seconds = run.denoiser.requires_grad_(True), {"with": list[float](), "without": list[float]()}
        optimizer = torch.optim.AdamW(denoiser.parameters())
        find, given = denoiser._gaussian, None
        always = (data.coverage == 1).float()
        for number in range(4 * EPOCH // STEP):
            target = data[np.arange(STEP * number, STEP * (number + 1)) % EPOCH]
            hidden = draw_hidden(target, float(np.random.default_rng(number).uniform(0.3, 1)), number, (), always)
            kind = "with" if given is None or number % 2 else "without"
            denoiser._gaussian = find if kind == "with" else lambda *_, given=given: given
            began = time.process_time()
            with torch.autocast("cpu", torch.bfloat16):
                loss = (hidden * (denoiser.estimate(target.hide(hidden)) - target.ybar)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seconds[kind].append(time.process_time() - began)
            given = find(denoiser.base, target.hide(hidden))
        last = {kind: np.median(values[len(values) // 2 :]) for kind, values in seconds.items()}
        print(
            f"{track}: {run.denoiser.base.__class__.__name__}, {1e3 * last['with']:.0f} ms a step of {STEP}; "
            f"{last['with'] / last['without']:.3f} times as long as without"
        )


def in_memory(measurement: Measurement) -> gsure.Measurements:
    ybar = torch.complex(*measurement.ybar.unbind(1))
    return gsure.from_arrays(ybar, measurement.mask[:, 0], SIGMA, verbose=False)


@dataclass(frozen=True, init=False)
class Held(Source):
    """Images in memory."""

    kind: ClassVar[str] = "held"

    def __init__(self, images: Tensor) -> None:
        self._set(images=images, shape=tuple(images.shape[1:]), is_complex=True)

    def __len__(self) -> int:
        return len(self.images)

    def _content(self) -> dict[str, Any]:
        return {}

    def _read(self, index: int) -> Sample:
        return Sample(self.images[index].numpy(), str(index))


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
        n = min(len(source), MOST)
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
    parser.add_argument("what", choices=("brains", "default", "images", "base", "large", "small"))
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--tracks", nargs="+", default=["phase", "real"])
    parser.add_argument("--train-on", default="measurements", choices=("measurements", "clean"))
    parser.add_argument("--out", help="folder that keeps the trained runs")
    options = parser.parse_args(arguments)
    if options.what not in ("default", "images"):
        torch.set_num_threads(1)
    path = options.paths[0] if options.paths else None
    seeds = list(range(options.first_seed, options.first_seed + options.seeds))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.out or temporary)
        match options.what:
            case "brains":
                brains(Path(path), options.seeds)
            case "default":
                default(Path(path), seeds, options.minutes, options.tracks, folder, options.train_on)
            case "images":
                images(options.paths, seeds, options.minutes, folder)
            case "base":
                base(Path(path), options.tracks, folder)
            case "large":
                large(Path(path))
            case "small":
                small(path)


if __name__ == "__main__":
    main()
