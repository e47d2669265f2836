"""`gsure sample` and `gsure restore`: from a run to files, in any number of chunks and processes, never computed twice."""

import dataclasses
import json
import shutil

import h5py
import nibabel
import numpy as np
import pytest
import torch
from running import QUICK

import gsure
from gsure.cli import main
from gsure.corruption import Noise
from gsure.data import chunks as shards
from gsure.data.sources import open_source
from gsure.inference import sample as sampling
from gsure.inference.methods import Draws
from gsure.metrics import psnr

PATCHES = gsure.corruption.Patches(p=0.4, size=2)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    gsure.corrupt(open_source("digits"), folder / "d.h5", PATCHES, 0.05, clean=folder / "c.h5", limit=400)
    settings = dataclasses.replace(QUICK, width=64, steps=300, batch=32, lr=3e-3, ema=0.95, checkpoint_every=300)
    gsure.train(folder / "d.h5", folder / "run", settings)
    gsure.corrupt(open_source("digits"), folder / "new.h5", PATCHES, 0.1, clean=folder / "nc.h5", limit=12, seed=1)
    gsure.corrupt(open_source("digits"), folder / "more.h5", PATCHES, 0.1, clean=folder / "mc.h5", limit=96, seed=1)
    return folder


def values(path) -> torch.Tensor:
    signals = gsure.Signals(path)
    return signals[np.arange(len(signals))]


# Sampling


def test_samples_do_not_depend_on_batch_or_number_of_processes(files, tmp_path, monkeypatch):
    options = {"steps": 5, "eta": 0.5}
    gsure.sample(files / "run", 10, tmp_path / "one", batch=4, **options)
    gsure.sample(files / "run", 10, tmp_path / "large", batch=10, **options)
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("0", "1"):  # as torchrun sets it
        monkeypatch.setenv("RANK", rank)
        gsure.sample(files / "run", 10, tmp_path / "two", batch=4, **options)
        assert (tmp_path / "two" / "grid.png").exists() == (rank == "1")  # the last draws it
    assert values(tmp_path / "two").equal(values(tmp_path / "one"))
    torch.testing.assert_close(values(tmp_path / "large"), values(tmp_path / "one"))
    assert not values(tmp_path / "one")[:5].allclose(values(tmp_path / "one")[5:])


def test_an_interrupted_job_goes_on_and_computes_nothing_twice(files, tmp_path, monkeypatch):
    gsure.sample(files / "run", 12, tmp_path / "straight", batch=4, steps=3)
    calls = []

    def counting(name, steps, eta, spacing):
        draw = original(name, steps, eta, spacing)

        def drawing(denoiser, shape, generator):
            calls.append(shape[0])
            if len(calls) == 2:
                raise KeyboardInterrupt
            return draw(denoiser, shape, generator)

        return drawing

    original = sampling.make_sampler
    monkeypatch.setattr(sampling, "make_sampler", counting)
    with pytest.raises(KeyboardInterrupt):
        gsure.sample(files / "run", 12, tmp_path / "stopped", batch=4, steps=3)
    first = (tmp_path / "stopped" / "shard-00000.h5").stat().st_mtime_ns
    gsure.sample(files / "run", 12, tmp_path / "stopped", batch=4, steps=3)
    assert len(calls) == 4  # one done, one broken off, two more
    assert (tmp_path / "stopped" / "shard-00000.h5").stat().st_mtime_ns == first
    assert values(tmp_path / "stopped").equal(values(tmp_path / "straight"))
    assert not list((tmp_path / "stopped").glob(".*"))
    gsure.sample(files / "run", 14, tmp_path / "stopped", batch=4, steps=3)
    assert values(tmp_path / "stopped")[:12].equal(values(tmp_path / "straight"))
    assert len(calls) == 5


