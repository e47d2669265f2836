"""`gsure calibrate`, and what `restore` does with the result: calibrated error bars, refusals, and a warning."""

import json

import numpy as np
import pytest
import torch
from running import QUICK, make_files

import gsure
from gsure.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = make_files(tmp_path_factory.mktemp("calibrate"))
    gsure.train(folder / "d.h5", folder / "run", QUICK)
    digits, patches = gsure.open_source("digits"), gsure.corruption.Patches(p=0.4, size=2)
    gsure.corrupt(digits, folder / "new.h5", patches, 0.05, clean=folder / "nc.h5", limit=40, seed=1)
    return folder


def calibrated(folder):
    if not (folder / "run" / "calibration.json").exists():
        gsure.calibrate(folder / "run", folder / "new.h5", method="gaussian", limit=32)
    return folder / "run"


def test_the_command_stores_a_calibration_that_restore_uses(folder, tmp_path, capsys):
    arguments = [str(folder / "run"), str(folder / "new.h5"), "--method", "gaussian"]
    assert main(["calibrate", *arguments, "--limit", "32", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    record = json.loads((folder / "run" / "calibration.json").read_text())
    assert (record["format"], record["version"], record["images"]) == ("gsure calibration", 2, 32)
    assert 0.8 < record["reliability"]["frame"][-2] < 0.97, "90 % intervals of hidden entries"
    assert said["hidden units"] == record["units"] > 100
    out = tmp_path / "r"
    assert main(["restore", *arguments, "--clean", str(folder / "nc.h5"), "--out", str(out), "--panels", "1"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "calibrated by hidden entries of 32 measurements (gsure calibrate)" in told
    assert "familiarity as the training data" in told
    assert (out / "reliability.png").exists()
    curves = json.loads((out / "reliability.json").read_text())
    assert curves["calibrated"]["object"][-2] == pytest.approx(0.9, abs=0.05)
    assert len(gsure.Signals(out / "raw_std")) == 40


@pytest.mark.parametrize("choice", ["auto", "self"])
def test_calibrated_bars_do_not_depend_on_the_batch(folder, choice):
    found = [
        gsure.restore(calibrated(folder), folder / "new.h5", method="gaussian", batch=b, calibration=choice, limit=12)
        for b in (16, 64)
    ]
    torch.testing.assert_close(found[0].std, found[1].std, rtol=1e-4, atol=1e-5)
    assert not found[0].std.allclose(found[0].raw_std, rtol=1e-3)
    torch.testing.assert_close(found[0].half_width(), 1.6448536 * found[0].std)


def test_raw_bars_are_those_without_a_calibration(folder):
    raw = gsure.restore(calibrated(folder), folder / "new.h5", method="gaussian", calibration="none", limit=3)
    both = gsure.restore(calibrated(folder), folder / "new.h5", method="gaussian", limit=3)
    torch.testing.assert_close(raw.std, both.raw_std)
    assert raw.summary["error bars"] == "not calibrated: calibration none"


def test_a_calibration_for_something_else_is_refused_with_the_difference(folder, tmp_path):
    run = calibrated(folder)
    with pytest.raises(ValueError, match=r"method was gaussian, now ddrm.*calibration none"):
        gsure.restore(run, folder / "new.h5", method="ddrm", out=tmp_path / "r")
    digits = gsure.open_source("digits")
    gsure.corrupt(digits, tmp_path / "loud.h5", gsure.corruption.Patches(p=0.4, size=2), 0.5, limit=9)
    gsure.corrupt(digits, tmp_path / "other.h5", gsure.corruption.Patches(p=0.4, size=4), 0.05, limit=9)
    with pytest.raises(ValueError, match=r"largest noise was 0.05, now 0.5"):
        gsure.restore(run, tmp_path / "loud.h5", method="gaussian")
    with pytest.raises(ValueError, match=r"unit of masks was \[2, 2\], now \[4, 4\]"):
        gsure.restore(run, tmp_path / "other.h5", method="gaussian")
    assert not (tmp_path / "r").exists()


def test_a_damaged_calibration_is_named(folder):
    path = calibrated(folder) / "calibration.json"
    before = path.read_text()
    for damaged in ("{", "{}", json.dumps(json.loads(before) | {"factors": [-1.0]}), before.replace("usual", "u")):
        path.write_text(damaged)
        with pytest.raises(ValueError, match=r"calibration\.json is (damaged|not a calibration)"):
            gsure.restore(calibrated(folder), folder / "new.h5", method="gaussian", limit=2)
    path.write_text(before)


def test_images_of_another_kind_are_called_unfamiliar(folder):
    """White noise: hidden pixels cannot be predicted from the others."""
    data = gsure.open(folder / "new.h5")[np.arange(40)]
    noise = torch.randn(data.shape, generator=torch.Generator().manual_seed(0))
    other = gsure.from_arrays(data.mask * noise, data.mask, 0.05, scale=1.0, unit=(2, 2), verbose=False)
    restored = gsure.restore(calibrated(folder), other, method="gaussian")
    assert restored.summary["familiarity"].startswith("These measurements do not look like the training data: hidden")
    assert int(restored.summary["unfamiliar measurements"].split()[0]) > 10


def test_nothing_is_calibrated_where_nothing_can_be_hidden(folder, tmp_path, outside):
    gsure.corrupt(gsure.open_source("digits"), tmp_path / "n.h5", gsure.corruption.FAMILIES["noise"](), 0.0, limit=4)
    with pytest.raises(ValueError, match="only 0 of the measured units could be hidden"):
        gsure.calibrate(folder / "run", tmp_path / "n.h5", method="gaussian")
    restored = gsure.restore(folder / "run", tmp_path / "n.h5", method="gaussian", calibration="self")
    assert restored.summary["error bars"] == "not calibrated: no measured units can be hidden"
    one = gsure.restore(folder / "run", folder / "new.h5", draws=1, steps=2, calibration="self", limit=2)
    assert one.summary["error bars"] == "not calibrated: one draw has no spread"
    with pytest.raises(ValueError, match="give a run, not a denoiser"):
        gsure.calibrate(gsure.load(folder / "run"), folder / "new.h5")
