"""`celeba`: aligned CelebA faces with their official split. You need your own copy: its terms forbid redistribution.

Images of 218x178 pixels are cropped to 128x128, then resized. The paper describes a centre crop. Its released code, which
produced its results, uses rows 57..184 and columns 25..152, twelve rows lower. This released crop is the default.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from gsure.data.image_files import entries, picture, pixels
from gsure.data.source import Sample, Source, existing, summary

SPLITS = {"train": ("0", 162_770), "valid": ("1", 19_867), "test": ("2", 19_962)}
"""The code of each split in the official file, and its number of images."""
TOP = {"released": 57, "centre": 45}
LEFT, SIDE = 25, 128


@dataclass(frozen=True)
class CelebA(Source):
    """`path` is the folder `img_align_celeba`, its parent folder, or `img_align_celeba.zip`. The split is read from
    `list_eval_partition.txt`, next to the images or at `partition`. Gray is the mean of the channels after resizing.
    """

    kind: ClassVar[str] = "celeba"
    path: str | Path
    split: Literal["train", "valid", "test"] = "train"
    size: Literal[32, 64] = 32
    crop: Literal["released", "centre"] = "released"
    gray: bool = True
    partition: str | Path | None = None
    is_complex: bool = field(default=False, init=False, repr=False, compare=False)
    shape: tuple[int, int, int] = field(init=False, repr=False, compare=False)
    files: tuple[str, ...] = field(init=False, repr=False, compare=False)
    lengths: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.split not in SPLITS or self.crop not in TOP or self.size not in (32, 64):
            raise ValueError(
                "CelebA has the splits train, valid and test, the crops released and centre, and the sizes 32 and 64, but "
                f"was given {self.split!r}, {self.crop!r} and {self.size}."
            )
        path = existing(self.path)
        partition = _find_partition(path) if self.partition is None else existing(self.partition)
        wanted = _names(partition, SPLITS[self.split][0])
        present = [(name, size) for name, size in entries(path) if Path(name).name in wanted]
        if not present:
            raise FileNotFoundError(
                f"{path} has none of the {len(wanted)} images that {partition} lists for {self.split}: give the folder "
                "img_align_celeba or the original zip."
            )
        self._set(
            path=str(path),
            partition=str(partition),
            shape=(1 if self.gray else 3, self.size, self.size),
            files=tuple(name for name, _ in present),
            lengths=tuple(size for _, size in present),
        )

    def __len__(self) -> int:
        return len(self.files)

    def _read(self, index: int) -> Sample:
        from PIL.Image import Resampling

        name = self.files[index]
        image, white = picture(str(self.path), name)
        if image.size != (178, 218):
            raise ValueError(
                f"{name} in {self.path} is {image.height}x{image.width}, but aligned CelebA images are 218x178: use the "
                "source images."
            )
        top = TOP[self.crop]
        face = image.crop((LEFT, top, LEFT + SIDE, top + SIDE)).resize((self.size, self.size), Resampling.BILINEAR)
        return Sample.of_intensities(pixels(face, self.gray), Path(name).name, 0.0, white)

    def _content(self) -> dict[str, Any]:
        return {"official_count": SPLITS[self.split][1], **summary(zip(self.files, self.lengths, strict=True))}


def _find_partition(path: Path) -> Path:
    places = [path, path / "Eval", path.parent, path.parent / "Eval", path.parent.parent, path.parent.parent / "Eval"]
    for place in places:
        if (place / "list_eval_partition.txt").is_file():
            return place / "list_eval_partition.txt"
    raise FileNotFoundError(
        f"The split file list_eval_partition.txt is not next to {path}: put it there, or give its path as partition."
    )


def _names(partition: Path, number: str) -> set[str]:
    lines = [line.split() for line in partition.read_text().splitlines() if line.strip()]
    if any(len(line) != 2 or line[1] not in ("0", "1", "2") for line in lines):
        raise ValueError(
            f"{partition} is not CelebA's split file, whose lines have a file name and 0, 1 or 2: check the file."
        )
    return {name for name, split in lines if split == number}