@pytest.mark.parametrize("sampler", ["ddim", "ddpm", "dpm++", "unipc"])
def test_the_command_samples_by_any_sampler(files, tmp_path, sampler, capsys):
    arguments = [
        "sample",
        str(files / "run"),
        "--n",
        "3",
        "--steps",
        "4",
        "--sampler",
        sampler,
        "--out",
        str(tmp_path / "s"),
    ]
    assert main([*arguments, "--clip", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 3
    assert values(tmp_path / "s").isfinite().all()
    assert float(values(tmp_path / "s").abs().max()) < 1.5
    assert (tmp_path / "s" / "grid.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"steps": 1001}, "between 1 and 1000 steps, but 1001"),
        ({"sampler": "euler"}, "sampler is one of ddim, ddpm"),
        ({"sampler": "dpm++", "eta": 0.5}, "eta is an option of ddim; dpm.* has none"),
        ({"checkpoint": 17}, "no checkpoint of step 17"),
        ({"batch": 0}, "must be at least 1"),
    ],
)
def test_impossible_sampling_is_refused_before_anything_is_written(files, tmp_path, outside, options, match):
    with pytest.raises(ValueError, match=match):
        gsure.sample(files / "run", 3, tmp_path / "s", **options)
    assert not (tmp_path / "s").exists()


def test_a_folder_of_other_settings_is_not_mixed_with(files, tmp_path):
    gsure.sample(files / "run", 2, tmp_path / "s", steps=2)
    with pytest.raises(ValueError, match="steps was 2, now 3; seed was 0, now 1"):
        gsure.sample(files / "run", 2, tmp_path / "s", steps=3, seed=1)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    with pytest.raises(ValueError, match="was not written by this command"):
        gsure.sample(files / "run", 2, tmp_path / "other")


def test_what_another_model_drew_is_not_taken_for_its_own(files, tmp_path):
    """A run that is trained anew has another model at the same place and step."""
    shutil.copytree(files / "run", tmp_path / "run")
    options = {"steps": 3, "draws": 2, "panels": 0}
    gsure.sample(tmp_path / "run", 2, tmp_path / "s", steps=2)
    gsure.restore(tmp_path / "run", files / "new.h5", tmp_path / "r", **options)
    settings = dataclasses.replace(QUICK, width=64, steps=300, batch=32, lr=1e-3, ema=0.95, checkpoint_every=300)
    gsure.train(files / "d.h5", tmp_path / "run", settings, force=True)
    with pytest.raises(ValueError, match=r"was written with different settings: weights was \d+, now \d+"):
        gsure.sample(tmp_path / "run", 2, tmp_path / "s", steps=2)
    with pytest.raises(ValueError, match=r"was written with different settings: weights was \d+, now \d+"):
        gsure.restore(tmp_path / "run", files / "new.h5", tmp_path / "r", **options)


def test_a_command_that_was_interrupted_before_its_first_result_can_be_typed_anew(files, tmp_path):
    """As after Ctrl-C, because the announced time was too long."""
    options = {"method": "gaussian", "panels": 0}
    gsure.restore(files / "run", files / "new.h5", tmp_path / "r", draws=2, **options)
    with pytest.raises(
        ValueError, match=r"was written with different settings: draws was 2, now 3. Choose another folder"
    ):
        gsure.restore(files / "run", files / "new.h5", tmp_path / "r", draws=3, **options)
    for path in (tmp_path / "r").iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "request.json":
            path.unlink()
    restored = gsure.restore(files / "run", files / "new.h5", tmp_path / "r", draws=3, **options)
    assert restored.summary["draws"] == 3


def test_a_verdict_on_training_data_is_said_to_be_too_good(files):
    for measurements, learned_from in (("d.h5", True), ("more.h5", False)):
        for given in (files / measurements, gsure.open(files / measurements)):
            restored = gsure.restore(files / "run", given, limit=64, method="gaussian")
            assert ("verdict is too good" in restored.summary) == learned_from
    assert repr(restored).startswith("Restored(64 restorations in memory, verdict=")


def test_nor_restorations_of_a_file_that_was_made_anew(files, tmp_path):
    options = {"steps": 3, "draws": 2, "panels": 0}
    for seed in (1, 2):
        gsure.corrupt(open_source("digits"), tmp_path / "d.h5", PATCHES, 0.1, limit=4, seed=seed, force=seed == 2)
        if seed == 1:
            gsure.restore(files / "run", tmp_path / "d.h5", tmp_path / "r", **options)
    with pytest.raises(ValueError, match=r"was written with different settings: fingerprint was \w+, now \w+"):
        gsure.restore(files / "run", tmp_path / "d.h5", tmp_path / "r", **options)


def test_a_process_without_a_chunk_of_its_own_waits_for_the_first(files, tmp_path, monkeypatch):
    gsure.sample(files / "run", 2, tmp_path / "done", steps=2)
    (tmp_path / "s").mkdir()
    shutil.copy(tmp_path / "done" / "request.json", tmp_path / "s")  # as the first process has begun
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    waited = []

    def first_process_ends(seconds):
        waited.append(seconds)
        shutil.copy(tmp_path / "done" / "shard-00000.h5", tmp_path / "s")

    monkeypatch.setattr(shards.time, "sleep", first_process_ends)
    assert len(gsure.sample(files / "run", 2, tmp_path / "s", steps=2)) == 2
    assert len(waited) == 1


def test_what_is_no_run_or_damaged_is_named(files, tmp_path):
    with pytest.raises(ValueError, match="neither a run of gsure train nor a checkpoint"):
        gsure.sample(tmp_path, 2, tmp_path / "s")
    for other in (files / "d.h5", files / "c.h5"):
        with pytest.raises(ValueError, match=r"\.h5 is neither a run .*Give the folder that gsure train wrote"):
            gsure.restore(other, files / "d.h5")
    with pytest.raises(ValueError, match="is a run: give the run first, and then the measurements"):
        gsure.restore(files / "run", files / "run")
    torn = tmp_path / "torn.safetensors"
    torn.write_bytes((files / "run" / "checkpoints" / "best.safetensors").read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"torn\.safetensors is damaged"):
        gsure.sample(torn, 2, tmp_path / "s")


# Restoration


@pytest.mark.parametrize("method", ["ddrm", "moments"])
def test_restoring_beats_the_baseline_and_the_mean_beats_a_draw(files, tmp_path, method):
    options = {"method": method, "steps": 20, "eta": 0.85, "spacing": "even", "draws": 8, "clean": files / "mc.h5"}
    options |= {"calibration": "none"}
    summary = gsure.restore(files / "run", files / "more.h5", tmp_path / "r", **options).summary
    assert summary["restored"] == 96
    clean = values(files / "mc.h5")
    error = {
        kind: float(((values(tmp_path / "r" / kind) - clean) ** 2).mean()) for kind in ("baseline", "draw", "mean")
    }
    assert error["mean"] < error["draw"]
    assert error["mean"] < 0.7 * error["baseline"]
    std = values(tmp_path / "r" / "std")
    mask = gsure.open(files / "more.h5")[np.arange(96)].mask
    assert float(std[mask == 0].mean()) > 1.2 * float(std[mask == 1].mean())  # less is known where nothing was measured
    assert len(list((tmp_path / "r" / "panels").iterdir())) == 8
    expected = psnr(values(tmp_path / "r" / "mean"), clean, is_complex=False).mean()
    assert float(summary["PSNR of mean"].split()[0]) == pytest.approx(float(expected), abs=0.1)


def test_restorations_do_not_depend_on_batch_and_go_on_where_they_stopped(files, tmp_path, monkeypatch):
    options = {"steps": 4, "draws": 2, "calibration": "none"}
    gsure.restore(files / "run", files / "new.h5", tmp_path / "small", batch=4, **options)
    gsure.restore(files / "run", files / "new.h5", tmp_path / "large", batch=64, **options)
    for kind in ("mean", "std", "draw", "baseline"):  # up to rounding, which the linear systems of moments magnify
        torch.testing.assert_close(
            values(tmp_path / "small" / kind), values(tmp_path / "large" / kind), atol=1e-4, rtol=1e-4
        )
    (tmp_path / "small" / "std" / "shard-00002.h5").unlink()  # killed between two files of a chunk
    calls = []
    original = Draws.__call__
    monkeypatch.setattr(Draws, "__call__", lambda *arguments: calls.append(1) or original(*arguments))
    gsure.restore(files / "run", files / "new.h5", tmp_path / "small", batch=4, **options)
    assert len(calls) == 1
    assert len(gsure.Signals(tmp_path / "small" / "std")) == 12


def test_more_measurements_may_be_restored_later(files, tmp_path):
    options = {"steps": 3, "draws": 2, "panels": 0, "batch": 16}
    gsure.restore(files / "run", files / "new.h5", tmp_path / "r", limit=3, **options)
    first = values(tmp_path / "r" / "mean")
    restored = gsure.restore(files / "run", files / "new.h5", tmp_path / "r", **options, clean=files / "nc.h5")
    assert restored.summary["restored"] == len(gsure.Signals(tmp_path / "r" / "mean")) == 12
    torch.testing.assert_close(values(tmp_path / "r" / "mean")[:3], first, atol=1e-5, rtol=1e-4)


def test_a_damaged_request_or_a_file_in_the_way_is_named(files, tmp_path):
    (tmp_path / "s").mkdir()
    for damaged in ("{not json", "5", "[1]", "null"):
        (tmp_path / "s" / "request.json").write_text(damaged)
        with pytest.raises(ValueError, match=r"request\.json is damaged"):
            gsure.sample(files / "run", 2, tmp_path / "s", steps=2)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="was not written by this command"):
        gsure.sample(files / "run", 2, tmp_path / "file", steps=2)


