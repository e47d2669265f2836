"""The quality of restorations: PSNR, SSIM and NMSE of each image and of each volume, for several kinds of estimates."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gsure.metrics.images import WINDOW, Groups, Images, nmse, psnr, psnr_in_object, ssim

Metric = Callable[[Tensor, Tensor, bool, Tensor | None], Tensor]
METRICS: dict[str, Metric] = {"psnr": psnr, "object_psnr": psnr_in_object, "ssim": ssim, "nmse": nmse}
BETTER = {
    "hidden": "higher",
    "psnr": "higher",
    "object_psnr": "higher",
    "ssim": "higher",
    "nmse": "lower",
    "lpips": "lower",
}
KINDS = ("mean", "draw", "baseline", "total_variation", "gaussian")
"""The posterior mean, one posterior sample; and estimates without a network: the pseudo-inverse, total variation, and the
Gaussian prior of the run."""
MAX_IMAGES = 256
"""Number of images in memory at a time, unless a volume has more."""


class Scores(NamedTuple):
    """Values by `column`: `psnr` is the PSNR of the mean, `psnr_of_draw` that of one draw, and so on."""

    by_image: dict[str, Float[Tensor, " n"]]
    by_volume: dict[str, Float[Tensor, " volumes"]]


@runtime_checkable
class Stored(Protocol):
    """Images that are read by position, such as a tensor or `gsure.Signals`."""

    def __getitem__(self, index: list[int], /) -> Tensor: ...


def column(metric: str, kind: str) -> str:
    """
    >>> column("psnr", "mean"), column("psnr", "draw")
    ('psnr', 'psnr_of_draw')
    """
    return metric if kind == "mean" else f"{metric}_of_{kind}"


def metrics_for(shape: Sequence[int]) -> dict[str, Metric]:
    """The metrics for images of this shape. SSIM needs images of at least the size of its window."""
    return {name: metric for name, metric in METRICS.items() if name != "ssim" or min(shape[-2:]) >= WINDOW}


def score(
    images: Mapping[str, Images],
    reference: Images,
    is_complex: bool,
    groups: Groups = None,
    metrics: Mapping[str, Metric] = METRICS,
) -> Scores:
    """Every metric of every kind of image, for each image and for each volume. Without `groups`, each image is a volume.

    >>> reference = torch.zeros(4, 1, 8, 8)
    >>> scores = score({"mean": reference + 0.02}, reference, is_complex=False, groups=torch.tensor([0, 0, 1, 1]))
    >>> [round(value, 3) for value in scores.by_volume["psnr"].tolist()]
    [40.0, 40.0]
    """
    parts = [(column(name, kind), metric, x) for name, metric in metrics.items() for kind, x in images.items()]
    by_image = {name: metric(x, reference, is_complex, None) for name, metric, x in parts}
    if groups is None:
        return Scores(by_image, by_image)
    return Scores(by_image, {name: metric(x, reference, is_complex, groups) for name, metric, x in parts})


def score_stored(
    images: Mapping[str, Stored],
    reference: Stored,
    is_complex: bool,
    volumes: Sequence[str],
    metrics: Mapping[str, Metric] = METRICS,
    advance: Callable[[int], None] = lambda done: None,
) -> Scores:
    """`score` for images that may not fit into memory: reads a few volumes at a time. `volumes` has one name per image."""
    order: list[int] = []
    found: list[Scores] = []
    for where in _complete_volumes(volumes):
        order += where
        groups = torch.from_numpy(np.unique([volumes[k] for k in where], return_inverse=True)[1])
        some = {kind: stored[where] for kind, stored in images.items()}
        found.append(score(some, reference[where], is_complex, groups, metrics))
        advance(len(where))
    back = torch.from_numpy(np.argsort(order))
    names = found[0].by_image
    return Scores(
        {name: torch.cat([part.by_image[name] for part in found])[back] for name in names},
        {name: torch.cat([part.by_volume[name] for part in found]) for name in names},
    )


def _complete_volumes(volumes: Sequence[str]) -> Iterator[list[int]]:
    """Yield the positions of the images of a few complete volumes at a time."""
    members: dict[str, list[int]] = {}
    for position, name in enumerate(volumes):
        members.setdefault(name, []).append(position)
    where: list[int] = []
    for positions in members.values():
        if where and len(where) + len(positions) > MAX_IMAGES:
            yield where
            where = []
        where = where + positions
    yield where


def mean_and_error(values: Float[Tensor, " n"]) -> tuple[float, float | None]:
    """The mean and its standard error, which is None for a single value.

    >>> mean_and_error(torch.tensor([1.0, 3.0])), mean_and_error(torch.tensor([1.0]))
    ((2.0, 1.0), (1.0, None))
    """
    error = float(values.std() / len(values) ** 0.5) if len(values) > 1 else None
    return float(values.mean()), error
