"""The pages about models run from top to bottom, one after the other in one folder, as a reader follows them.

Networks are small and steps are few, so the numbers that pages show are not compared (those of docs/data.md are).
"""

import contextlib
import dataclasses
import importlib.util
import io
import re
import shlex
from pathlib import Path
from typing import Any

import torch
from conftest import ROOT

import gsure
from gsure.cli import main
from gsure.inference import job
from gsure.inference.cost import Speed

PAGES = ("training", "sampling", "restoration", "evaluation", "diagnosis", "report", "command-line", "comparison")
SMALL = {
    "steps": 2, "width": 8, "multipliers": (1,), "layers": 1, "attention": (), "groups": 4, "batch": 8, "validate_on": 8,
    "t_bins": 2, "checkpoint_every": 2, "picture_every": 0, "impute_at": (), "patch": 1,
}  # fmt: skip
ADDED = {
    "train": [f"--{name.replace('_', '-')}={list(v) if isinstance(v, tuple) else v}" for name, v in SMALL.items()],
    "sample": ["--n=40", "--steps=2"],
    "restore": ["--steps=2", "--draws=2", "--panels=1", "--limit=24"],
    "diagnose": ["--n=40"],
}
"""Options that make a command small."""
SPEED = Speed(restoration=0.0, step=0.005)
"""Of restorations, so that a time per image means the same number of steps on any computer."""


def read_pages() -> Any:
    spec = importlib.util.spec_from_file_location("make_figures", ROOT / "docs" / "make_figures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_command(line: str) -> tuple[int, str]:
    """The exit code, and what was printed; `> FILE` writes that to a file, as a shell does."""
    words, _, target = line.partition(" > ")
    arguments = shlex.split(words)[1:]
    is_as_shown = {"--help", "--dry-run"} & set(arguments)
    added = [] if is_as_shown else ADDED.get(arguments[0], [])
    if "--seconds-per-image" in arguments:  # chooses the steps
        added = [option for option in added if not option.startswith("--steps")]
    if "--limit" in arguments:
        added = [option for option in added if not option.startswith("--limit")]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            code = main([*arguments, *added])
        except SystemExit as end:
            code = end.code or 0
    if target:
        Path(target).write_text(printed.getvalue())
    return code, printed.getvalue()


def give_operators(scope: dict[str, Any]) -> None:
    """H and y of docs/data.md, to which docs/training.md refers."""
    text = (ROOT / "docs" / "data.md").read_text()
    (code,) = re.findall(r"^```python\n(digits = .*?^y = .*?)$", text, flags=re.DOTALL | re.MULTILINE)
    exec(code, scope)  # noqa: S102


def test_the_pages_about_models_run_one_after_the_other(tmp_path, monkeypatch, few_times):
    monkeypatch.chdir(tmp_path)
    train, sample, restore = gsure.train, gsure.sample, gsure.restore

    def train_little(data, out, settings=None, **options):
        return train(data, out, dataclasses.replace(settings or gsure.Settings(), **SMALL), **options)

    monkeypatch.setattr(gsure, "train", train_little)
    monkeypatch.setattr(gsure, "sample", lambda model, n, **options: sample(model, min(n, 40), **options))
    monkeypatch.setattr(
        gsure, "restore", lambda *given, **options: restore(*given, **({"limit": 24} | options | {"draws": 2}))
    )
    monkeypatch.setattr(job, "time_batch", lambda *given: SPEED)
    pages, made = read_pages(), set()
    for page in PAGES:
        scope: dict[str, Any] = {"torch": torch, "gsure": gsure}
        give_operators(scope)
        for step in pages.steps(page):
            if step.code.startswith("gsure corrupt"):
                if step.code in made:  # pages tell the reader to skip what another page made
                    continue
                made.add(step.code)
            if step.is_command:
                code, printed = run_command(step.code)
                fails = any(line.startswith("gsure ") for line in step.shown)
                assert code == (2 if fails else 0), f"docs/{page}.md: {step.code}\n{printed}"
                assert not fails or pages.differences(step, printed) == [], printed
            else:
                code = re.sub(r"\bsteps=\d+", "steps=2", step.code)
                with torch.random.fork_rng():  # a reader may use the global generator
                    exec(compile(code, f"docs/{page}.md", "exec"), scope)  # noqa: S102
