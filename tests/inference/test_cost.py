"""What a restoration costs, and how a time per image becomes a number of draws and steps."""

import dataclasses
import json

import pytest
import torch
from running import QUICK, make_files

import gsure
from gsure.cli import main
from gsure.inference import job
from gsure.inference.cost import FEWEST_DRAWS, FEWEST_STEPS, MOST_DRAWS, Budget, Plan, Speed, fit_budget, make_plan
from gsure.inference.guard import Guard

SPEED = Speed(0.01, 0.001)
PLAN = Plan(1.0, 4.0, 2)


def fit(seconds, draws=None, steps=None, plan=PLAN):
    return fit_budget(seconds, SPEED, plan, 20, 1000, (draws, steps))


@pytest.mark.parametrize("seconds", [0.02, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 10.0, 100.0])
@pytest.mark.parametrize("plan", [PLAN, Plan()])
def test_draws_and_steps_fit_into_the_time_and_use_it(seconds, plan):
    found = fit(seconds, plan=plan)
    assert plan.seconds(SPEED, *found) <= seconds
    more = Budget(found.draws + 1, found.steps) if 1 < found.draws < MOST_DRAWS and found.steps == 20 else None
    if found.steps < 20 or found.draws == MOST_DRAWS:
        more = Budget(found.draws, found.steps + 1)
    if more is not None and more.steps <= 1000:
        assert plan.seconds(SPEED, *more) > seconds


def test_time_goes_into_draws_and_a_short_one_takes_from_the_steps():
    found = [fit(seconds) for seconds in (0.02, 0.2, 0.5, 3.0)]
    assert found[0] == Budget(1, 10)
    assert found[1] == Budget(FEWEST_DRAWS, 12)
    assert found[2] == Budget(14, 20)
    assert found[3].draws == MOST_DRAWS
    assert found[3].steps > 20
    assert fit(0.5, draws=8).draws == 8
    assert fit(0.5, steps=10).steps == 10


def test_calls_are_those_of_draws_hidden_entries_and_the_verdict():
    assert make_plan(100, False, 0, 0, "ddrm", "ddrm").calls(8, 50) == 400
    assert make_plan(100, True, 0, 0, "ddrm", "ddrm").calls(8, 50) == 400 + 8 * 50
    assert make_plan(100, True, 16, 64, "ddrm", "ddrm").calls(8, 50) == pytest.approx(1.64 * 400 + 4.16 * 100)
    assert make_plan(2, True, 16, 0, "ddrm", "ddrm", elsewhere=14).calls(8, 50) == 400 + (4 + 8 + 4 * 7) * 100
    assert make_plan(100, True, 0, 64, "mean", "context").calls(8, 20) == 162 + 4 * 42
    assert make_plan(100, True, 0, 0, "ddrm", "ddrm").calls(1, 50) == 50  # one draw has no spread to calibrate


@pytest.mark.parametrize(
    ("given", "least"),
    [
        ((None, None), f"1 draw of {FEWEST_STEPS} steps: give at least 0.017"),
        ((8, None), "8 draws of 5 steps: give at least 0.14"),
        ((None, 20), "1 draw of 20 steps: give at least 0.033"),
    ],
)
def test_a_time_too_short_for_one_draw_is_refused_with_the_least_one(given, least):
    with pytest.raises(ValueError, match=f"0.001 seconds per image are too short for {least}"):
        fit(0.001, *given)
    fit(float(least.split()[-1]), *given)  # and that one is possible


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = make_files(tmp_path_factory.mktemp("cost"))
    gsure.train(folder / "d.h5", folder / "run", dataclasses.replace(QUICK, steps=4, checkpoint_every=4))
    return folder


