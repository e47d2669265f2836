"""The README's Python runs as printed, only shorter."""

import re
from pathlib import Path

import numpy as np
import torch

import gsure

ROOT = Path(__file__).parent.parent


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


@pytest.fixture
def smaller(monkeypatch):
    """The same calls on a network and a number of steps that a test can afford."""

    def shorten(code: str) -> str:
        assert "20_000" in code
        return code.replace("20_000", "2").replace(
            "gsure.unet(size=32, channels=1)", "gsure.unet(32, 1, 16, (1, 2), ())"
        )

    return shorten


def test_the_ten_lines_run(smaller, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = python_blocks(ROOT / "README.md")[0]
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= 16, "ten lines and their set-up"
    scope: dict = {}
    exec(smaller(code), scope)  # noqa: S102
    assert scope["x"].shape == (64, 1, 32, 32)
    assert torch.isfinite(scope["x"]).all()
