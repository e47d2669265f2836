"""The affine of a DICOM series, from the position and orientation of its slices."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gsure.data.geometry import Space

TOLERANCE = 0.01
"""Millimetres, or parts of a direction vector, by which slices of one grid may differ."""


def position_of(header: Any) -> float:
    """Position along the normal of the slice, in millimetres; 0 if the file does not specify it."""
    place, turn = header.get("ImagePositionPatient"), header.get("ImageOrientationPatient")
    if not place or not turn:
        return 0.0
    return float(np.dot(np.cross(turn[:3], turn[3:]), place))


def space_of(headers: Sequence[Any]) -> Space | None:
    """The space of (columns, rows from the bottom, slices), for slices in this order; None if the files do not say.

    DICOM counts towards left, posterior and superior; the affine, as in NIfTI, towards right, anterior and superior.
    """
    tags = ("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing")
    if not all(header.get(tag) for header in headers for tag in tags):
        return None
    first = headers[0]
    origins = np.array([header.ImagePositionPatient for header in headers], float)
    turns = np.array([header.ImageOrientationPatient for header in headers], float)
    spacing = np.array([header.PixelSpacing for header in headers], float)
    problem = None
    if np.ptp(turns, 0).max() > TOLERANCE or np.ptp(spacing, 0).max() > TOLERANCE:
        problem = "its slices differ in orientation or pixel size"
    across, down = turns[0, :3] * spacing[0, 1], turns[0, 3:] * spacing[0, 0]
    places, counts = _places(origins)
    if len(set(counts)) > 1:
        problem = problem or "its positions have different numbers of images"
    step = _step(places, first, np.cross(turns[0, :3], turns[0, 3:]))
    if len(places) > 2 and np.abs(np.diff(places, axis=0) - step).max() > max(TOLERANCE, 0.01 * np.linalg.norm(step)):
        problem = problem or "its slices are not evenly spaced"
    affine = np.eye(4)
    affine[:3] = np.column_stack([across, -down, step, origins[0] + (int(first.Rows) - 1) * down])
    affine[:2] *= -1
    return Space(tuple(map(tuple, affine.tolist())), ("mm", "unknown"), (1, 1), (), counts[0], problem)


def _places(origins: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Positions in order, and the number of images that follow each other at each."""
    fresh = np.r_[True, np.linalg.norm(np.diff(origins, axis=0), axis=1) > TOLERANCE]
    starts = np.flatnonzero(fresh)
    return origins[starts], np.diff([*starts, len(origins)]).tolist()


def _step(places: np.ndarray, header: Any, normal: np.ndarray) -> np.ndarray:
    """From one slice to the next; for a single slice, from its own spacing or thickness."""
    if len(places) > 1:
        return (places[-1] - places[0]) / (len(places) - 1)
    return normal * float(header.get("SpacingBetweenSlices") or header.get("SliceThickness") or 1.0)
