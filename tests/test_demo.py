"""The demo, at a size that takes seconds."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gsure.cli import main
from gsure.command import demo

SMALL = {
    "width": 8,
    "groups": 4,
    "batch": 8,
    "warmup": 2,
    "ema": 0.5,
    "validate_on": 16,
    "bands": 2,
    "picture_every": 0,
}


@pytest.mark.parametrize("kind", ["digits", "mri"])
def test_the_demo_makes_its_page_and_goes_on_where_it_was(kind, tmp_path, capsys, monkeypatch):
    chosen = demo.DEMOS[kind]
    small = {"steps": 4, "checkpoint_every": 4, **SMALL}
    if kind == "mri":
        small |= {"complete_at": [0]}
        options = {"size": 16, "scale": 0.25}
        chosen = replace(chosen, train_on={**options, "n": 400}, test_on={**options, "n": 120, "seed": 1})
        small |= {"attention": [4]}
    monkeypatch.setitem(demo.DEMOS, kind, replace(chosen, changes=small, restored=2))
    out = tmp_path / "demo"
    arguments = ["demo", kind, "--out", str(out), "--n", "40", "--json"]
    assert main(arguments) == 0, capsys.readouterr().err
    told = json.loads(capsys.readouterr().out)
    page = Path(told["page"]).read_text()
    for word in ("oracle", "naive", "gsure train", "gsure restore"):
        assert word in page
    made = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.suffix in (".safetensors", ".h5")}
    assert len(made) > 10
    assert main(arguments) == 0
    assert {path: path.stat().st_mtime_ns for path in made} == made, "a second call computes nothing again"


@pytest.mark.parametrize(("option", "match"), [("--n", "asks for 40 samples, not 0"), ("--steps", "at least one step")])
def test_nothing_is_trained_for_a_demo_that_cannot_end(option, match, tmp_path, capsys):
    assert main(["demo", "digits", "--out", str(tmp_path / "demo"), option, "0"]) == 2
    assert match in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize(
    "command",
    [["demo", "--out"], ["reproduce", "analytic", "--scale", "tiny", "--out"], ["reproduce", "analytic", "--work"]],
)
def test_a_file_is_no_folder_to_work_in(command, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert main([*command, str(tmp_path / "file")]) == 2
    assert f"is a file, not a folder: choose another {command[-1]}." in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"


def test_measurements_of_someone_else_are_not_written_over(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.h5").write_text("mine")
    assert main(["demo", "digits", "--out", str(tmp_path)]) == 2
    assert "but not train-clean.h5, so it was not made here: choose another folder." in capsys.readouterr().err
    assert (tmp_path / "data" / "train.h5").read_text() == "mine"


@pytest.mark.parametrize("kind", ["digits", "mri"])
def test_what_the_model_is_compared_with_differs_by_its_data_and_by_what_only_holes_need(kind):
    chosen = demo.DEMOS[kind]
    ours = demo._settings(chosen, "")
    assert ours.steps == chosen.changes["steps"]
    for suffix, data_as in (("-oracle", "oracle"), ("-naive", "naive")):
        other = demo._settings(chosen, suffix)
        assert other.data_as == data_as
        assert other.complete_at == ()
        assert set(ours.differences(other)) <= {"data_as", "complete_at"}
