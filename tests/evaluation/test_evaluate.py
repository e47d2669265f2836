"""gsure evaluate: perfect samples have the floor, others do not; what is told is what was done; and what is refused."""

import csv
import inspect
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from running import QUICK
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

import gsure
from gsure import cli
from gsure import evaluation as evaluate
from gsure.cli.evaluation import OPTIONS
from gsure.data.measurements import Signals
from gsure.data.sources import open_source
from gsure.data.writer import Writer
from gsure.evaluation import reference as referring
from gsure.evaluation.reference import Reference
from gsure.files import show_request
from gsure.metrics import psnr

HEADER = {"source": {"kind": "test"}, "complex": False, "corruption": {"name": "none"}, "sigma_0": None, "seed": 0}
SHARED = {"kind", "of", "run", "reference", "n", "features", "seed", "metrics", "warnings", "request"}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """d.h5 and c.h5, measurements of all digits and the digits; a run of them that learned next to nothing."""
    folder = tmp_path_factory.mktemp("files")
    patches = gsure.corruption.Patches(p=0.4, size=2)
    gsure.corrupt(open_source("digits"), folder / "d.h5", patches, 0.05, clean=folder / "c.h5")
    gsure.train(folder / "d.h5", folder / "run", QUICK, clean=folder / "c.h5")
    gsure.sample(folder / "run", 400, folder / "drawn", steps=5)
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gsure"


@pytest.fixture
def mixed(generator) -> torch.Tensor:
    """The digits in random order."""
    digits = open_source("digits")
    x = torch.stack([torch.from_numpy(digits[k].x) for k in range(len(digits))])
    return x[torch.randperm(len(x), generator=generator)]


def write(path: Path, x: torch.Tensor, groups: list[str] | None = None, **header) -> Path:
    with Writer(path, len(x), x.shape[1:], HEADER | header) as writer:
        writer.append(x, groups or [str(k) for k in range(len(x))], [1.0] * len(x))
    return path


def above_floor(record: dict, name: str) -> float:
    """In standard errors, and positive where it is worse."""
    metric = record["metrics"][name]
    worse = metric["value"] - metric["floor"]
    return (worse if metric["better"] == "lower" else -worse) / metric["se"]


@pytest.mark.parametrize("features", ["digits", "pca-16"])
def test_real_signals_have_the_floor_and_blurred_ones_do_not(features, tmp_path, mixed):
    reference = write(tmp_path / "reference.h5", mixed[600:])
    real = write(tmp_path / "real.h5", mixed[:500])
    record = gsure.evaluate_samples(real, reference=reference, features=features)
    names = {"frechet", "kid", "sliced_wasserstein", "correlation", "precision", "recall"}
    assert set(record["metrics"]) == names
    for name in names:
        assert abs(above_floor(record, name)) < 5, name
    blurred = torch.nn.functional.avg_pool2d(torch.nn.functional.pad(mixed[:500], (1, 1, 1, 1), mode="replicate"), 3, 1)
    blurred = write(tmp_path / "blurred.h5", blurred)
    record = gsure.evaluate_samples(blurred, reference=reference, features=features)
    for name in names - {"recall"}:
        assert above_floor(record, name) > 5, name