def test_one_draw_has_no_spread(files, tmp_path):
    gsure.restore(files / "run", files / "new.h5", tmp_path / "r", draws=1, steps=3, limit=2, panels=0)
    assert float(values(tmp_path / "r" / "std").abs().max()) == 0
    assert values(tmp_path / "r" / "mean").equal(values(tmp_path / "r" / "draw"))
    assert not (tmp_path / "r" / "panels").exists()


def test_other_masks_and_noise_than_trained_are_the_normal_case(files, tmp_path):
    for name, family, sigma_0 in [
        ("pixels", gsure.corruption.FAMILIES["pixels"](p=0.7), 0.3),
        ("noise", gsure.corruption.FAMILIES["noise"](), 0.4),
        ("clean", PATCHES, 0.0),
    ]:
        gsure.corrupt(open_source("digits"), tmp_path / f"{name}.h5", family, sigma_0, limit=3)
        gsure.restore(files / "run", tmp_path / f"{name}.h5", tmp_path / name, draws=2, steps=5, panels=1)
        assert values(tmp_path / name / "mean").isfinite().all()


def test_a_measurement_of_nothing_is_generated_with_a_word(files, tmp_path, capsys):
    gsure.corrupt(open_source("digits"), tmp_path / "n.h5", gsure.corruption.Patches(p=0.999, size=8), 0.05, limit=3)
    gsure.restore(files / "run", tmp_path / "n.h5", tmp_path / "r", draws=2, steps=3, progress=True)
    assert "3 of the measurements 0..2 have no measured entry" in " ".join(capsys.readouterr().err.split())


