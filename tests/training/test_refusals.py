"""What training does when something is wrong: one sentence, early, and nothing lost."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import yaml
from running import QUICK, Scale, final, interrupt_at, make_files, same, torchrun

import gsure
from gsure.cli import main
from gsure.data.sources import open_source
from gsure.report import write_report
from gsure.training import checkpoints
from gsure.training.loop import Loop, accelerated
from gsure.training.run import Run
from gsure.training.setup import setup


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return make_files(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="module")
def trained(files):
    return gsure.train(files / "d.h5", files / "trained", dataclasses.replace(QUICK, steps=8)).path


@pytest.fixture(scope="module")
def straight(files):
    """A run that was never stopped."""
    return gsure.train(files / "d.h5", files / "straight", QUICK).path


@pytest.fixture
def run(trained, tmp_path):
    """A run of 8 steps, to be changed."""
    return shutil.copytree(trained, tmp_path / "run")


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# The folder


def test_an_existing_run_is_neither_replaced_nor_resumed_unasked(files, run):
    before = bytes_of(run)
    with pytest.raises(ValueError, match="holds a run already: continue it with --resume"):
        gsure.train(files / "d.h5", run, QUICK)
    assert bytes_of(run) == before


@pytest.mark.parametrize("by", ["command", "function"])
def test_an_existing_run_is_named_before_settings_are_chosen(files, run, monkeypatch, capsys, by):
    """Choosing them takes seconds, and prints lines that hide the error."""
    monkeypatch.setattr("gsure.training.auto.choose_settings", None)
    monkeypatch.setattr("gsure.training.train.choose_settings", None)
    if by == "command":
        assert main(["train", str(files / "d.h5"), "--out", str(run)]) == 2
        assert "holds a run already" in capsys.readouterr().err
    else:
        with pytest.raises(ValueError, match="holds a run already"):
            gsure.train(files / "d.h5", run, minutes=1.0)


def test_force_puts_an_existing_run_aside(files, run):
    before = {name.replace("/run/", "/run.old-1/"): content for name, content in bytes_of(run).items()}
    gsure.train(files / "d.h5", run, QUICK, force=True)
    assert final(run).step == 12
    assert bytes_of(run.with_name("run.old-1")) == before


def test_a_folder_of_something_else_is_never_touched(files, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("")
    with pytest.raises(ValueError, match="is not a run of gsure train: choose another folder"):
        gsure.train(files / "d.h5", tmp_path / "thesis", QUICK, force=True)


def test_a_folder_that_cannot_be_written(files, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    arguments = [
        "train",
        str(files / "d.h5"),
        "--out",
        str(tmp_path / "file" / "run"),
        "--network",
        "mlp",
        "--batch",
        "8",
    ]
    assert main(arguments) == 2
    assert "cannot be created: Not a directory. Choose another folder." in capsys.readouterr().err


def test_two_processes_do_not_train_in_one_folder(files, run):
    with Run(run).locked():  # as another training holds it
        before = bytes_of(run)
        for options in ({"resume": True}, {"force": True}):
            with pytest.raises(ValueError, match="Another process is training in"):
                gsure.train(files / "d.h5", run, QUICK, **options)
        assert bytes_of(run) == before
    gsure.train(files / "d.h5", run, QUICK, resume=True)


def test_a_checkpoint_of_another_name_is_refused(run, outside):
    for name in ("foo", None, "3", 2.0):
        with pytest.raises(ValueError, match="checkpoint is best, last or the number of a step"):
            gsure.load(run, name)
    assert gsure.load(run, np.int64(4)).schedule.T == 1000


@pytest.mark.parametrize("line", ["5", "[]", '{"loss": 1}', "[" * 100_000, '{"step": "x"}'])
def test_a_damaged_log_is_named(files, run, line):
    log = run / "metrics.jsonl"
    log.write_text(f"{line}\n" + log.read_text())
    for action in (gsure.inspect, lambda run: gsure.train(files / "d.h5", run, QUICK, resume=True)):
        with pytest.raises(ValueError, match=r"metrics\.jsonl is damaged at line 1"):
            action(run)


@pytest.mark.parametrize("key", ["request", "data_request"])
def test_a_request_that_is_none_does_not_cost_the_run(files, run, key):
    config = yaml.safe_load((run / "config.yaml").read_text())
    for value in (None, [1], {}, {"command": "gsure"}, {"command": [1]}, 5):
        (run / "config.yaml").write_text(yaml.safe_dump(config | {key: value}))
        assert gsure.inspect(run)["step"] == 8
        assert getattr(Run(run).config, key) == {}, "so that the rest sees no difference"
    gsure.train(files / "d.h5", run, QUICK, resume=True)
    write_report(run)


# Resuming


def test_resuming_what_is_not_there(files, tmp_path):
    with pytest.raises(ValueError, match=r"no run in .* to resume: omit --resume"):
        gsure.train(files / "d.h5", tmp_path / "nothing", resume=True)


def test_resuming_without_a_checkpoint(files, run):
    for path in (run / "checkpoints").iterdir():
        path.unlink()
    with pytest.raises(ValueError, match="There is no checkpoint to resume from"):
        gsure.train(files / "d.h5", run, resume=True)


@pytest.mark.parametrize("damage", ["truncated", "one byte", "empty", "foreign"])
def test_a_damaged_checkpoint_is_passed_over_with_a_word(files, run, straight, capsys, damage):
    latest = checkpoints.path_of(run / "checkpoints", 8)
    content = bytearray(latest.read_bytes())
    content[-100] ^= 1
    torn = {
        "truncated": latest.read_bytes()[:-500],
        "one byte": bytes(content),
        "empty": b"",
        "foreign": b"PK\x03\x04" * 100,
    }
    latest.write_bytes(torn[damage])
    gsure.train(files / "d.h5", run, QUICK, resume=True)
    told = " ".join(capsys.readouterr().err.split())
    assert "step-00000008.safetensors is damaged" in told
    assert "Step 4 is taken instead" in told
    assert same(run, straight)
    assert (run / "checkpoints" / "damaged-00000008").read_bytes() == torn[damage]


def test_damaged_checkpoints_do_not_push_out_good_ones(files, run):
    checkpoints.path_of(run / "checkpoints", 8).write_bytes(b"")
    gsure.train(files / "d.h5", run, dataclasses.replace(QUICK, keep=1, steps=6), resume=True)
    assert final(run).step == 6
    gsure.train(files / "d.h5", run, QUICK, resume=True)
    assert final(run).step == 12


def test_changed_settings_are_refused_with_the_difference(files, run):
    changed = dataclasses.replace(QUICK, lr=5e-4, seed=3)
    with pytest.raises(ValueError, match=r"--lr was 0\.001, now 0\.0005; --seed was 0, now 3\. .* add --force"):
        gsure.train(files / "d.h5", run, changed, resume=True)
    gsure.train(files / "d.h5", run, changed, resume=True, force=True)
    assert final(run).step == 12
    assert Run(run).config.settings.lr == 5e-4


def test_settings_that_only_say_how_far_may_change(files, run):
    gsure.train(
        files / "d.h5", run, dataclasses.replace(QUICK, steps=9, keep=5, log_every=3, checkpoint_every=2), resume=True
    )
    assert final(run).step == 9


def test_a_network_that_does_not_fit_the_checkpoint(files, run):
    with pytest.raises(ValueError, match="do not fit the network of these settings"):
        gsure.train(files / "d.h5", run, dataclasses.replace(QUICK, width=32), resume=True, force=True)
    with pytest.raises(ValueError, match="network of your own was given only once"):
        gsure.train(files / "d.h5", run, resume=True, network=Scale())


def test_data_of_another_shape_basis_or_making(files, run, tmp_path):
    digits = open_source("digits")
    others = {
        "of shape": (open_source("phantom", size=16, n=20), gsure.corruption.Lines(R=2.0), 0.01, 0),
        "of basis Identity, but .* has Hadamard": (digits, gsure.corruption.FAMILIES["hadamard"](keep=0.5), 0.05, 0),
        "the data's max_std was 0.05": (digits, gsure.corruption.Patches(p=0.4, size=2), 0.01, 0),
        "the data's made_by": (digits, gsure.corruption.Patches(p=0.4, size=2), 0.05, 1),
    }
    for number, (match, (source, family, sigma_0, seed)) in enumerate(others.items()):
        path = tmp_path / f"{number}.h5"
        gsure.corrupt(source, path, family, sigma_0, seed=seed, limit=120)
        with pytest.raises(ValueError, match=match):
            gsure.train(path, run, resume=True)


# Sizes and data


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"batch": 200}, "batch of 200 is larger than the 108 measurements"),
        ({"batch": 9, "accumulate": 2}, "cannot be divided over 1 processes times 2 parts: use a batch of 8"),
        (
            {"train_on": "clean"},
            "--train-on clean needs the clean signals: give their file .--clean, in Python clean=.",
        ),
        (
            {"train_on": "naive", "hide": 0.2},
            "--hide hides a part of what was measured, but --train-on naive takes all data for clean",
        ),
        (
            {"train_on": "naive", "impute_at": (4,)},
            "--impute-at imputes the rest of what was measured, but --train-on naive",
        ),
        ({"schedule": "linear"}, "The noise of the schedule starts too low for this data"),
    ],
)
def test_settings_that_do_not_fit_the_data(files, tmp_path, changed, match):
    with pytest.raises(ValueError, match=match):
        gsure.train(files / "d.h5", tmp_path / "run", dataclasses.replace(QUICK, **changed))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"steps": 0}, "--steps and --minutes are both 0"),
        ({"width": 0}, "--width must be at least 1"),
        ({"multipliers": ()}, "--multipliers are integers of at least 1"),
        ({"lr": float("nan")}, "--lr must be a positive number"),
        ({"ema": 1.0}, r"--ema must lie in \[0, 1\)"),
        ({"clip": -1.0}, "--clip must be at least 0"),
        ({"t_bins": 50, "T": 20}, "--t-bins divides the range of t, so it cannot exceed T = 20"),
        ({"impute_sampling_steps": 50, "T": 20}, "--impute-sampling-steps divides the range of t"),
        ({"impute_at": (4, 4)}, r"--impute-at are increasing numbers of steps, of at least 0, but are \(4, 4\)"),
        ({"impute_at": (-1, 4)}, "--impute-at are increasing numbers"),
        ({"impute_count": 0}, "--impute-count must be at least 1"),
        ({"compile": True, "objective": "gsure-y"}, "torch.compile has no double backward"),
    ],
)
def test_settings_that_make_no_sense(changed, match):
    with pytest.raises(ValueError, match=match):
        dataclasses.replace(QUICK, **changed)


def test_more_processes_than_samples(tmp_path, monkeypatch):
    gsure.corrupt(open_source("digits"), tmp_path / "two.h5", gsure.corruption.Patches(p=0.4, size=2), 0.05, limit=2)
    settings = dataclasses.replace(QUICK, batch=2, held_out=0.5)
    with accelerated() as accelerator:
        monkeypatch.setattr(type(accelerator), "num_processes", 2)  # as under torchrun
        with pytest.raises(ValueError, match="There are 2 processes, but only 1 measurements to train on"):
            setup(accelerator, tmp_path / "two.h5", Run(tmp_path / "run"), settings, {})
    assert not (tmp_path / "run").exists()


def test_clean_signals_of_another_file(files, tmp_path):
    gsure.corrupt(
        open_source("digits"),
        tmp_path / "d.h5",
        gsure.corruption.Patches(p=0.4, size=2),
        0.05,
        clean=tmp_path / "c.h5",
        limit=9,
    )
    with pytest.raises(ValueError, match="they are not of one run of gsure corrupt"):
        gsure.train(files / "d.h5", tmp_path / "run", QUICK, clean=tmp_path / "c.h5")


def test_one_group_only_trains_without_validation(tmp_path):
    gsure.corrupt(open_source("digits"), tmp_path / "d.h5", gsure.corruption.Patches(p=0.4, size=2), 0.05, limit=12)
    with h5py.File(tmp_path / "d.h5", "a") as file:  # as a single volume has it
        file["group"], file["groups"] = np.zeros(12, "<i4"), np.array([b"knee"])
    settings = dataclasses.replace(QUICK, batch=4)
    with pytest.raises(ValueError, match=r"are of one group, 'knee'.* --held-out 0 trains on all"):
        gsure.train(tmp_path / "d.h5", tmp_path / "run", settings)
    gsure.train(tmp_path / "d.h5", tmp_path / "run", dataclasses.replace(settings, held_out=0.0))
    assert not Run(tmp_path / "run").best.exists()
    assert gsure.load(tmp_path / "run").schedule.T == 1000
    choices = gsure.choose_settings(gsure.open(tmp_path / "d.h5"), timed=False).choices
    (held_out,) = (choice for choice in choices if choice.name == "held_out")
    assert held_out.value == 0
    assert held_out.reason.startswith("all measurements are of one group")


# On the way


class Breaks(torch.nn.Module):
    """Fine for a while, then not a number."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.calls, self.last = 0, last

    def forward(self, x_t, t):
        self.calls += self.training
        return self.scale * x_t * (float("nan") if self.calls > self.last else 1.0)