def test_the_table_states_what_was_compared_with_what(tmp_path, mixed):
    reference = write(tmp_path / "reference.h5", mixed[600:])
    real = write(tmp_path / "real.h5", mixed[:200])
    record = gsure.evaluate_samples(real, reference=reference, features="digits", n=150, n_reference=900, seed=3)
    stored = json.loads((tmp_path / "real.evaluation.json").read_text())
    assert stored == {key: value for key, value in record.items() if key != "written"}
    assert stored.keys() >= SHARED
    assert (stored["n"], stored["seed"], stored["run"]) == (150, 3, None)
    assert stored["features"]["name"] == "digits"
    assert stored["features"]["dimension"] == 32
    assert stored["reference"] | {"fingerprint": ""} == {
        "path": str(reference),
        "holds": "signals",
        "n": 450,
        "of": 900,
        "fingerprint": "",
    }
    assert stored["floor"].startswith("150 of one half of the reference against the 450 of the other, with which")
    assert stored["request"]["function"] == "evaluate_samples"
    assert stored["request"]["command"] is None, "a call in Python has no command line"
    given = {"samples": str(real), "reference": str(reference), "features": "digits", "n": 150, "n_reference": 900}
    assert stored["request"]["arguments"].items() >= (given | {"seed": 3}).items()
    assert any("few for 32 features (use at least 320)" in warning for warning in stored["warnings"])
    assert all(set(metric) >= {"value", "floor", "se", "better"} for metric in stored["metrics"].values())
    full = gsure.evaluate_samples(
        real, reference=reference, features="digits", n=150, full_reference=True, out=tmp_path / "w.json"
    )
    assert full["reference"]["n"] == full["reference"]["of"] == 1197
    assert (tmp_path / "w.json").exists()


def test_samples_are_judged_without_clean_data(files, tmp_path, mixed):
    """Measured as the measurements were, real digits are like them; zero-filled ones, which naive training makes, are not."""
    clean = torch.stack([torch.from_numpy(open_source("digits")[k].x) for k in range(0, 1797, 2)])
    real = write(tmp_path / "real.h5", clean[:600])
    record = gsure.evaluate_samples(real, measurements=files / "d.h5", features="pca-16")
    assert record["reference"]["holds"] == "measurements"
    for name in ("frechet", "kid", "sliced_wasserstein"):
        assert abs(above_floor(record, name)) < 5, name
    data = gsure.open(files / "d.h5")
    naive = write(tmp_path / "naive.h5", data.basis.to_signal(data[:600].ybar))
    record = gsure.evaluate_samples(naive, measurements=files / "d.h5", features="pca-16")
    for name in ("frechet", "kid", "sliced_wasserstein"):
        assert above_floor(record, name) > 5, name


def test_a_signal_is_seen_as_the_measurement_was(files):
    """The same mask, fresh noise of the same std: on its own clean signal, the distribution of the measurement."""
    data, clean = gsure.open(files / "d.h5"), Signals(files / "c.h5")
    where = np.arange(300)
    seen = Reference.measured(data).see(clean[where], where, gsure.generators(0, indices=where))
    measured = data[where]
    mask = measured.mask.expand_as(seen)
    assert (seen[mask == 0] == 0).all()
    noise = (seen - clean[where])[mask == 1]
    assert float(noise.std()) == pytest.approx(0.05, rel=0.03)
    own = (measured.ybar - clean[where])[mask == 1]
    assert abs(float(torch.corrcoef(torch.stack([noise, own]))[0, 1])) < 5 / len(own) ** 0.5


