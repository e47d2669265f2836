"""The Python interface: objects in, objects out, and your own network and basis through every function."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from running import QUICK, Scale, make_files

import gsure
from gsure.basis import Basis
from gsure.data.sources import open_source
from gsure.training import checkpoints


@dataclass(frozen=True)
class Mirrored(Basis):
    """A basis of a user's own."""

    def to_spectral(self, x):
        return x.flip(-1)

    def to_signal(self, xbar):
        return xbar.flip(-1)


class Half(gsure.corruption.Patches):
    basis = Mirrored()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = make_files(tmp_path_factory.mktemp("api"))
    digits = open_source("digits")
    gsure.corrupt(digits, folder / "own.h5", Half(p=0.4, size=2), 0.05, clean=folder / "own-c.h5", limit=120)
    return folder


@pytest.fixture(scope="module")
def own(files):
    """A run with its own network and its own basis."""
    return gsure.train(files / "own.h5", files / "own", QUICK, network=Scale(), basis=Mirrored())


@pytest.fixture(scope="module")
def plain(files):
    return gsure.train(files / "d.h5", files / "plain", QUICK)


def test_own_network_and_basis_go_through_everything(own, files, tmp_path):
    data = gsure.open(files / "own.h5", Mirrored())
    again = {"network": Scale(), "basis": Mirrored()}
    for model, options in ((own, {}), (own.path, again), (own.denoiser, {})):
        shape = {"shape": (1, 8, 8)} if model is not own and model is not own.path else {}
        samples = gsure.sample(model, 3, steps=2, **options, **shape)
        assert samples[:].shape == (3, 1, 8, 8)
        restored = gsure.restore(model, data, steps=2, draws=2, limit=4, **options)
        assert restored.mean.shape == (4, 1, 8, 8)
        error = gsure.evaluate_denoising(model, measurements=data, n=8, t_bins=2, **options)
        assert error["metrics"]["estimate"]["value"] > 0
    drawn = gsure.sample(own, 40, tmp_path / "samples", steps=2)
    found = gsure.evaluate_samples(drawn, reference=files / "own-c.h5", features="pca-4")
    assert found["written"] == str(tmp_path / "samples" / "evaluation.json")
    restored = gsure.restore(own, data, tmp_path / "restored", steps=2, draws=2, limit=4)
    scores = gsure.evaluate_restorations(restored, clean=files / "own-c.h5")
    assert scores["metrics"].keys() >= {"psnr", "nmse"}
    page = gsure.write_report(own.path, basis=Mirrored())
    assert page.get("omitted") is None
    assert "Measurements are not shown" not in (own.path / "report.html").read_text()


def test_a_run_with_its_own_network_says_what_it_needs(own, files):
    for function in (
        lambda: gsure.sample(own.path, 2, steps=2),
        lambda: gsure.restore(own.path, files / "own.h5", steps=2),
        lambda: gsure.evaluate_denoising(own.path),
        lambda: gsure.diagnose(own.path),
    ):
        with pytest.raises(ValueError, match=r"trained with your own network, .*: pass network=\.\.\. in Python"):
            function()
    with pytest.raises(ValueError, match=r"trained in your own basis, 'Mirrored': pass basis=\.\.\. in Python"):
        gsure.sample(own.path, 2, steps=2, network=Scale())


def test_diagnosis_of_an_own_network_and_of_a_bare_denoiser(own, files, tmp_path, few_times):
    data = gsure.open(files / "own.h5", Mirrored())
    run = gsure.diagnose(own.path, network=Scale(), basis=Mirrored(), n=100, batch=32)
    assert (own.path / "diagnosis" / "diagnosis.json").exists()
    bare = gsure.diagnose(own.denoiser, measurements=data, n=100, batch=32)
    assert [check["name"] for check in run["checks"]] == [check["name"] for check in bare["checks"]]
    assert bare["run"] is None
    gsure.diagnose(own.denoiser, measurements=data, n=100, batch=32, out=tmp_path / "d")
    assert (tmp_path / "d" / "diagnosis.json").exists()
    with pytest.raises(ValueError, match="A denoiser has no data of its own: pass measurements="):
        gsure.diagnose(own.denoiser)
    with pytest.raises(ValueError, match="omit measurements"):
        gsure.diagnose(own, measurements=data)


@pytest.mark.parametrize("method", ["ddrm", "moments"])
def test_restorations_in_memory_equal_those_in_files_bit_for_bit(plain, files, tmp_path, method):
    options = {"method": method, "steps": 3, "draws": 3, "limit": 10, "batch": 12, "seed": 4}
    memory = gsure.restore(plain, files / "d.h5", **options)
    stored = gsure.restore(plain, files / "d.h5", tmp_path / "r", **options)
    assert memory.folder is None
    assert len(memory) == len(stored) == 10
    for kind in ("mean", "std", "baseline"):
        assert getattr(memory, kind).equal(getattr(stored, kind)), kind
        assert getattr(memory, kind).equal(gsure.Signals(tmp_path / "r" / kind).raw())
    assert memory.draws.shape == (3, 10, 1, 8, 8)
    assert stored.draws.equal(memory.draws[:1])
    torch.testing.assert_close(memory.draws.mean(0), memory.mean)
    torch.testing.assert_close(memory.draws.std(0), memory.raw_std, atol=1e-5, rtol=1e-4)
    scores = [gsure.evaluate_restorations(r, clean=files / "c.h5")["metrics"] for r in (memory, stored)]
    assert scores[0] == scores[1]


