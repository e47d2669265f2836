"""The place of volumes in space: affine in equals affine out, for NIfTI and DICOM, whatever slices are chosen."""

import dataclasses

import nibabel
import numpy as np
import pydicom
import pytest
import torch
from pydicom.uid import ExplicitVRLittleEndian, MRImageStorage
from running import QUICK

import gsure
from gsure.data.anatomy import FOLDER
from gsure.data.geometry import assemble
from gsure.data.sources import Dicom, Nifti, open_source
from gsure.data.writer import Writer
from gsure.inference.volumes import check_volumes, write_volumes

RNG = np.random.Generator(np.random.PCG64(9))


def oblique(angles=(0.3, -0.5, 0.2), zooms=(0.9, 1.1, 2.5), origin=(-40.0, 12.5, 7.0)) -> np.ndarray:
    """A rotation about all axes, with one axis flipped."""
    turn = np.eye(3)
    for axis, angle in enumerate(angles):
        i, j = (k for k in range(3) if k != axis)
        one = np.eye(3)
        one[[i, i, j, j], [i, j, i, j]] = np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)
        turn = turn @ one
    affine = np.eye(4)
    affine[:3] = np.column_stack([turn @ np.diag(zooms) @ np.diag([-1, 1, 1]), origin])
    return affine


def planes_of(source):
    return np.stack([source.raw(k) for k in range(len(source))])


@pytest.fixture
def head(tmp_path):
    """A volume of 9 × 7 × 6, with units and codes that are not the defaults."""
    values = RNG.uniform(0, 900, (9, 7, 6)).astype(np.float32)
    image = nibabel.Nifti1Image(values, oblique())
    image.set_sform(oblique(), 4)
    image.set_qform(oblique(), 2)
    image.header.set_xyzt_units("mm", "sec")
    nibabel.save(image, tmp_path / "head.nii.gz")
    return tmp_path / "head.nii.gz", values


@pytest.fixture
def mni152(tmp_path):
    """Every tenth voxel of the MNI152 in the package, with the codes, the units and the corner of the original file."""
    with np.load(FOLDER / "mni152.npz") as stored:
        values, size = stored["voxels"][::10, ::10, ::10], 10 * float(stored["millimetres"])
    affine = np.diag([size, size, size, 1.0])
    affine[:3, 3] = -98, -134, -72
    image = nibabel.Nifti1Image(values, affine)
    image.set_sform(affine, 2)
    image.set_qform(affine, 0)
    image.header.set_xyzt_units("unknown", "unknown")
    nibabel.save(image, tmp_path / "head.nii.gz")
    return tmp_path / "head.nii.gz", values


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("slices", [None, (1, 4)])
def test_slices_assemble_to_the_part_of_the_volume_they_came_from(head, axis, slices):
    path, values = head
    source = Nifti(path, axis=axis, slices=slices)
    geometry = source.geometry()["head"]
    first, last = slices or (0, values.shape[axis] - 1)
    part = np.take(values, range(first, last + 1), axis)
    np.testing.assert_array_equal(assemble(planes_of(source), geometry), part)
    index = RNG.integers(0, 5, 3)
    there = index + np.eye(3, dtype=int)[axis] * first
    np.testing.assert_allclose(
        np.array(geometry["affine"]) @ [*index, 1], nibabel.load(path).affine @ [*there, 1], atol=1e-5
    )


def test_padding_and_resizing_keep_every_point_in_its_place(tmp_path):
    """A smooth bump is where it was: its centre of mass in millimetres is the same before and after."""
    i, j, k = np.indices((30, 20, 4))
    values = np.exp(-((i - 17) ** 2) / 18 - ((j - 8) ** 2) / 10) * (1 + 0 * k)
    nibabel.save(nibabel.Nifti1Image(values.astype(np.float32), oblique()), tmp_path / "v.nii")

    def centre(volume, affine):
        weights = volume / volume.sum()
        return affine @ [*(float((weights * n).sum()) for n in np.indices(volume.shape)), 1]

    expected = centre(values, oblique())
    for size in (30, 60, 24, 31):
        source = open_source(str(tmp_path / "v.nii"), size=size)
        volume = assemble(np.stack([(source[k].x[0] + 1) / 2 for k in range(4)]), source.geometry()["v"])
        affine = np.array(source.geometry()["v"]["affine"])
        np.testing.assert_allclose(centre(volume, affine), expected, atol=0.02)
        assert not np.allclose(centre(volume, oblique()), expected, atol=0.5)  # the affine of the file would be wrong