def test_a_loss_that_is_no_number_stops_the_run_and_names_the_last_good_checkpoint(files, tmp_path):
    where = r"loss of 8 samples .* at step 6, at t = \d+.*/step-00000004\.safetensors\."
    match = where + r".* network=<Breaks>, resume=True, force=True"
    with pytest.raises(ValueError, match=match):
        gsure.train(files / "d.h5", tmp_path / "run", QUICK, network=Breaks(6))
    assert final(tmp_path / "run").step == 4
    assert all(value.isfinite().all() for value in final(tmp_path / "run").tensors.values())


def test_the_times_named_are_those_of_the_bad_samples_in_whatever_part(files, tmp_path, monkeypatch):
    """With a batch computed in parts, the first of which breaks."""
    seen = []
    original = gsure.Schedule.draw

    def draw(self, *arguments, **options):
        t = original(self, *arguments, **options)
        seen.append(sorted(t.tolist()))
        return t

    monkeypatch.setattr(gsure.Schedule, "draw", draw)

    class FirstOnly(Breaks):
        def forward(self, x_t, t):
            self.calls += self.training
            return self.scale * x_t * (float("nan") if self.calls == 1 else 1.0)

    with pytest.raises(ValueError, match="The loss of 4 samples") as caught:
        gsure.train(files / "d.h5", tmp_path / "run", dataclasses.replace(QUICK, accumulate=2), network=FirstOnly(0))
    assert f"at t = {', '.join(map(str, seen[0]))}." in str(caught.value)


