"""Slices of real heads: what they depend on, what they look like, and heads of one's own."""

import json
import pickle

import nibabel as nib
import numpy as np
import pytest

from gsure.data.anatomy import BUILT_IN, FOLDER, Anatomy, _interpolated, _open, _rotation
from gsure.data.sources import open_source


def images(**options):
    source = Anatomy(**{"size": 32, "n": 30} | options)
    return np.stack([sample.x[0] + 1j * sample.x[1] for sample in source])


def ball(folder, name, radius=9, value=100.0, dtype=np.float32):
    """A ball of tissue in a skull of twice the brightness, brighter on its right, in a noisy box."""
    at = np.indices((24, 28, 32)) - np.array([12, 14, 16])[:, None, None, None]
    distance = np.sqrt((at**2).sum(0))
    head = np.where(distance < radius, value * (1 + (distance > radius - 2) + 0.4 * (at[0] > 3)), 0.01 * value)
    nib.save(nib.Nifti1Image(head.astype(dtype), np.diag([8.0, 8.0, 8.0, 1.0])), folder / name)
    return folder / name


def test_a_slice_depends_on_seed_split_and_index_only():
    first, second = Anatomy(size=32, seed=1), Anatomy(size=32, seed=1, n=20)
    np.testing.assert_array_equal(first[7].x, second[7].x)
    for other in (first[8], Anatomy(size=32, seed=2)[7], Anatomy(size=32, seed=1, split="test")[7]):
        assert np.abs(first[7].x - other.x).max() > 1


def test_it_survives_copying_to_a_worker_and_describes_itself():
    source = Anatomy(size=16, n=7)
    copy = pickle.loads(pickle.dumps(source))  # noqa: S301
    assert len(pickle.dumps(source)) < 1000
    np.testing.assert_array_equal(source[6].x, copy[6].x)
    fingerprint = source.fingerprint()
    assert json.loads(json.dumps(fingerprint)) == fingerprint
    assert fingerprint["of"] == ["mni152", "ds000031"]
    assert source.reads() == []


def test_training_and_test_heads_are_different_people_and_no_average_is_a_test_head():
    train, test = set(BUILT_IN["train"]), set(BUILT_IN["test"])
    assert not train & test
    assert "mni152" not in test
    assert set(BUILT_IN["all"]) == train | test == {path.stem for path in FOLDER.glob("*.npz")}


