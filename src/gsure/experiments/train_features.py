"""Train the classifiers behind the features `digits` and `fashion16`. Their weights are part of the package.

    python -m gsure.experiments.train_features FASHION [OUT]

FASHION is the folder of Fashion-MNIST's four files (docs/sources/idx.md). The weights go to src/gsure/metrics/weights/, or
to OUT, with the seed, the hash of the data and the accuracy in their headers. On one thread, digits take ten seconds and
fashion16 two minutes.
"""

import gzip
import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import Tensor, nn

import gsure
from gsure.data.sources import Source, open_source
from gsure.metrics.features import CLASSIFIERS, Classifier
from gsure.random import Stream, forked, keyed_generator, keyed_seed

SEED = 0
BATCH = 128
EPOCHS = {"digits": 40, "fashion16": 12}


def pictures(source: Source) -> Tensor:
    """All images of a source, as `gsure corrupt` reads them."""
    return torch.stack([torch.from_numpy(source[k].x) for k in range(len(source))])


def fashion(folder: Path) -> tuple[dict[str, tuple[Tensor, Tensor]], str]:
    files, digest = sorted(folder.glob("*-ubyte.gz")), hashlib.sha256()
    for file in files:
        digest.update(gzip.decompress(file.read_bytes()))
    parts = {}
    for name, start in (("train", "train"), ("test", "t10k")):
        x = pictures(open_source(f"idx:{folder}/{start}-images-idx3-ubyte.gz", size=16))
        labels = np.frombuffer(gzip.decompress((folder / f"{start}-labels-idx1-ubyte.gz").read_bytes())[8:], np.uint8)
        parts[name] = x, torch.from_numpy(labels.astype(np.int64))
    return parts, digest.hexdigest()


def digits() -> tuple[dict[str, tuple[Tensor, Tensor]], str]:
    """The last fifth is the test set, because it has different writers."""
    x, found = pictures(open_source("digits")), load_digits()
    labels, cut = torch.from_numpy(found.target.astype(np.int64)), 1437
    digest = hashlib.sha256(x.numpy().tobytes() + labels.numpy().tobytes()).hexdigest()
    return {"train": (x[:cut], labels[:cut]), "test": (x[cut:], labels[cut:])}, digest


def train(name: str, x: Tensor, labels: Tensor) -> Classifier:
    with forked(keyed_seed(SEED, Stream.CLASSIFIER_WEIGHTS)):
        network = Classifier(*CLASSIFIERS[name])
    steps = EPOCHS[name] * (len(x) // BATCH)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=0.01)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=steps)
    generator = keyed_generator(SEED, Stream.CLASSIFIER_ORDER)
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.05)  # otherwise a few overconfident features outweigh all others
    for step in range(steps):
        chosen = torch.randint(len(x), (BATCH,), generator=generator)
        loss = loss_of(network.classify(x[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()
        if step % (steps // 10) == 0:
            sys.stdout.write(f"{name}: step {step:,} of {steps:,}, loss {loss.item():.3f}\n")
    return network.eval()


@torch.no_grad()
def accuracy(network: Classifier, x: Tensor, labels: Tensor) -> float:
    return float((network.classify(x).argmax(1) == labels).double().mean())


def main() -> None:
    torch.set_num_threads(1)  # for the same bytes on every run
    folder = Path(sys.argv[1])
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(gsure.__file__).parent / "metrics" / "weights"
    for name, (parts, digest) in {"digits": digits(), "fashion16": fashion(folder)}.items():
        network = train(name, *parts["train"])
        about = {
            "name": name,
            "seed": SEED,
            "data_sha256": digest,
            "trained_on": len(parts["train"][0]),
            "tested_on": len(parts["test"][0]),
            "accuracy": accuracy(network, *parts["test"]),
            "made_by": "gsure.experiments.train_features",
        }
        out.mkdir(parents=True, exist_ok=True)
        save_file(network.state_dict(), out / f"{name}.safetensors", {"about": json.dumps(about)})
        (out / f"{name}.safetensors").chmod(0o644)  # safetensors makes it readable for its owner only
        sys.stdout.write(f"{json.dumps(about)}\n")


if __name__ == "__main__":
    main()
