"""Summarise what is in a file (shapes, basis, coverage, noise, provenance) and draw it."""

from pathlib import Path
from typing import Any

from gsure.data.file import holds, shard_files
from gsure.data.measurements import Measurements, Signals, open_clean, open_measurements
from gsure.display import number
from gsure.files import as_request, refuse_existing, refuse_inputs, show_request
from gsure.measurement import Measurement
from gsure.plotting import as_picture, draw_measurements, tint_missing


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
        "corruption": data.header["corruption"],
        "seed": data.header["seed"],
        "gsure": data.header["gsure"],
        "made by": show_request(as_request(data.header.get("request"))),
    }


def _advice(data: Measurements, some: Measurement) -> str:
    """Whether signals have the magnitude that noise schedules expect, from an unbiased estimate of their power."""
    power = ((some.ybar.double() ** 2 - (some.mask * some.std).double() ** 2) / data.coverage).flatten(1).mean(1)
    mean, error = float(power.mean()), float(power.std(correction=0)) / len(power) ** 0.5
    if mean <= 3 * error:
        return "yes" if len(power) < 2 else "yes (but noise hides how large the signals are, which should be about 1)"
    rms = mean**0.5
    if 0.1 <= rms <= 10:
        return "yes"
    return f"no (signals have root mean square {rms:.2g}, but schedules expect about 1: divide them by {rms:.2g} first)"


def _summary(data: Measurements) -> dict[str, Any]:
    some = data[: min(len(data), 512)]
    kept = some.mask.expand_as(some.ybar).flatten(1).mean(1)
    coverage = data.coverage
    never = int((coverage == 0).sum())
    sigma_0 = data.header["sigma_0"]
    return _common(data) | {
        "basis": str(data.basis),
        "mask shape": list(data.mask_shape),
        "unit": list(data.unit),
        "kept": {
            "mean": float(kept.mean()),
            "least": float(kept.min()),
            "most": float(kept.max()),
            "of first": len(some),
        },
        "coverage": {
            "least": float(coverage.min()),
            "most": float(coverage.max()),
            "from": data.header["coverage"],
            "never covered": never,
        },
        "sigma_0": sigma_0,
        "largest std": data.max_std,
        "trainable": f"no ({never} of {coverage.numel()} entries are never measured)" if never else _advice(data, some),
    }


def draw(data: Measurements, path: Path, clean: Signals | None = None, columns: int = 6) -> None:
    """Draw the first samples (clean if given, zero-filled measurement, noise level if it varies, mask) and the coverage."""
    columns = min(columns, len(data))
    measurement = data[:columns]
    is_complex = data.header["complex"]
    rows = {} if clean is None else {"clean": [as_picture(x, is_complex) for x in clean[:columns]]}
    rows["measured"] = [as_picture(x, is_complex) for x in data.basis.to_signal(measurement.ybar)]
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
