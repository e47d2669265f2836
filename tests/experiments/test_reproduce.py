"""Every table and figure of the paper runs, at the scale that means nothing but that every line of it works."""

import json
import re
from pathlib import Path

import pytest
import yaml
from conftest import ROOT

from gsure.cli import main
from gsure.cli.experiments import NAMES
from gsure.experiments import _experiment, names, read_plan, reproduce, samples
from gsure.experiments.results import Results
from gsure.experiments.work import digest
from gsure.training.settings import Settings, known, preset_names, read_preset

FOLDER = ROOT / "src" / "gsure" / "experiments"


@pytest.fixture(scope="session")
def work(tmp_path_factory):
    """One for all: experiments share models."""
    return tmp_path_factory.mktemp("work")


@pytest.mark.parametrize("name", NAMES)
def test_each_runs_when_tiny_and_finds_its_work_again(name, work, tmp_path, monkeypatch):
    made = reproduce(name, "tiny", out=tmp_path, work=work)
    assert made["missing"] == []
    page = Path(made["page"]).read_text()
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page)
    assert pictures
    assert all((tmp_path / picture).stat().st_size > 2000 for picture in pictures)
    before = Path(made["results"]).read_bytes()

    def never(*_):
        raise AssertionError("it was computed a second time")

    for kind in ("samples", "restorations", "denoising", "assumptions"):
        monkeypatch.setattr(f"gsure.experiments.{kind}.compute", never)
    again = reproduce(name, "tiny", out=tmp_path, work=work)
    assert again["made now"] == []
    assert Path(again["results"]).read_bytes() == before


def test_the_command_line_knows_all_of_them():
    assert sorted(NAMES) == names()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", ["tiny", "small", "paper"])
def test_every_plan_names_presets_and_settings_that_exist(name, scale):
    chosen = read_plan(name, scale).chosen
    presets = chosen.get("preset", [])
    for preset in presets.values() if isinstance(presets, dict) else [presets] if presets else []:
        assert preset in (*preset_names(), "auto")
        values = {} if preset == "auto" else read_preset(preset)
        Settings(**(values | known(chosen["settings"], name)))


def test_one_case_at_a_time_grows_the_table(work, tmp_path):
    first = reproduce("table1", "tiny", out=tmp_path, work=work, only="oracle")
    assert first["made now"] == ["oracle p=0.4 seed=0"]
    assert "Not run yet: gsure p=0.2 seed=0" in Path(first["page"]).read_text()
    second = reproduce("table1", "tiny", out=tmp_path, work=work, only="gsure p=0.4")
    assert second["made now"] == ["gsure p=0.4 seed=0"]
    rows = json.loads(Path(second["results"]).read_text())["rows"]
    assert {row["case"]["block"] for row in rows} == {"oracle", "gsure"}


def test_a_case_that_is_asked_otherwise_is_another():
    plan = read_plan("table1", "tiny")
    case = samples.cases(plan)[0]
    before = samples.asked(plan, case)
    plan.chosen["n"] += 1
    assert samples.asked(plan, case) != before
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})


@pytest.mark.parametrize("name", ["table1", "mri-r4", "mri-denoising", "independence"])
def test_a_case_is_named_by_how_its_model_is_trained_and_not_by_how_that_is_watched(name):
    plan = read_plan(name, "tiny")
    experiment = _experiment(plan.makes)
    case = experiment.cases(plan)[0]
    before = experiment.asked(plan, case)
    plan.chosen["settings"] = {**plan.chosen["settings"], "log_every": 7}
    assert experiment.asked(plan, case) == before
    plan.chosen["settings"] = {**plan.chosen["settings"], "lr": 0.123}
    assert experiment.asked(plan, case) != before


def test_what_was_asked_otherwise_gives_way(tmp_path):
    results = Results(tmp_path / "r.json")
    for case in ({"p": 0.2, "asked": "old"}, {"p": 0.4, "asked": "old"}, {"p": 0.2, "asked": "new"}):
        results.add(case, [{"value": 1}], {})
    assert [row["case"] for row in results.rows] == [{"p": 0.4, "asked": "old"}, {"p": 0.2, "asked": "new"}]


def test_ratio_and_gap_are_those_of_the_numbers(tmp_path):
    """Against arithmetic by hand: oracle 2, naive 10, ours 3."""
    plan = read_plan("table1", "small")
    results = Results(tmp_path / "r.json")
    about = {"n": 10, "features": "f", "reference": 10, "floor": 1.0, "run": "none"}
    for block, value in (("oracle", 2.0), ("naive", 10.0), ("gsure", 3.0)):
        case = samples.Case(block, 0.4, 0)
        rows = [{"calls": calls, "frechet": value} | about for calls in plan.chosen["calls"]]
        results.add(samples.asked(plan, case), rows, {})
    found = {case: rows for case in samples.cases(plan) if (rows := results.of(samples.asked(plan, case)))}
    line = next(line for line in samples._table(plan, found) if line.startswith("| gsure |"))
    assert "| **1.50** | 0.875 | 1.72 | 0.974 |" in line


def test_what_is_wrong_is_said(tmp_path, capsys):
    assert main(["reproduce", "tabel1"]) == 2
    assert "did you mean table1?" in capsys.readouterr().err
    arguments = ["reproduce", "table1", "--out", str(tmp_path / "o"), "--work", str(tmp_path / "w")]
    assert main(arguments) == 2
    assert "Fashion-MNIST: give its folder with --data" in capsys.readouterr().err
    assert main([*arguments, "--only", "nothing"]) == 2
    assert "oracle p=0.4 seed=0" in capsys.readouterr().err
    for text, match in {
        "[]": "is not a file of results",
        '{"rows": [1]}': "has rows that are not results",
        '{"rows": [{"case": 1}]}': "has rows that are not results",
    }.items():
        (tmp_path / "o" / "table1-small.json").write_text(text)
        assert main([*arguments, "--draw"]) == 2
        assert match in capsys.readouterr().err


def test_plans_are_data():
    for path in FOLDER.glob("*.yaml"):
        text = path.read_text()
        assert text.startswith("# "), "each says what it is of the paper"
        yaml.safe_load(text)
