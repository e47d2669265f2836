"""Training: a run that was stopped equals one that was not, two processes equal one, and nothing is ever lost."""

import dataclasses
import importlib.util
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import ROOT
from running import QUICK, TINY, Scale, final, interrupt_at, launch, make_files, same, told

import gsure
from gsure.cli import main
from gsure.corruption import Patches
from gsure.data.sources import open_source
from gsure.training import checkpoints
from gsure.training.examples import Examples, Pair, open_examples
from gsure.training.loop import Loop, learning_rate
from gsure.training.run import Run
from gsure.training.settings import Settings


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return make_files(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="module")
def straight(files):
    """A run of TINY that was never stopped."""
    return gsure.train(files / "d.h5", files / "straight", TINY).path


@pytest.fixture(scope="module")
def quick(files):
    """The same of QUICK."""
    return gsure.train(files / "d.h5", files / "quick", QUICK).path


# Going on


@pytest.mark.parametrize("stop", np.random.default_rng(0).integers(1, 11, 3).tolist())
def test_a_resumed_run_equals_one_that_was_never_stopped_bit_for_bit(files, straight, tmp_path, monkeypatch, stop):
    with monkeypatch.context() as patch:
        interrupt_at(patch, stop)
        gsure.train(files / "d.h5", tmp_path / "stopped", TINY)
    assert final(tmp_path / "stopped").step == stop + 1 < TINY.steps
    gsure.train(files / "d.h5", tmp_path / "stopped", resume=True)
    assert same(straight, tmp_path / "stopped")
    validations = [[line for line in told(run) if "validation" in line] for run in (straight, tmp_path / "stopped")]
    assert validations[0] == validations[1]


def test_resuming_without_the_optimizer_or_the_average_would_be_noticed(files, straight, tmp_path):
    """The control of the test above: what it compares does depend on each part of a checkpoint."""
    gsure.train(files / "d.h5", tmp_path / "begun", dataclasses.replace(TINY, steps=4))
    for part in ("network", "ema", "optimizer"):
        out = tmp_path / part
        shutil.copytree(tmp_path / "begun", out)
        found = final(out)
        changed = {name: value * 1.01 if name.startswith(part) else value for name, value in found.tensors.items()}
        checkpoints.write(found.path, changed, found.header)
        gsure.train(files / "d.h5", out, TINY, resume=True)
        assert not same(straight, out)


def test_a_run_can_be_given_more_steps(files, straight, tmp_path):
    gsure.train(files / "d.h5", tmp_path / "longer", dataclasses.replace(TINY, steps=5))
    gsure.train(files / "d.h5", tmp_path / "longer", TINY, resume=True)
    assert same(straight, tmp_path / "longer")
    assert Run(tmp_path / "longer").config.settings.steps == 12


def test_sigterm_saves_and_says_how_to_go_on(files, tmp_path, monkeypatch, capsys):
    interrupt_at(monkeypatch, 5, signal.SIGTERM)
    gsure.train(files / "d.h5", tmp_path / "run", QUICK, progress=True)
    told = " ".join(capsys.readouterr().err.split())
    assert "SIGTERM" in told
    assert f"gsure.train(data={str(files / 'd.h5')!r}, out={str(tmp_path / 'run')!r}, resume=True)" in told
    assert final(tmp_path / "run").step == 6


