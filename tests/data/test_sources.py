"""Sources in general, arrays, digits, phantoms, and guessing the kind of a path."""

import importlib
import json
import pickle
import subprocess
import sys

import h5py
import numpy as np
import pytest

from gsure.data.sources import KINDS, Array, Digits, Phantom, guess_kind, open_source

RNG = np.random.Generator(np.random.PCG64(0))
REAL = RNG.uniform(-1, 1, (5, 4, 6)).astype(np.float32)


def save(folder, array, name="a.npy"):
    np.save(folder / name, array)
    return folder / name


def test_importing_sources_imports_neither_torch_nor_any_reader():
    code = (
        "import sys, gsure.data.sources; "
        "print([m for m in ('torch', 'h5py', 'PIL', 'nibabel', 'sklearn') if m in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_every_kind_names_itself():
    assert list(KINDS) == [
        *("array", "images", "tiff", "celeba", "idx", "fastmri", "nifti", "dicom", "cfl", "ismrmrd", "digits"),
        *("phantom", "anatomy"),
    ]


@pytest.mark.parametrize("source", [Digits(), Phantom(size=16, n=7)], ids=lambda source: source.kind)
def test_a_source_is_a_sequence_that_survives_copying_to_a_worker(source):
    copy = pickle.loads(pickle.dumps(source))  # noqa: S301
    assert len(pickle.dumps(source)) < 1000
    for index in (0, len(source) - 1, -1):
        assert source[index].x.shape == source.shape
        assert source[index].x.dtype == np.float32
        np.testing.assert_array_equal(source[index].x, copy[index].x)
    assert source[-1].group == source[len(source) - 1].group != source[0].group
    for index in (len(source), -len(source) - 1):
        with pytest.raises(IndexError, match=f"There is no sample {index}: {source.kind} has"):
            source[index]
    assert sum(1 for _, _ in zip(source, range(3), strict=False)) == 3  # iteration stops by itself
    fingerprint = source.fingerprint()
    assert json.loads(json.dumps(fingerprint)) == fingerprint
    assert fingerprint["samples"] == len(source)


def test_digits_fill_their_range():
    x = np.stack([sample.x for sample in Digits()])
    assert (x.min(), x.max(), len(x)) == (-1, 1, 1797)


# phantom


def complex_of(sample):
    return sample.x[0] + 1j * sample.x[1]


def test_a_phantom_depends_on_seed_and_index_only():
    first, second = Phantom(size=32, seed=1), Phantom(size=32, seed=1, n=20)
    np.testing.assert_array_equal(first[7].x, second[7].x)
    assert np.abs(first[7].x - first[8].x).max() > 0.3
    assert np.abs(first[7].x - Phantom(size=32, seed=2)[7].x).max() > 0.3


@pytest.mark.parametrize("size", [31, 32, 80])
def test_phantoms_look_like_slices(size):
    """A head in the middle of an empty field, magnitude about 0..1, and a phase that is smooth where there is signal."""
    phantoms = np.stack([complex_of(sample) for sample in Phantom(size=size, n=12)])
    magnitude = np.abs(phantoms)
    assert 0.5 < np.quantile(magnitude.max((1, 2)), 0.1) < magnitude.max() < 1.8
    assert magnitude[:, [0, -1]].max() < 1e-3
    assert magnitude[:, size // 4 : -size // 4, size // 4 : -size // 4].mean() > 0.3
    turn = phantoms[:, :, 1:] * phantoms[:, :, :-1].conj()
    steps = np.abs(np.angle(turn))[np.abs(turn) > 0.01]
    assert np.quantile(steps, 0.99) < 12 / size
    assert np.abs(np.angle(phantoms[magnitude > 0.1])).std() > 0.3


def test_a_phantom_is_the_same_head_at_every_size():
    small, large = (np.abs(complex_of(Phantom(size=size)[4])) for size in (32, 128))
    pooled = large.reshape(32, 4, 32, 4).mean((1, 3))
    assert np.corrcoef(small.ravel(), pooled.ravel())[0, 1] > 0.98


def test_phantoms_differ_in_anatomy():
    heads = np.stack([np.abs(complex_of(sample)).ravel() for sample in Phantom(size=32, n=30)])
    between = np.corrcoef(heads)[np.triu_indices(30, 1)]
    assert np.median(between) < 0.85


# arrays


@pytest.mark.parametrize(
    ("array", "shape"),
    [
        (REAL, (1, 4, 6)),
        (REAL[:, None].repeat(3, 1), (3, 4, 6)),
        (REAL.reshape(5, 24), (1, 1, 24)),
        (REAL.astype(np.float64), (1, 4, 6)),
        (REAL.astype(np.float16), (1, 4, 6)),
    ],
)
def test_real_floats_are_taken_as_they_are(tmp_path, array, shape):
    source = Array(save(tmp_path, array))
    assert (len(source), source.shape, source.is_complex) == (5, shape, False)
    np.testing.assert_array_equal(source[3].x.ravel(), array[3].ravel().astype(np.float32))
    assert source[3].scale == 1
    assert source[3].group != source[2].group


def test_complex_arrays_become_channel_pairs(tmp_path):
    array = (REAL + 1j * REAL[::-1]).reshape(5, 2, 2, 6)
    source = Array(save(tmp_path, array * 10), scale=10.0)
    assert (source.shape, source.is_complex) == ((4, 2, 6), True)
    x = source[1].x
    np.testing.assert_allclose(x[0::2] + 1j * x[1::2], array[1], rtol=1e-6)
    assert source[1].scale == 10


def test_integers_and_booleans_are_intensities(tmp_path):
    bytes_ = np.array([[[0, 255], [51, 204]]], np.uint8)
    np.testing.assert_allclose(Array(save(tmp_path, bytes_))[0].x, [[[-1, 1], [-0.6, 0.6]]], atol=1e-6)
    words = bytes_.astype(np.uint16) * 257
    np.testing.assert_allclose(Array(save(tmp_path, words, "w.npy"))[0].x, [[[-1, 1], [-0.6, 0.6]]], atol=1e-6)
    digital = Array(save(tmp_path, np.array([[[0, 4095]]], np.uint16), "d.npy"), scale=4095.0)[0]
    assert (digital.x.ravel().tolist(), digital.scale) == ([-1, 1], 2047.5)
    assert Array(save(tmp_path, bytes_ > 60, "b.npy"))[0].x.ravel().tolist() == [-1, 1, -1, 1]


def test_values_out_of_range_are_refused_with_a_remedy_that_works(tmp_path):
    path = save(tmp_path, REAL * 812)
    with pytest.raises(ValueError, match=r"Sample 0 of .* has values up to 8\d\d.*--source.scale 8"):
        Array(path)[0]
    np.testing.assert_allclose(Array(path, scale=812.0)[0].x[0], REAL[0], rtol=1e-6)
    assert np.abs(Array(path, scale=1.0)[0].x).max() > 700
    with pytest.raises(ValueError, match="scale must be a finite number above 0, but is -1"):
        Array(path, scale=-1.0)


def test_nan_is_refused_naming_the_sample(tmp_path):
    array = REAL.copy()
    array[2, 0, 0] = np.nan
    source = Array(save(tmp_path, array))
    assert np.isfinite(source[1].x).all()
    with pytest.raises(ValueError, match=r"Sample 2 of .*a\.npy has 1 values that are NaN"):
        source[2]


def test_a_big_npy_is_mapped_not_loaded(tmp_path):
    path = tmp_path / "big.npy"
    array = np.lib.format.open_memmap(path, "w+", np.float32, (400_000, 64, 64))  # sparse: 6.5 GB on no disk
    array[399_999] = 0.5
    del array
    before = resident()
    source = Array(path)
    assert source[399_999].x.min() == source[399_999].x.max() == 0.5
    assert source[0].x.max() == 0
    assert resident() - before < 50


def resident():
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * 4096 / 1e6


@pytest.mark.parametrize("savez", [np.savez, np.savez_compressed])
def test_npz_gives_its_only_array_or_the_one_named(tmp_path, savez):
    savez(tmp_path / "one.npz", signals=REAL, labels=np.arange(5))
    np.testing.assert_array_equal(Array(tmp_path / "one.npz")[4].x[0], REAL[4])
    savez(tmp_path / "two.npz", train=REAL, test=-REAL)
    with pytest.raises(ValueError, match=r"holds 2 arrays that could be signals.*train \(5, 4, 6\) float32.*key"):
        Array(tmp_path / "two.npz")
    np.testing.assert_array_equal(Array(tmp_path / "two.npz", key="test")[4].x[0], -REAL[4])
    np.testing.assert_array_equal(Array(tmp_path / "two.npz", key="train")[4].x[0], REAL[4])
    with pytest.raises(ValueError, match="no array 'valid': it holds train"):
        Array(tmp_path / "two.npz", key="valid")


def test_hdf5_datasets_are_read_by_sample(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["deep/signals"] = REAL
        file["labels"] = np.arange(5)
    source = Array(tmp_path / "a.h5")
    np.testing.assert_array_equal(source[2].x[0], REAL[2])
    assert source.fingerprint()["array"] == "deep/signals"
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(source))[2].x[0], REAL[2])  # noqa: S301


def test_a_file_that_changes_is_opened_again(tmp_path):
    source = Array(save(tmp_path, REAL))
    source[0]
    (tmp_path / "a.npy").unlink()
    save(tmp_path, np.zeros_like(REAL))
    assert source[0].x.max() == 0


def test_pickles_are_refused(tmp_path):
    with pytest.raises(ValueError, match="is object of shape"):
        Array(save(tmp_path, np.array([[1, "a"], [2, None]], object)), key="array")
    with pytest.raises(ValueError, match="holds 0 arrays that could be signals"):
        Array(save(tmp_path, np.array([[1, "a"], [2, None]], object)))
    (tmp_path / "b.npy").write_bytes(pickle.dumps(REAL))
    with pytest.raises(ValueError, match=r"b\.npy is not a complete \.npy"):
        Array(tmp_path / "b.npy")


def test_broken_and_foreign_files_are_refused_by_name(tmp_path):
    (tmp_path / "empty.npy").touch()
    (tmp_path / "foreign.npz").write_bytes(b"not a zip")
    (tmp_path / "foreign.h5").write_bytes(b"not HDF5")
    with h5py.File(tmp_path / "cut.h5", "w") as file:
        file["a"] = REAL.repeat(100, 0)
    whole = (tmp_path / "cut.h5").read_bytes()
    (tmp_path / "cut.h5").write_bytes(whole[: len(whole) // 2])
    for name in ("empty.npy", "foreign.npz", "foreign.h5", "cut.h5"):
        with pytest.raises(ValueError, match=name):
            Array(tmp_path / name)
    whole = save(tmp_path, REAL, "short.npy").read_bytes()
    (tmp_path / "short.npy").write_bytes(whole[:-50])
    with pytest.raises(ValueError, match=r"of .*short\.npy cannot be read"):
        Array(tmp_path / "short.npy")[0]
    with pytest.raises(FileNotFoundError, match="There is no file or folder"):
        Array(tmp_path / "absent.npy")


@pytest.mark.parametrize(
    ("array", "message"),
    [(REAL[0, 0], "holds 0 arrays"), (REAL[:0], "shape"), (np.zeros((2, 8, 8, 3)), r"moveaxis\(array, -1, 1\)")],
)
def test_unsuitable_shapes_are_refused(tmp_path, array, message):
    with pytest.raises(ValueError, match=message):
        Array(save(tmp_path, array))


# the front door


def test_sources_open_by_kind_by_kind_and_path_and_by_path(tmp_path):
    path = save(tmp_path, REAL)
    assert open_source("phantom", size=16, n=3) == Phantom(size=16, n=3)
    assert open_source("digits") == Digits()
    assert open_source(f"array:{path}", scale=2.0) == Array(str(path), scale=2.0)
    assert open_source(str(path)) == Array(str(path))
    assert open_source(str(tmp_path / "a.npy")).kind == guess_kind(tmp_path / "a.npy") == "array"


def test_what_cannot_be_opened_is_said_in_a_sentence(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ValueError, match=r"cannot be guessed: give KIND:PATH, with one of array, images, tiff, celeba"):
        open_source(str(tmp_path / "notes.txt"))
    with pytest.raises(ValueError, match="cannot be guessed"):
        open_source(str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no file or folder nothing"):
        open_source("nothing")
    with pytest.raises(ValueError, match="'nifti' should be given as nifti:PATH"):
        open_source("nifti")
    with pytest.raises(ValueError, match="'digits:/tmp' should be given as digits"):
        open_source("digits:/tmp")
    with pytest.raises(ValueError, match="phantom has no option crop: it has size, n, seed, scale"):
        open_source("phantom", crop=2.0)
    with pytest.raises(ValueError, match="size >= 8"):
        open_source("phantom", size=4)


@pytest.mark.parametrize(("kind", "module"), [("nifti", "nibabel"), ("dicom", "pydicom"), ("ismrmrd", "ismrmrd")])
def test_a_missing_reader_is_named_with_its_remedy(tmp_path, monkeypatch, kind, module):
    real = importlib.import_module

    def without(name, *rest):
        if name == module:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    (tmp_path / "a.nii").touch()
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["dataset/xml"] = [b"<xml/>"]
        file["dataset/data"] = np.zeros(1, [("head", "i4")])
    path = tmp_path / ("a.h5" if kind == "ismrmrd" else "a.nii")
    with pytest.raises(ValueError, match=rf'package {module}, .* pip install "gsure-diffusion\[formats\]"'):
        open_source(f"{kind}:{path}")
