"""Colour images for the small scales: grey images, each tinted with its own random colour."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from gsure.data.source import Sample
from gsure.data.sources import Source
from gsure.random import Stream, numpy_generator


@dataclass(frozen=True)
class Tinted(Source):
    """Multiplies each colour channel of an image by its own random factor; black stays black."""

    kind: ClassVar[str] = "tinted"
    grey: Source
    is_complex: bool = field(default=False, init=False, repr=False, compare=False)
    shape: tuple[int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._set(shape=(3, *self.grey.shape[1:]))

    def __len__(self) -> int:
        return len(self.grey)

    def _read(self, index: int) -> Sample:
        sample = self.grey[index]
        colour = numpy_generator(0, Stream.TINT, index).uniform(0.3, 1, (3, 1, 1))
        return sample._replace(x=((sample.x + 1) * colour - 1).astype(np.float32))

    def _content(self) -> dict[str, Any]:
        return {"grey": self.grey.fingerprint()}

    def fingerprint(self) -> dict[str, Any]:
        return {"kind": self.kind, "options": {}, "samples": len(self), "shape": list(self.shape), "complex": False} | (
            self._content()
        )