def test_lines_logged_after_the_checkpoint_are_forgotten_when_the_run_goes_on(files, quick, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(quick, out)
    checkpoints.path_of(out / "checkpoints", 12).unlink()
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"step": 13, "lo')  # killed while writing
    gsure.train(files / "d.h5", out, resume=True)
    assert told(out) == told(quick)


# Many processes


def test_two_processes_compute_what_one_computes(files, tmp_path):
    """Without dropout, whose mask is drawn for the part of the batch that a process computes.

    tests/training/test_imputation.py does the same for imputation and a loss with a divergence.
    """
    settings = dataclasses.replace(TINY, dropout=0.0, steps=6, accumulate=1)
    gsure.train(files / "d.h5", tmp_path / "one", settings)
    (tmp_path / "settings.yaml").write_text(json.dumps(dataclasses.asdict(settings)))
    done = launch(2, "train", files / "d.h5", "--out", tmp_path / "two", "--config", tmp_path / "settings.yaml")
    assert done.returncode == 0, done.stderr
    x, t = torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(1, 800, 100)
    one, two, before = (
        gsure.load(tmp_path / name, which)(x, t) for name, which in (("one", "last"), ("two", "last"), ("one", 4))
    )
    assert float((one - two).detach().abs().max()) < 1e-3 * float(
        (one - before).detach().abs().max()
    )  # against two steps of training
    for a, b in zip(told(tmp_path / "one"), told(tmp_path / "two"), strict=True):
        assert a.get("loss", 0) == pytest.approx(b.get("loss", 0), rel=1e-4)
        if "validation" in a:
            assert a["validation"]["estimate"] == pytest.approx(b["validation"]["estimate"], rel=1e-3)


@pytest.mark.parametrize("ends_by", ["an error", "finishing"])
def test_no_thread_of_the_process_group_outlives_it(files, tmp_path, ends_by):
    """A thread that does asks for the interpreter when that is gone, and aborts the process, once in some hundred times."""
    code = (
        "import atexit, dataclasses, os, sys; from pathlib import Path\n"
        "def look():\n"
        "    threads = [Path(task, 'comm').read_text() for task in Path('/proc/self/task').iterdir()]\n"
        "    os._exit(3 if any('gloo' in name for name in threads) else 0)\n"
        "atexit.register(look)\n"  # first registered, last called
        "sys.path.insert(0, sys.argv[4]); import gsure; from running import QUICK; from gsure.objective import Objective\n"
        "data, out, ends_by = sys.argv[1:4]\n"
        "def fail(*_): raise ValueError('it failed')\n"
        "if ends_by == 'an error':\n"
        "    Objective.loss = fail\n"
        "gsure.train(data, out, dataclasses.replace(QUICK, steps=4))\n"
        "gsure.evaluate_denoising(out, n=8, t_bins=2)\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    arguments = [script, files / "d.h5", tmp_path / "run", ends_by, ROOT / "tests"]
    done = launch(2, *arguments, module=False)
    assert done.returncode == 0, done.stderr
    assert ("it failed" in done.stderr) == (ends_by == "an error")
    assert (tmp_path / "run" / "denoising.json").exists() == (ends_by == "finishing")


def test_accumulation_computes_what_one_part_computes(files, tmp_path):
    settings = dataclasses.replace(QUICK, steps=4, held_out=0.0)
    gsure.train(files / "d.h5", tmp_path / "one", dataclasses.replace(settings, accumulate=1))
    gsure.train(files / "d.h5", tmp_path / "four", dataclasses.replace(settings, accumulate=4))
    one, four = final(tmp_path / "one").part("network"), final(tmp_path / "four").part("network")
    assert max(float((one[name] - four[name]).abs().max()) for name in one) < 1e-5


def test_the_share_of_a_process_and_its_noise_are_those_of_the_whole_batch(files, outside):
    """Which measurement meets which noise does not depend on how the batch is divided."""

    config = type("C", (), {"settings": dataclasses.replace(QUICK, batch=12, accumulate=3)})
    examples = Examples(gsure.open(files / "d.h5"), None, config.settings)

    def pairs(rank, processes):
        accelerator = type("A", (), {"process_index": rank, "num_processes": processes})
        loop = Loop(accelerator, None, config, None)
        return {
            (step, int(n), int(p))
            for step, parts in enumerate(loop.batches(examples, 2, 5), start=2)
            for numbers, positions in parts
            for n, p in zip(numbers, positions, strict=True)
        }

    whole = pairs(0, 1)
    assert len(whole) == 36
    assert min(step for step, _, _ in whole) == 2
    assert pairs(0, 2) | pairs(1, 2) == whole
    assert not pairs(0, 2) & pairs(1, 2)


# What is computed


def test_ema_is_its_closed_form(files, tmp_path):
    settings = dataclasses.replace(QUICK, steps=7, checkpoint_every=1, keep=10)
    gsure.train(files / "d.h5", tmp_path / "run", settings)
    folder = tmp_path / "run" / "checkpoints"
    weights = [checkpoints.read(checkpoints.path_of(folder, step)).part("network") for step in range(1, 8)]
    for name, value in final(tmp_path / "run").part("ema").items():
        expected = weights[0][name]  # the random weights before the first step have no share in it
        for k in range(1, 7):
            d = min(settings.ema, (1 + k) / (10 + k))
            expected = d * expected + (1 - d) * weights[k][name]
        torch.testing.assert_close(value, expected)
    assert (
        not final(tmp_path / "run")
        .part("network")["leave.weight"]
        .allclose(final(tmp_path / "run").part("ema")["leave.weight"])
    )


def test_averaged_weights_are_right_at_any_length(tmp_path):
    """At 100, 300 and 1,000 steps of the default decay, no worse than raw ones by 5 % of the validation error. The control is
    a constant decay, with which the average still holds the start."""
    gsure.corrupt(open_source("digits"), tmp_path / "d.h5", Patches(p=0.3, size=2), 0.05)
    settings = Settings(
        steps=1000, batch=32, network="mlp", width=64, lr=1e-3, checkpoint_every=100, validate_on=64, t_bins=4
    )
    gsure.train(tmp_path / "d.h5", tmp_path / "run", settings)
    errors = {
        line["step"]: line["held_out_error"] for line in Run(tmp_path / "run").read_metrics() if "validation" in line
    }
    for step in (100, 300, 1000):
        assert errors[step]["averaged"] <= 1.05 * errors[step]["raw"], step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "warm_decay", lambda decay, step: decay if step > 0 else 0.0)
        gsure.train(tmp_path / "d.h5", tmp_path / "constant", dataclasses.replace(settings, steps=100))
    (line,) = (line for line in Run(tmp_path / "constant").read_metrics() if "validation" in line)
    assert line["held_out_error"]["averaged"] > 1.05 * line["held_out_error"]["raw"]
    assert line["weights"] == "raw"


def test_weights_are_chosen_by_validation_or_by_name(files, tmp_path, outside):
    settings = dataclasses.replace(QUICK, steps=6, checkpoint_every=3)
    run = gsure.train(files / "d.h5", tmp_path / "run", settings)
    found = checkpoints.read(run.best)
    kinds = {"averaged": "ema", "raw": "network"}
    for weights, part in kinds.items():
        loaded = gsure.load(run, weights=weights).network.state_dict()
        assert all(value.equal(loaded[name]) for name, value in found.part(part).items())
    chosen = run.denoiser.network.state_dict()
    better = found.part(kinds[found.header["best"]["weights"]])
    assert all(value.equal(chosen[name]) for name, value in better.items())
    one, other = (gsure.sample(run, 2, steps=2, weights=weights)[:] for weights in kinds)
    assert not one.equal(other)
    with pytest.raises(ValueError, match="weights is averaged or raw, not 'ema'"):
        gsure.load(run, weights="ema")


def test_learning_rate_rises_and_falls():
    settings = Settings(lr=2.0, steps=110, warmup=10, decay="cosine")
    rates = [learning_rate(settings, step) for step in range(110)]
    assert rates[0] == pytest.approx(0.2)
    assert rates[9] == rates[10] == 2.0
    assert rates[60] == pytest.approx(1.0)
    assert all(a >= b for a, b in itertools.pairwise(rates[10:]))
    assert 0 < rates[-1] < 0.01
    assert learning_rate(dataclasses.replace(settings, decay="none"), 109) == 2.0


def test_oracle_and_naive_are_choices_of_data(files):
    data, clean = gsure.open(files / "d.h5"), gsure.Signals(files / "c.h5")
    positions = [3, 1]
    for train_on, expected in {"clean": clean[positions], "naive": data[positions].ybar}.items():
        examples, held_out = open_examples(data, clean, dataclasses.replace(QUICK, train_on=train_on, held_out=0.0))
        assert examples.target(positions).ybar.equal(expected)
        assert float(examples.target(positions).std.max()) == 0
        assert float(examples.target(positions).mask.min()) == 1
        assert float(examples.coverage) == 1
        assert held_out is None
    train, held_out = open_examples(data, clean, dataclasses.replace(QUICK, train_on="naive"))
    assert float(held_out.target([0]).std.max()) == pytest.approx(0.05)  # a naive model is judged by what was measured
    assert not set(train.measurements.indices) & set(held_out.measurements.indices)
    assert held_out.xbar([0]).equal(clean[[int(held_out.measurements.indices[0])]])


def test_a_mirrored_measurement_is_a_measurement_of_the_mirrored_signal(files):
    data, clean = gsure.open(files / "d.h5"), gsure.Signals(files / "c.h5")
    examples = Examples(data, clean, dataclasses.replace(QUICK, flip=True))
    positions = np.arange(64)
    _, mirrored, _ = examples.augment(Pair(None, examples.target(positions)), gsure.generators(0, indices=positions))
    flipped = (mirrored.ybar != examples.target(positions).ybar).flatten(1).any(1)
    assert 15 < int(flipped.sum()) < 49
    x = torch.where(flipped[:, None, None, None], clean[positions].flip(-1), clean[positions])
    residual = (mirrored.ybar - x * mirrored.mask)[mirrored.mask == 1]
    assert float(residual.std()) == pytest.approx(0.05, rel=0.1)


def test_flips_are_refused_where_they_do_not_commute(tmp_path, files):
    gsure.corrupt(open_source("phantom", size=16, n=8), tmp_path / "k.h5", gsure.corruption.Lines(R=2.0), 0.01)
    for path, match in {tmp_path / "k.h5": "mirrored signal only where masks lie in signal space"}.items():
        with pytest.raises(ValueError, match=match):
            open_examples(gsure.open(path), None, dataclasses.replace(QUICK, flip=True))


def test_the_returned_run_has_the_denoiser_that_load_returns(files, tmp_path):
    settings = dataclasses.replace(TINY, mask_conditioned=True, hide=0.2, predicts="eps")
    run = gsure.train(files / "d.h5", tmp_path / "run", settings)
    assert run.path == tmp_path / "run"
    assert run.summary()["step"] == 12
    x, t = torch.ones(2, 1, 8, 8), torch.tensor([1, 500])
    loaded = gsure.load(tmp_path / "run", "last")
    assert run.denoiser(x, t).equal(gsure.load(tmp_path / "run")(x, t))
    assert not loaded.training
    best = Run(tmp_path / "run").best
    assert gsure.load(tmp_path / "run")(x, t).equal(gsure.load(best)(x, t))
    assert gsure.load(tmp_path / "run", 8)(x, t).shape == x.shape
    with pytest.raises(ValueError, match="no checkpoint of step 7; it has 12, 8"):
        gsure.load(tmp_path / "run", 7)


def test_the_best_checkpoint_is_the_one_with_the_smallest_estimate(files, tmp_path):
    settings = dataclasses.replace(
        QUICK, steps=24, lr=0.3, warmup=0, ema=0.0, keep=99
    )  # too fast: it gets worse on the way
    gsure.train(files / "d.h5", tmp_path / "run", settings)
    lines = [line for line in Run(tmp_path / "run").read_metrics() if "validation" in line]
    means = {line["step"]: line["validation"]["estimate"]["mean"] for line in lines}
    best = min(means, key=means.get)
    assert best != 24
    assert checkpoints.read(Run(tmp_path / "run").best).header["best"]["step"] == best
    assert final(tmp_path / "run").header["best"]["mean"] == means[best]


def test_the_command_takes_the_name_of_a_network(files, tmp_path):
    arguments = ["train", str(files / "d.h5"), "--out", str(tmp_path / "run"), "--network", "mlp", "--width", "16"]
    assert main([*arguments, "--steps", "2", "--batch", "8", "--json"]) == 0
    assert type(gsure.load(tmp_path / "run").network).__name__ == "MLP"


def test_a_network_of_ones_own_trains_and_must_be_given_again(files, tmp_path):
    gsure.train(files / "d.h5", tmp_path / "run", QUICK, network=Scale())
    assert float(gsure.load(tmp_path / "run", "last", network=Scale()).network.scale.detach()) < 1
    with pytest.raises(ValueError, match=r"your own network, .*: pass network=... in Python"):
        gsure.load(tmp_path / "run")


def test_data_in_fourier_space_and_masks_as_input_train_too(tmp_path):
    gsure.corrupt(
        open_source("phantom", size=16, n=24),
        tmp_path / "k.h5",
        gsure.corruption.Lines(R=2.0),
        0.01,
        clean=tmp_path / "c.h5",
    )
    settings = dataclasses.replace(TINY, mask_conditioned=True, predicts="eps", weighting="eps", picture_every=12)
    gsure.train(tmp_path / "k.h5", tmp_path / "run", settings, clean=tmp_path / "c.h5")
    assert gsure.load(tmp_path / "run").network.mask_input == "embedding"
    assert (tmp_path / "run" / "samples" / "step-00000012.png").stat().st_size > 1000
    assert (tmp_path / "run" / "denoised" / "step-00000012.png").stat().st_size > 1000


def test_pictures_and_validation_do_not_disturb_training(files, straight, tmp_path):
    shown = dataclasses.replace(TINY, picture_every=4, checkpoint_every=3, validate_on=4)
    gsure.train(files / "d.h5", tmp_path / "shown", shown, clean=files / "c.h5")
    assert same(straight, tmp_path / "shown")
    assert len(list((tmp_path / "shown" / "samples").iterdir())) == 3


def test_a_network_in_evaluation_mode_is_trained_in_training_mode(files, tmp_path):
    modes = set()

    class Watching(Scale):
        def forward(self, x_t, t):
            if torch.is_grad_enabled():
                modes.add(self.training)
            return super().forward(x_t, t)

    gsure.train(files / "d.h5", tmp_path / "run", QUICK, network=Watching().eval())
    assert modes == {True}


def test_a_run_killed_at_random_moments_ends_as_if_it_had_not_been(tmp_path, monkeypatch):
    """Three times; bench/kill.py does it thirty times."""
    spec = importlib.util.spec_from_file_location("kill", ROOT / "bench" / "kill.py")
    kill = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kill)
    monkeypatch.setattr(kill, "OPTIONS", [*kill.OPTIONS, "--network", "mlp"])  # starts in half the time
    kills = kill.killed_runs(3, tmp_path, seed=0)  # raises if a file is damaged, too much is lost, or the end differs
    assert len(kills) == 3


