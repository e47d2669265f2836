"""Whether a file still holds what it held: told by how it was made, how much there is, and what some of it is."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

FINGERPRINT_SAMPLES = 64
"""Signals, from all over the file: reading all may take long."""


def fingerprint(
    header: Mapping[str, Any], shape: Sequence[int], groups: Sequence[str], read: Callable[[np.ndarray], Tensor]
) -> str:
    """`read` gives the signals, or what was measured, at positions."""
    where = np.unique(np.linspace(0, len(groups) - 1, FINGERPRINT_SAMPLES).round().astype(int))
    made = {key: header[key] for key in ("source", "corruption", "sigma_0", "seed")}
    digest = hashlib.sha256(json.dumps([made, list(shape), list(groups)], sort_keys=True).encode())
    digest.update(read(where).numpy().tobytes())
    return digest.hexdigest()[:16]
