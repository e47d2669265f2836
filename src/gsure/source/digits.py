"""`digits`: scikit-learn's 1,797 handwritten digits, 8x8, which come with the package."""

import functools
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from gsure.source.base import Sample, Source


@dataclass(frozen=True)
class Digits(Source):
    """Values 0..16 become -1..1.

    >>> len(Digits()), Digits().shape
    (1797, (1, 8, 8))
    """

    kind: ClassVar[str] = "digits"
    is_complex: bool = field(default=False, init=False, repr=False, compare=False)
    shape: tuple[int, int, int] = field(default=(1, 8, 8), init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return 1797

    def _read(self, index: int) -> Sample:
        return Sample(_digits()[index].copy(), str(index), 1.0)

    def _content(self) -> dict[str, Any]:
        import sklearn

        return {"scikit-learn": sklearn.__version__}


@functools.cache
def _digits() -> np.ndarray:
    from sklearn.datasets import load_digits

    return (load_digits().images[:, None] / 8 - 1).astype(np.float32)