def test_measurements_that_do_not_fit_the_model_are_refused_with_both(files, tmp_path):
    digits = open_source("digits")
    gsure.corrupt(open_source("phantom", size=16, n=4), tmp_path / "p.h5", gsure.corruption.Lines(R=2.0), 0.01)
    gsure.corrupt(digits, tmp_path / "h.h5", gsure.corruption.FAMILIES["hadamard"](keep=0.5), 0.01, limit=4)
    gsure.corrupt(digits, tmp_path / "loud.h5", PATCHES, 500.0, limit=4)
    for name, match in {
        "p": r"of shape \(1, 8, 8\), but those of .* have \(2, 16, 16\)",
        "h": "of basis Identity, but those of .* have Hadamard",
        "loud": "std up to 500, above the schedule's largest level",
    }.items():
        with pytest.raises(ValueError, match=match):
            gsure.restore(files / "run", tmp_path / f"{name}.h5", tmp_path / "r")
    with pytest.raises(ValueError, match="they are not of one run of gsure corrupt"):
        gsure.restore(files / "run", files / "new.h5", tmp_path / "r", clean=files / "c.h5")
    assert not (tmp_path / "r").exists()


def test_a_part_of_a_file_is_compared_with_its_own_clean_signals(files):
    part = gsure.open(files / "new.h5").subset(np.arange(7, 12))
    restored = gsure.restore(files / "run", part, method="gaussian", clean=files / "nc.h5", calibration="none")
    found = [
        float(psnr(restored.signals["mean"][:], values(files / "nc.h5")[some], is_complex=False).mean())
        for some in (slice(7, 12), slice(0, 5))
    ]
    said = float(restored.summary["PSNR of mean"].split()[0])
    assert said == pytest.approx(found[0], abs=0.1)
    assert abs(said - found[1]) > 1  # the control: other digits


