import errno
import multiprocessing
import os
import signal
import subprocess
import sys

import h5py
import numpy as np
import pytest
import torch

import gsure
from gsure import Dense, Identity, Measurement
from gsure.data.chunks import write_chunk
from gsure.data.file import holds
from gsure.data.measurements import Signals
from gsure.data.writer import Writer

HEADER = {
    "source": {"kind": "test"},
    "complex": False,
    "corruption": {"name": "test"},
    "sigma_0": {"given": 0.1},
    "seed": 0,
}


def measurement(n: int, generator: torch.Generator, shape=(1, 4, 6), mask_shape=(1, 1, 6)) -> Measurement:
    mask = (torch.rand(n, *mask_shape, generator=generator) < 0.6).float()
    return Measurement(mask * torch.randn(n, *shape, generator=generator), mask, 0.1)


def write(path, m: Measurement, groups=None, sigma_0=0.1, basis=None, **options):
    groups = groups or [f"sample {i}" for i in range(len(m))]
    header = options.pop("header", HEADER)
    with Writer(
        path, len(m), m.shape[1:], header, basis=basis or Identity(), mask_shape=m.mask.shape[1:], **options
    ) as writer:
        for start in range(0, len(m), 3):
            part = m[start : start + 3]
            writer.append(part, groups[start : start + 3], [1.0] * len(part), torch.full((len(part),), sigma_0))


@pytest.mark.parametrize("shards", [1, 3])
def test_what_is_written_is_read(tmp_path, generator, shards):
    m = measurement(10, generator)
    write(tmp_path / "m.h5", m, shards=shards)
    data = gsure.open(tmp_path / "m.h5")
    assert (len(data), data.shape, data.mask_shape, data.basis) == (10, (1, 4, 6), (1, 1, 6), Identity())
    back = data[:]
    assert back.ybar.equal(m.ybar)
    assert back.mask.equal(m.mask)
    torch.testing.assert_close((back.std * back.mask).expand_as(m.mask), (m.std * m.mask).expand_as(m.mask))
    assert data[7].ybar.equal(m.ybar[7:8])
    assert data[[8, 0, 8]].ybar.equal(m.ybar[[8, 0, 8]])
    assert data[torch.tensor([1, 9])].mask.equal(m.mask[[1, 9]])
    torch.testing.assert_close(data.coverage, m.mask.double().mean(0, keepdim=True))
    assert data.max_std == pytest.approx(0.1)
    with pytest.raises(IndexError):
        data[10]
    assert not [p for p in tmp_path.iterdir() if p.name != "m.h5"], "no temporary is left"


SECOND = """
import sys, torch
from gsure.data.writer import Writer
with Writer(sys.argv[1], 2, (1, 2, 2), {}, shards=int(sys.argv[2])) as writer:
    print("entered")
"""


@pytest.mark.parametrize("shards", [1, 2])
def test_a_file_that_another_process_is_writing_is_left_alone(tmp_path, generator, shards):
    path = tmp_path / "s.h5"
    command = [sys.executable, "-c", SECOND, str(path), str(shards)]
    x = torch.randn(4, 1, 2, 2, generator=generator)
    with Writer(path, 4, (1, 2, 2), HEADER, shards=shards) as writer:
        writer.append(x[:1], ["a"], [1.0])
        second = subprocess.run(command, capture_output=True, text=True, check=False)
        writer.append(x[1:], ["b", "c", "d"], [1.0] * 3)
    assert "Another process is writing" in second.stderr
    assert "entered" not in second.stdout
    torch.testing.assert_close(Signals(path)[:], x)


def test_singular_values_and_sigma_0_are_kept_apart(tmp_path, generator):
    svals = torch.rand(5, 1, 4, 4, generator=generator) + 0.2
    sigma_0 = torch.tensor([0.1, 0.2, 0.3, 0.0, 0.5])
    m = Measurement.from_svd(torch.randn(5, 1, 4, 4, generator=generator), svals, sigma_0, cutoff=0.4)
    options = {"basis": gsure.Hartley(), "mask_shape": (1, 4, 4), "binary": False}
    with Writer(tmp_path / "b.h5", 5, (1, 4, 4), HEADER, **options) as writer:
        writer.append(m, ["a", "a", "b", "b", "c"], [1.0] * 5, sigma_0)
    data = gsure.open(tmp_path / "b.h5")
    torch.testing.assert_close(data[:].std, m.std)
    with h5py.File(tmp_path / "b.h5") as file:
        assert file["sigma_0"][()].tolist() == pytest.approx(sigma_0.tolist())
        np.testing.assert_allclose(file["pinv"][1], (m.mask / svals)[1], rtol=1e-5)
    assert data.groups() == ["a", "a", "b", "b", "c"]