def test_built_in_heads_are_small_and_hold_plain_arrays():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 2.2e6
    for path in FOLDER.glob("*.npz"):
        with np.load(path, allow_pickle=False) as head:
            assert head["voxels"].dtype == np.uint8
            assert all(head["voxels"].take(edge, axis).max() == 0 for axis in range(3) for edge in (0, -1))
    assert "Copyright (C) 1993–2009 Louis Collins" in (FOLDER / "LICENSE.md").read_text()


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("size", [31, 64])
def test_slices_look_like_slices(size, split):
    """A head in the middle of an empty field, of root mean square 1, and a phase that is smooth where there is signal."""
    slices = images(size=size, split=split)
    magnitude = np.abs(slices)
    rms = np.sqrt((magnitude**2).mean((1, 2)) / 2)
    assert 0.8 < np.sqrt((rms**2).mean()) < 1.2
    assert 0.3 < rms.min() < rms.max() < 2
    assert magnitude[:, [0, -1]].mean() < 0.05 * magnitude.mean()
    assert (magnitude[:, size // 3 : -size // 3, size // 3 : -size // 3].mean((1, 2)) > 0.8).all()
    turn = slices[:, :, 1:] * slices[:, :, :-1].conj()
    assert np.abs(np.angle(turn[np.abs(turn) > 0.3])).max() < 20 / size
    assert np.abs(np.angle(slices[magnitude > 1])).std() > 0.3


def test_without_phase_the_magnitude_is_the_same_and_the_image_real():
    plain, turned = images(phase=False), images()
    assert np.abs(plain.imag).max() == 0
    assert plain.real.min() >= 0
    np.testing.assert_allclose(plain.real, np.abs(turned), atol=1e-5)


def test_a_slice_is_the_same_at_every_size():
    small, large = (np.abs(images(size=size, n=4)) for size in (32, 128))
    averaged = large.reshape(4, 32, 4, 32, 4).mean((2, 4))
    assert np.abs(averaged - small).mean() < 0.05 * small.mean() + 0.02


def test_slices_differ_in_anatomy():
    flat = np.abs(images(n=40)).reshape(40, -1)
    correlation = np.corrcoef(flat)[~np.eye(40, dtype=bool)]
    assert correlation.max() < 0.98
    assert correlation.mean() < 0.75


def test_slices_of_one_plane_resemble_each_other_more_than_mixed_ones():
    def spread(**options):
        magnitudes = np.abs(images(**options))
        return ((magnitudes - magnitudes.mean(0)) ** 2).mean() / (magnitudes**2).mean()

    planes = [spread(plane=plane) for plane in ("sagittal", "coronal", "axial")]
    assert max(planes) < spread()
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(images(plane="axial"), images(plane="coronal"))


def test_rotations_are_rotations():
    turned = _rotation(np.array([0.3, -0.2, 0.5]))
    np.testing.assert_allclose(turned @ turned.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(turned) == pytest.approx(1)


def test_interpolation_is_exact_for_linear_values_and_zero_outside():
    at = np.indices((6, 7, 8), np.float32)
    linear = 1 + 2 * at[0] - at[1] + 0.5 * at[2]
    points = np.array([[0.25, 3.5], [2.0, 5.75], [1.5, 6.25]], np.float32)[:, :, None]
    expected = 1 + 2 * points[0] - points[1] + 0.5 * points[2]
    np.testing.assert_allclose(_interpolated(linear, points), expected, rtol=1e-5)
    outside = np.full((3, 2, 2), -4.0, np.float32)
    assert _interpolated(np.pad(linear, 1), outside).max() == 0


def test_heads_of_ones_own_are_split_by_file(tmp_path):
    for k in range(6):
        ball(tmp_path, f"head{k}.nii", radius=8 + k % 3, value=10.0**k)
    names = {split: Anatomy(heads=tmp_path, split=split).fingerprint()["of"] for split in ("train", "test", "all")}
    assert names["test"] == ["head4", "head5"]
    assert names["train"] + names["test"] == names["all"]
    source = open_source("anatomy", heads=str(tmp_path), size=16, n=8)
    assert source.reads() == [tmp_path]
    rms = [np.sqrt((sample.x**2).mean()) for sample in source]
    assert 0.6 < np.mean(rms) < 1.6  # whatever the units of the file are


def test_the_orientation_of_the_file_does_not_matter(tmp_path):
    stored = nib.load(ball(tmp_path, "a.nii"))
    turned = nib.as_closest_canonical(stored).as_reoriented(np.array([[1, -1], [2, 1], [0, -1]]))
    nib.save(turned, tmp_path / "b.nii.gz")
    first, second = (images(heads=tmp_path / name, split="all", n=3) for name in ("a.nii", "b.nii.gz"))
    np.testing.assert_allclose(first, second, atol=1e-3)


def test_the_box_around_a_head_leaves_the_noise_out(tmp_path):
    file = ball(tmp_path, "a.nii", radius=9)
    assert _open(str(file), 0).voxels.shape == (19, 19, 19)  # 17 voxels of the ball, and one of zeros on each side


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 4}, "size >= 8"),
        ({"n": 0}, "n >= 1"),
        ({"seed": -1}, "seed >= 0"),
        ({"plane": "oblique"}, "plane must be one of any, sagittal, coronal, axial"),
        ({"heads": "here"}, "has one volume, which cannot be both"),
        ({"heads": "here", "split": "test"}, "give the split all"),
    ],
)
@pytest.mark.usefixtures("outside")
def test_unsuitable_options_are_refused(tmp_path, options, message):
    if "heads" in options:
        options = options | {"heads": ball(tmp_path, "a.nii")}
    with pytest.raises(ValueError, match=message):
        Anatomy(**options)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((4, 4, 4, 2), np.float32), "one real volume of 3 dimensions"),
        (np.ones((4, 4, 4), np.complex64), "one real volume"),
        (np.full((4, 4, 4), np.nan, np.float32), "64 values that are NaN"),
        (-np.ones((4, 4, 4), np.float32), "values from -1 to -1"),
        (np.zeros((4, 4, 4), np.float32), "values from 0 to 0"),
    ],
)
def test_unsuitable_volumes_are_refused(tmp_path, array, message):
    nib.save(nib.Nifti1Image(array, np.eye(4)), tmp_path / "a.nii")
    with pytest.raises(ValueError, match=message):
        Anatomy(heads=tmp_path / "a.nii", split="all")[0]