def test_the_command_restores(files, tmp_path, capsys):
    arguments = [
        "restore",
        str(files / "run"),
        str(files / "new.h5"),
        "--draws",
        "2",
        "--steps",
        "3",
        "--out",
        str(tmp_path / "r"),
    ]
    assert main([*arguments, "--clean", str(files / "nc.h5"), "--panels", "1"]) == 0
    told = capsys.readouterr().out
    assert "PSNR of baseline" in told
    assert "PSNR of mean" in told
    assert (tmp_path / "r" / "summary.json").exists()


@pytest.mark.parametrize("form", ["nifti", "cfl"])
def test_restorations_as_volumes_read_back_in_the_units_of_the_raw_data(files, tmp_path, form):
    """Two volumes of complex slices, with a scale of their own."""
    generator = np.random.default_rng(0)
    with h5py.File(tmp_path / "raw.h5", "w") as file:
        file["x"] = (7 * generator.normal(size=(5, 16, 16)) + 7j * generator.normal(size=(5, 16, 16))).astype(
            np.complex64
        )
    gsure.corrupt(
        open_source(str(tmp_path / "raw.h5"), key="x", scale=7.0),
        tmp_path / "k.h5",
        gsure.corruption.Lines(R=2.0),
        0.01,
    )
    with h5py.File(tmp_path / "k.h5", "a") as file:
        file["group"], file["groups"] = np.array([0, 0, 0, 1, 1], "<i4"), np.array([b"a/knee", b"b"])
    settings = dataclasses.replace(QUICK, batch=2, steps=2, held_out=0.0, width=8)
    gsure.train(tmp_path / "k.h5", tmp_path / "run", settings)
    gsure.restore(tmp_path / "run", tmp_path / "k.h5", tmp_path / "r", draws=2, steps=2, panels=0, volumes=form)
    mean = values(tmp_path / "r" / "mean").numpy()
    expected = 7 * (mean[:3, 0] + 1j * mean[:3, 1]).transpose(1, 2, 0)
    if form == "nifti":
        import nibabel

        volume = nibabel.load(tmp_path / "r" / "nifti" / "mean-a_knee.nii.gz")
        np.testing.assert_allclose(volume.get_fdata(), np.abs(expected), rtol=1e-5)
    else:
        source = open_source(f"cfl:{tmp_path / 'r' / 'cfl' / 'mean-a_knee.cfl'}", scale=1.0)
        read = np.stack([source[k].x[0] + 1j * source[k].x[1] for k in range(3)], -1)
        np.testing.assert_allclose(read, expected, rtol=1e-5)
    assert len(list((tmp_path / "r" / form).glob("std-b.*"))) == (1 if form == "nifti" else 2)
    assert not list((tmp_path / "r" / form).glob(".*"))