def test_a_dense_basis_comes_along_and_an_unknown_one_must_be_given(tmp_path, generator):
    V = torch.linalg.qr(torch.randn(24, 24, generator=generator, dtype=torch.float64))[0]
    write(tmp_path / "dense.h5", measurement(2, generator), basis=Dense(V))
    assert gsure.open(tmp_path / "dense.h5").basis.V.equal(V)

    class Mine(Identity):
        pass

    write(tmp_path / "mine.h5", measurement(2, generator), basis=Mine())
    with pytest.raises(ValueError, match=r"'Mine'.*basis=\.\.\."):
        gsure.open(tmp_path / "mine.h5")
    assert len(gsure.open(tmp_path / "mine.h5", basis=Mine())) == 2


def test_no_measurement_file_holds_a_clean_signal_and_signals_are_refused_for_them(tmp_path, generator):
    x = torch.randn(4, 1, 2, 2, generator=generator)
    with Writer(tmp_path / "c.h5", 4, (1, 2, 2), HEADER) as writer:
        writer.append(x, ["a"] * 4, [2.0] * 4)
    assert Signals(tmp_path / "c.h5")[1:3].equal(x[1:3])
    assert holds(tmp_path / "c.h5") == "signals"
    with pytest.raises(ValueError, match="holds signals, but measurements are needed here"):
        gsure.open(tmp_path / "c.h5")


def test_batches_pass_over_all_samples_shuffled_and_resume_exactly(tmp_path, generator):
    m = measurement(10, generator)
    write(tmp_path / "m.h5", m)
    data = gsure.open(tmp_path / "m.h5")
    order = list(data.order(size=4, steps=5, seed=1))
    passes = np.concatenate(order)
    assert sorted(passes[:10]) == sorted(passes[10:]) == list(range(10))
    assert passes[:10].tolist() != passes[10:].tolist() != sorted(passes[10:])
    assert all((a == b).all() for a, b in zip(order[3:], data.order(size=4, steps=5, seed=1, start=3), strict=True))

    def batches(**options):
        return [b.ybar for b in data.batches(4, 5, torch.Generator().manual_seed(3), **options)]

    whole, rest = batches(), batches(start=2)
    assert all(a.equal(b) for a, b in zip(whole[2:], rest, strict=True))
    ranks = [batches(rank=rank, processes=2) for rank in range(2)]
    for k, batch in enumerate(whole):
        assert batch[0::2].equal(ranks[0][k])
        assert batch[1::2].equal(ranks[1][k])


def test_a_split_never_divides_a_group(tmp_path, generator):
    groups = [f"volume {i // 3}" for i in range(30)]
    write(tmp_path / "m.h5", measurement(30, generator), groups)
    train, held_out = gsure.open(tmp_path / "m.h5").split(0.3, seed=1)
    assert len(train) == 21
    assert len(held_out) == 9
    assert not set(train.groups()) & set(held_out.groups())
    assert sorted([*train.indices, *held_out.indices]) == list(range(30))
    assert train[0].ybar.equal(gsure.open(tmp_path / "m.h5")[int(train.indices[0])].ybar)
    assert [len(side) for side in gsure.open(tmp_path / "m.h5").split(0.99)] == [3, 27]
    write(tmp_path / "one.h5", measurement(5, generator), ["one"] * 5)
    with pytest.raises(ValueError, match="of one group, 'one'"):
        gsure.open(tmp_path / "one.h5").split(0.2)


def test_it_is_a_torch_dataset(tmp_path, generator):
    m = measurement(9, generator)
    write(tmp_path / "m.h5", m)
    spawn = multiprocessing.get_context("spawn")
    loader = torch.utils.data.DataLoader(
        gsure.open(tmp_path / "m.h5"), batch_size=4, collate_fn=Measurement.cat, num_workers=1, multiprocessing_context=spawn,
        generator=generator,
    )  # fmt: skip
    assert torch.cat([batch.ybar for batch in loader]).equal(m.ybar)


def test_groups_survive_sharding_and_singular_values_are_never_dropped_unsaid(tmp_path, generator):
    write(tmp_path / "m", measurement(6, generator), list("AAABBB"), shards=3)
    assert gsure.open(tmp_path / "m").groups() == list("AAABBB")
    unequal = Measurement.from_svd(torch.ones(3, 1, 2, 2), torch.tensor([1.0, 0.25]).expand(3, 1, 2, 2), 0.1)
    with pytest.raises(ValueError, match="singular values of 0 and 1 only"):
        write(tmp_path / "b.h5", unequal)


