"""Measurements from arrays in memory, with the interface of a file; and a file from measurements.

Arrays can be meant in more than one way. `from_arrays` says how it takes them, and asks where two ways are possible.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

import gsure
from gsure.basis import Basis, Dense, Fourier, Identity, check_basis
from gsure.data.file import RowsInMemory, Shard
from gsure.data.inspection import CHECKED, wrong_domain
from gsure.data.measurements import Measurements, Signals
from gsure.data.scaling import choose_scales
from gsure.data.source import evenly_spread, in_pairs
from gsure.data.writer import Writer
from gsure.display import bar, number, percent, say
from gsure.files import record_request
from gsure.measurement import Measurement

Array = np.ndarray | Tensor
Number = int | float | bool
SAVED_AT_ONCE = 256
SWAPPED = 0.05
"""A mask that has less than this share of the energy of k-space is refused."""


def from_arrays(
    y: Array,
    mask: Array | Number | None = None,
    sigma: Array | Number | None = None,
    basis: Basis | None = None,
    groups: Sequence[str] | None = None,
    scale: Array | Number | Literal["auto"] = "auto",
    *,
    unit: Sequence[int] = (),
    channels: bool = False,
    verbose: bool = True,
) -> Measurements:
    """Measurements from arrays, as `gsure.open` returns them. `gsure.save` writes them to a file.

    y       what was measured, in the domain where it was measured: complex k-space, pixels, ... NumPy or torch, of shape
            (N, H, W) or (N, channels, H, W); complex, or real with `basis=gsure.Fourier()` for (real, imaginary) channels.
            In the basis `Dense`, any shape (N, ...).
    mask    1 where something was measured; any shape that broadcasts, such as (W,) for columns or (N, 1, W)
    sigma   standard deviation of the noise, in the units of y; that of real and imaginary part each if y is complex. A
            number, one per sample (N,), or one per entry in any shape that broadcasts like `mask`
    basis   where y was measured; for complex y, `Fourier()`
    groups  the volume, subject or file of each sample: slices of one group are never split between training and validation
    scale   y is divided by this number, or by one per sample; results are multiplied by it again. By default, each group is
            brought to a root mean square of about 1; real images between -1 and 1 stay as they are
    unit    block of mask entries that are measured or missing together, such as (4, 4)
    channels  complex y has shape (N, channels, H, W): several channels per image, which are not coils

    Give y, mask and sigma: a model needs all three. It prints how it takes the arrays, unless `verbose=False`.

    >>> y = np.ones((5, 6, 4), np.complex64)
    >>> from_arrays(y, mask=np.array([0, 1, 1, 0]), sigma=0.1, verbose=False)
    Measurements(5 of shape (2, 6, 4), Fourier(), std up to 0.2, the measurements in memory)
    """
    given = {"y": _about(y), "mask": _about(mask), "sigma": _about(sigma), "basis": basis, "scale": _about(scale)}
    request = record_request("from_arrays", given)
    measured = _numpy("mask", mask)
    if measured.dtype.kind == "c":
        raise ValueError(
            "mask is complex, as k-space is: give y first, and then mask, which is 1 where y was measured."
        )
    values, is_complex, basis, read_y = _values(_numpy("y", y), basis, channels)
    n, shape = len(values), values.shape[1:]
    kept, read_mask = _broadcast("mask", measured, values.shape, is_complex)
    if problem := wrong_domain(values[evenly_spread(CHECKED, n)], basis):
        raise ValueError(problem)
    dropped = _energy_outside(values, kept)
    _refuse_mask(kept, dropped, isinstance(basis, Fourier))
    scales = _scales(scale, values, kept, groups, is_complex)
    std, read_sigma = _noise(_numpy("sigma", sigma), values.shape, is_complex, scales)
    values = values / scales.reshape(-1, *[1] * len(shape)).astype(np.float32)
    check_basis(basis, shape)
    source = {"kind": "arrays", "y": read_y, "mask": read_mask, "sigma": read_sigma}
    data = Measurements.in_memory(
        _shard(values, kept, std, basis, groups, scales, unit, is_complex, {"source": source, "request": request}),
        basis,
    )
    if verbose:
        divided = (
            number(float(scales[0])) if len(set(scales)) == 1 else f"{number(scales.min())} to {number(scales.max())}"
        )
        lines = [f"y: {read_y}", f"mask: {read_mask}", f"sigma: {read_sigma}", f"scale: divided by {divided}"]
        if dropped:
            lines.append(f"{number(100 * dropped, 2)} % of the energy of y lies where the mask is 0, and is not used")
        say("from_arrays\n" + "\n".join(f"  {line}" for line in lines))
    return data


def _about(value: Any) -> Any:
    return f"<{type(value).__name__} {tuple(value.shape)}>" if hasattr(value, "shape") else value


def _numpy(name: str, values: Any) -> np.ndarray:
    array = values.detach().cpu().resolve_conj().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.dtype.kind not in "buifc":
        given = repr(values) if values is None or isinstance(values, str | Path) else array.dtype
        raise ValueError(f"{name} must be a number or an array of numbers, but is {given}.{_remedy(name, values)}")
    if bad := array.size - int(np.isfinite(array).sum()):
        raise ValueError(f"{name} has {bad} values that are NaN or infinite: set them to 0, and the mask to 0 there.")
    return array


def _remedy(name: str, values: Any) -> str:
    if name == "mask" and values is None:
        return " Give 1 if everything was measured."
    if name == "sigma":
        what = " Give the standard deviation of the noise, in the units of y (of the real part, if y is complex)."
        return (
            f"{what if values is None else ''} If you do not know it, save y and estimate it: np.save('y.npy', y), then "
            "gsure.convert('array', 'y.npy', 'out.h5', 'estimate') in place of from_arrays."
        )
    return " Load it first, or give the file to gsure.convert." if isinstance(values, str | Path) else ""


def _values(y: np.ndarray, basis: Basis | None, channels: bool) -> tuple[np.ndarray, bool, Basis, str]:
    """y as float32 (N, channels, H, W), whether it is complex, its basis, and how it was understood."""
    dims = y.shape
    if channels and y.ndim != 4:
        raise ValueError(f"channels=True needs y of shape (N, channels, H, W), but y has shape {dims}: omit it.")
    if y.ndim < 2 or 0 in dims:
        raise ValueError(f"y has shape {dims}, but a set of measurements is (N, H, W) or (N, channels, H, W).")
    if isinstance(basis, Dense):
        if y.dtype.kind == "c":
            raise ValueError("y is complex, but a Dense basis acts on real signals: stack real and imaginary parts.")
        signals = y[:, None, None] if y.ndim == 2 else y
        return signals.astype(np.float32), False, basis, f"{dims[0]} signals of shape {dims[1:]}, in a Dense basis"
    if y.ndim == 2 and y.dtype.kind != "c" and basis is not None:
        return y[:, None, None].astype(np.float32), False, basis, f"{dims[0]} vectors of {dims[1]}, in {basis}"
    if y.ndim == 2:
        raise ValueError(
            f"y has shape {dims}, which can be one image or {dims[0]} vectors: give y[None] for one image, or "
            "basis=gsure.Identity() for real vectors."
        )
    if y.ndim > 4:
        raise ValueError(f"y has shape {dims}, but at most 4 dimensions are (N, channels, H, W): reshape it.")
    y = y[:, None] if y.ndim == 3 else y
    n, count, height, width = y.shape
    if y.dtype.kind == "c":
        _refuse_coils(dims, count, channels, "y[:, 0]", "y")
        basis = basis or Fourier()
        channel = "" if count == 1 else f", {count} channels each"
        kind = "k-space of" if isinstance(basis, Fourier) else "complex"
        return (
            np.stack([in_pairs(one) for one in y]),
            True,
            basis,
            f"{kind} {n} images of {height} × {width}{channel}, in {basis}",
        )
    pairs = isinstance(basis, Fourier)
    if basis is None and count == 2:
        raise ValueError(
            f"y is real with two channels, {dims}, which can be real and imaginary parts of k-space or two real images: give "
            "basis=gsure.Fourier() for the one, basis=gsure.Identity() for the other."
        )
    if pairs and count % 2:
        raise ValueError(
            f"y is real, of shape {dims}, but gsure.Fourier() needs complex values, or channels in (real, imaginary) pairs."
        )
    if pairs:
        _refuse_coils(dims, count // 2, channels, "y[:, :2]", "y[:, ::2] + 1j * y[:, 1::2]")
    basis = basis or Identity()
    what = f"{count // 2} (real, imaginary) pairs" if pairs else f"{count} channel{'s' * (count > 1)}"
    return y.astype(np.float32), pairs, basis, f"{n} images of {height} × {width}, {what}, in {basis}"


def _refuse_coils(dims: tuple[int, ...], count: int, channels: bool, one: str, as_complex: str) -> None:
    """Unless the caller says that these are channels. `one` is the code for the first coil."""
    if count > 1 and not channels:
        raise ValueError(
            f"y has shape {dims}, in which dimension 1 can be {count} coils or {count} channels of one image. If they are "
            f"coils, give one, {one}, or combine them: np.save('y.npy', {as_complex}), then gsure.convert('array', 'y.npy', "
            "'out.h5', sigma, axes='sample,coil,readout,phase', combine='first-virtual'). If they are channels, add "
            "channels=True."
        )


def _scales(
    given: Array | Number | Literal["auto"],
    values: np.ndarray,
    kept: np.ndarray,
    groups: Sequence[str] | None,
    is_complex: bool,
) -> np.ndarray:
    n = len(values)
    if isinstance(given, str):
        if given != "auto":
            raise ValueError(f"scale is auto, a number, or one for each sample, not {given!r}.")
        volumes = ["all samples"] * n if groups is None or len(groups) != n else list(map(str, groups))
        return choose_scales(lambda index: values[index] * kept[index % len(kept)], volumes, is_complex)
    scale = _numpy("scale", given)
    if scale.shape not in ((), (1,), (n,)) or scale.dtype.kind == "c" or not (scale > 0).all():
        raise ValueError(
            f"scale must be a number above 0, or one for each of {n} samples, but has shape {scale.shape}"
            f"{'' if scale.size > 4 else f' and is {scale.tolist()}'}."
        )
    return np.broadcast_to(scale.astype(np.float64).reshape(-1), (n,))


def _broadcast(name: str, array: np.ndarray, shape: tuple[int, ...], is_complex: bool) -> tuple[np.ndarray, str]:
    """The array with one dimension per dimension of y, each 1 or that of y, as small as it can be; and what it means.

    Trailing dimensions are aligned, as NumPy does; or, if the first one is that of the samples, first and last ones.
    """
    n, *inner = shape
    if is_complex:
        inner[0] //= 2
    full = (n, *inner)
    plain = (1,) * (len(full) - array.ndim) + array.shape
    if array.dtype.kind == "c" or array.ndim > len(full):
        raise ValueError(f"{name} is {array.dtype} of shape {array.shape}, but must be real, of at most {full}.")
    ways = {plain}
    if 1 < array.ndim < len(full):
        ways.add((array.shape[0], *[1] * (len(full) - array.ndim), *array.shape[1:]))
    fitting = sorted(way for way in ways if all(a in (1, b) for a, b in zip(way, full, strict=True)))
    if not fitting:
        names = "(N, channels, H, W)" if len(full) == 4 else "that of y"
        raise ValueError(
            f"{name} has shape {array.shape}, which does not broadcast against y, {full}: give {names}, with 1 for what does "
            f"not vary, or ({full[-1]},) for one value per column."
        )
    if len(fitting) > 1:
        raise ValueError(
            f"{name} has shape {array.shape}, which can mean {' or '.join(map(str, fitting))} for y of {full}: reshape it to "
            "the one that you mean."
        )
    array = array.reshape(fitting[0])
    if array.size == 1:
        meaning = "the same everywhere"
    else:
        axes = ["samples", *(["channels", "rows", "columns"] if len(full) == 4 else [])]
        varies = [axis for axis, size in zip(axes, array.shape, strict=False) if size > 1]
        meaning = f"{array.shape}, varies over {' and '.join(varies)}" if varies else f"{array.shape}"
    for axis in range(1, array.ndim):  # a mask of lines that is given entry by entry is still one of lines
        if array.shape[axis] > 1 and (array == array.take([0], axis)).all():
            array = array.take([0], axis)
    if is_complex and array.shape[1] > 1:
        array = array.repeat(2, 1)
    return array, meaning


def _refuse_mask(kept: np.ndarray, dropped: float, is_kspace: bool) -> None:
    """A mask without the energy of k-space has 0 and 1 swapped."""
    if not np.isin(kept, (0, 1)).all():
        raise ValueError("mask must be 0 (not measured) or 1 (measured), but has other values.")
    if not kept.any():
        raise ValueError("mask is 0 everywhere, so nothing was measured: check whether 0 and 1 are swapped.")
    if 1 - dropped <= (min(SWAPPED, kept.mean() / 2) if is_kspace else 0):
        raise ValueError(
            f"mask leaves out {percent(dropped)} of the energy of y, as if 0 and 1 were swapped: 1 means measured. If the "
            "mask is right, set the values of y that were not measured to 0."
        )


def _noise(sigma: np.ndarray, shape: tuple[int, ...], is_complex: bool, scales: np.ndarray) -> tuple[np.ndarray, str]:
    """std with as many dimensions as y, in the scale of the model."""
    n = shape[0]
    if sigma.ndim == 1 and len(sigma) == n != 1:
        if n == shape[-1]:
            raise ValueError(
                f"sigma has {n} values, which can be one per sample or one per column: reshape it to "
                f"{(n, *[1] * len(shape[1:]))} or {(*[1] * len(shape[1:]), n)}."
            )
        sigma = sigma.reshape(n, *[1] * len(shape[1:]))
    std, meaning = _broadcast("sigma", sigma, shape, is_complex)
    if (std < 0).any():
        raise ValueError(f"sigma must be at least 0, but has the value {std.min():g}.")
    parts = " in real and imaginary part each" if is_complex else ""
    value = number(float(std.flat[0])) if std.size == 1 else f"{number(float(std.min()))} to {number(float(std.max()))}"
    if not (scales == scales[0]).all():
        return std / scales.reshape(-1, *[1] * (std.ndim - 1)), f"{value}{parts}, {meaning}"
    return std / scales[0], f"{value}{parts}, {meaning}"


def _energy_outside(values: np.ndarray, kept: np.ndarray) -> float:
    total = float((values.astype(np.float64) ** 2).sum())
    return float(((values * (kept == 0)).astype(np.float64) ** 2).sum()) / total if total else 0.0


def _shard(
    values: np.ndarray,
    kept: np.ndarray,
    std: np.ndarray,
    basis: Basis,
    groups: Sequence[str] | None,
    scales: np.ndarray,
    unit: Sequence[int],
    is_complex: bool,
    about: dict[str, Any],
) -> Shard:
    n = len(values)
    if groups is not None and len(groups) != n:
        raise ValueError(f"There are {len(groups)} groups for {n} samples: give one name per sample.")
    per_sample = np.prod(std.shape[1:]) == 1
    mask_shape = kept.shape[1:] if per_sample else np.broadcast_shapes(kept.shape, std.shape)[1:]
    mask = np.broadcast_to(kept != 0, (n, *mask_shape))
    rows = {
        "ybar": RowsInMemory(np.where(kept != 0, values, 0).astype(np.float32)),
        "mask": RowsInMemory(np.packbits(mask.reshape(n, -1), axis=1)),
    }
    sigma_0 = np.broadcast_to(std.reshape(-1), (n,)) if per_sample else np.ones(1)
    if not per_sample:
        rows["pinv"] = RowsInMemory((mask * np.broadcast_to(std, (n, *mask_shape))).astype(np.float32))
    header = {
        **about,
        "complex": is_complex,
        "corruption": {"name": "as measured"},
        "sigma_0": {"given": float(std.max())},
        "seed": None,
        "gsure": gsure.__version__,
        "basis": type(basis).__name__,
        "mask_shape": list(mask_shape),
        "unit": list(unit),
        "max_std": float(np.float32((mask * std).max() if not per_sample else std.max())),
        "coverage": "mean of the masks",
    }
    small = {
        "scale": scales.astype("<f4"),
        "offset": np.zeros(1, "<f4"),
        "sigma_0": sigma_0.astype("<f4"),
        "coverage": mask.mean(0, keepdims=True, dtype=np.float64),
    }
    if isinstance(basis, Dense):
        small["V"] = basis.V.double().cpu().numpy()
    return Shard(None, n, values.shape[1:], header, rows, small, None if groups is None else list(map(str, groups)))


def hold_signals(
    x: Tensor,
    made_of: Mapping[str, Any],
    is_complex: bool,
    groups: Sequence[str] | None = None,
    scales: np.ndarray | None = None,
    offsets: np.ndarray | None = None,
    transform: Mapping[str, Any] | None = None,
) -> Signals:
    """Signals that a model made, in memory, with the interface of a file."""
    header = {"source": dict(made_of), "complex": is_complex, "corruption": {"name": "none"}, "sigma_0": None}
    header |= {"transform": transform}
    header |= {"seed": made_of["seed"], "gsure": gsure.__version__}
    scales = np.ones(1) if scales is None else scales
    offsets = np.zeros(1) if offsets is None else offsets
    small = {"scale": scales.astype("<f4"), "offset": offsets.astype("<f4")}
    rows = {"x": RowsInMemory(x.contiguous().numpy())}
    return Signals.in_memory(Shard(None, len(x), tuple(x.shape[1:]), header, rows, small, groups))


def save(path: str | Path, data: Measurements, *, force: bool = False, progress: bool = False) -> Measurements:
    """Write measurements, or a part of them, to a file that `gsure.open` and every command reads."""
    binary = "pinv" not in data._shards[0].rows
    known = data.coverage if data.header["coverage"] == "closed form" else None
    own = {"basis", "mask_shape", "unit", "max_std", "coverage", "gsure"}  # which the writer adds
    header = {key: value for key, value in data.header.items() if key not in own} | {"geometry": data.geometry()}
    writer = Writer(
        path,
        len(data),
        data.shape,
        header,
        basis=data.basis,
        mask_shape=data.mask_shape,
        unit=data.unit,
        binary=binary,
        coverage=known,
        force=force,
    )
    groups, scales, offsets = data.groups(), data.scales().tolist(), data.offsets().tolist()
    sigma_0 = torch.from_numpy(data._read("sigma_0", data.indices))
    with writer, bar("saving", len(data), progress) as advance:
        for where in np.array_split(np.arange(len(data)), math.ceil(len(data) / SAVED_AT_ONCE)):
            part = slice(int(where[0]), int(where[-1]) + 1)
            measurement: Measurement = data[where]
            writer.append(measurement, groups[part], scales[part], sigma_0[part], offsets[part])
            advance(len(where))
    return Measurements(path, data.basis)