def test_a_resumed_job_uses_the_stored_numbers_and_no_new_timing(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(job, "time_batch", lambda *_: Speed(0.0, 0.001))
    options = {"seconds_per_image": 0.06, "limit": 6, "batch": 12, "panels": 0, "baselines": False}
    options |= {"calibration": "none", "method": "ddrm"}
    first = gsure.restore(folder / "run", folder / "d.h5", tmp_path / "r", **options).summary
    assert (first["draws"], first["steps"]) == (4, 15)
    stored = json.loads((tmp_path / "r" / "request.json").read_text())["made_of"]
    assert (stored["draws"], stored["steps"], stored["seconds_per_image"]) == (4, 15, 0.06)
    (tmp_path / "r" / "mean" / "shard-00001.h5").unlink()

    def slower(*_):
        raise AssertionError("timed again")

    monkeypatch.setattr(job, "time_batch", slower)
    again = gsure.restore(folder / "run", folder / "d.h5", tmp_path / "r", **options).summary
    assert (again["draws"], again["steps"]) == (4, 15)
    for key, value in {"WORLD_SIZE": "2", "RANK": "1"}.items():  # another process reads what the first one chose
        monkeypatch.setenv(key, value)
    assert gsure.restore(folder / "run", folder / "d.h5", tmp_path / "r", **options).summary["steps"] == 15
    with pytest.raises(ValueError, match=r"seconds_per_image was 0.06, now 0.5"):
        gsure.restore(folder / "run", folder / "d.h5", tmp_path / "r", **options | {"seconds_per_image": 0.5})
    with pytest.raises(ValueError, match=r"draws was 4, now 3"):
        gsure.restore(folder / "run", folder / "d.h5", tmp_path / "r", **options, draws=3)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"draws": 8, "steps": 20}, "8 draws and 20 steps leave nothing to choose: omit one"),
        ({"method": "gaussian"}, "the Gaussian prior need none: omit them"),
        ({"seconds_per_image": 1e-9}, "too short for 1 draw of 5 steps: give at least"),
        ({"seconds_per_image": 0.0}, "must be a positive number, but are 0.0"),
        ({"seconds_per_image": float("nan")}, "must be a positive number, but are nan"),
    ],
)
def test_impossible_times_are_refused_before_anything_is_written(folder, tmp_path, options, match):
    with pytest.raises(ValueError, match=match):
        gsure.restore(folder / "run", folder / "d.h5", tmp_path / "r", **{"seconds_per_image": 1.0} | options)
    assert not (tmp_path / "r").exists()


def test_the_command_prints_its_cost_before_it_starts(folder, tmp_path, capsys):
    words = ["restore", str(folder / "run"), str(folder / "d.h5"), "--limit", "4", "--out", str(tmp_path / "r")]
    options = ["--seconds-per-image", "0.1", "--draws", "3", "--method", "ddrm", "--no-baselines", "--panels", "0"]
    assert main([*words, *options, "--calibration", "none"]) == 0
    captured = capsys.readouterr()
    told = " ".join(captured.err.split())
    made_of = json.loads((tmp_path / "r" / "request.json").read_text())["made_of"]
    calls = made_of["draws"] * made_of["steps"]
    assert f"{made_of['draws']} draws of {made_of['steps']} steps: {calls:,} network calls per image" in told
    assert "s per image" in told
    assert "one batch was timed" in told


def test_the_announced_calls_are_those_that_are_made(folder, monkeypatch, capsys):
    """Measurements that teach a calibration are restored once, whether they are among those to restore or not."""
    monkeypatch.setattr(Guard, "rejects", lambda self, xbar, *_: torch.zeros(len(xbar), dtype=torch.bool))
    kind, seen = type(gsure.load(folder / "run").network), []

    def count(module, inputs):
        if type(module) is kind:
            seen.append(len(inputs[0]))

    for limit in (5, 40):
        options = {"method": "ddrm", "draws": 4, "steps": 3, "limit": limit, "baselines": False, "calibration": "self"}
        gsure.restore(folder / "run", folder / "d.h5", progress=True, **options)
        announced = int(capsys.readouterr().err.split(" network calls per image")[0].split()[-1])
        hook = torch.nn.modules.module.register_module_forward_pre_hook(count)
        seen.clear()
        gsure.restore(folder / "run", folder / "d.h5", **options)
        hook.remove()
        assert sum(seen) / limit == pytest.approx(announced, abs=0.5)
