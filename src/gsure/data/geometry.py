"""Where the voxels of a volume are: its affine, units and order of slices, from the file that was read to the one written.

A `Space` describes a volume as it is stored. A geometry describes the part of it that the samples of one group are, as JSON:

    affine      4 × 4, from the indices of the volume that the samples form to millimetres towards right, anterior, superior
    axis        the axis of that volume along which samples lie side by side
    shape       of that volume, with further dimensions (time, echoes) behind the first three
    interleaved whether the samples of one position follow each other, as the echoes of a DICOM series do
    positions   which samples of the volume these are; missing if all of them are, in order
    units, codes, steps     the header of NIfTI: units of space and time, codes of qform and sform, sizes of further dimensions
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Affine = tuple[tuple[float, ...], ...]
Geometry = Mapping[str, Any]


class Space(NamedTuple):
    """The affine of a volume as stored, and what else its header says. With a `problem`, the affine means nothing."""

    affine: Affine
    units: tuple[str, str] = ("mm", "unknown")
    codes: tuple[int, int] = (1, 1)
    steps: tuple[float, ...] = ()
    repeats: int = 1
    """Number of slices that follow each other at one position of axis 2."""
    problem: str | None = None


def describe_slices(
    space: Space, shape: Sequence[int], axis: int, first: int, count: int, size: int | None
) -> dict[str, Any]:
    """The geometry of slices `first` to `first + count - 1` along `axis`, padded to a square and resized to `size` if given.

    Slice coordinates become those of the volume by a scale and a shift: a = (a' + 1/2) f - 1/2 - (zeros before it).
    """
    r = space.repeats
    if space.problem is None and r > 1 and (axis != 2 or first % r or count % r):
        return {"problem": f"its {r} images of each position cannot be told apart in this selection of slices"}
    if space.problem is not None:
        return {"problem": space.problem}
    if not abs(np.linalg.det(np.array(space.affine)[:3, :3])) > 0:
        return {"problem": "its affine is singular"}
    factor, shift, form = np.ones(3), np.zeros(3), [int(n) for n in shape[:3]]
    shift[axis], form[axis] = first // r, count // r
    if size is not None:
        across, up = (k for k in range(3) if k != axis)
        side = max(shape[across], shape[up])
        factor[[across, up]] = side / size
        before = (side - shape[across]) // 2, math.ceil((side - shape[up]) / 2)  # rows are counted from below
        for k, zeros in zip((across, up), before, strict=True):
            shift[k], form[k] = side / size / 2 - 0.5 - zeros, size
    change = np.diag([*factor, 1.0])
    change[:3, 3] = shift
    affine = np.array(space.affine) @ change
    further = [r] if r > 1 else [int(n) for n in shape[3:]]
    return {
        "affine": affine.tolist(),
        "axis": axis,
        "shape": form + further,
        "interleaved": r > 1,
        "units": list(space.units),
        "codes": list(space.codes),
        "steps": list(space.steps),
    }


def select(geometry: Geometry, names: Sequence[str], indices: np.ndarray) -> dict[str, dict[str, Any]]:
    """The geometry of some samples of a file. `names` are the groups of all of them."""
    if not geometry:
        return {}
    seen: dict[str, int] = {}
    place = np.empty(len(names), int)
    for index, name in enumerate(names):
        place[index] = seen.get(name, 0)
        seen[name] = place[index] + 1
    chosen: dict[str, list[int]] = {}
    for index in indices:
        chosen.setdefault(names[index], []).append(int(place[index]))
    found = {}
    for name, places in chosen.items():
        if name in geometry:
            before = geometry[name].get("positions")
            positions = places if before is None else [before[k] for k in places]
            entire = positions == list(range(len(positions)))
            rest = {key: value for key, value in geometry[name].items() if key != "positions"}
            found[name] = rest if entire else rest | {"positions": positions}
    return found


def assemble(planes: np.ndarray, geometry: Geometry) -> np.ndarray:
    """The volume that slices (n, height, width) form, with the axes of the volume they came from.

    Slices that are missing are NaN. Missing slices at the end are omitted.
    """
    axis, shape = geometry["axis"], geometry["shape"]
    length, further = shape[axis], shape[3:]
    many = math.prod(further)
    positions = geometry.get("positions", range(len(planes)))
    turned = np.rot90(planes, -1, axes=(1, 2))
    volume = np.full((length, many, *turned.shape[1:]), np.nan, np.float32)
    used = 0
    for plane, position in zip(turned, positions, strict=True):
        at, other = divmod(position, many) if geometry["interleaved"] else divmod(position, length)[::-1]
        volume[at, other] = plane
        used = max(used, at + 1)
    volume = np.moveaxis(np.moveaxis(volume[:used], 1, -1), 0, axis)
    return volume.reshape(*volume.shape[:3], *further)
