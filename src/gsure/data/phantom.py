"""`phantom`: any number of procedural, brain-like complex slices, to try MRI masks without MRI data.

A head consists of layers at increasing depth below the skin: scalp, skull, fluid, then cortex. A random wave field folds the
cortex, and its zero lines are the sulci. The distance to the nearest fluid (surface, sulcus or the fissure between the
hemispheres) determines what is fluid, gray matter or white matter. Ventricles, deep nuclei and lesions are painted on top.
Slices are drawn at twice the size and averaged, so edges are antialiased. Sample k depends only on (seed, k), and is the same
head at every size. A phantom imitates the look of a scan, not the physics or the statistics of anatomy.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from gsure.data.fields import grid, smooth_phase, waves
from gsure.data.source import Sample, Source, check_scale, in_pairs

# Signal of scalp, marrow, fluid, gray and white matter, lesion, in weightings T1, T2, FLAIR and proton density.
CONTRASTS = np.array(
    [
        [0.80, 0.40, 0.12, 0.46, 0.72, 0.30],
        [0.50, 0.28, 0.95, 0.58, 0.36, 0.85],
        [0.50, 0.28, 0.08, 0.60, 0.44, 0.95],
        [0.70, 0.35, 0.80, 0.74, 0.56, 0.90],
    ]
)


@dataclass(frozen=True)
class Phantom(Source):
    """Slices of `size` x `size` with smooth phase. The magnitude is about 0..1 before the division by `scale`.

    >>> Phantom(size=32)[3].x.shape
    (2, 32, 32)
    """

    kind: ClassVar[str] = "phantom"
    size: int = 64
    n: int = 10_000
    seed: int = 0
    scale: float = 1.0
    is_complex: bool = field(default=True, init=False, repr=False, compare=False)
    shape: tuple[int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.size < 8 or self.n < 1 or self.seed < 0:
            raise ValueError(
                f"A phantom needs size >= 8, n >= 1 and seed >= 0, but was given size = {self.size}, n = {self.n}, "
                f"seed = {self.seed}."
            )
        check_scale(self.scale)
        self._set(shape=(2, self.size, self.size))

    def __len__(self) -> int:
        return self.n

    def _read(self, index: int) -> Sample:
        from gsure.random import Stream, numpy_generator  # here, because it imports torch

        rng = numpy_generator(self.seed, Stream.PHANTOM, index)
        fine = _magnitude(rng, 2 * self.size)
        magnitude = fine.reshape(self.size, 2, self.size, 2).mean((1, 3))
        image = magnitude * np.exp(1j * smooth_phase(rng, self.size))
        return Sample(in_pairs(image / np.float32(self.scale)), str(index), self.scale)

    def _content(self) -> dict[str, Any]:
        return {"version": 2}


def _magnitude(rng: np.random.Generator, n: int) -> np.ndarray:
    level = rng.uniform(0, 1) ** 1.3  # 0 at the basal ganglia, 1 near the top of the head
    x, y = _head_frame(rng, n)
    radius = np.sqrt(x * x + y * y) + np.float32(1e-6)
    depth = _outline(rng, x / radius, y / radius, 1 - 0.3 * level**2.5) - radius  # below the skin
    weighting = CONTRASTS[rng.choice(4, p=[0.35, 0.35, 0.15, 0.15])]
    scalp, marrow, fluid, gray, white, lesion = (weighting * rng.uniform(0.9, 1.1, 6)).tolist()
    bumps = waves(rng, n, 0.35, 0.9)
    skin, bone = rng.uniform([0.035, 0.05], [0.075, 0.085]).astype(np.float32)
    below_skin = depth - skin - 0.008 * bumps
    below_bone = depth - skin - bone - 0.006 * bumps
    image = _inside(depth) * scalp * (0.9 + 0.12 * waves(rng, n, 0.06, 0.2))
    image = _paint(image, _inside(below_skin), 0.04)
    image = _paint(image, _inside(0.22 * bone - np.abs(below_bone + 0.5 * bone)), marrow)
    image = _paint(image, _inside(below_bone), fluid)

    # Distort everything within the skull a little, so that left and right are not exact mirror images.
    u, v = x + 0.025 * bumps, y + 0.02 * waves(rng, n, 0.4, 0.9)
    brain = below_bone - np.float32(rng.uniform(0.01, 0.04)) + 0.006 * waves(rng, n, 0.15, 0.3)
    to_fluid = _distance_to_fluid(rng, brain, u, v, bumps, level)
    to_white = (to_fluid - np.float32(rng.uniform(0.036, 0.052))) * 28 + 0.5  # gray turns into white gradually
    tissue = _inside(to_fluid)
    image = _paint(image, tissue, gray + (white - gray) * np.clip(to_white, 0, 1))
    if level < 0.6:
        image = _with_centre(rng, image, u, v, level, fluid, gray)
    for _ in range(rng.choice(4, p=[0.5, 0.25, 0.15, 0.1])):
        image = _with_lesion(rng, image, x, y, tissue, bumps, lesion)

    texture = 1 + 0.025 * waves(rng, n, 0.04, 0.09) + 0.02 * waves(rng, n, 0.1, 0.2)
    shading = np.exp(0.1 * waves(rng, n, 1.5, 4.0, count=6))
    return np.clip(image, 0, None) * texture * shading


def _inside(distance: np.ndarray) -> np.ndarray:
    """The share of each pixel that lies inside, from the distance to the edge."""
    return np.clip(distance * np.float32(distance.shape[0] / 2) + 0.5, 0, 1)


def _paint(image: np.ndarray, cover: np.ndarray, value: np.ndarray | float) -> np.ndarray:
    return image + cover * (value - image)


def _distance_to_fluid(
    rng: np.random.Generator, brain: np.ndarray, u: np.ndarray, v: np.ndarray, bumps: np.ndarray, level: float
) -> np.ndarray:
    """The distance to the surface of the brain, the nearest sulcus or the fissure; negative within them."""
    n = brain.shape[0]
    # Waves around the centre make sulci that run inwards; plane waves bend, join and end them.
    bent = (u + 0.05 * waves(rng, n, 0.3, 0.7)) * np.float32(1.25) + 1j * (v + 0.05 * bumps)
    radius = np.abs(bent) + np.float32(1e-6)
    turn = bent / radius
    coefficients = np.concatenate([np.zeros(rng.integers(5, 8)), rng.normal(size=(9, 2)) @ [1 / 3, 1j / 3]])
    around = np.zeros_like(turn)
    for coefficient in coefficients[::-1].astype(np.complex64):
        around = around * turn + coefficient
    fold = rng.uniform(0.24, 0.34)
    folds = 0.85 * around.real + 0.5 * waves(rng, n, fold * 0.7, fold * 1.4)
    sulcus = np.abs(folds) * np.float32(fold / 2 / np.pi)
    sulcus += 1.2 * np.maximum(brain - np.float32(rng.uniform(0.14, 0.24) + 0.12 * level) - 0.06 * bumps, 0)
    callosum = 0.36 if level < 0.6 else 0.0  # joins the hemispheres in lower slices
    fissure = np.abs(u) + np.maximum(np.float32(callosum) - np.abs(v), 0)
    width = np.float32(rng.uniform(0.004, 0.02))  # sulci widen with age
    return np.minimum(np.minimum(brain, sulcus), fissure) - width


def _with_centre(
    rng: np.random.Generator, image: np.ndarray, u: np.ndarray, v: np.ndarray, level: float, fluid: float, gray: float
) -> np.ndarray:
    """Ventricles, with caudate, thalamus and putamen next to them if the slice is low enough."""
    side = np.abs(u)

    def ellipse(centre: tuple[float, float], axes: tuple[float, float], tilt: float = 0.0) -> np.ndarray:
        a, b = side - np.float32(centre[0]), v - np.float32(centre[1])
        cos, sin = np.float32(np.cos(tilt)), np.float32(np.sin(tilt))
        along, across = (cos * a + sin * b) / np.float32(axes[0]), (cos * b - sin * a) / np.float32(axes[1])
        return (1 - np.sqrt(along * along + across * across)) * np.float32(min(axes))

    size, jitter = rng.uniform(0.6, 1.5), rng.normal(0, 0.012, 6)
    if level < 0.3:
        for centre, axes, tilt in (
            ((0.16 + jitter[0], -0.17 + jitter[1]), (0.05, 0.11), -0.35),  # caudate
            ((0.12 + jitter[2], 0.08), (0.085, 0.14), 0.35),  # thalamus
            ((0.30 + jitter[3], -0.02 + jitter[4]), (0.055, 0.19), -0.15),  # putamen
        ):
            image = _paint(image, 0.85 * _inside(ellipse(centre, axes, tilt)), gray * rng.uniform(0.9, 1.05))
        image = _paint(image, _inside(ellipse((0.0, 0.08), (0.012 + 0.012 * size, 0.12))), fluid)  # third ventricle
    # Lateral ventricles: curved shapes that diverge to the front and to the back.
    bend = side - np.float32(0.05 + 0.02 * size) - np.float32(rng.uniform(0.7, 1.3)) * (v - 0.02) ** 2
    length, width = rng.uniform(0.26, 0.36), 0.042 * size * (1 - 0.4 * level)
    notch = 0.45 if level < 0.3 else 0.0  # low slices cut the front and back horns, with the thalamus between them
    along = np.abs(v - 0.02) / np.float32(length)
    profile = np.float32(width) * (1 - along * along) * (1 - np.float32(notch) * np.exp(-18 * along * along))
    return _paint(image, _inside(profile - np.abs(bend)), fluid)


def _with_lesion(
    rng: np.random.Generator,
    image: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    tissue: np.ndarray,
    bumps: np.ndarray,
    value: float,
) -> np.ndarray:
    """A spot of random size with an uneven rim, surrounded by swelling."""
    distance, angle = rng.uniform(0.15, 0.5), rng.uniform(0, 2 * np.pi)
    size = rng.uniform(0.015, 0.03) if rng.uniform() < 0.6 else rng.uniform(0.04, 0.12)
    a, b = x - np.float32(distance * np.cos(angle)), y - np.float32(distance * np.sin(angle))
    inward = np.float32(size) * (1 + 0.15 * bumps) - np.sqrt(a * a + b * b)
    swelling = np.clip(1 + inward / np.float32(size), 0, 1) ** 2
    image = _paint(image, 0.35 * tissue * swelling, value)
    return _paint(image, tissue * _inside(inward), value)


def _head_frame(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates (right, down) of a head that is shifted, rotated and scaled at random; half its height is about 1."""
    x, y = grid(n)
    dx, dy = rng.uniform(-0.05, 0.05, 2)
    angle, scale = rng.normal(0, 0.09), rng.uniform(0.84, 0.94)
    cos, sin = np.float32(np.cos(angle) / scale), np.float32(np.sin(angle) / scale)
    x, y = x - np.float32(dx), y - np.float32(dy)
    return cos * x + sin * y, cos * y - sin * x


def _outline(rng: np.random.Generator, cos: np.ndarray, sin: np.ndarray, shrink: float) -> np.ndarray:
    """Radius of the skin in each direction: an ellipse, narrower in front, with slight irregularities."""
    width, height = rng.uniform(0.74, 0.86) * shrink, rng.uniform(0.95, 1.02) * shrink
    ellipse = np.float32(width * height) / np.sqrt((height * cos) ** 2 + (width * sin) ** 2)
    double, triple = cos * cos - sin * sin, sin * (3 - 4 * sin * sin)
    a, b, c, d = rng.normal([0.025, 0, 0, 0], [0.012, 0.008, 0.012, 0.01], 4).astype(np.float32)
    return ellipse * (1 + a * sin * (1 - sin * sin) * 2 + b * cos + c * (double * double - 0.5) + d * triple)
