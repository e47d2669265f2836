"""Summarise what is in a file (shapes, basis, coverage, noise, provenance), say if a model can learn from it, and draw it."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gsure.basis import Basis, Fourier
from gsure.data.file import holds, shard_files
from gsure.data.geometry import Geometry
from gsure.data.measurements import Measurements, Signals, open_clean, open_measurements
from gsure.display import number
from gsure.files import as_request, refuse_existing, refuse_inputs, show_request
from gsure.measurement import Measurement
from gsure.plotting import as_picture, draw_measurements, tint_missing

MAX_READ, MIN_READ = 512, 8
"""Samples that are read to judge a file, at most; and at least, to say that noise drowns the signal."""
ROWS_ALIKE = 0.8
"""Correlation of vectors with the one before, above which they may be the rows of an image."""
CENTRE = 1 / 4
"""Side of the centre of k-space, as a share of each side, in which images of anything have most of their energy."""
MOST = 0.5
"""More than this share of the energy is most of it. White noise has 1/16 in the centre."""
PEAKED = 4.0
"""k-space of images has a far sharper peak than the images: the mean fourth power of its magnitudes, relative to the square of
the mean square, is 100 times that of images or more."""
CHECKED = 32
"""Samples that are looked at to see whether they are k-space."""


def inspect_file(
    path: str | Path, figure: str | Path | None = None, clean: str | Path | None = None, force: bool = False
) -> dict[str, Any]:
    """Return a summary that can be printed or written as JSON.

    `figure` also draws the first samples as a PNG, together with the `clean` signals behind them if given.
    """
    path = Path(path)
    if figure is None and clean is not None:
        raise ValueError(f"--clean {clean} has no effect without --figure: add --figure, or omit --clean.")
    if figure is not None:
        refuse_inputs([figure], [path, *([] if clean is None else [clean])])
        refuse_existing(Path(figure), force)
    if holds(path) == "signals":
        if figure is not None:
            raise ValueError(
                f"{path} holds clean signals: make the figure of its measurement file, with --clean {path}."
            )
        return _common(Signals(path))
    data = open_measurements(path)
    if figure is not None:
        draw(data, Path(figure), None if clean is None else open_clean(clean, data))
    return _summary(data)


def _common(data: Measurements | Signals) -> dict[str, Any]:
    groups = len(set(data.groups()))
    scales = data.scales()
    return {
        "file": data.name,
        "holds": data.holds,
        "samples": len(data),
        "groups": groups,
        "shape": list(data.shape),
        "complex": data.header["complex"],
        "scale": float(scales[0]) if (scales == scales[0]).all() else [float(scales.min()), float(scales.max())],
        "bytes": sum(file.stat().st_size for file in shard_files(Path(data.name))),
        "source": data.header["source"],
        "read as": data.header.get("read as"),
        "geometry": _geometry(data.geometry()),
        "corruption": data.header["corruption"],
        "seed": data.header["seed"],
        "gsure": data.header["gsure"],
        "made by": show_request(as_request(data.header.get("request"))),
    }


def _geometry(geometry: Geometry) -> str | None:
    """What a file knows about the geometry of its groups, in words."""
    if not geometry:
        return None
    problems = {name: entry["problem"] for name, entry in geometry.items() if "problem" in entry}
    good = len(geometry) - len(problems)
    of = f" of {len(geometry)}" if problems else ""
    text = f"affine and units of {good}{of} group{'s' * (len(geometry) > 1)}"
    return text + "".join(f"; not of {name}, because {why}" for name, why in list(problems.items())[:3])


def why_untrainable(data: Measurements, network: str = "unet") -> list[str]:
    """Reasons why a model cannot learn from these measurements, a sentence each; none if it can.

    Entries that are never measured are not among them: a model learns the others.
    """
    some = data[: min(len(data), MAX_READ)]
    reasons = [_not_images(data, some, network), _wrong_size(data, some)]
    return [
        reason for reason in [*reasons, wrong_domain(some.ybar[:CHECKED].numpy(), data.basis)] if reason is not None
    ]


def _not_images(data: Measurements, some: Measurement, network: str) -> str | None:
    if network != "unet" or len(data.shape) != 3 or min(data.shape[1:]) > 1:
        return None
    shape = " × ".join(map(str, data.shape[1:]))
    x = data.basis.to_signal(some.ybar).flatten(1).double()
    alike = float((x[:-1] * x[1:]).sum() / x[:-1].square().sum().clamp(min=1e-30)) if len(x) > 8 else 0.0
    if alike > ROWS_ALIKE:
        return (
            f"Signals are {shape}, and each is like the one before it: they may be the rows of images. Save the images as an "
            "array (N, height, width)."
        )
    return f"Signals are {shape}, not images: use --network mlp."


def _wrong_size(data: Measurements, some: Measurement) -> str | None:
    """Noise schedules expect a root mean square of about 1. It is computed from an unbiased estimate of the power."""
    coverage = data.coverage.clamp(min=1e-12)
    power = ((some.ybar.double() ** 2 - (some.mask * some.std).double() ** 2) / coverage).flatten(1).mean(1)
    mean, error = float(power.mean()), float(power.std(correction=0)) / len(power) ** 0.5
    if mean <= 3 * error if len(power) >= MIN_READ else mean < -3 * error:
        return (
            f"The noise drowns the signal: its std is {number(data.max_std, 3)}, and what was measured has no more power than "
            "that explains. Check the noise level."
        )
    rms = max(mean, 0.0) ** 0.5
    if mean <= 3 * error or 0.1 <= rms <= 10:
        return None
    return (
        f"Signals have a root mean square of {rms:.2g}, but noise schedules expect about 1: make the file again with --scale "
        f"auto, or divide by {rms:.2g}."
    )


def wrong_domain(values: np.ndarray, basis: Basis) -> str | None:
    """A sentence if values in the basis Fourier are images, or k-space with its centre in the corners.

    Images have most of their energy at low frequencies, which are in the centre.
    """
    if not isinstance(basis, Fourier) or min(values.shape[-2:]) < 8:
        return None
    some = torch.from_numpy(np.ascontiguousarray(values))
    transformed = basis.to_spectral(some)
    if is_uncentred(values):
        return (
            "The data has its energy in the corners, as k-space whose centre is at the first index: give "
            "np.fft.fftshift(y, axes=(-2, -1)), and the mask likewise."
        )
    is_sharper = _peakedness(transformed) > PEAKED * _peakedness(some)
    if _share_in_centre(transformed) > (MOST if is_sharper else max(MOST, 2 * _share_in_centre(some))):
        return (
            "The data looks like images, not like k-space: its Fourier transform has the peak in the centre that k-space of "
            "images has. Give gsure.Fourier().to_spectral(...) of it, or the basis Identity for images with missing pixels."
        )
    return None


def looks_like_kspace(images: np.ndarray) -> bool:
    """Whether (n, 2 channels, height, width), which should be complex images, has the peak of k-space."""
    some = torch.from_numpy(np.ascontiguousarray(images))
    if min(some.shape[-2:]) < 8 or _peakedness(some) <= PEAKED * _peakedness(Fourier().to_signal(some)):
        return False
    return max(_share_in_centre(some), _share_in_centre(torch.fft.fftshift(some, (-2, -1)))) > MOST


def is_uncentred(values: np.ndarray) -> bool:
    """Whether k-space has its energy in the corners, so that its zero frequency is at the first index."""
    some = torch.from_numpy(np.ascontiguousarray(values))
    return _share_in_centre(torch.fft.fftshift(some, (-2, -1))) > max(MOST, 2 * _share_in_centre(some))


def _peakedness(values: Tensor) -> float:
    """The mean fourth power of magnitudes, relative to the square of the mean square: the median over samples."""
    power = values.double().square().sum(1).flatten(1)
    power = power[power.any(1)]
    return float((power.square().mean(1) / power.mean(1) ** 2).median()) if len(power) else 0.0


def _share_in_centre(values: Tensor) -> float:
    height, width = values.shape[-2:]
    rows, columns = (
        slice(size // 2 - round(size * CENTRE / 2), size // 2 + round(size * CENTRE / 2)) for size in (height, width)
    )
    power = values.double().square()
    return float(power[..., rows, columns].sum() / power.sum().clamp(min=1e-300))


def _summary(data: Measurements) -> dict[str, Any]:
    some = data[: min(len(data), MAX_READ)]
    kept = some.mask.expand_as(some.ybar).flatten(1).mean(1)
    coverage = data.coverage
    never = int((coverage == 0).sum())
    guessed = f"{never} of {coverage.numel()} entries are never measured: a model can only guess them."
    reasons = why_untrainable(data)
    sigma_0 = data.header["sigma_0"]
    return _common(data) | {
        "basis": str(data.basis),
        "mask shape": list(data.mask_shape),
        "unit": list(data.unit),
        "kept": {
            "mean": float(kept.mean()),
            "least": float(kept.min()),
            "most": float(kept.max()),
            "counted samples": len(some),
        },
        "coverage": {
            "least": float(coverage.min()),
            "most": float(coverage.max()),
            "from": data.header["coverage"],
            "never measured": never,
        },
        "sigma_0": sigma_0,
        "transform": _transform(data),
        "largest std": data.max_std,
        "trainable": f"no ({' '.join(reasons)})" if reasons else f"in part ({guessed})" if never else "yes",
    }


def _transform(data: Measurements) -> dict[str, Any] | None:
    """What was done to counts, if these are counts; the numbers, and how they are known."""
    transform = data.header.get("transform")
    return None if transform is None else {**transform, **data.header.get("counts", {})}


def draw(data: Measurements, path: Path, clean: Signals | None = None, columns: int = 6) -> None:
    """Draw the first samples (clean if given, zero-filled measurement, noise level if it varies, mask) and the coverage."""
    columns = min(columns, len(data))
    measurement = data[:columns]
    is_complex = data.header["complex"]
    rows = {} if clean is None else {"clean": [as_picture(x, is_complex, data.black) for x in clean[:columns]]}
    rows["measured"] = [as_picture(x, is_complex, data.black) for x in data.basis.to_signal(measurement.ybar)]
    if data.basis.is_signal:  # then missing entries are pixels
        kept = measurement.mask.expand_as(measurement.ybar).amax(1)
        rows["measured"] = [tint_missing(x, here) for x, here in zip(rows["measured"], kept, strict=True)]
    kept_std = measurement.std.expand_as(measurement.mask)[measurement.mask == 1]
    if len(kept_std) and kept_std.max() > 1.5 * kept_std.min():
        std = (measurement.mask * measurement.std).expand(-1, -1, *data.shape[1:])
        rows["noise std"] = [one[0] / std.max() for one in std]
    rows["mask"] = [m.expand(-1, *data.shape[1:])[: min(3, len(m))].mean(0) for m in measurement.mask]
    corruption = dict(data.header["corruption"])
    name = corruption.pop("name")
    options = ", ".join(f"{key}={number(value)}" for key, value in corruption.items())
    about = f"{name}({options})" if options else name
    title = f"{Path(data.name).name}: {len(data):,} measurements, {about}, noise std up to {number(data.max_std, 3)}"
    draw_measurements(path, rows, data.coverage.expand(1, -1, *data.shape[1:])[0].mean(0), title)
