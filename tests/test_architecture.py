"""Rules of the tree that a reader relies on, read off the source itself."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gsure

SOURCE = Path(gsure.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

BOTTOM = ["random", "files", "display", "plotting"]
METHOD = [
    *("schedule", "basis", "measurement", "gaussian", "denoiser", "network", "divergence", "objective"),
    *("sampling", "posterior", "restoration"),
]
ABOVE = [
    "corruption",
    "data",
    "metrics",
    "judging",
    "training",
    "inference",
    "evaluation",
    "report",
    "experiments",
    "cli",
    "__main__",
]
ORDER = [*BOTTOM, *METHOD, *ABOVE]
"""A module or package may import from those before it."""
NARROWER = {
    **{name: set() for name in BOTTOM},
    "files": {"__version__"},
    "plotting": {"files", "display"},
    "basis": {"random"},
    "network": {"random"},
    "objective": {"measurement", "denoiser", "divergence", "random"},
    "sampling": {"denoiser", "schedule", "random"},
    "posterior": {"measurement", "denoiser", "gaussian"},
    "restoration": {"measurement", "denoiser", "sampling", "random"},
    "corruption": {"basis", "measurement", "random"},
    "metrics": set(),
}
"""Those that may import less: no H, FFT or image size appears in the losses and samplers, and metrics are pure functions."""


def layer(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_layers(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "gsure":
            parts = node.module.split(".")
            names |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("gsure.")}
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_modules_import_only_downwards(path):
    if path == SOURCE / "__init__.py":
        return  # names for type checkers
    name = layer(path)
    assert name in ORDER, "a new module needs its place in ORDER, and in docs/architecture.md"
    allowed = NARROWER.get(name, set(ORDER[: ORDER.index(name)]) | {"__version__"})
    assert imported_layers(path) <= allowed | {name}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_is_loaded_by_pickle_or_drawn_from_a_global_generator(path):
    text = path.read_text()
    if path.name == "lpips.py":  # reads a known file, by an unpickler that makes arrays alone (test_metrics.py)
        text = text.replace("import pickle\n", "")
    for forbidden in (
        "import pickle",
        "torch.load(",
        "allow_pickle=True",
        "np.random.seed",
        "torch.manual_seed(",
        "eval(",
        "exec(",
    ):
        code = "\n".join(line.split("#")[0] for line in text.splitlines())
        assert forbidden not in code.replace(".eval(", "").replace("literal_eval(", ""), forbidden


def test_every_public_name_can_be_imported_and_has_a_docstring():
    for name in gsure.__all__:
        assert getattr(gsure, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        gsure.nothing  # noqa: B018


def test_importing_gsure_does_not_import_torch():
    code = "import sys, gsure; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