def test_shards_of_different_kinds_are_not_one_set(tmp_path, generator):
    (tmp_path / "m").mkdir()
    write(tmp_path / "m" / "a.h5", measurement(3, generator))
    write(tmp_path / "m" / "b.h5", measurement(3, generator), basis=gsure.Hartley())
    with pytest.raises(ValueError, match=r"has basis Identity, but .* Hartley"):
        gsure.open(tmp_path / "m")


def test_files_rewritten_in_chunks_by_other_programs_still_open(tmp_path, generator):
    m = measurement(6, generator)
    write(tmp_path / "m.h5", m)
    with h5py.File(tmp_path / "m.h5", "a") as file:
        ybar = file["ybar"][()]
        del file["ybar"]
        file.create_dataset("ybar", data=ybar, chunks=(2, *ybar.shape[1:]), compression="gzip")
    assert gsure.open(tmp_path / "m.h5")[[5, 0]].ybar.equal(m.ybar[[5, 0]])


def test_file_size_is_within_10_percent_of_the_float32_bytes(tmp_path, generator):
    n = 2000
    m = measurement(n, generator, shape=(1, 32, 32), mask_shape=(1, 32, 32))
    write(tmp_path / "m.h5", m, groups=["a"] * n)
    assert os.path.getsize(tmp_path / "m.h5") < 1.1 * 4 * n * 32 * 32


# Bad input