def test_a_run_killed_in_the_middle_of_writing_goes_on_from_the_checkpoint_before(files, quick, tmp_path):
    code = (
        "import os, signal, sys; sys.path.insert(0, sys.argv[3]); import gsure; from running import QUICK\n"
        "from gsure.training import checkpoints; save = checkpoints.save_file\n"
        "def dying(tensors, path, metadata):\n"
        "    save(tensors, path, metadata)\n"
        "    if 'step-00000008' in str(path):\n"
        "        os.truncate(path, os.path.getsize(path) // 2); os.kill(os.getpid(), signal.SIGKILL)\n"
        "checkpoints.save_file = dying\n"
        "gsure.train(sys.argv[1], sys.argv[2], QUICK)\n"
    )
    out = tmp_path / "run"
    arguments = [str(files / "d.h5"), str(out), str(ROOT / "tests")]
    assert subprocess.run([sys.executable, "-c", code, *arguments], check=False).returncode == -signal.SIGKILL
    assert list((out / "checkpoints").glob(".*.tmp"))
    assert final(out).step == 4
    gsure.train(files / "d.h5", out, resume=True)
    assert same(out, quick)
    assert not list((out / "checkpoints").glob(".*.tmp"))


def test_mixed_precision_trains_and_resumes_bit_for_bit(files, tmp_path):
    """In a process of its own, so that oneDNN can be kept from instructions that virtual machines announce but do not have."""
    code = (
        "import dataclasses, sys; sys.path.insert(0, sys.argv[4]); import gsure; from running import TINY, same\n"
        "from pathlib import Path; data, out = sys.argv[1], Path(sys.argv[2])\n"
        "gsure.train(data, out / 'first', TINY)\n"  # another precision in the same process
        "settings = dataclasses.replace(TINY, precision='bf16')\n"
        "gsure.train(data, out / 'straight', settings)\n"
        "gsure.train(data, out / 'stopped', dataclasses.replace(settings, steps=5))\n"
        "gsure.train(data, out / 'stopped', settings, resume=True)\n"
        "sys.exit(0 if same(out / 'straight', out / 'stopped') and not same(out / 'first', out / 'straight') else 1)\n"
    )
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "OMP_NUM_THREADS": "1"}
    arguments = [str(files / "d.h5"), str(tmp_path), "", str(ROOT / "tests")]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