def test_halves_share_no_volume_and_no_sample(generator):
    for groups in (["a"] * 10, [str(k) for k in range(101)], [str(k // 7) for k in range(70)], ["a"] * 5 + ["b"] * 5):
        read = lambda where: torch.zeros(len(where), 1)  # noqa: E731
        first, second = Reference("", None, {}, (1,), groups, read, lambda x, where, g: x, "").halves(generator)
        assert sorted([*first, *second]) == list(range(len(groups)))
        assert abs(len(first) - len(second)) <= 7
        if len(set(groups)) > 1:
            assert not {groups[k] for k in first} & {groups[k] for k in second}


def test_comparison_with_training_data_is_told(files, tmp_path):
    record = gsure.evaluate_samples(files / "drawn", reference=files / "c.h5", n=300)
    assert any("was trained on 90% of it" in warning and "--held-out" in warning for warning in record["warnings"])
    held = gsure.evaluate_samples(files / "drawn", reference=files / "c.h5", features="pca-4", held_out=True)
    assert held["reference"]["of"] == 180
    assert not any("trained on" in warning for warning in held["warnings"])
    assert held["run"] == str((files / "run").resolve())
    own = gsure.evaluate_samples(files / "drawn", measurements=files / "d.h5", features="pca-4")
    assert own["reference"]["of"] == 180, "measurements of the run's own are those that it held out"
    every = gsure.evaluate_samples(files / "drawn", measurements=files / "d.h5", features="pca-4", held_out=False)
    assert every["reference"]["of"] == 1797
    pixels = gsure.corruption.Pixels(p=0.2)
    gsure.corrupt(open_source("digits"), tmp_path / "e.h5", pixels, 0.1, clean=tmp_path / "ec.h5", seed=5)
    other = gsure.evaluate_samples(files / "drawn", reference=tmp_path / "ec.h5", n=300)
    assert any("same source" in warning for warning in other["warnings"])
    with pytest.raises(ValueError, match="--held-out needs the run and its own data"):
        gsure.evaluate_samples(files / "drawn", reference=tmp_path / "ec.h5", held_out=True)


def test_features_of_the_reference_are_computed_once(tmp_path, mixed, own_cache, monkeypatch):
    reference, other = write(tmp_path / "a.h5", mixed[:800]), write(tmp_path / "b.h5", mixed[900:1700])
    real = write(tmp_path / "real.h5", mixed[1200:1600])
    asked = []
    original = referring.features_of

    def counting(features, read, n, what, progress):
        asked.append(what)
        return original(features, read, n, what, progress)

    monkeypatch.setattr(referring, "features_of", counting)
    first = gsure.evaluate_samples(real, reference=reference, features="digits")
    again = gsure.evaluate_samples(real, reference=reference, features="digits")
    assert asked == ["the reference"]
    assert first["metrics"] == again["metrics"]
    gsure.evaluate_samples(real, reference=other, features="digits")
    assert len(asked) == len(list(own_cache.iterdir())) == 2
    for file in own_cache.iterdir():
        file.write_bytes(b"damaged")
    assert gsure.evaluate_samples(real, reference=reference, features="digits")["metrics"] == first["metrics"]
    assert len(asked) == 3
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nothing")  # cannot be written: no reason to fail
    assert gsure.evaluate_samples(real, reference=reference, features="digits")["metrics"] == first["metrics"]


def test_the_full_reference_counts_whatever_its_order(files, tmp_path, mixed):
    """Distances that take as many real signals as there are samples must not take those of a few volumes."""
    digits = open_source("digits")
    rank = torch.argsort(mixed.flatten(1).mean(1))  # dark ones first
    samples = write(tmp_path / "samples.h5", mixed[:200])
    reference = write(tmp_path / "sorted.h5", mixed[rank])
    record = gsure.evaluate_samples(samples, reference=reference, features="pca-8", full_reference=True)
    assert record["reference"]["n"] == len(digits)
    for name in ("kid", "sliced_wasserstein", "precision", "recall"):
        assert above_floor(record, name) < 4, name


def test_measurements_of_another_length_are_not_taken_for_the_runs_own(files, tmp_path):
    """Another length is another split: what is held out of it was trained on."""
    patches = gsure.corruption.Patches(p=0.4, size=2)
    gsure.corrupt(open_source("digits"), tmp_path / "some.h5", patches, 0.05, limit=900)
    record = gsure.evaluate_denoising(
        files / "run", measurements=tmp_path / "some.h5", t_bins=1, n=20, out=tmp_path / "e.json"
    )
    assert (record["reference"]["holds"], record["reference"]["of"]) == ("measurements", 900)
    assert any("same source" in warning for warning in record["warnings"])


def test_an_evaluation_replaces_nothing_but_an_evaluation(files, tmp_path):
    mine = shutil.copy(files / "c.h5", tmp_path / "c.h5")
    before = mine.read_bytes()
    for evaluation in (
        lambda out: gsure.evaluate_samples(files / "drawn", reference=files / "c.h5", features="pca-4", out=out),
        lambda out: gsure.evaluate_denoising(files / "run", t_bins=1, n=20, out=out),
    ):
        with pytest.raises(ValueError, match=r"c\.h5 exists and is not an evaluation: choose another --out"):
            evaluation(mine)
        evaluation(tmp_path / "e.json")
        evaluation(tmp_path / "e.json")
    assert mine.read_bytes() == before


def test_an_image_of_nothing_is_no_reason_to_tell_nothing_of_its_volume(restored, tmp_path):
    folder, clean = restored
    truth = Signals(clean)[:]
    truth[3] = 0.0
    empty = write(tmp_path / "empty.h5", truth, Signals(clean).groups(), complex=True)
    record = gsure.evaluate_restorations(folder, clean=empty)
    assert record["metrics"]["psnr"]["value"] > 5
    assert "per_image" not in record["metrics"]["psnr"]
    assert record["metrics"]["ssim"]["per_image"] <= 1


def test_what_cannot_be_evaluated_is_refused_by_a_sentence(files, tmp_path, mixed):
    drawn, clean = files / "drawn", files / "c.h5"
    small = write(tmp_path / "small.h5", mixed[:200, :, :4, :4])
    for match, options in {
        "give either --reference or --measurements": {},
        "too few for 32 features": {"reference": clean, "features": "digits", "n": 20},
        "there are 400: draw more": {"reference": clean, "n": 401},
        "must be at least 1": {"reference": clean, "n": 0},
        "A reference of 1 cannot be split": {"reference": clean, "n_reference": 1},
        r"of shape \(1, 8, 8\), but .* has real signals of shape \(1, 4, 4\)": {"reference": small},
        "16x16, but the signals have shape": {"reference": clean, "features": "fashion16"},
        "holds measurements, but signals are needed here": {"reference": files / "d.h5"},
    }.items():
        with pytest.raises(ValueError, match=match):
            gsure.evaluate_samples(drawn, **options)
    with pytest.raises(ValueError, match="is a run: make samples with gsure sample"):
        gsure.evaluate_samples(files / "run", reference=clean)
    with pytest.raises(ValueError, match=r"There is no .*nothing"):
        gsure.evaluate_samples(tmp_path / "nothing", reference=clean)
    with pytest.raises(ValueError, match="does not hold restorations; it holds samples: gsure evaluate samples"):
        gsure.evaluate_restorations(drawn, clean=clean)
    with pytest.raises(OSError, match="choose another --out"):
        gsure.evaluate_samples(drawn, reference=clean, out=tmp_path / "no" / "such.json")
    (tmp_path / "other").mkdir()
    with pytest.raises(ValueError, match=r"is not a folder of gsure restore: it has no request\.json"):
        gsure.evaluate_restorations(tmp_path / "other", clean=clean)
    request = {"function": "paint", "made_of": {"seed": 0}, "inputs": {"run": "run"}}
    for text, match in (
        (json.dumps(request), "does not hold restorations; gsure paint wrote it"),
        ("{}", r"request\.json is damaged: regenerate the folder"),
    ):
        (tmp_path / "other" / "request.json").write_text(text)
        with pytest.raises(ValueError, match=match):
            gsure.evaluate_restorations(tmp_path / "other", clean=clean)


def test_an_unfinished_folder_is_evaluated_as_far_as_it_is(files, tmp_path):
    shutil.copytree(files / "drawn", tmp_path / "drawn")
    (tmp_path / "drawn" / "grid.png").unlink()
    sorted((tmp_path / "drawn").glob("*.h5"))[-1].unlink()
    record = gsure.evaluate_samples(tmp_path / "drawn", reference=files / "c.h5")
    assert record["n"] == 384
    assert any("is not finished" in warning for warning in record["warnings"])


@pytest.fixture
def restored(tmp_path, generator) -> tuple[Path, Path]:
    """A folder as gsure restore makes it, of complex slices of three volumes that take turns; and the truth."""
    groups = ["a", "b", "c", "a", "b", "c", "a"]
    truth = torch.randn(7, 2, 12, 10, generator=generator) * torch.linspace(0.5, 2, 7).reshape(-1, 1, 1, 1)
    clean = write(tmp_path / "clean.h5", truth, groups, complex=True)
    folder = tmp_path / "restored"
    for kind, noise in (("mean", 0.1), ("std", 1.0), ("draw", 0.2), ("baseline", 0.5)):
        x = truth + noise * torch.randn(truth.shape, generator=generator)
        for number, part in enumerate((slice(0, 4), slice(4, 7))):
            write(folder / kind / f"shard-{number:05d}.h5", x[part], groups[part], complex=True)
    request = {"function": "restore", "made_of": {"seed": 4}, "inputs": {"run": "/gone", "data": "/gone.h5"}}
    (folder / "request.json").write_text(json.dumps(request))
    (folder / "summary.json").write_text("{}")
    return folder, clean


def test_restorations_are_judged_by_volume(restored):
    folder, clean = restored
    record = gsure.evaluate_restorations(folder, clean=clean)
    assert record.keys() >= SHARED
    assert (record["n"], record["volumes"], record["seed"]) == (7, 3, 4)
    truth, of = Signals(clean)[:].double().numpy(), np.array(Signals(clean).groups())
    for suffix, kind in (("", "mean"), ("_of_draw", "draw"), ("_of_baseline", "baseline")):
        x = Signals(folder / kind)[:].double().numpy()
        volumes = [
            (np.hypot(*np.moveaxis(truth[of == g], 1, 0)), np.hypot(*np.moveaxis(x[of == g], 1, 0))) for g in "abc"
        ]
        expected = {
            "psnr": [peak_signal_noise_ratio(a, b, data_range=a.max()) for a, b in volumes],
            "nmse": [((a - b) ** 2).sum() / (a**2).sum() for a, b in volumes],
            "ssim": [
                np.mean([structural_similarity(s, r, data_range=a.max()) for s, r in zip(a, b, strict=True)])
                for a, b in volumes
            ],
        }
        for name, values in expected.items():
            metric = record["metrics"][f"{name}{suffix}"]
            assert metric["value"] == pytest.approx(np.mean(values), abs=1e-6)
            assert metric["se"] == pytest.approx(np.std(values, ddof=1) / 3**0.5, abs=1e-6)
            assert metric["better"] == ("lower" if name == "nmse" else "higher")
    rows = list(csv.DictReader(Path(record["per_sample"]).read_text().splitlines()))
    assert [row["volume"] for row in rows] == list(of)
    alone = psnr(Signals(folder / "mean")[:], Signals(clean)[:], is_complex=True)
    assert [float(row["psnr"]) for row in rows] == pytest.approx(alone.tolist(), rel=1e-5)
    assert record["metrics"]["psnr"]["per_image"] == pytest.approx(float(alone.mean()))


def test_restorations_that_do_not_fit_the_clean_signals_are_refused(restored, tmp_path, generator):
    folder, clean = restored
    others = write(
        tmp_path / "others.h5", torch.randn(7, 2, 12, 10, generator=generator), list("aabbccc"), complex=True
    )
    with pytest.raises(ValueError, match="not of the volumes"):
        gsure.evaluate_restorations(folder, clean=others)
    smaller = write(tmp_path / "smaller.h5", torch.randn(7, 2, 8, 8, generator=generator), complex=True)
    with pytest.raises(ValueError, match=r"have shape \(2, 12, 10\), but .* has signals of shape"):
        gsure.evaluate_restorations(folder, clean=smaller)
    with pytest.raises(ValueError, match="LPIPS compares images in the range"):
        gsure.evaluate_restorations(folder, clean=clean, lpips=True)
    (folder / "mean" / "shard-00001.h5").unlink()
    (folder / "summary.json").unlink()
    record = gsure.evaluate_restorations(folder, clean=clean)
    assert record["n"] == 4
    assert any("is not finished" in warning for warning in record["warnings"])
    (folder / "draw" / "shard-00000.h5").unlink()
    with pytest.raises(ValueError, match="shards are missing"):
        gsure.evaluate_restorations(folder, clean=clean)


def test_a_real_restoration_is_told_to_be_of_training_data(files, tmp_path, capsys):
    gsure.restore(
        files / "run", files / "d.h5", tmp_path / "out", draws=2, steps=2, limit=12, clean=files / "c.h5", panels=0
    )
    record = gsure.evaluate_restorations(tmp_path / "out", clean=files / "c.h5")
    unseen = gsure.open(files / "d.h5").split(QUICK.held_out, QUICK.seed)[1].indices
    assert any(f"trained on {12 - (unseen < 12).sum()} of the 12" in warning for warning in record["warnings"])
    told = json.loads((tmp_path / "out" / "summary.json").read_text())["PSNR of mean"]
    assert float(told.split()[0]) == pytest.approx(record["metrics"]["psnr"]["value"], abs=0.006)


def test_denoising_is_judged_with_clean_signals_and_without(files, tmp_path):
    record = gsure.evaluate_denoising(files / "run", t_bins=4, n=60)
    assert json.loads((files / "run" / "denoising.json").read_text())["metrics"] == record["metrics"]
    assert record.keys() >= SHARED
    assert [t_bin["t"] for t_bin in record["t_bins"]] == [[1, 250], [251, 500], [501, 750], [751, 1000]]
    assert (record["reference"]["holds"], record["reference"]["of"]) == ("held-out measurements", 180)
    for t_bin in record["t_bins"]:
        assert abs(t_bin["difference"]) < 5 * t_bin["difference_se"], "the estimate needs no clean signal"
    gsure.corrupt(open_source("digits"), tmp_path / "e.h5", gsure.corruption.Pixels(p=0.2), 0.05, limit=40, seed=9)
    other = gsure.evaluate_denoising(files / "run", measurements=tmp_path / "e.h5", t_bins=2, out=tmp_path / "e.json")
    assert set(other["metrics"]) == {"estimate"}
    assert any("same source" in warning for warning in other["warnings"])
    with pytest.raises(ValueError, match="fewer than --t-bins 1001"):
        gsure.evaluate_denoising(files / "run", t_bins=1001)
    with pytest.raises(ValueError, match="give a measurement file with --measurements"):
        gsure.evaluate_denoising(files / "run", measurements=tmp_path / "gone.h5")


def test_options_are_those_of_the_functions():
    for name, kinds in OPTIONS.items():
        for kind in ("samples", "restorations", "denoising"):
            parameters = inspect.signature(getattr(evaluate, f"evaluate_{kind}")).parameters
            assert (name in parameters) == (kind in kinds), (name, kind)


def test_the_command_prints_a_table_or_json_and_refuses_what_is_of_another(files, capsys, monkeypatch):
    monkeypatch.chdir(files)
    words = ["evaluate", "samples", "drawn", "--reference", "c.h5", "--features", "digits", "--n", "350"]
    assert cli.main(words) == 0
    shown = capsys.readouterr()
    for text in (
        "350 of ",
        "898 signals of ",
        "half of its 1,797",
        "digits, 32 dimensions",
        "floor",
        "seed",
        "frechet",
        "recall",
    ):
        assert text in shown.out
    assert "Note: c.h5 is the training data of the run" in shown.err
    assert cli.main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n"] == 350
    request = json.loads((files / "drawn" / "evaluation.json").read_text())["request"]
    assert show_request(request) == "gsure evaluate samples drawn --reference c.h5 --features digits --n 350 --json"
    assert request["folder"] == str(files)
    assert cli.main(["evaluate", "denoising", "run", "--t-bins", "2", "--n", "20"]) == 0
    assert "t = 501..1000" in capsys.readouterr().out
    assert cli.main([*words, "--lpips"]) == 2
    assert "--lpips is an option of gsure evaluate restorations, not of samples" in capsys.readouterr().err
    assert cli.main(["evaluate", "restorations", "drawn"]) == 2
    assert "drawn does not hold restorations" in capsys.readouterr().err
