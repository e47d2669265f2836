"""The demo, at a size that takes seconds."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import gsure
from gsure.cli import main
from gsure.data.sources import open_source
from gsure.experiments import chain, demo
from gsure.training.settings import Settings

SMALL = {
    "width": 8,
    "groups": 4,
    "batch": 8,
    "warmup": 2,
    "ema": 0.5,
    "validate_on": 16,
    "t_bins": 2,
    "picture_every": 0,
}


@pytest.mark.parametrize("kind", ["digits", "mri"])
def test_the_demo_makes_its_page_and_resumes(kind, tmp_path, capsys, monkeypatch, few_times, quick_judgement):
    chosen = demo.DEMOS[kind]
    small = {"steps": 4, "checkpoint_every": 4, **SMALL}
    if kind == "mri":
        test_on = {"size": 16, "n": 120, "split": "test", "seed": 1}
        chosen = replace(chosen, train_on={"size": 16, "n": 400}, test_on=test_on)
        small |= {"attention": [4]}
    monkeypatch.setitem(
        demo.DEMOS, kind, replace(chosen, changes=small, restored=2, restoring={"steps": 4, "draws": 2, "panels": 2})
    )
    out = tmp_path / "demo"
    arguments = ["demo", kind, "--out", str(out), "--n", "40", "--json"]
    assert main(arguments) == 0, capsys.readouterr().err
    told = json.loads(capsys.readouterr().out)
    page = Path(told["page"]).read_text()
    for word in ("oracle", "naive", f"gsure demo {kind}"):
        assert word in page
    assert "was omitted" not in page
    made = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.suffix in (".safetensors", ".h5")}
    assert len(made) > 10
    assert main(arguments) == 0
    assert {path: path.stat().st_mtime_ns for path in made} == made, "a second call computes nothing again"


@pytest.mark.parametrize(("option", "match"), [("--n", "at least 40, but is 0"), ("--steps", "at least 1, but is 0")])
def test_nothing_is_trained_for_a_demo_that_cannot_end(option, match, tmp_path, capsys):
    assert main(["demo", "digits", "--out", str(tmp_path / "demo"), option, "0"]) == 2
    assert match in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize("option", ["--out", "--work"])
def test_a_file_is_no_folder_to_work_in(option, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert main(["reproduce", "analytic", "--scale", "tiny", option, str(tmp_path / "file")]) == 2
    assert f"is a file, not a folder: choose another {option}." in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("name", ["report.html", "data/train-clean.h5", ""])
def test_a_demo_is_not_made_over_anything_else(name, tmp_path, capsys):
    out = tmp_path / "out"
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    (out / name).write_text("mine")
    assert main(["demo", "digits", "--out", str(out)]) == 2
    assert "was not written by this command: choose another --out." in capsys.readouterr().err
    assert (out / name).read_text() == "mine"


def test_nor_is_one_demo_made_over_another(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "measure_once", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        demo.demo("mri", tmp_path)
    assert main(["demo", "digits", "--out", str(tmp_path)]) == 2
    assert "kind was mri, now digits" in capsys.readouterr().err


def test_a_demo_of_other_steps_is_refused_before_anything_is_trained(tmp_path, capsys):
    data, small = tmp_path / "d.h5", Settings(steps=2, t_bins=1, validate_on=8, batch=8, picture_every=0)
    gsure.corrupt(
        open_source("digits"), data, gsure.corruption.Patches(0.4, 2), 0.02, limit=60, clean=tmp_path / "c.h5"
    )
    chain.train_once(data, tmp_path / "run", small, tmp_path / "c.h5", False)
    chain.train_once(data, tmp_path / "run", small, tmp_path / "c.h5", False)  # finds it
    with pytest.raises(ValueError, match=r"trained with different settings \(--steps was 2, now 4\): remove it"):
        chain.train_once(data, tmp_path / "run", replace(small, steps=4), tmp_path / "c.h5", False)


@pytest.mark.parametrize("kind", ["digits", "mri"])
def test_models_differ_only_by_their_data_and_by_imputation(kind, tmp_path):
    chosen = demo.DEMOS[kind]

    def settings(train_on: str) -> Settings:
        return chain.resolve(chosen.preset, {**chosen.changes, "train_on": train_on}, tmp_path / "not-read.h5")

    ours = settings("measurements")
    assert ours.steps == chosen.changes["steps"]
    for train_on in ("clean", "naive"):
        other = settings(train_on)
        assert other.train_on == train_on
        assert other.impute_at == ()
        assert set(ours.differences(other)) <= {"train_on", "impute_at"}
