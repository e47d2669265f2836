"""`digits`: the 1,797 handwritten digits of 8x8 pixels that come with scikit-learn."""

import functools
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from gsure.data.source import Sample, Source

Split = Literal["all", "train", "test"]
FIRST_TEST = 1437  # the last fifth has different writers than the rest


@dataclass(frozen=True)
class Digits(Source):
    """Values 0..16 become -1..1. The split `test` is the last fifth, by different writers than `train`.

    >>> len(Digits()), len(Digits("train")), Digits().shape
    (1797, 1437, (1, 8, 8))
    """

    kind: ClassVar[str] = "digits"
    split: Split = "all"
    is_complex: bool = field(default=False, init=False, repr=False, compare=False)
    shape: tuple[int, int, int] = field(default=(1, 8, 8), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.split not in get_args(Split):
            raise ValueError(f"split must be one of {', '.join(get_args(Split))}, but is {self.split!r}.")

    def __len__(self) -> int:
        return {"all": 1797, "train": FIRST_TEST, "test": 1797 - FIRST_TEST}[self.split]

    def _read(self, index: int) -> Sample:
        index += FIRST_TEST if self.split == "test" else 0
        return Sample.of_intensities(_digits()[index], str(index), 0.0, 16.0)

    def _content(self) -> dict[str, Any]:
        import sklearn

        return {"scikit-learn": sklearn.__version__}


@functools.cache
def _digits() -> np.ndarray:
    from sklearn.datasets import load_digits

    return load_digits().images[:, None].astype(np.float32)
