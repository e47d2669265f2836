"""Look at every sample before anything is written: sizes, and all that is wrong."""

from dataclasses import dataclass, field

import numpy as np

from gsure.basis import Basis, Fourier, check_basis
from gsure.data.inspection import CHECKED, is_uncentred, wrong_domain
from gsure.data.kspace import is_constant
from gsure.data.problems import Problems
from gsure.data.source import Spectra, evenly_spread, refuse_nonfinite
from gsure.display import bar

Shape = tuple[int, ...]


@dataclass
class Survey:
    """The samples of each shape (channels, height, width), and the smallest mask shape that all their masks fit."""

    shapes: dict[Shape, list[int]] = field(default_factory=dict)
    mask_shapes: dict[Shape, Shape] = field(default_factory=dict)

    def look(
        self, spectra: Spectra, indices: list[int], basis: Basis, problems: Problems
    ) -> tuple[bool, list[np.ndarray]]:
        """Read the samples of a volume. Returns whether it has energy, and some of the samples. Notes a problem per file."""
        checked, energy = set(evenly_spread(CHECKED, len(indices)).tolist()), False
        some: list[np.ndarray] = []
        bad: set[str] = set()
        for at, index in enumerate(indices):
            if (file := spectra.file(index)) in bad:
                continue
            try:
                ybar, mask = self._read(spectra, index, basis)
            except (ValueError, OSError) as error:
                problems.add(str(error))
                bad.add(file)
                continue
            energy = energy or bool((ybar * mask).any())
            if at in checked and (not some or some[0].shape == ybar.shape):
                some.append(ybar)
        return energy, [] if bad else some

    def _read(self, spectra: Spectra, index: int, basis: Basis) -> tuple[np.ndarray, np.ndarray]:
        ybar, mask, group = spectra[index]
        refuse_nonfinite(ybar, f"Sample {index}, of group {group} in {spectra.file(index)},")
        if isinstance(basis, Fourier) and len(ybar) % 2:
            raise ValueError(
                f"The values of {spectra.file(index)} are real, but k-space is complex: type --basis Identity if they are "
                "images, or save complex values."
            )
        if ybar.shape not in self.shapes:
            check_basis(basis, ybar.shape)
        self.shapes.setdefault(ybar.shape, []).append(index)
        known = self.mask_shapes.get(ybar.shape, (1,) * ybar.ndim)
        self.mask_shapes[ybar.shape] = np.broadcast_shapes(known, _smallest_shape(mask))
        return ybar, mask


def survey(
    spectra: Spectra, n: int, basis: Basis, problems: Problems, *, zeros: bool, uncentred: bool, progress: bool
) -> Survey:
    """Read the first n samples. Raises an error that lists what is wrong with each volume, after the `problems` known before.

    `zeros` allows volumes that are zero everywhere. `uncentred` says that the data was given as uncentred.
    """
    found = Survey()
    volumes: dict[str, list[int]] = {}
    for index in range(n):
        volumes.setdefault(spectra.volume(index), []).append(index)
    with bar("checking", n, progress) as advance:
        for indices in volumes.values():
            where = spectra.file(indices[0])
            energy, some = found.look(spectra, indices, basis, problems)
            if some and not energy and not zeros:
                problems.add(
                    "all that was measured is zero: check its mask, remove it, or give a scale such as 1.", where
                )
            if some and (problem := _domain_problem(np.stack(some), basis, uncentred)) is not None:
                problems.add(problem, where)
            advance(len(indices))
    problems.stop()
    return found


def _smallest_shape(mask: np.ndarray) -> Shape:
    """The shape of a mask of complete lines has length 1 along the lines. Other masks keep their shape."""
    along = [axis for axis in (-2, -1) if is_constant(mask, axis)]
    shape = list(mask.shape)
    if len(along) == 1:
        shape[along[0]] = 1
    return tuple(shape)


def _domain_problem(some: np.ndarray, basis: Basis, uncentred: bool) -> str | None:
    problem = wrong_domain(some, basis)
    if problem is None or not is_uncentred(some):
        return problem
    if uncentred:
        return "its k-space is centred already, with the zero frequency in the middle: omit --uncentred."
    return "its k-space is not centred, because its energy is in the corners: type --uncentred."
