"""The demo, at a size that takes seconds."""

import functools
import json
from dataclasses import replace
from pathlib import Path

import pytest

import gsure
from gsure.cli import main
from gsure.data.sources import open_source
from gsure.experiments import chain, demo
from gsure.training.run import Run
from gsure.training.settings import Settings

SMALL = {
    "width": 8,
    "multipliers": (1, 1),
    "groups": 4,
    "batch": 8,
    "ema": 0.5,
    "validate_on": 16,
    "t_bins": 2,
    "impute_count": 16,
}
STEPS = 4


def fit_few_steps(settings: Settings, *_) -> Settings:
    """Instead of as many steps as fit into the minutes."""
    later = {"impute_at": (2,)} if settings.purpose == "both" else {}
    return replace(settings, steps=STEPS, checkpoint_every=STEPS, picture_every=0, warmup=1, **later)


@pytest.fixture(params=["digits", "mri"])
def small(request, monkeypatch, few_times, quick_judgement) -> str:
    """A demo of four steps, on few small images."""
    kind, chosen = request.param, demo.DEMOS[request.param]
    if kind == "mri":
        sizes = [options | {"size": 16, "n": n} for options, n in ((chosen.train_on, 300), (chosen.test_on, 4))]
        chosen = replace(chosen, train_on=sizes[0], test_on=sizes[1])
    monkeypatch.setitem(demo.DEMOS, kind, replace(chosen, changes={**chosen.changes, **SMALL}, restored=2))
    quick = {"draws": 2, "steps": 4, "panels": 2, "calibration": "none"}
    monkeypatch.setattr(demo, "restore", functools.partial(demo.restore, **quick))
    monkeypatch.setattr("gsure.training.train.fit_to_budget", fit_few_steps)
    return kind


def test_the_demo_makes_its_page_and_resumes(small, tmp_path, capsys):
    out = tmp_path / "demo"
    arguments = ["demo", small, "--out", str(out), "--n", "40", "--json"]
    assert main(arguments) == 0, capsys.readouterr().err
    told = json.loads(capsys.readouterr().out)
    page = Path(told["page"]).read_text()
    for word in ("clean-trained reference", f"gsure demo {small}"):
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
    assert "was not written by this command: choose another folder." in capsys.readouterr().err
    assert (out / name).read_text() == "mine"


def test_nor_is_one_demo_made_over_another(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "measure_once", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        demo.demo("mri", tmp_path)
    (tmp_path / "data").mkdir()  # the first result
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


def test_models_do_as_many_steps_as_fit_for_the_first_and_differ_only_in_what_they_learn_from(small, tmp_path):
    demo.demo(small, tmp_path / "demo", n=40)
    ours, *others = (Run(path).config.settings for path in sorted((tmp_path / "demo" / "runs").iterdir()))
    assert ours.steps == STEPS
    assert ours.train_on == "measurements"
    assert [other.train_on for other in others] == (["naive", "clean"] if small == "digits" else ["clean"])
    for other in others:
        assert other.steps == ours.steps
        assert set(ours.differences(other)) <= {"train_on", "impute_at"}