def test_time_points_become_a_fourth_dimension_again(tmp_path):
    values = RNG.normal(size=(5, 4, 3, 2)).astype(np.float32)
    image = nibabel.Nifti1Image(values, oblique())
    image.header.set_zooms((*image.header.get_zooms()[:3], 2.2))
    image.header.set_xyzt_units("mm", "sec")
    nibabel.save(image, tmp_path / "bold.nii")
    source = Nifti(tmp_path / "bold.nii", complex=True)
    geometry = source.geometry()["bold"]
    np.testing.assert_array_equal(assemble(planes_of(source), geometry), values)
    assert geometry["steps"] == pytest.approx([2.2])


def write_dicom(folder, values, affine, echoes=1, spacing=None):
    """A series whose array, as (columns, rows from the bottom, slices), has this affine."""
    folder.mkdir()
    across, up, step, origin = (affine[:3, k] * [-1, -1, 1] for k in range(4))
    rows = values.shape[1]
    for at in range(values.shape[2]):
        place = at // echoes if spacing is None else spacing[at]
        data = pydicom.Dataset()
        data.file_meta = pydicom.dataset.FileMetaDataset()
        data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        data.file_meta.MediaStorageSOPClassUID = data.SOPClassUID = MRImageStorage
        data.file_meta.MediaStorageSOPInstanceUID = data.SOPInstanceUID = f"1.2.3.{at + 1}"
        data.SeriesInstanceUID, data.InstanceNumber = "1.2.3", at + 1
        position = origin + up * (rows - 1) + step * place
        data.ImagePositionPatient = [f"{v:.8f}"[:16] for v in position]
        turn = [*(across / np.linalg.norm(across)), *(-up / np.linalg.norm(up))]
        data.ImageOrientationPatient = [f"{v:.10f}"[:16] for v in turn]
        data.PixelSpacing = [f"{np.linalg.norm(v):.8f}"[:16] for v in (up, across)]
        data.Rows, data.Columns, data.SamplesPerPixel, data.PhotometricInterpretation = (
            rows,
            len(values),
            1,
            "MONOCHROME2",
        )
        data.BitsAllocated, data.BitsStored, data.HighBit, data.PixelRepresentation = 16, 16, 15, 0
        data.PixelData = np.rot90(values[..., at]).astype("<u2").tobytes()
        data.save_as(folder / f"{(at * 7) % 50:02d}.dcm", enforce_file_format=True)


@pytest.mark.parametrize("axis", [0, 2])
def test_dicom_series_have_the_affine_of_their_positions(tmp_path, axis):
    values = RNG.integers(0, 900, (6, 5, 4))
    affine = oblique()  # left-handed, as slices in the order of their positions are
    write_dicom(tmp_path / "s", values, affine)
    source = Dicom(tmp_path / "s", axis=axis)
    geometry = source.geometry()["1.2.3"]
    np.testing.assert_allclose(geometry["affine"], affine, atol=1e-4)
    np.testing.assert_array_equal(assemble(planes_of(source), geometry), values)


def test_echoes_of_a_series_are_a_fourth_dimension_and_uneven_slices_have_no_affine(tmp_path):
    affine = np.diag([-1.0, 1.0, 3.0, 1.0])
    values = RNG.integers(0, 900, (6, 5, 6))
    write_dicom(tmp_path / "echoes", values, affine, echoes=2)
    source = Dicom(tmp_path / "echoes")
    geometry = source.geometry()["1.2.3"]
    assert geometry["shape"] == [6, 5, 3, 2]
    volume = assemble(planes_of(source), geometry)
    np.testing.assert_array_equal(volume, values.reshape(6, 5, 3, 2))
    assert np.linalg.norm(np.array(geometry["affine"])[:3, 2]) == pytest.approx(3)
    assert "cannot be told apart" in Dicom(tmp_path / "echoes", slices=(1, 4)).geometry()["1.2.3"]["problem"]
    write_dicom(tmp_path / "uneven", values, affine, spacing=[0, 1, 2, 5, 6, 7])
    assert Dicom(tmp_path / "uneven").geometry()["1.2.3"]["problem"] == "its slices are not evenly spaced"


