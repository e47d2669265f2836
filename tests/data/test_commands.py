"""corrupt, import and inspect as a person types them, on real files made on the fly."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from conftest import z_score

import gsure
from gsure import cli
from gsure.cli import data as cli_data
from gsure.corruption import FAMILIES
from gsure.data.measurements import Signals
from gsure.data.sources import KINDS, open_source


def run(*words: object, capsys=None) -> str:
    assert cli.main([str(word) for word in words]) == 0
    return capsys.readouterr().out if capsys else ""


def complaint(capsys, *words: object) -> str:
    capsys.readouterr()
    assert cli.main([str(word) for word in words]) == 2
    message = capsys.readouterr().err
    assert "Traceback" not in message
    return message


DIGITS = ["corrupt", "digits", "d.h5", "--corruption", "patches", "--p", 0.4, "--size", 2, "--sigma", 0.02]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_digits_become_measurements_and_clean_signals_in_two_files(here, capsys):
    summary = json.loads(run(*DIGITS, "--clean", "c.h5", "--json", capsys=capsys))
    assert summary["samples"] == 1797
    assert summary["trainable"] == "yes"
    data, clean = gsure.open("d.h5"), Signals("c.h5")
    m, x = data[:], clean[:]
    assert m.mask.shape == (1797, 1, 8, 8)
    noise = (m.ybar - m.mask * x)[m.mask == 1]
    assert abs(z_score(noise)) < 5
    assert abs(z_score(noise**2 - 0.02**2)) < 5
    patches = torch.nn.functional.avg_pool2d(m.mask, 2)
    assert ((patches == 0) | (patches == 1)).all()
    assert float(data.coverage.min()) == pytest.approx(0.6)
    assert data.unit == (2, 2)
    with h5py.File("d.h5") as file:
        assert "x" not in file, "no clean signal in the measurement file"


def test_what_happens_to_a_sample_depends_on_seed_and_index_alone(here):
    run(*DIGITS, "--limit", 600)
    reference = gsure.open("d.h5")[:]
    for name, options in {"workers": ["--workers", 2], "shards": ["--shards", 3], "limit": []}.items():
        limit = 300 if name == "limit" else 600
        run("corrupt", "digits", name, *DIGITS[3:], "--limit", limit, *options)
        assert gsure.open(name)[:].ybar.equal(reference.ybar[:limit])
    run("corrupt", "digits", "seed", *DIGITS[3:], "--limit", 600, "--seed", 1)
    assert not gsure.open("seed")[:].mask.equal(reference.mask)


def test_sigma_may_be_a_range(here):
    run("corrupt", "digits", "d.h5", "--corruption", "noise", "--sigma", "[0.1,0.3]", "--limit", 200)
    std = gsure.open("d.h5")[:].std.flatten()
    assert std.min() > 0.1
    assert std.max() < 0.3
    assert len(std.unique()) == 200


def test_a_blur_file_keeps_its_singular_values(here):
    run("corrupt", "digits", "d.h5", "--corruption", "blur", "--sigma", 0.02, "--limit", 50, "--clean", "c.h5")
    data, clean = gsure.open("d.h5"), Signals("c.h5")
    m, xbar = data[:], data.basis.to_spectral(clean[:])
    scores = ((m.ybar - m.mask * xbar) / m.std.clamp(min=1e-12))[m.mask == 1]
    assert abs(z_score(scores)) < 5
    assert abs(z_score(scores**2 - 1)) < 5


@pytest.mark.parametrize(
    "family", ["lines --R 4", "poisson_disc --R 15", "gaussian_lines --R 4", "equispaced_lines --R 4"]
)
def test_phantoms_go_through_the_mri_families_and_make_a_figure(here, family):
    run(
        "corrupt",
        "phantom",
        "p.h5",
        "--corruption",
        *family.split(),
        "--sigma",
        0.01,
        "--limit",
        40,
        "--clean",
        "c.h5",
        "--source.size",
        32,
    )
    run("inspect", "p.h5", "--figure", "p.png", "--clean", "c.h5")
    assert (here / "p.png").stat().st_size > 10_000
    R = float(family.split()[-1])
    kept = gsure.open("p.h5")[:].mask.flatten(1).mean(1)
    assert ((kept * R - 1).abs() < 0.15).all()  # complete lines of 32


def test_a_blur_that_loses_frequencies_says_which_and_what_to_do(here, capsys):
    run("corrupt", "digits", "d.h5", "--corruption", "blur", "--width", "[2,3]", "--sigma", 0.02, "--limit", 50)
    out, err = capsys.readouterr()
    assert "entries are never measured" in out
    assert "cycles a pixel on: use narrower kernels than width = (2.0, 3.0)" in err


def test_signals_of_unsuitable_scale_are_reported(here, capsys):
    run("corrupt", "phantom", "p.h5", "--source.size", 16, "--source.n", 20, "--source.scale", 25, "--corruption", "lines",
        "--R", 4, "--sigma", 0.001, "--clean", "c.h5", capsys=capsys)  # fmt: skip
    verdict = json.loads(run("inspect", "p.h5", "--json", capsys=capsys))["trainable"]
    rms = float(Signals("c.h5")[:].square().mean().sqrt())
    assert verdict.startswith("no (Signals have a root mean square of 0.00")
    assert float(verdict.split()[-1].strip(".)")) == pytest.approx(rms, rel=0.15)  # from a quarter of the lines


def test_what_cannot_be_trained_on_is_said_with_the_reason(here, capsys, generator):
    def verdict(*words):
        return json.loads(run(*words, "--json", "--force", capsys=capsys))["trainable"]

    noise = torch.randn(20, 16, 16, generator=generator, dtype=torch.complex64).numpy()
    np.save("noise.npy", noise)
    assert verdict("import", "array", "noise.npy", "m.h5", "--sigma", 2**-0.5).startswith(
        "no (The noise drowns the signal"
    )
    rows = torch.randn(20, 1, 30, generator=generator)
    np.save("rows.npy", rows.numpy())
    assert "not images: use --network mlp" in verdict(
        "import", "array", "rows.npy", "m.h5", "--basis", "Identity", "--sigma", 0.1
    )
    np.save("rows.npy", (rows.cumsum(0) / 4).numpy())
    assert "may be the rows of images" in verdict(
        "import", "array", "rows.npy", "m.h5", "--basis", "Identity", "--sigma", 0.1, "--scale", 1
    )
    _, k = kspace(8, generator)
    np.save("corner.npy", np.fft.ifftshift(k, axes=(-2, -1)))
    said = complaint(capsys, "import", "array", "corner.npy", "m.h5", "--sigma", 0.05, "--force")
    assert "its energy is in the corners: type --uncentred" in said
    np.save("k.npy", 1e-6 * k)
    assert verdict("import", "array", "k.npy", "m.h5", "--sigma", 5e-8) == "yes"
    assert verdict("import", "array", "k.npy", "m.h5", "--sigma", 5e-8, "--scale", 1).startswith("no (Signals have")
    said = complaint(capsys, "train", "m.h5", "--out", "run", "--network", "mlp", "--batch", 4, "--dry-run")
    assert "noise schedules expect about 1" in said


def test_inspect_says_what_is_in_a_file(here, capsys):
    run(*DIGITS, "--limit", 20, "--clean", "c.h5")
    capsys.readouterr()
    text = run("inspect", "d.h5", capsys=capsys)
    for word in ("1 × 8 × 8", "Identity()", "patches", "closed form", "0.02", "trainable"):
        assert word in text
    assert json.loads(run("inspect", "c.h5", "--json", capsys=capsys))["holds"] == "signals"


def test_options_on_the_command_line_are_those_of_the_classes():
    """They are written out in cli/data.py so that --help need not import torch."""

    def fields(classes):
        return {field.name for kind in classes for field in dataclasses.fields(kind) if field.init}

    assert set(cli_data.FAMILIES) == set(FAMILIES)
    assert set(cli_data.FAMILY_OPTIONS) == fields(FAMILIES.values())
    assert set(cli_data.SOURCE_OPTIONS) == fields(KINDS.values()) - {"path", "skip_bad"}


def test_help_does_not_wait_for_torch():
    code = (
        "import sys, gsure.cli\ntry: gsure.cli.main(['corrupt', '--help'])\nfinally: sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_a_configuration_file_can_be_printed_and_used(here, capsys):
    with pytest.raises(SystemExit):
        cli.main([str(word) for word in [*DIGITS, "--limit", 10, "--print_config"]])
    (here / "c.yaml").write_text(capsys.readouterr().out)
    run("corrupt", "--config", "c.yaml", "--sigma", 0.5)
    data = gsure.open("d.h5")
    assert len(data) == 10
    assert data.max_std == pytest.approx(0.5)


# Import


def kspace(n: int, generator: torch.Generator, size: int = 16, sigma: float = 0.05) -> tuple[torch.Tensor, np.ndarray]:
    source = open_source("phantom", size=size, n=n)
    x = torch.stack([torch.from_numpy(source[i].x) for i in range(n)])
    xbar = gsure.Fourier().to_spectral(x)
    noisy = xbar + sigma * torch.randn(xbar.shape, generator=generator)
    return xbar, torch.complex(noisy[:, 0], noisy[:, 1]).numpy().astype(np.complex64)


def test_fastmri_test_volumes_are_imported_with_their_mask(here, generator):
    _, k = kspace(6, generator)
    mask = np.arange(16) % 3 != 1
    for name, part in (("file1.h5", k[:4]), ("file2.h5", k[4:])):
        with h5py.File(name, "w") as file:
            file["kspace"] = part * mask * 7e-5
            file["mask"] = mask.astype(np.float32)
    run("import", "fastmri", ".", "m.out", "--scale", 7e-5, "--sigma", 0.05, "--slices", "[1,3]")
    data = gsure.open("m.out")
    assert data.groups() == ["file1", "file1", "file1", "file2"]
    assert data.mask_shape == (1, 1, 16)
    expected = np.stack([k.real, k.imag], 1)[[1, 2, 3, 5]] * mask
    np.testing.assert_allclose(data[:].ybar, expected, atol=1e-5)
    assert data.coverage.flatten().tolist() == mask.astype(float).tolist()


def test_a_file_says_that_entries_which_are_never_measured_can_only_be_guessed(here, generator, capsys):
    np.save("k.npy", kspace(3, generator)[1])
    np.save("mask.npy", np.arange(16) % 2)
    text = run("import", "array", "k.npy", "m.h5", "--mask", "mask.npy", "--sigma", 0.05, capsys=capsys)
    assert "in part (8 of 16 entries are never measured: a model can only guess them.)" in text


def test_sigma_is_estimated_on_request_and_the_file_records_it(here, generator, capsys):
    np.save("k.npy", kspace(24, generator, size=64)[1])
    summary = json.loads(run("import", "array", "k.npy", "m.h5", "--sigma", "estimate", "--json", capsys=capsys))
    assert summary["sigma_0"]["estimated"] is True
    assert 0.048 < summary["sigma_0"]["in units of the data"] < 0.06  # some signal is there too
    assert summary["sigma_0"]["given"] == pytest.approx(summary["sigma_0"]["in units of the data"] / summary["scale"])
    images = (
        torch.zeros(8, 1, 32, 32) + torch.linspace(-1, 1, 32) + 0.03 * torch.randn(8, 1, 32, 32, generator=generator)
    )
    np.save("x.npy", images.numpy())
    run("import", "array", "x.npy", "x.h5", "--basis", "Identity", "--sigma", "estimate")
    assert gsure.open("x.h5").max_std == pytest.approx(0.03, rel=0.1)


def test_mask_and_sigma_may_be_in_the_same_file_as_the_data(here, generator):
    k = kspace(3, generator)[1]
    mask, sigma = np.arange(16) % 3 != 1, np.array([0.1, 0.2, 0.3])
    with h5py.File("all.h5", "w") as file:
        file["k"], file["m"], file["s"] = k * mask, mask, sigma
    np.savez("all.npz", k=k * mask, m=mask, s=sigma)
    for name in ("all.h5", "all.npz"):
        run("import", "array", name, "m.h5", "--key", "k", "--mask", "m", "--sigma", "s", "--scale", 1, "--force")
        data = gsure.open("m.h5")
        assert data[:].std.flatten().tolist() == pytest.approx(sigma.tolist())
        assert data[0].mask.flatten().tolist() == mask.astype(float).tolist()
        assert data.groups() == ["0", "1", "2"]


def test_cfl_with_a_mask_is_imported(here, generator):
    _, k = kspace(3, generator)
    mask = (np.arange(16) % 3 != 0).astype(np.complex64)
    for name, array in (("k", np.moveaxis(k * mask, 0, -1)), ("mask", np.broadcast_to(mask, (16, 16))[..., None])):
        array.astype(np.complex64).ravel(order="F").tofile(f"{name}.cfl")
        (here / f"{name}.hdr").write_text("# Dimensions\n" + " ".join(map(str, array.shape)) + "\n")
    run("import", "cfl", "k.cfl", "m.h5", "--mask", "mask.cfl", "--sigma", 0.05, "--dims", "read,phs1,slice")
    data = gsure.open("m.h5")
    np.testing.assert_allclose(data[:].ybar[:, 0] * data.scales()[0], (k * mask).real, atol=1e-5)
    assert data.max_std * data.scales()[0] == pytest.approx(0.05)


def test_import_reads_whatever_corrupt_reads(here, generator):
    k = kspace(3, generator)[1]
    mask = np.arange(16) % 3 != 1
    (here / "volumes" / "nested").mkdir(parents=True)
    with h5py.File("volumes/nested/v.hdf5", "w") as file:
        file["kspace"], file["mask"] = k * mask, mask
    with h5py.File("deep.h5", "w") as file:
        file["scan/k"], file["scan/mask"], file["labels"] = k * mask, mask, np.arange(3)
    write_cfl("raw", np.moveaxis(k * mask, 0, -1))
    for kind, path, options in (
        ("fastmri", "volumes", []),
        ("array", "deep.h5", ["--mask", "scan/mask"]),  # the only array that could be spectra
        ("cfl", "raw", ["--dims", "read,phs1,slice"]),  # as BART names it
    ):
        run("import", kind, path, "m.h5", "--sigma", 0.1, "--scale", 1, "--force", *options)
        measured = gsure.open("m.h5")[:]
        np.testing.assert_allclose(measured.ybar[:, 0], (k * mask).real, atol=1e-6)
        assert (measured.mask == torch.from_numpy(mask)).all()


# Bad input


def test_mistakes_cost_a_sentence_and_no_data(here, capsys, generator):
    run(*DIGITS, "--limit", 5)
    np.save("k.npy", kspace(2, generator)[1])
    np.save("narrow.npy", np.ones(7))
    np.save("odd.npy", np.full(16, 0.5))
    bad = kspace(2, generator)[1]
    bad[1, 3, 3] = np.nan
    np.save("nan.npy", bad)
    np.save("objects.npy", np.array([{}, []], object))
    np.save("none.npy", np.zeros((0, 4, 4), np.complex64))
    np.save("toomany.npy", np.ones((5, 1, 16)))
    np.save("real.npy", np.zeros((2, 3, 16, 16)))
    (here / "empty").mkdir()
    (here / "precious").mkdir()
    (here / "precious" / "thesis.txt").write_text("years of work")
    with h5py.File("nokspace.h5", "w") as file:
        file["image"] = [1.0]
    with h5py.File("nomask.h5", "w") as file:
        file["kspace"] = kspace(2, generator)[1]
    phantom = ["corrupt", "phantom", "x.h5", "--source.size", 16, "--source.n", 4, "--sigma", 0.1, "--corruption"]
    for words, message in [
        (DIGITS, "d.h5 exists already: choose another name, or replace it with --force"),
        ([*DIGITS[:2], "x.h5", *DIGITS[3:], "--clean", "x.h5"], "must go to two different files"),
        (["corrupt", "digits", "x.h5", "--corruption", "dust", "--sigma", 1], "no corruption 'dust'; there are patches"),
        (["corrupt", "digits", "x.h5", "--corruption", "patches", "--size", 2, "--sigma", 1], "needs --p"),
        (["corrupt", "digits", "x.h5", "--corruption", "pixels", "--p", 0.5, "--R", 2, "--sigma", 1], "no option --R"),
        (["corrupt", "digits", "x.h5", "--corruption", "patches", "--p", 0.5, "--size", 3, "--sigma", 1], "do not tile"),
        (["corrupt", "digits", "x.h5", "--corruption", "noise", "--sigma", -1], "sigma_0 must be"),
        (["corrupt", "digits", "x.h5", "--corruption", "lines", "--R", 4, "--sigma", 1], "channel pairs"),
        (["corrupt", "nowhere/", "x.h5", "--corruption", "noise", "--sigma", 1], "nowhere"),
        ([*phantom, "lines", "--R", 100], "R = 100"),
        (["import", "array", "k.npy", "x.h5", "--mask", "narrow.npy", "--sigma", 1], "does not broadcast"),
        (["import", "array", "k.npy", "x.h5", "--mask", "odd.npy", "--sigma", 1], "must be 0 (missing) or 1 (measured)"),
        (["import", "array", "nan.npy", "x.h5", "--sigma", 1], "Sample 1 of nan.npy has 1 values that are NaN"),
        (["import", "fastmri", "nokspace.h5", "x.h5", "--sigma", 1], "nokspace.h5 has no dataset kspace"),
        (["import", "fastmri", "nomask.h5", "x.h5", "--sigma", 1], "and no mask"),
        (["import", "fastmri", "nomask.h5", "x.h5", "--sigma", 1, "--slices", "[3,2]"], "slices must be the first"),
        (["inspect", "k.npy"], " HDF5 file"),
        (["inspect", "none.h5"], "There is no file none.h5"),
        (["inspect", "d.h5", "--figure", "x.png", "--clean", "d.h5"], "signals are needed here"),
        (["inspect", "d.h5", "--clean", "d.h5"], "has no effect without --figure"),
        (["inspect", "d.h5", "--figure", "k.npy"], "k.npy exists already"),
        (["inspect", "empty"], "no shards"),
        (["corrupt", "d.h5", "x.h5", "--corruption", "noise", "--sigma", 1], "holds measurements already"),
        (["corrupt", "digits", "precious", *DIGITS[3:], "--force"], "other things in it (thesis.txt)"),
        (["corrupt", "k.npy", "k.npy", "--corruption", "lines", "--R", 2, "--sigma", 1, "--force"], "is to be read"),
        (["import", "array", "k.npy", "k.npy", "--sigma", 1, "--force"], "is to be read"),
        (["import", "array", "k.npy", "x.h5", "--sigma", 1, "--mask", "d.h5"], "d.h5 must be a .npy file, or the name"),
        (["import", "array", "objects.npy", "x.h5", "--sigma", 1], "objects.npy holds 0 arrays that could be spectra"),
        (["import", "array", "none.npy", "x.h5", "--sigma", 1], "none.npy is complex64 of shape (0, 4, 4)"),
        (["import", "array", "k.npy", "x.h5", "--mask", "toomany.npy", "--sigma", 1], "does not broadcast"),
        (["import", "array", "real.npy", "x.h5", "--sigma", 1], "type --basis Identity if they are"),
        (["import", "array", "k.npy", "x.h5", "--sigma", 1, "--limit", -3], "limit of at least 1"),
        ([*DIGITS[:2], "x.h5", *DIGITS[3:], "--limit", 0], "limit of at least 1"),
        ([*DIGITS[:2], "x.h5", *DIGITS[3:], "--workers", 0], "workers must be at least 1"),
        ([*DIGITS[:2], "d.h5/x.h5", *DIGITS[3:]], "cannot be created"),
    ]:  # fmt: skip
        assert message in complaint(capsys, *words), words
    assert not (here / "x.h5").exists()
    assert (here / "precious" / "thesis.txt").read_text() == "years of work"
    with pytest.raises(SystemExit) as caught:
        cli.main(["corrupt", "digits", "x.h5", "--corruption", "noise"])
    assert caught.value.code == 2
    assert "sigma" in capsys.readouterr().err


LINES = ["--corruption", "lines", "--R", 2, "--sigma", 0.1]


def write_cfl(name: str, values: np.ndarray) -> None:
    values.astype("<c8").T.tofile(f"{name}.cfl")  # in BART's order
    (Path(f"{name}.hdr")).write_text("# Dimensions\n" + " ".join(map(str, values.shape)) + "\n")


def test_raw_data_is_not_written_over_however_it_is_named(here, capsys, generator, monkeypatch):
    monkeypatch.setenv("HOME", str(here))
    x = torch.randn(3, 8, 8, generator=generator, dtype=torch.complex64).numpy()
    np.save("x.npy", x)
    np.save("s.npy", np.full(3, 0.1))
    write_cfl("raw", np.moveaxis(x, 0, -1))
    before = {path: path.read_bytes() for path in here.iterdir()}
    for words in (
        ["corrupt", "array:~/x.npy", here / "x.npy", *LINES],
        ["corrupt", "cfl:raw", "raw.cfl", *LINES],
        ["corrupt", "cfl:raw.cfl", "raw.hdr", *LINES],
        ["corrupt", "cfl:raw", "new.h5", "--clean", "raw.hdr", *LINES],
        ["import", "cfl", "raw.hdr", "raw.cfl", "--sigma", 0.1],
        ["import", "cfl", "raw", "raw.cfl", "--sigma", 0.1],
        ["import", "array", "~/x.npy", "x.npy", "--sigma", 0.1],
        ["import", "array", "x.npy", "s.npy", "--sigma", "s.npy"],
    ):
        assert "is to be read: choose another name" in complaint(capsys, *words, "--force")
    assert {path: path.read_bytes() for path in here.iterdir()} == before


def test_an_option_without_effect_is_refused(here, capsys, generator):
    np.save("k.npy", kspace(3, generator)[1])
    np.save("mask.npy", np.ones(16))
    with h5py.File("v.h5", "w") as file:
        file["kspace"], file["mask"] = kspace(3, generator)[1], np.ones(16)
    write_cfl("raw", np.moveaxis(kspace(3, generator)[1], 0, -1))
    for kind, path, option in (
        ("fastmri", "v.h5", ["--mask", "mask.npy"]),
        ("fastmri", "v.h5", ["--key", "kspace"]),
        ("array", "k.npy", ["--slices", "[0, 1]"]),
        ("array", "k.npy", ["--key", "k"]),
        ("cfl", "raw.cfl", ["--slices", "[0, 1]"]),
    ):
        message = complaint(capsys, "import", kind, path, "m.h5", "--sigma", 0.1, *option)
        assert f"{option[0]} has no effect for {kind} {path}" in message
    assert not (here / "m.h5").exists()


def test_a_mask_of_the_complete_shape_serves_all_channels(here, generator):
    k = torch.randn(3, 2, 8, 6, generator=generator, dtype=torch.complex64).numpy()
    mask = torch.rand(3, 2, 8, 6, generator=generator).numpy() < 0.5
    np.save("k.npy", k)
    np.save("mask.npy", mask)
    axes = ["--axes", "sample,channel,readout,phase"]
    run("import", "array", "k.npy", "m.h5", "--mask", "mask.npy", "--sigma", 0.1, "--scale", 1, *axes)
    measurement = gsure.open("m.h5")[:]
    for coil in (0, 1):
        for part, values in enumerate((k.real, k.imag)):
            channel = 2 * coil + part
            assert measurement.mask[:, channel].numpy().tolist() == mask[:, coil].astype(float).tolist()
            np.testing.assert_allclose(measurement.ybar[:, channel], mask[:, coil] * values[:, coil], rtol=1e-6)


def test_noise_is_not_estimated_where_high_frequencies_are_not_known(here, capsys, generator):
    np.save("x.npy", torch.randn(8, 1, 32, 32, generator=generator).numpy())
    for basis in ("Hartley", "Cosine", "Hadamard"):
        words = ["import", "array", "x.npy", "m.h5", "--basis", basis, "--sigma", "estimate"]
        assert f"but not in {basis}(): measure it" in complaint(capsys, *words)


@pytest.mark.parametrize("shards", [1, 2])
def test_conflicting_outputs_are_refused_before_any_work(here, capsys, shards):
    small = [*DIGITS, "--limit", 40, "--shards", shards]
    run(*small)
    run(*[*DIGITS, "--limit", 40, "--shards", 3 - shards, "--force"])  # a folder for a file, a file for a folder
    assert len(gsure.open("d.h5")) == 40
    assert "lies inside d.h5" in complaint(capsys, *small, "--force", "--clean", "d.h5/c.h5")


@dataclasses.dataclass(frozen=True)
class Custom(gsure.corruption.Pixels):
    """A custom corruption with a tensor as an option."""

    weights: torch.Tensor = dataclasses.field(default_factory=lambda: torch.ones(8, 8))


def test_a_custom_corruption_may_hold_tensors(here):
    data = gsure.corrupt(open_source("digits"), "d.h5", Custom(0.3), 0.1, limit=5)
    assert data.header["corruption"]["weights"] == "torch.float32 of shape (8, 8)"


@pytest.mark.parametrize("name", ["empty.npy", "cut.npz", "renamed.npz", "flipped.npz"])
def test_damaged_arrays_are_refused_by_name(here, capsys, generator, name):
    k = kspace(3, generator)[1]
    np.savez_compressed("whole.npz", k=k)
    np.save("whole.npy", k)
    whole = (here / "whole.npz").read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 3 : len(whole) // 3 + 40] = bytes(40)
    contents = {"empty.npy": b"", "cut.npz": whole[:-60], "flipped.npz": bytes(damaged)}
    (here / name).write_bytes(contents.get(name, (here / "whole.npy").read_bytes()))
    assert name in complaint(capsys, "import", "array", name, "m.h5", "--sigma", 0.1)
    assert name in complaint(capsys, "corrupt", f"array:{name}", "m.h5", *LINES)


def test_a_figure_never_replaces_the_data(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run(*DIGITS, "--limit", 20, "--clean", "c.h5")
    before = Path("d.h5").read_bytes(), Path("c.h5").read_bytes()
    for words in (["--figure", "d.h5"], ["--clean", "c.h5", "--figure", "c.h5"]):
        assert cli.main(["inspect", "d.h5", *words, "--force"]) == 2
    assert "is to be read" in capsys.readouterr().err
    assert (Path("d.h5").read_bytes(), Path("c.h5").read_bytes()) == before