def test_a_validation_that_is_no_number_stops_the_run(files, tmp_path):
    class Unsteady(Scale):
        def forward(self, x_t, t):
            return super().forward(x_t, t) * (1.0 if self.training else float("nan"))

    with pytest.raises(
        ValueError, match=r"The validation of step 4 is nan. The last checkpoint before it is .*step-00000000"
    ):
        gsure.train(files / "d.h5", tmp_path / "run", QUICK, network=Unsteady())


def test_a_gradient_that_is_no_number_stops_the_run_too(files, tmp_path, monkeypatch):
    class Steep(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * float("inf")

    network = Scale()
    network.forward = lambda x_t, t: Steep.apply(network.scale * x_t)
    with pytest.raises(ValueError, match="The gradient became infinite or not a number at step 0"):
        gsure.train(files / "d.h5", tmp_path / "run", QUICK, network=network)


def test_a_full_disk_leaves_the_last_checkpoint_and_says_how_to_go_on(files, run):
    """A limit on the size of files stands for the full disk: writing fails half-way, as there."""
    size = checkpoints.path_of(run / "checkpoints", 8).stat().st_size
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({size // 2}, {size // 2}))\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "import sys; from gsure.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    arguments = ["train", str(files / "d.h5"), "--out", str(run), "--resume", "--steps", "12"]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "could not be written" in done.stderr
    assert "The last checkpoint is complete; fix this and resume with: gsure train" in done.stderr
    assert "Traceback" not in done.stderr
    assert final(run).step == 8
    assert not list((run / "checkpoints").glob(".*"))
    gsure.train(files / "d.h5", run, QUICK, resume=True)
    assert final(run).step == 12


# The command line


def test_the_command_trains_and_survives_an_interrupt(files, tmp_path):
    """As a person does it: start, Ctrl-C, the printed command."""
    out = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "gsure",
        "train",
        str(files / "d.h5"),
        "--out",
        str(out),
        "--network",
        "mlp",
        "--batch",
        "8",
    ]
    rhythm = ["--steps", "100000", "--log-every", "1", "--picture-every", "0", "--width", "16"]
    started = subprocess.Popen([*command, *rhythm], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while not (out / "metrics.jsonl").exists():
        assert started.poll() is None, started.stderr.read()
        time.sleep(0.05)
    started.send_signal(signal.SIGINT)
    _, told = started.communicate(timeout=60)
    assert started.returncode == 0
    step = final(out).step
    assert 0 < step < 100000
    assert f"Stopped after {step:,} steps" in told
    printed = next(line for line in told.splitlines() if line.strip().startswith("gsure train"))
    assert main([*printed.split()[1:], "--steps", str(step + 3)]) == 0
    assert final(out).step == step + 3


def test_torchrun_survives_an_interrupt_and_resumes(files, tmp_path):
    """Ctrl-C in a terminal reaches torchrun and its processes at once; torchrun then passes it on a second time."""
    out = tmp_path / "run"
    arguments = [files / "d.h5", "--out", out, "--network", "mlp", "--batch", "8", "--width", "16", "--log-every", "1"]
    command = [*torchrun(2), "train", *map(str, arguments), "--picture-every", "0", "--steps"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    started = subprocess.Popen([*command, "100000"], start_new_session=True, **pipes)
    while not (out / "metrics.jsonl").exists():
        assert started.poll() is None, started.stderr.read()
        time.sleep(0.05)
    os.killpg(started.pid, signal.SIGINT)
    _, told = started.communicate(timeout=60)
    step = final(out).step
    assert f"Stopped after {step:,} steps" in told
    assert "torchrun --nproc-per-node 2 -m gsure train" in told
    assert step == Run(out).read_metrics()[-1]["step"] > 0
    done = subprocess.run([*command, str(step + 3), "--resume"], **pipes, check=False)
    assert done.returncode == 0, done.stderr
    assert final(out).step == step + 3


def test_a_path_with_brackets_is_printed_as_it_is(files, tmp_path, monkeypatch, capsys):
    interrupt_at(monkeypatch, 1)
    gsure.train(files / "d.h5", tmp_path / "run [old]", QUICK, progress=True)
    assert f"out='{tmp_path}/run [old]', resume=True)" in " ".join(capsys.readouterr().err.split())


def test_an_oracle_goes_on_with_the_same_signals_only(files, tmp_path):
    settings = dataclasses.replace(QUICK, train_on="clean", steps=4)
    gsure.train(files / "d.h5", tmp_path / "run", settings, clean=files / "c.h5")
    (tmp_path / "copy.h5").write_bytes((files / "c.h5").read_bytes())
    with pytest.raises(ValueError, match=r"the clean signals were .*/c\.h5, now .*/copy\.h5"):
        gsure.train(files / "d.h5", tmp_path / "run", resume=True, clean=tmp_path / "copy.h5")


def test_a_run_goes_on_without_the_clean_file_it_only_logged(files, tmp_path, capsys):
    (tmp_path / "copy.h5").write_bytes((files / "c.h5").read_bytes())
    gsure.train(files / "d.h5", tmp_path / "run", dataclasses.replace(QUICK, steps=4), clean=tmp_path / "copy.h5")
    (tmp_path / "copy.h5").unlink()
    gsure.train(files / "d.h5", tmp_path / "run", QUICK, resume=True)
    assert "is gone, so the true error is no longer logged" in " ".join(capsys.readouterr().err.split())


def test_a_learning_rate_that_falls_elsewhere_is_mentioned(files, tmp_path, capsys):
    settings = dataclasses.replace(QUICK, decay="cosine", steps=4)
    gsure.train(files / "d.h5", tmp_path / "run", settings)
    gsure.train(files / "d.h5", tmp_path / "run", dataclasses.replace(settings, steps=8), resume=True)
    assert "falls to zero at step 8 instead of 4" in " ".join(capsys.readouterr().err.split())


def test_fewer_steps_than_done_are_refused_and_as_many_mentioned(files, run, capsys):
    with pytest.raises(ValueError, match="has done 8 steps already, more than 5: give a larger number"):
        gsure.train(files / "d.h5", run, dataclasses.replace(QUICK, steps=5), resume=True)
    gsure.train(files / "d.h5", run, dataclasses.replace(QUICK, steps=8), resume=True)
    assert "has done all its 8 steps: give a larger number to continue" in " ".join(capsys.readouterr().err.split())


def test_what_was_validated_otherwise_is_not_compared(files, run):
    gsure.train(files / "d.h5", run, dataclasses.replace(QUICK, validate_on=3), resume=True)
    assert final(run).header["best"]["step"] == 12


def test_an_unknown_preset_suggests_the_nearest(files, tmp_path, capsys):
    assert main(["train", str(files / "d.h5"), "--out", str(tmp_path / "run"), "--preset", "digit"]) == 2
    assert "There is no preset 'digit': did you mean digits?" in capsys.readouterr().err


def test_inspect_tells_of_a_run_at_any_time(files, run, capsys):
    assert main(["inspect", str(run)]) == 0
    told = capsys.readouterr().out
    for words in ("trained on", "held-out error", "best", "4, 8"):
        assert words in told
    assert gsure.inspect(run)["step"] == 8
    with pytest.raises(ValueError, match="is a run: its pictures are in its folders"):
        gsure.inspect(run, figure="x.png")


def test_tensorboard_is_written_when_asked_and_named_when_missing(files, tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    gsure.train(files / "d.h5", tmp_path / "run", QUICK, tensorboard=True)
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("loss")] == [2, 4, 6, 8, 10, 12]
    assert len(events.Scalars("estimate")) == 3
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match=r"pip install 'gsure-diffusion\[tensorboard\]'"):
        gsure.train(files / "d.h5", tmp_path / "other", QUICK, tensorboard=True)


def test_a_run_is_whole_from_its_first_moment(files, straight, tmp_path, monkeypatch):
    """Stopped by an error in its very first step, a run can be resumed; before that there is no folder at all."""
    monkeypatch.setattr(Loop, "step", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        gsure.train(files / "d.h5", tmp_path / "run", QUICK)
    monkeypatch.undo()
    assert final(tmp_path / "run").step == 0
    gsure.train(files / "d.h5", tmp_path / "run", resume=True)
    assert same(tmp_path / "run", straight)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# The dry run


def test_a_dry_run_lists_all_problems_at_once(files, run, tmp_path, capsys):
    given = ["--lr", "-1", "--ema", "2", "--device", "cuda:9"]
    assert main(["train", str(tmp_path / "nothing.h5"), "--out", str(run), *given, "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "5 problems to fix before training:" in said
    problems = (
        "--lr must be a positive",
        "--ema must lie in [0, 1)",
        "cuda:9 does not exist",
        "no file",
        "holds a run",
    )
    for problem in problems:
        assert problem in said
    given = [
        "--batch",
        "5000",
        "--train-on",
        "clean",
        "--hide",
        "0.2",
        "--init",
        str(tmp_path),
        "--purpose",
        "generate",
    ]
    assert main(["train", str(files / "d.h5"), "--out", str(tmp_path / "new"), *given, "--dry-run"]) == 2
    said = capsys.readouterr().err
    for problem in ("needs the clean signals", "--hide hides a part", "is neither a run"):
        assert problem in said
    assert not (tmp_path / "new").exists()


def test_a_dry_run_states_the_cost_and_writes_nothing(files, tmp_path, capsys):
    arguments = ["train", str(files / "d.h5"), "--out", str(tmp_path / "new"), "--network", "mlp", "--width", "16"]
    assert main([*arguments, "--steps", "100", "--batch", "8", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    network = gsure.mlp(64, width=16)
    assert found["parameters"] == sum(parameter.numel() for parameter in network.parameters())
    assert found["settings"]["steps"] == 100
    assert found["time"].endswith("for 100 steps, without validation and imputation")
    assert "GB" in found["memory"]
    assert not (tmp_path / "new").exists()
    assert main([*arguments, "--steps", "100", "--batch", "8", "--dry-run"]) == 0
    assert "width: 16" in capsys.readouterr().out


def test_training_itself_lists_all_problems(files, tmp_path):
    settings = dataclasses.replace(QUICK, batch=5000, flip=False, hide=0.2, train_on="clean")
    with pytest.raises(ValueError, match="needs the clean signals") as caught:
        gsure.train(files / "d.h5", tmp_path / "run", settings)
    assert len(str(caught.value).splitlines()) == 2