def test_a_part_of_a_file_keeps_the_place_of_each_slice(head, tmp_path):
    path, values = head
    gsure.corrupt(Nifti(path), tmp_path / "d.h5", gsure.corruption.Pixels(0.0), 0.0, shards=2)
    data = gsure.open(tmp_path / "d.h5")
    assert data.geometry()["head"]["shape"] == [9, 7, 6]
    gsure.save(tmp_path / "part.h5", data.subset(np.array([1, 4])))
    part = gsure.open(tmp_path / "part.h5")
    assert part.geometry()["head"]["positions"] == [1, 4]
    again = part.subset(np.array([1])).geometry()["head"]
    assert again["positions"] == [4]
    volume = assemble(np.rot90(values[..., 4])[None], again)
    np.testing.assert_array_equal(volume[..., 4], values[..., 4])
    assert np.isnan(volume[..., :4]).all()


@pytest.mark.parametrize(("volume", "how"), [("head", "corrupt"), ("head", "import"), ("mni152", "import")])
def test_affine_in_equals_affine_out_after_restoring(volume, tmp_path, how, request):
    path, values = request.getfixturevalue(volume)
    if how == "corrupt":
        gsure.corrupt(Nifti(path), tmp_path / "d.h5", gsure.corruption.Pixels(0.0), 1e-5)
    else:
        gsure.convert("nifti", path, tmp_path / "d.h5", 0.01)
    settings = dataclasses.replace(QUICK, steps=2, batch=2, held_out=0.0)
    gsure.train(tmp_path / "d.h5", tmp_path / "run", settings)
    gsure.restore(
        tmp_path / "run",
        tmp_path / "d.h5",
        tmp_path / "r",
        draws=2,
        steps=3,
        panels=0,
        volumes="nifti",
        baselines=False,
    )
    given = nibabel.load(path)
    for kind in ("mean", "std", "baseline"):
        found = nibabel.load(tmp_path / "r" / "nifti" / f"{kind}-head.nii.gz")
        np.testing.assert_allclose(found.affine, given.affine, atol=1e-5)
        np.testing.assert_allclose(found.header.get_qform(), given.header.get_qform(), atol=1e-5)
        assert found.shape == given.shape
        assert found.header.get_xyzt_units() == given.header.get_xyzt_units()
        for code in ("qform_code", "sform_code"):
            assert found.header[code] == given.header[code]
    np.testing.assert_allclose(found.get_fdata(), values, atol=1)  # the baseline is what was measured


def test_groups_whose_files_would_collide_are_refused_before_any_work(tmp_path):
    x = RNG.uniform(-1, 1, (4, 1, 8, 8)).astype(np.float32)
    data = gsure.from_arrays(x, 1, 0.1, groups=["a/b", "a/b", "a b", "a b"], verbose=False)
    with pytest.raises(
        ValueError, match=r"The groups 'a/b' and 'a b' would both be written to the volume a_b: rename one"
    ):
        check_volumes(data)
    check_volumes(data.subset(np.arange(2)))
    nibabel.save(nibabel.Nifti1Image(x[0], np.eye(4)), tmp_path / "v.nii")
    nibabel.save(nibabel.Nifti1Image(x[0], np.eye(4)), tmp_path / "v.nii.gz")
    with pytest.raises(ValueError, match=r"has two volumes of the name v: rename one"):
        Nifti(tmp_path, complex=True)


def test_many_volumes_fit_into_the_header(tmp_path):
    """An attribute of HDF5 holds at most 64 kB; the geometry of 400 volumes is more."""
    (tmp_path / "many").mkdir()
    for k in range(400):
        nibabel.save(nibabel.Nifti1Image(np.ones((4, 4, 1), np.float32) + k, oblique()), tmp_path / "many" / f"{k}.nii")
    gsure.convert("nifti", tmp_path / "many", tmp_path / "m.h5", 0.1)
    geometry = gsure.open(tmp_path / "m.h5").geometry()
    assert len(geometry) == 400
    np.testing.assert_allclose(geometry["17"]["affine"], oblique(), atol=1e-5)


def test_data_without_a_place_is_written_as_before(tmp_path):
    (tmp_path / "mean").mkdir()
    x = RNG.normal(size=(3, 1, 5, 4)).astype(np.float32)
    header = {"source": {}, "complex": False, "corruption": {}, "sigma_0": None, "seed": 0}
    with Writer(tmp_path / "mean" / "shard-00000.h5", 3, (1, 5, 4), header) as writer:
        writer.append(torch.from_numpy(x), ["0", "1", "2"], [1.0] * 3)
    write_volumes(tmp_path, ("mean",), "nifti")
    image = nibabel.load(tmp_path / "nifti" / "mean.nii.gz")
    np.testing.assert_allclose(image.get_fdata(), np.moveaxis(x[:, 0], 0, -1), rtol=1e-6)
    np.testing.assert_array_equal(image.affine, np.eye(4))
