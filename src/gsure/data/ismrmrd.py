"""`ismrmrd`: images from Cartesian raw data in ISMRMRD files; needs the package ismrmrd.

The readouts of each (slice, contrast, phase, repetition, set) form one k-space. Repeated lines are averaged, and lines beyond
the encoding limits are zero. The inverse Fourier transform is cropped to the field of view of the reconstruction. As in
fastMRI, the readout is the vertical axis and the phase encoding the horizontal one, so a line mask drops columns.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gsure.data.scaling import rms_of_pairs, rms_of_samples
from gsure.data.source import (
    Sample,
    Source,
    centre_crop,
    check_scale,
    existing,
    in_pairs,
    kept,
    optional,
    refuse_nonfinite,
    sizes,
    summary,
    to_image,
)
from gsure.files import open_hdf5

OTHER_PURPOSES = [
    "ACQ_IS_NOISE_MEASUREMENT",
    "ACQ_IS_PARALLEL_CALIBRATION",
    "ACQ_IS_NAVIGATION_DATA",
    "ACQ_IS_PHASECORR_DATA",
    "ACQ_IS_HPFEEDBACK_DATA",
    "ACQ_IS_DUMMYSCAN_DATA",
    "ACQ_IS_RTFEEDBACK_DATA",
    "ACQ_IS_SURFACECOILCORRECTIONSCAN_DATA",
]
COUNTERS = ["slice", "contrast", "phase", "repetition", "set"]


@dataclass(frozen=True)
class Encoding:
    """The encoding in the XML header: the matrix of k-space, its limits, and the crop of the image."""

    readout: int
    phase: int
    first: int
    last: int
    centre: int
    crop: tuple[int, int]


@dataclass(frozen=True)
class Ismrmrd(Source):
    """Files with several coils need `coil`. Images are divided by `scale`, by default such that their root mean
    square is about 1.

    The group is the file. Undersampled files are measurements, not a source: save their k-space and mask as arrays, and use
    `gsure import array`.
    """

    kind: ClassVar[str] = "ismrmrd"
    path: str | Path
    coil: int | None = None
    scale: float | None = None
    is_complex: bool = field(default=True, init=False, repr=False, compare=False)
    shape: tuple[int, int, int] = field(init=False, repr=False, compare=False)
    file: str = field(init=False, repr=False, compare=False)
    dataset: str = field(init=False, repr=False, compare=False)
    encoding: Encoding = field(init=False, repr=False, compare=False)
    images: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    """The indices of the readouts of each image."""

    def __post_init__(self) -> None:
        check_scale(self.scale)
        path = existing(self.path)
        dataset, xml, heads = _heads(path)
        encoding = _encoding(path, xml)
        images = _grouped(path, heads, encoding)
        coils = int(heads["active_channels"][images[0][0]])
        if self.coil is None and coils > 1:
            raise ValueError(f"{path} has {coils} coils: choose one with coil, 0 to {coils - 1}.")
        if self.coil is not None and not 0 <= self.coil < coils:
            raise ValueError(f"coil must lie in 0..{coils - 1} for {path}, but is {self.coil}.")
        self._set(file=str(path), dataset=dataset, encoding=encoding, images=images, shape=(2, *encoding.crop))

    def __len__(self) -> int:
        return len(self.images)

    def _image(self, index: int) -> np.ndarray:
        import h5py

        numbers, encoding = self.images[index], self.encoding
        with h5py.File(self.file) as file:
            readouts = file[self.dataset]["data"][list(numbers)]
        kspace = np.zeros((encoding.readout, encoding.phase), np.complex64)
        count = np.zeros(encoding.phase, np.float32)
        for head, _, data in readouts:
            samples = data.view(np.complex64).reshape(head["active_channels"], -1)[self.coil or 0]
            kept_samples = slice(int(head["discard_pre"]), len(samples) - int(head["discard_post"]))
            column = int(head["idx"]["kspace_encode_step_1"]) - encoding.centre + encoding.phase // 2
            start = encoding.readout // 2 - int(head["center_sample"])
            kspace[start : start + len(samples), column][kept_samples] += samples[kept_samples]
            count[column] += 1
        refuse_nonfinite(kspace, f"The k-space of image {index} of {self.file}")
        return centre_crop(to_image(kspace / np.maximum(count, 1)), *encoding.crop)

    def _read(self, index: int) -> Sample:
        scale = self.scale or kept(_Size(self), self.file)
        return Sample(in_pairs(self._image(index) / np.float32(scale)), Path(self.file).stem, scale)

    def _content(self) -> dict[str, Any]:
        return summary(sizes([self.file]))


@dataclass(frozen=True)
class _Size:
    """The scale of all images. It is a dataclass because `kept` caches by equality."""

    source: Ismrmrd

    def __call__(self, file: str) -> float:
        return rms_of_samples([rms_of_pairs(self.source._image(index)) for index in range(len(self.source))], file)


def _heads(path: Path) -> tuple[str, Any, np.ndarray]:
    """The name of the dataset, the XML header, and the header of every readout."""
    import h5py

    try:
        with open_hdf5(path) as file:
            for name, group in file.items():
                if isinstance(group, h5py.Group) and "xml" in group and "data" in group:
                    return name, group["xml"][0], group["data"].fields("head")[:]
    except (KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path} is damaged, or not an ISMRMRD file: {error}") from error
    raise ValueError(f"{path} is not an ISMRMRD file of readouts: no group has both xml and data.")


def _encoding(path: Path, xml: Any) -> Encoding:
    schema = optional("ismrmrd").xsd
    try:
        encoding = schema.CreateFromDocument(xml).encoding[0]
        trajectory = encoding.trajectory.value
    except Exception as error:  # the parser is generated from a schema and may raise any exception
        raise ValueError(f"The XML header of {path} has no ISMRMRD encoding: {error}") from error
    space, recon = encoding.encodedSpace, encoding.reconSpace
    if trajectory != "cartesian" or space.matrixSize.z > 1:
        raise ValueError(
            f"{path} has a {trajectory} trajectory and the matrix {space.matrixSize.x}x{space.matrixSize.y}x"
            f"{space.matrixSize.z}: only Cartesian slices (2-D) are supported."
        )
    limits = encoding.encodingLimits.kspace_encoding_step_1
    crop = (
        min(space.matrixSize.x, round(space.matrixSize.x * recon.fieldOfView_mm.x / space.fieldOfView_mm.x)),
        min(space.matrixSize.y, round(space.matrixSize.y * recon.fieldOfView_mm.y / space.fieldOfView_mm.y)),
    )
    if limits is None:
        last = space.matrixSize.y - 1
        return Encoding(space.matrixSize.x, space.matrixSize.y, 0, last, space.matrixSize.y // 2, crop)
    return Encoding(space.matrixSize.x, space.matrixSize.y, limits.minimum, limits.maximum, limits.center, crop)


def _grouped(path: Path, heads: np.ndarray, encoding: Encoding) -> tuple[tuple[int, ...], ...]:
    """The indices of the readouts of each image, which must be fully sampled."""
    constants = optional("ismrmrd").constants
    bits = sum(1 << (getattr(constants, name) - 1) for name in OTHER_PURPOSES)
    imaging = np.flatnonzero(heads["flags"] & np.uint64(bits) == 0)
    if not len(imaging):
        raise ValueError(f"{path} has {len(heads)} readouts, but none for imaging: check the file.")
    heads = heads[imaging]
    if (heads["flags"] & np.uint64(1 << (constants.ACQ_IS_REVERSE - 1))).any():
        raise ValueError(f"{path} has readouts in both directions (EPI), which is not supported.")
    start = encoding.readout // 2 - heads["center_sample"].astype(int)
    column = heads["idx"]["kspace_encode_step_1"].astype(int) - encoding.centre + encoding.phase // 2
    fits = (start >= 0) & (start + heads["number_of_samples"] <= encoding.readout)
    fits &= (column >= 0) & (column < encoding.phase)
    if not fits.all():
        raise ValueError(
            f"Readout {imaging[~fits][0]} of {path} lies outside the matrix {encoding.readout}x{encoding.phase} in the "
            "header: check the file."
        )
    counters = np.stack([heads["idx"][name] for name in COUNTERS], 1)
    images, which = np.unique(counters, axis=0, return_inverse=True)
    groups = [imaging[which.reshape(-1) == number] for number in range(len(images))]
    for image, numbers in zip(images, groups, strict=True):
        lines = set(heads["idx"]["kspace_encode_step_1"][np.isin(imaging, numbers)].tolist())
        missing = set(range(encoding.first, encoding.last + 1)) - lines
        if missing:
            raise ValueError(
                f"{path} lacks {len(missing)} of {encoding.last + 1 - encoding.first} lines of the image "
                f"{dict(zip(COUNTERS, image.tolist(), strict=True))}: it is undersampled. "
                "Save its k-space and mask as arrays, and use gsure import array."
            )
    return tuple(tuple(numbers.tolist()) for numbers in groups)