def test_samples_in_memory_equal_those_in_files(plain, tmp_path):
    memory = gsure.sample(plain, 5, steps=3, batch=2, seed=1)
    assert memory[:].equal(gsure.sample(plain, 5, tmp_path / "s", steps=3, batch=2, seed=1)[:])
    assert memory.path is None
    with pytest.raises(ValueError, match=r"pass shape=\(channels, height, width\)"):
        gsure.sample(plain.denoiser, 2, steps=2)
    with pytest.raises(ValueError, match="generates signals of shape"):
        gsure.sample(plain, 2, steps=2, shape=(1, 4, 4))


def test_results_are_in_the_units_of_the_data(plain, files):
    """Digits have 16 grey levels, which the model sees as -1..1."""
    restored = gsure.restore(plain, files / "d.h5", steps=2, draws=2, limit=6)
    clean = gsure.Signals(files / "c.h5")
    np.testing.assert_allclose(clean.raw(slice(0, 6)), 8 * clean[:6] + 8, atol=1e-5)
    measured = gsure.open(files / "d.h5")[:6]
    torch.testing.assert_close(restored.baseline, 8 * measured.ybar + 8)
    torch.testing.assert_close(restored.std, 8 * restored.signals["std"][:])


def test_training_on_arrays_keeps_them_with_the_run(tmp_path, generator):
    images = torch.rand(40, 1, 8, 8, generator=generator) * 2 - 1
    data = gsure.from_arrays(images, torch.rand(40, 1, 8, 8, generator=generator) > 0.3, 0.05, verbose=False)
    run = gsure.train(data, tmp_path / "run", QUICK)
    kept = gsure.open(tmp_path / "run" / "measurements.h5")
    assert kept[:].ybar.equal(data[:].ybar)
    assert gsure.evaluate_denoising(run, n=4, t_bins=2)["reference"]["path"] == str(kept.path)
    assert gsure.write_report(run.path).get("omitted") is None
    gsure.restore(run, data, tmp_path / "r", steps=2, draws=2)
    assert gsure.open(tmp_path / "r" / "measurements.h5").fingerprint() == data.fingerprint()
    again = gsure.train(data, tmp_path / "run", resume=True)
    assert again.summary()["step"] == 12


def test_init_starts_from_the_weights_of_another_run(plain, files, tmp_path):
    settings = dataclasses.replace(QUICK, keep=99)
    run = gsure.train(files / "d.h5", tmp_path / "run", settings, init=plain)
    started = gsure.load(checkpoints.path_of(run.checkpoints, 0)).state_dict()
    assert all(value.equal(started[name]) for name, value in plain.denoiser.state_dict().items())
    assert run.config.request["arguments"]["init"] == str(plain.path)
    with pytest.raises(ValueError, match="do not fit the network of this run: give the settings of its network"):
        gsure.train(files / "d.h5", tmp_path / "other", gsure.Settings(network="mlp", width=32), init=plain)
    assert not (tmp_path / "other").exists()
    with pytest.raises(ValueError, match="neither a run of gsure train nor a checkpoint: nothing is there"):
        gsure.train(files / "d.h5", tmp_path / "other", QUICK, init=tmp_path / "nothing")


@pytest.mark.parametrize("device", ["cuda", "cuda:7", "tpu", "nonsense"])
def test_a_device_that_does_not_exist_is_refused(plain, files, tmp_path, device):
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    for function in (
        lambda: gsure.sample(plain, 2, steps=2, device=device),
        lambda: gsure.restore(plain, files / "d.h5", steps=2, device=device),
        lambda: gsure.evaluate_denoising(plain, device=device),
        lambda: gsure.diagnose(plain, device=device),
        lambda: gsure.train(files / "d.h5", tmp_path / "run", QUICK, device=device),
    ):
        with pytest.raises(ValueError, match=r"does not exist|There is no device|is not supported"):
            function()
    assert not (tmp_path / "run").exists()


def test_a_seed_is_a_generator(plain, files):
    denoiser, data = plain.denoiser, gsure.open(files / "d.h5")
    seeded = torch.Generator().manual_seed(3)
    assert gsure.ddim(denoiser, (2, 1, 8, 8), 3, generator=3).equal(
        gsure.ddim(denoiser, (2, 1, 8, 8), 3, generator=seeded)
    )
    measurement = data[:4]
    assert gsure.ddrm(denoiser, measurement, 3, generator=3).equal(
        gsure.ddrm(denoiser, measurement, 3, generator=torch.Generator().manual_seed(3))
    )
    t = denoiser.schedule.draw(4, 3)
    assert t.equal(denoiser.schedule.draw(4, torch.Generator().manual_seed(3)))
    objective = gsure.Objective(coverage=data.coverage, hide=0.2, unit=(2, 2))
    assert objective(denoiser, measurement, t, 3).equal(
        objective(denoiser, measurement, t, torch.Generator().manual_seed(3))
    )
    patches, x = gsure.corruption.Patches(p=0.4, size=2), torch.zeros(3, 1, 8, 8)
    assert patches.apply(x, 0.1, 3).ybar.equal(patches.apply(x, 0.1, torch.Generator().manual_seed(3)).ybar)


def test_arrays_in_place_of_measurements_or_of_a_run_are_refused_with_the_remedy(plain, files, tmp_path, outside):
    array, data = np.ones((4, 8, 8)), gsure.open(files / "d.h5")
    for function in (
        lambda: gsure.train(array, tmp_path / "run"),
        lambda: gsure.restore(plain, torch.from_numpy(array)),
        lambda: gsure.open(array),
    ):
        with pytest.raises(TypeError, match=r"is needed here, but a \w+ was given: .*gsure\.from_arrays\(y, mask"):
            function()
    for function in (lambda: gsure.restore(data, plain), lambda: gsure.sample(array, 2), lambda: gsure.load(data)):
        with pytest.raises(TypeError, match=r"A run, .* is needed here, but a \w+ was given: pass what gsure\.train"):
            function()
    assert not (tmp_path / "run").exists()