def test_bad_files_are_refused_in_a_sentence(tmp_path, generator):
    write(tmp_path / "m.h5", measurement(50, generator))
    (tmp_path / "text.h5").write_text("not HDF5 at all")
    whole = (tmp_path / "m.h5").read_bytes()
    (tmp_path / "cut.h5").write_bytes(whole[: len(whole) // 2])
    with h5py.File(tmp_path / "foreign.h5", "w") as file:
        file["x"] = [1]
    (tmp_path / "newer.h5").write_bytes(whole)
    with h5py.File(tmp_path / "newer.h5", "a") as file:
        file.attrs["version"] = 99
    (tmp_path / "empty").mkdir()
    for name, message in {
        "text.h5": "not a complete HDF5 file: it is of another format",
        "cut.h5": "truncated or damaged",
        "foreign.h5": "not a file of gsure",
        "newer.h5": "version 99, but this gsure reads version 3 only",
        "empty": "no shards",
    }.items():
        with pytest.raises(ValueError, match=message):
            gsure.open(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="There is no file"):
        gsure.open(tmp_path / "none.h5")


def damage(file: h5py.File, what: str) -> None:
    match what:
        case "mask rows":
            mask = file["mask"][:10]
            del file["mask"]
            file["mask"] = mask
        case "header text":
            file.attrs["header"] = "{oops"
        case "header list":
            file.attrs["header"] = "[]"
        case "NaN":
            file["ybar"][3] = np.nan
        case "unknown basis":
            file.attrs["header"] = file.attrs["header"].replace("Identity", "torch")
        case _ if what in file:
            del file[what]
        case _:
            del file.attrs[what]


@pytest.mark.parametrize("what", [
    "ybar", "mask", "sigma_0", "scale", "coverage", "header", "version", "holds",
    "mask rows", "header text", "header list", "NaN", "unknown basis",
])  # fmt: skip
def test_a_damaged_file_is_refused_before_it_gives_garbage(tmp_path, generator, what):
    write(tmp_path / "m.h5", measurement(50, generator))
    with h5py.File(tmp_path / "m.h5", "a") as file:
        damage(file, what)
    with pytest.raises(
        ValueError, match=r"is damaged: .* Regenerate it|not a file of gsure|format version None|'torch'"
    ):
        gsure.open(tmp_path / "m.h5")[:]


def test_nothing_is_overwritten_unless_forced(tmp_path, generator):
    first, second = measurement(3, generator), measurement(3, generator)
    write(tmp_path / "m.h5", first)
    with pytest.raises(FileExistsError, match="--force"):
        write(tmp_path / "m.h5", second)
    assert gsure.open(tmp_path / "m.h5")[:].ybar.equal(first.ybar)
    write(tmp_path / "m.h5", second, force=True)
    assert gsure.open(tmp_path / "m.h5")[:].ybar.equal(second.ybar)


def write_half(writer: Writer, m: Measurement, error: type[Exception] | None) -> None:
    with writer:
        writer.append(m, ["a"] * len(m), [1.0] * len(m), torch.full((len(m),), 0.1))
        if error is not None:
            raise error("stop")


def test_an_error_or_too_few_samples_leave_nothing_behind(tmp_path, generator):
    m = measurement(3, generator)
    options = {"basis": Identity(), "mask_shape": (1, 1, 6)}
    for shards, error, message in (
        (1, RuntimeError, "stop"),
        (2, RuntimeError, "stop"),
        (1, None, "3 of 6"),
        (2, None, "3 of 6"),
    ):
        with pytest.raises(error or ValueError, match=message):
            write_half(Writer(tmp_path / "m.h5", 6, m.shape[1:], HEADER, shards=shards, **options), m, error)
    assert not list(tmp_path.iterdir())


KILLED = """
import sys, time, torch
from gsure import Identity, Measurement
from gsure.data.writer import Writer
with Writer(sys.argv[1], 6, (1, 64, 64), {}, basis=Identity(), mask_shape=(1, 1, 1)) as writer:
    for _ in range(3):
        writer.append(Measurement.clean(torch.zeros(1, 1, 64, 64)), ["a"], [1.0], torch.zeros(1))
    print("half", flush=True)
    time.sleep(60)
"""


def test_a_killed_writer_leaves_no_file_and_the_command_can_be_run_again(tmp_path, generator):
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "m.h5")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "half\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not (tmp_path / "m.h5").exists()
    write(tmp_path / "m.h5", measurement(3, generator))
    assert len(gsure.open(tmp_path / "m.h5")) == 3
    assert [p.name for p in tmp_path.iterdir()] == ["m.h5"]


FULL = """
import resource, signal, sys, torch
from gsure import Identity, Measurement
from gsure.data.writer import Writer
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
try:
    with Writer(sys.argv[1], 200, (1, 32, 32), {}, basis=Identity(), mask_shape=(1, 1, 1)) as writer:
        writer.append(Measurement.clean(torch.ones(200, 1, 32, 32)), ["a"] * 200, [1.0] * 200, torch.zeros(200))
except OSError as error:
    print(error)
    sys.exit(3)
"""


def test_a_full_device_is_said_clearly_and_leaves_no_half_file(tmp_path):
    """The process may write no more than 300 kB to a file: the write fails half-way as on a full device."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "m.h5")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    assert not list(tmp_path.iterdir())
    assert "m.h5 could not be written" in done.stdout


def test_too_little_space_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 5}))
    with (
        pytest.raises(OSError, match=r"needs .* GB, but only") as caught,
        Writer(tmp_path / "m.h5", 10, (1, 8, 8), HEADER),
    ):
        pass
    assert caught.value.errno == errno.ENOSPC
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shards", [1, 3])
def test_a_second_writer_never_takes_the_place_of_the_first(tmp_path, generator, shards):
    """Neither before the first sample nor between two shards."""
    m = measurement(9, generator)
    options = {"basis": Identity(), "mask_shape": m.mask.shape[1:], "shards": shards}
    with Writer(tmp_path / "m.h5", 9, m.shape[1:], HEADER, **options) as first:
        for start in range(0, 9, 3):
            command = (
                "import sys; from gsure import Identity; from gsure.data.writer import Writer\n"
                f"with Writer({str(tmp_path / 'm.h5')!r}, 9, {tuple(m.shape[1:])}, {{}}, basis=Identity(), "
                f"mask_shape={tuple(m.mask.shape[1:])}, shards={shards}): pass"
            )
            other = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False)
            assert "Another process is writing" in other.stderr
            first.append(m[start : start + 3], ["a"] * 3, [1.0] * 3, torch.full((3,), 0.1))
    assert gsure.open(tmp_path / "m.h5")[:].ybar.equal(m.ybar)
    with Writer(tmp_path / "n.h5", 9, m.shape[1:], HEADER, **options) as writer:
        writer.append(m, ["a"] * 9, [1.0] * 9, torch.full((9,), 0.1))
        with pytest.raises(ValueError, match="is full: it was created for 9 samples"):
            writer.append(m, ["a"] * 9, [1.0] * 9, torch.full((9,), 0.1))


def test_another_dense_basis_is_refused(tmp_path, generator):
    V, other = (torch.linalg.qr(torch.randn(24, 24, generator=generator))[0] for _ in range(2))
    m = measurement(3, generator, mask_shape=(1, 4, 6))
    write(tmp_path / "s" / "shard-00000.h5", m, basis=Dense(V))
    assert gsure.open(tmp_path / "s", Dense(V))[:].ybar.equal(m.ybar)
    with pytest.raises(ValueError, match="was measured in another Dense basis"):
        gsure.open(tmp_path / "s", Dense(other))
    write(tmp_path / "s" / "shard-00001.h5", m, basis=Dense(other))
    with pytest.raises(ValueError, match="was measured in another Dense basis"):
        gsure.open(tmp_path / "s")


def test_pieces_keep_the_names_of_their_groups(tmp_path):
    for number, group in enumerate(("1", "0")):
        write_chunk(
            tmp_path / f"shard-{number:05d}.h5", torch.zeros(1, 1, 2, 2), [group], {"seed": 0}, is_complex=False
        )
    assert Signals(tmp_path).groups() == ["1", "0"]
