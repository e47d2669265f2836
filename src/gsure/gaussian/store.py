"""A fitted Gaussian as a file: safetensors with JSON in its header."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from gsure.basis import Basis
from gsure.files import replacing
from gsure.gaussian.base import Gaussian
from gsure.gaussian.blocks import BlockGaussian, Blocks
from gsure.gaussian.coordinates import Coordinates, Entries, Rows
from gsure.gaussian.fit import Fitted
from gsure.gaussian.phase import Reference, ReferencedGaussian
from gsure.gaussian.stationary import StationaryGaussian

FORMAT = "gsure gaussian"
VERSION = 1


def save_gaussian(path: Path, fitted: Fitted, made_of: Mapping[str, Any]) -> None:
    """`made_of` identifies the data that it was fitted to."""
    tensors, header = fitted.gaussian.state()
    header |= {"error": fitted.error, "notes": fitted.notes, "made_of": dict(made_of)}
    metadata = {"format": FORMAT, "version": str(VERSION), "header": json.dumps(header)}
    with replacing(path) as temporary:
        tensors = tensors | {"always": fitted.always}
        save_file({name: tensor.cpu().contiguous().clone() for name, tensor in tensors.items()}, temporary, metadata)


def load_gaussian(path: Path, basis: Basis) -> tuple[Fitted, dict[str, Any]]:
    """The Gaussian of a file, and what it was made of."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT or metadata.get("version") != str(VERSION):
                raise ValueError("it is not a Gaussian of this version of gsure")
            header = json.loads(metadata["header"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            gaussian = _make(tensors, header, basis)
            fitted = Fitted(gaussian, float(header["error"]), list(header["notes"]), tensors["always"])
            return fitted, dict(header["made_of"])
    except FileNotFoundError:
        raise
    except (SafetensorError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}. Delete it, and it is fitted again.") from error


def _make(tensors: Mapping[str, Tensor], header: Mapping[str, Any], basis: Basis) -> Gaussian:
    shape = tuple(int(size) for size in header["shape"])
    match header["structure"]:
        case "entries" | "rows" as structure:
            coordinates: Coordinates = (
                Rows(shape, header["axis"], header["real_images"])
                if structure == "rows"
                else Entries(basis, shape, header["pairs"], header["real_images"])
            )
            always = coordinates.entries_of(tensors["always"])
            window, neighbours = header["window"], coordinates.neighbours
            blocks = Blocks(tensors["mean"], tensors["covariance"], window, neighbours, always=always)
            return BlockGaussian(coordinates, blocks)
        case "referenced rows":
            return _referenced(tensors, Rows(shape, header["axis"]))
        case "stationary":
            return StationaryGaussian(basis, tensors["mean"], tensors["power"])
    raise ValueError(f"there is no structure {header['structure']!r}")


def _referenced(tensors: Mapping[str, Tensor], rows: Rows) -> ReferencedGaussian:
    inner = {name.removeprefix("refiner."): value for name, value in tensors.items() if name.startswith("refiner.")}
    refiner = _referenced(inner, rows) if inner else None
    reference = Reference(rows, tensors["taper"], refiner)
    return ReferencedGaussian(rows, tensors["mean"], tensors["covariance"], reference)