@pytest.mark.parametrize("window", [None, (-100.0, 1000.0)])
def test_volumes_of_intensities_have_the_values_of_their_files(tmp_path, window):
    raw = np.random.default_rng(0).uniform(0, 900, (8, 8, 3)).astype(np.float32)
    nibabel.save(nibabel.Nifti1Image(raw, np.eye(4)), tmp_path / "v.nii")
    gsure.corrupt(
        open_source(str(tmp_path / "v.nii"), window=window), tmp_path / "d.h5", gsure.corruption.Pixels(0.0), 1e-4
    )
    gsure.train(tmp_path / "d.h5", tmp_path / "run", dataclasses.replace(QUICK, steps=2, batch=2, held_out=0.0))
    gsure.restore(tmp_path / "run", tmp_path / "d.h5", tmp_path / "r", draws=2, steps=3, panels=0, volumes="nifti")
    low, high = window or (0.0, float(raw.max()))
    volumes, stored = (
        {kind: read(kind) for kind in ("baseline", "mean", "std")}
        for read in (
            lambda kind: nibabel.load(tmp_path / "r" / "nifti" / f"{kind}-v.nii.gz").get_fdata(),
            lambda kind: np.rot90(np.moveaxis(values(tmp_path / "r" / kind)[:, 0].numpy(), 0, -1), -1),
        )
    )
    np.testing.assert_allclose(volumes["baseline"], raw, atol=0.5)  # nothing is missing, and there is little noise
    np.testing.assert_allclose(volumes["mean"], low + (stored["mean"] + 1) / 2 * (high - low), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(volumes["std"], stored["std"] / 2 * (high - low), rtol=1e-4)


def test_volumes_of_several_channels_are_refused_before_any_work(files, tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).uniform(-1, 1, (12, 3, 8, 8)).astype(np.float32))
    gsure.corrupt(open_source(str(tmp_path / "x.npy")), tmp_path / "d.h5", PATCHES, 0.05)
    gsure.train(tmp_path / "d.h5", tmp_path / "run", dataclasses.replace(QUICK, steps=2, batch=2, held_out=0.0))
    with pytest.raises(
        ValueError, match=r"images of one channel, real or complex, but these are real, of shape \(3, 8, 8\)"
    ):
        gsure.restore(tmp_path / "run", tmp_path / "d.h5", tmp_path / "r", volumes="nifti")
    assert not (tmp_path / "r").exists()


def test_auto_takes_the_best_method_that_the_model_allows(files):
    """Moments for a run that only generates, and ddrm for a denoiser alone; for others see tests/training/test_auto.py."""
    options = {"steps": 2, "draws": 2, "limit": 2, "calibration": "none", "baselines": False}
    assert gsure.restore(files / "run", files / "new.h5", **options).summary["method"] == "moments"
    assert gsure.restore(gsure.load(files / "run"), files / "new.h5", **options).summary["method"] == "ddrm"
    with pytest.raises(ValueError, match="The method mean needs a mask-conditioned network"):
        gsure.restore(files / "run", files / "new.h5", method="mean", **options)


def test_any_denoiser_restores_noisy_signals_in_one_call(files, tmp_path):
    """The mean is the output of the network at the noise level of the data."""
    gsure.corrupt(open_source("digits"), tmp_path / "noisy.h5", Noise(), 0.3, limit=4)
    denoiser, noisy = gsure.load(files / "run"), gsure.open(tmp_path / "noisy.h5")
    restored = gsure.restore(files / "run", noisy, steps=2, draws=2, calibration="none", baselines=False)
    assert (restored.summary["method"], restored.summary["drawn_by"]) == ("mean", "ddrm")
    y = noisy[np.arange(4)].ybar
    with torch.no_grad():
        t = denoiser.schedule.first(torch.full((4,), noisy.max_std))
        wanted = denoiser(denoiser.schedule.alpha_bar[t].sqrt().float().reshape(-1, 1, 1, 1) * y, t)
    np.testing.assert_allclose(restored.signals["mean"][:], wanted, atol=1e-5)
    uneven = gsure.Measurement(y, torch.ones(1, 1, 8, 8), torch.linspace(0.1, 0.3, 64).reshape(1, 1, 8, 8))
    with pytest.raises(ValueError, match="noise that differs between entries"):
        denoiser.estimate(uneven)
