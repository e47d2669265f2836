"""Medical volumes and raw data: fastMRI, NIfTI, DICOM, BART, ISMRMRD; each file is made here, in its real format."""

import json
import pickle

import h5py
import ismrmrd
import nibabel
import numpy as np
import pydicom
import pytest
from pydicom.uid import ExplicitVRLittleEndian, MRImageStorage, generate_uid

from gsure.data.sources import Cfl, Dicom, FastMRI, Ismrmrd, Nifti, guess_kind, open_source

RNG = np.random.Generator(np.random.PCG64(2))


def noise(*shape):
    return (RNG.normal(size=shape) + 1j * RNG.normal(size=shape)).astype(np.complex64)


def direct_spectrum(image):
    """The centred orthonormal Fourier transform as a sum, so that the sources are not tested against their own FFT."""
    for axis in (-2, -1):
        n = image.shape[axis]
        k = np.arange(n) - n // 2
        matrix = np.exp(-2j * np.pi * np.outer(k, k) / n) / n**0.5
        image = np.moveaxis(np.tensordot(matrix, image, (1, axis)), 0, axis)
    return image.astype(np.complex64)


def complex_of(sample):
    return sample.x[0] + 1j * sample.x[1]


def assert_describes_itself(source):
    fingerprint = source.fingerprint()
    assert json.loads(json.dumps(fingerprint)) == fingerprint
    assert fingerprint["samples"] == len(source)
    copy = pickle.loads(pickle.dumps(source))  # noqa: S301
    np.testing.assert_array_equal(copy[len(source) - 1].x, source[-1].x)


# fastMRI


def write_volume(path, kspace, **more):
    path.parent.mkdir(exist_ok=True)
    with h5py.File(path, "w") as file:
        file.create_dataset("kspace", data=kspace, chunks=(1, *kspace.shape[1:]))
        for name, value in more.items():
            file[name] = value
    return path


@pytest.fixture
def knees(tmp_path):
    """Three volumes of known images, with 12, 45 and 14 slices."""
    images = {name: 7e-5 * noise(n, 24, 19) for name, n in (("b", 45), ("a", 12), ("c", 14))}
    for name, image in images.items():
        write_volume(tmp_path / "singlecoil_train" / f"{name}.h5", direct_spectrum(image))
    return tmp_path / "singlecoil_train", images


def test_fastmri_recovers_the_crop_of_the_image_slice_by_slice(knees):
    folder, images = knees
    source = FastMRI(folder, size=16)
    assert (len(source), source.shape, source.is_complex) == (2 + 31 + 4, (2, 16, 16), True)
    for index, name, at in ((0, "a", 10), (1, "a", 11), (2, "b", 10), (32, "b", 40), (33, "c", 10), (-1, "c", 13)):
        sample = source[index]
        assert (sample.group, sample.scale) == (name, 7e-5)
        np.testing.assert_allclose(complex_of(sample), images[name][at, 4:20, 1:17] / 7e-5, atol=1e-4)
    assert_describes_itself(source)


def test_fastmri_counts_slices_by_folder_and_records_those_of_the_paper(knees):
    folder, _ = knees
    write_volume(folder.parent / "singlecoil_val" / "d.h5", noise(11, 20, 20))
    fingerprint = FastMRI(folder.parent, size=16).fingerprint()
    assert fingerprint["slices"] == {"singlecoil_train": 37, "singlecoil_val": 1}
    assert fingerprint["paper_training_slices"] == 24_853
    assert len(FastMRI(folder.parent, split="val", size=16)) == 1
    assert len(FastMRI(folder / "b.h5", size=16, slices=(0, 3), scale=1.0)) == 4
    with pytest.raises(FileNotFoundError, match="singlecoil_test"):
        FastMRI(folder.parent, split="test")


def test_fastmri_reads_one_slice_and_no_more(knees, monkeypatch):
    folder, _ = knees
    read = []
    original = h5py.Dataset.__getitem__

    def counting(self, key, **rest):
        values = original(self, key, **rest)
        read.append(values.nbytes)
        return values

    monkeypatch.setattr(h5py.Dataset, "__getitem__", counting)
    source = FastMRI(folder, size=16)
    assert read == []
    source[20]
    assert read == [24 * 19 * 8]


def test_fastmri_refuses_by_name_what_it_cannot_use(tmp_path):
    good = noise(12, 8, 8)
    for name, kspace, more, message in (
        ("short", good[:10], {}, r"short\.h5 has 10 slices, so none from 10 on"),
        ("coils", noise(12, 2, 8, 8), {}, r"kspace of .*coils\.h5 has shape \(12, 2, 8, 8\)"),
        ("narrow", noise(12, 8, 6), {}, r"narrow\.h5 has slices of 8x6, smaller than the crop"),
        ("masked", good, {"mask": np.ones(8)}, r"masked\.h5 has a mask.*gsure import"),
    ):
        with pytest.raises(ValueError, match=message):
            FastMRI(write_volume(tmp_path / f"{name}.h5", kspace, **more), size=8)
    with h5py.File(tmp_path / "foreign.h5", "w") as file:
        file["images"] = np.zeros((12, 8, 8))
    with pytest.raises(ValueError, match=r"foreign\.h5 has no dataset kspace, only \['images'\]"):
        FastMRI(tmp_path / "foreign.h5", size=8)
    whole = write_volume(tmp_path / "cut.h5", good).read_bytes()
    (tmp_path / "cut.h5").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"cut\.h5 is not a \w+ HDF5 file"):
        FastMRI(tmp_path / "cut.h5", size=8)
    with pytest.raises(ValueError, match="slices must be the first and the last"):
        FastMRI(tmp_path, slices=(5, 4))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"no file that ends in \.h5"):
        FastMRI(tmp_path / "empty")


def test_nan_in_kspace_is_refused_naming_file_and_slice(tmp_path):
    kspace = noise(13, 8, 8)
    kspace[11, 3, 3] = np.nan
    source = FastMRI(write_volume(tmp_path / "v.h5", kspace), size=8)
    source[0]
    with pytest.raises(ValueError, match=r"k-space of slice 11 of .*v\.h5 has 1 values that are NaN"):
        source[1]


# NIfTI

VOXELS = RNG.integers(0, 1000, (10, 12, 7)).astype(np.int16)


def write_nifti(path, voxels):
    nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), path)
    return path


@pytest.mark.parametrize("name", ["v.nii", "v.nii.gz"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_nifti_slices_along_any_axis_scaled_by_the_volume(tmp_path, name, axis):
    source = Nifti(write_nifti(tmp_path / name, VOXELS), axis=axis, slices=(2, 4))
    assert (len(source), source.is_complex) == (3, False)
    for index in range(3):
        plane = np.rot90(np.take(VOXELS, index + 2, axis))
        assert source.shape == (1, *plane.shape)
        np.testing.assert_allclose(source[index].x[0], 2 * plane / VOXELS.max() - 1, atol=1e-5)
        sample = source[index]
        assert (sample.group, sample.scale, sample.offset) == ("v", VOXELS.max() / 2, VOXELS.max() / 2)
    assert_describes_itself(source)
    assert guess_kind(tmp_path / name) == guess_kind(tmp_path) == "nifti"


def test_nifti_can_stand_for_a_magnitude_or_be_complex(tmp_path):
    found = Nifti(write_nifti(tmp_path / "v.nii", VOXELS), complex=True)[3]
    np.testing.assert_allclose(complex_of(found) * found.scale, np.rot90(VOXELS[..., 3]), rtol=1e-5, atol=1e-4)
    volume = noise(6, 6, 4)
    path = write_nifti(tmp_path / "z.nii.gz", volume)
    sample = Nifti(path, complex=True)[2]
    np.testing.assert_allclose(complex_of(sample) * sample.scale, np.rot90(volume[..., 2]), rtol=1e-5)
    assert np.sqrt((sample.x**2).mean()) == pytest.approx(1, abs=0.4)
    with pytest.raises(ValueError, match=r"z\.nii\.gz holds complex64.*need the option complex"):
        Nifti(path)


def test_nifti_pads_to_a_square_before_it_resizes(tmp_path):
    voxels = np.full((8, 16, 3), 50, np.float32)
    source = Nifti(write_nifti(tmp_path / "v.nii", voxels), size=4)
    assert source.shape == (1, 4, 4)
    x = source[0].x[0]
    np.testing.assert_allclose(x[:, 1:3].mean(), 1, atol=0.3)
    assert x[:, 0].max() < -0.3  # background to the left and right
    np.testing.assert_allclose((x.mean() + 1) / 2, 0.5, atol=0.05)


def test_further_dimensions_are_more_slices(tmp_path):
    voxels = RNG.uniform(0, 1, (4, 5, 3, 2)).astype(np.float32)
    source = Nifti(write_nifti(tmp_path / "v.nii", voxels), slices=(1, 2))
    assert len(source) == 4
    np.testing.assert_allclose(source[3].x[0], 2 * np.rot90(voxels[:, :, 2, 1]) / voxels.max() - 1, atol=1e-6)


def test_negative_values_need_a_window(tmp_path):
    path = write_nifti(tmp_path / "ct.nii", VOXELS - 500)
    with pytest.raises(ValueError, match=r"ct has values down to -\d+: give window"):
        Nifti(path)[0]
    sample = Nifti(path, window=(-100.0, 300.0))[0]
    assert (sample.x.min(), sample.x.max(), sample.scale) == (-1, 1, 200)
    inner = np.rot90((np.clip(VOXELS[..., 0] - 500.0, -100, 300) + 100) / 200 - 1)
    np.testing.assert_allclose(sample.x[0], inner, atol=1e-6)
    with pytest.raises(ValueError, match="window must be a low and a high value"):
        Nifti(path, window=(1.0, 0.0))


def test_nifti_refuses_by_name_what_it_cannot_use(tmp_path):
    (tmp_path / "foreign.nii").write_bytes(b"nothing of the kind" * 100)
    with pytest.raises(ValueError, match=r"foreign\.nii is not a NIfTI file"):
        Nifti(tmp_path / "foreign.nii")
    whole = write_nifti(tmp_path / "cut.nii.gz", RNG.normal(size=(20, 20, 20))).read_bytes()
    (tmp_path / "cut.nii.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"cut\.nii\.gz cannot be read \(.*\): it may be truncated"):
        Nifti(tmp_path / "cut.nii.gz")[0]
    with pytest.raises(ValueError, match=r"has shape \(4, 4\)"):
        Nifti(write_nifti(tmp_path / "flat.nii", VOXELS[:4, :4, 0]))
    with pytest.raises(ValueError, match="zero everywhere"):
        Nifti(write_nifti(tmp_path / "zero.nii", 0 * VOXELS))[0]
    bad = VOXELS.astype(np.float32)
    bad[0, 0, 5] = np.nan
    with pytest.raises(ValueError, match="Slice 5 of bad has 1 values that are NaN"):
        Nifti(write_nifti(tmp_path / "bad.nii", bad))[0]
    with pytest.raises(ValueError, match="has 7 slices along axis 2, so none from 7 on"):
        Nifti(tmp_path / "bad.nii", slices=(7, 9))
    with pytest.raises(ValueError, match="axis must be 0, 1 or 2"):
        Nifti(tmp_path / "bad.nii", axis=3)
    (tmp_path / "two").mkdir()
    write_nifti(tmp_path / "two/a.nii", VOXELS)
    write_nifti(tmp_path / "two/b.nii", VOXELS[1:])
    with pytest.raises(ValueError, match=r"Slices of b are \(12, 9\), those of a \(12, 10\): give size"):
        Nifti(tmp_path / "two")
    assert len(Nifti(tmp_path / "two", size=8)) == 14


# DICOM


def write_dicom(path, pixels, series, number, **tags):
    meta = pydicom.dataset.FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = MRImageStorage, generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data = pydicom.Dataset()
    data.file_meta = meta
    data.SOPClassUID, data.SOPInstanceUID, data.SeriesInstanceUID = MRImageStorage, generate_uid(), series
    data.InstanceNumber = number
    data.Rows, data.Columns = pixels.shape
    data.BitsAllocated = data.BitsStored = 16
    data.HighBit, data.PixelRepresentation, data.SamplesPerPixel = 15, 0, 1
    data.PhotometricInterpretation = "MONOCHROME2"
    for tag, value in tags.items():
        setattr(data, tag, value)
    data.PixelData = pixels.astype("<u2").tobytes()
    data.save_as(path, enforce_file_format=True)


PLANES = RNG.integers(0, 4000, (5, 6, 8))


@pytest.fixture
def series(tmp_path):
    """Five slices under names and instance numbers that both run against their positions."""
    folder, uid = tmp_path / "series", generate_uid()
    folder.mkdir()
    for at, plane in enumerate(PLANES):
        write_dicom(
            folder / f"IM{9 - at}",
            plane,
            uid,
            9 - at,
            ImagePositionPatient=[0, 0, 3 * at - 7],
            ImageOrientationPatient=[1, 0, 0, 0, 1, 0],
        )
    (folder / "README").write_text("not a slice")
    return folder, str(uid)


def test_dicom_slices_are_sorted_by_position(series):
    folder, uid = series
    source = open_source(str(folder))
    assert (source.kind, len(source), source.shape) == ("dicom", 5, (1, 6, 8))
    for at, plane in enumerate(PLANES):
        np.testing.assert_allclose(source[at].x[0], 2 * plane / PLANES.max() - 1, atol=1e-6)
        assert (source[at].group, source[at].scale) == (uid, PLANES.max() / 2)
    assert_describes_itself(source)


def test_dicom_is_cut_along_other_axes_too(series):
    folder, _ = series
    coronal = Dicom(folder, axis=1)  # rows, counted from the bottom; the last slice on top
    assert (len(coronal), coronal.shape) == (6, (1, 5, 8))
    np.testing.assert_allclose(coronal[0].x[0], 2 * PLANES[::-1, -1] / PLANES.max() - 1, atol=1e-6)
    sagittal = Dicom(folder, axis=0, size=8, complex=True)
    assert (len(sagittal), sagittal[0].x.shape, sagittal[0].x[1].any()) == (8, (2, 8, 8), False)


def test_dicom_without_positions_goes_by_instance_number_and_rescales(tmp_path):
    uid = generate_uid()
    for at, plane in enumerate(PLANES):
        write_dicom(tmp_path / f"{9 - at}.dcm", plane, uid, at, RescaleSlope="0.5", RescaleIntercept="-1000")
    with pytest.raises(ValueError, match="has values down to -"):
        Dicom(tmp_path)[0]
    source = Dicom(tmp_path, window=(-500.0, 500.0))
    for at, plane in enumerate(PLANES):
        expected = np.clip(plane * 0.5 - 1000, -500, 500) / 500
        np.testing.assert_allclose(source[at].x[0], expected, atol=1e-6)


def test_dicom_refuses_what_it_cannot_use(tmp_path):
    with pytest.raises(ValueError, match="has no DICOM image"):
        Dicom(tmp_path)
    write_dicom(tmp_path / "1.dcm", PLANES[0], "1.2.3", 1)
    write_dicom(tmp_path / "2.dcm", PLANES[1].T, "1.2.3", 2)
    with pytest.raises(ValueError, match=r"1\.2\.3 .* slices of different sizes"):
        Dicom(tmp_path)
    write_dicom(tmp_path / "2.dcm", PLANES[1], "1.2.3", 2, NumberOfFrames=3)
    with pytest.raises(ValueError, match=r"2\.dcm holds several frames"):
        Dicom(tmp_path)
    (tmp_path / "2.dcm").write_bytes(b"rubbish")
    with pytest.raises(ValueError, match=r"2\.dcm is not a DICOM file"):
        Dicom(tmp_path)
    write_dicom(tmp_path / "2.dcm", PLANES[1], "1.2.3", 2, PhotometricInterpretation="MONOCHROME1")
    with pytest.raises(ValueError, match=r"2\.dcm is stored with white as 0"):
        Dicom(tmp_path)[0]
    whole = (tmp_path / "1.dcm").read_bytes()
    (tmp_path / "1.dcm").write_bytes(whole[:-20])
    with pytest.raises(ValueError, match=r"pixels of .*1\.dcm cannot be decoded"):
        Dicom(tmp_path)[0]


# BART


def write_cfl(stem, array):
    """Column-major complex64 and a header, as BART writes them."""
    stem.with_suffix(".hdr").write_text(f"# Dimensions\n{' '.join(map(str, array.shape))} \n# Command\nfft -i 3 a b\n")
    stem.with_suffix(".cfl").write_bytes(array.astype("<c8").tobytes(order="F"))
    return stem


def test_cfl_flattens_all_but_two_dimensions_in_column_major_order(tmp_path):
    array = noise(4, 6, 3, 1, 1, 2)  # the third dimension of images counts slices, the sixth echoes
    stem = write_cfl(tmp_path / "z", array)
    for path in (stem, stem.with_suffix(".cfl"), stem.with_suffix(".hdr"), tmp_path):
        source = Cfl(path)
        assert (len(source), source.shape, source.is_complex) == (6, (2, 4, 6), True)
        scale = source[4].scale
        np.testing.assert_allclose(complex_of(source[4]), array[:, :, 1, 0, 0, 1] / scale, atol=1e-6)
        assert source[4].group == "z"
        assert np.sqrt(np.mean([(source[k].x ** 2).mean() for k in range(6)])) == pytest.approx(1, abs=0.3)
    np.testing.assert_allclose(complex_of(Cfl(stem, scale=2.0)[5]), array[:, :, 2, 0, 0, 1] / 2, atol=1e-6)
    assert_describes_itself(source)
    assert guess_kind(tmp_path / "z.hdr") == guess_kind(tmp_path) == "cfl"


def test_cfl_reads_coils_in_the_order_of_bart(tmp_path):
    array = noise(1, 6, 4, 3)  # READ is 1
    stem = write_cfl(tmp_path / "k", array)
    with pytest.raises(ValueError, match=r"has 3 coils \(PHS1 \(6\) has rows .*: choose one with coil, 0 to 2"):
        Cfl(stem)
    source = Cfl(stem, scale=1.0, coil=2)
    assert (len(source), source.shape) == (1, (2, 6, 4))
    np.testing.assert_allclose(complex_of(source[0]), array[0, :, :, 2], atol=1e-6)
    named = Cfl(stem, scale=1.0, dims="phs2,read,phs1,slice")
    assert len(named) == 3
    np.testing.assert_allclose(complex_of(named[1]), array[0, :, :, 1], atol=1e-6)


def test_cfl_refuses_sizes_that_disagree_and_headers_that_say_nothing(tmp_path):
    stem = write_cfl(tmp_path / "z", noise(4, 6, 2))
    stem.with_suffix(".cfl").write_bytes(bytes(4 * 6 * 8))
    with pytest.raises(
        ValueError, match=r"z\.cfl has 192 bytes, but its header promises 384 \(dimensions \(4, 6, 2\)\)"
    ):
        Cfl(stem)
    stem.with_suffix(".hdr").write_text("4 6 2\n")
    with pytest.raises(ValueError, match=r"z\.hdr is not a header of BART"):
        Cfl(stem)
    stem.with_suffix(".hdr").unlink()
    with pytest.raises(FileNotFoundError, match=r"z\.hdr"):
        Cfl(stem)
    array = noise(4, 6, 2)
    array[0, 0, 1] = np.nan
    with pytest.raises(ValueError, match=r"Image 1 of .*n\.cfl has 1 values that are NaN"):
        Cfl(write_cfl(tmp_path / "n", array), scale=1.0)[1]
    with pytest.raises(ValueError, match=r"Image 1 of .*n\.cfl has 1 values that are NaN"):
        Cfl(tmp_path / "n")[0]
    write_cfl(tmp_path / "z", noise(5, 6))
    with pytest.raises(ValueError, match=r"z\.cfl has images of 5x6, but .*n\.cfl of 4x6"):
        Cfl(tmp_path)


# ISMRMRD

HEADER = """<?xml version="1.0"?>
<ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD">
 <experimentalConditions><H1resonanceFrequency_Hz>63500000</H1resonanceFrequency_Hz></experimentalConditions>
 <encoding>
  <encodedSpace><matrixSize><x>16</x><y>10</y><z>{depth}</z></matrixSize>
   <fieldOfView_mm><x>400</x><y>200</y><z>5</z></fieldOfView_mm></encodedSpace>
  <reconSpace><matrixSize><x>8</x><y>10</y><z>1</z></matrixSize>
   <fieldOfView_mm><x>200</x><y>200</y><z>5</z></fieldOfView_mm></reconSpace>
  <encodingLimits><kspace_encoding_step_1><minimum>0</minimum><maximum>9</maximum><center>5</center>
   </kspace_encoding_step_1></encodingLimits>
  <trajectory>{trajectory}</trajectory>
 </encoding>
</ismrmrdHeader>"""


def write_raw(path, kspace, lines=range(10), averages=1, trajectory="cartesian", depth=1):
    """(slices, repetitions, coils, readout, phase), one readout after the other, after a readout of noise."""
    with ismrmrd.Dataset(str(path), "dataset", mode="w") as dataset:
        dataset.write_xml_header(HEADER.format(trajectory=trajectory, depth=depth).encode())
        first = ismrmrd.Acquisition.from_array(noise(kspace.shape[2], 16))
        first.set_flag(ismrmrd.ACQ_IS_NOISE_MEASUREMENT)
        dataset.append_acquisition(first)
        for average in range(averages):
            for repetition in range(kspace.shape[1]):
                for line in lines:  # slices interleaved, as scanners do
                    for at in range(kspace.shape[0]):
                        readout = kspace[at, repetition, :, :, line] * (0.5 + average if averages == 2 else 1)
                        acquisition = ismrmrd.Acquisition.from_array(np.ascontiguousarray(readout))
                        acquisition.center_sample = 8
                        acquisition.idx.kspace_encode_step_1 = line
                        acquisition.idx.slice, acquisition.idx.repetition = at, repetition
                        acquisition.idx.average = average
                        dataset.append_acquisition(acquisition)
    return path


@pytest.mark.parametrize("averages", [1, 2])
def test_ismrmrd_readouts_become_images(tmp_path, averages):
    image = noise(2, 3, 1, 16, 10)
    source = open_source(str(write_raw(tmp_path / "raw.h5", direct_spectrum(image), averages=averages)))
    assert (source.kind, len(source), source.shape) == ("ismrmrd", 6, (2, 8, 10))
    cropped = image[..., 4:12, :]  # readouts are twice as long as the reconstructed field of view
    for index in range(6):
        expected = cropped[index // 3, index % 3, 0] / source[index].scale
        np.testing.assert_allclose(complex_of(source[index]), expected, atol=1e-5)
        assert source[index].group == "raw"
    rms = np.sqrt((np.abs(cropped) ** 2).mean() / 2)
    assert source[0].scale == pytest.approx(rms, rel=0.2)
    assert_describes_itself(source)


def test_ismrmrd_asks_for_a_coil(tmp_path):
    image = noise(1, 1, 3, 16, 10)
    path = write_raw(tmp_path / "raw.h5", direct_spectrum(image))
    with pytest.raises(ValueError, match="has 3 coils: choose one with coil, 0 to 2"):
        Ismrmrd(path)
    np.testing.assert_allclose(complex_of(Ismrmrd(path, coil=2, scale=1.0)[0]), image[0, 0, 2, 4:12], atol=1e-5)
    with pytest.raises(ValueError, match=r"coil must lie in 0\.\.2"):
        Ismrmrd(path, coil=3)


def test_ismrmrd_refuses_what_is_not_a_complete_cartesian_slice(tmp_path):
    kspace = noise(2, 1, 1, 16, 10)
    with pytest.raises(
        ValueError,
        match=r"lacks 5 of 10 lines of the image \{'slice': 0.*undersampled\. Save .* use gsure import array",
    ):
        Ismrmrd(write_raw(tmp_path / "a.h5", kspace, lines=range(0, 10, 2)))
    with pytest.raises(ValueError, match="has a radial trajectory"):
        Ismrmrd(write_raw(tmp_path / "a.h5", kspace, trajectory="radial"))
    with pytest.raises(ValueError, match="matrix 16x10x4: only Cartesian slices"):
        Ismrmrd(write_raw(tmp_path / "a.h5", kspace, depth=4))
    with pytest.raises(ValueError, match=r"Readout 1 of .* lies outside the matrix 16x10"):
        Ismrmrd(write_raw(tmp_path / "a.h5", noise(1, 1, 1, 20, 10)))
    kspace[0, 0, 0, 1, 1] = np.nan
    with pytest.raises(ValueError, match=r"k-space of image 0 of .*a\.h5 has 1 values that are NaN"):
        Ismrmrd(write_raw(tmp_path / "a.h5", kspace), scale=1.0)[0]
    write_volume(tmp_path / "v.h5", noise(2, 3, 3))
    with pytest.raises(ValueError, match=r"v\.h5 is not an ISMRMRD file"):
        Ismrmrd(tmp_path / "v.h5")
    (tmp_path / "f.h5").write_bytes(b"foreign")
    with pytest.raises(ValueError, match=r"f\.h5 is not a \w+ HDF5 file"):
        Ismrmrd(tmp_path / "f.h5")
    with pytest.raises(ValueError, match=r"f\.h5 is not a \w+ HDF5 file"):
        open_source(str(tmp_path / "f.h5"))


# Names, and damage


def test_volumes_of_the_same_name_in_other_folders_are_other_groups(tmp_path):
    for subject, shape in (("sub-01", (6, 5, 4)), ("sub-02", (6, 5, 4)), ("sub-03", (7, 5, 4))):
        (tmp_path / "nii" / subject).mkdir(parents=True)
        nibabel.save(nibabel.Nifti1Image(RNG.random(shape), np.eye(4)), tmp_path / "nii" / subject / "T1w.nii.gz")
    with pytest.raises(ValueError, match=r"Slices of sub-03/T1w are \(5, 7\), those of sub-01/T1w \(5, 6\)"):
        Nifti(tmp_path / "nii")
    source = Nifti(tmp_path / "nii", size=8)
    assert [source[k].group for k in (0, 4, 8)] == ["sub-01/T1w", "sub-02/T1w", "sub-03/T1w"]
    assert Nifti(tmp_path / "nii" / "sub-01" / "T1w.nii.gz")[0].group == "T1w"
    for name in ("a", "b"):
        (tmp_path / "h5" / name).mkdir(parents=True)
        write_volume(tmp_path / "h5" / name / "scan.h5", noise(12, 20, 20))
    assert {FastMRI(tmp_path / "h5", size=16)[k].group for k in range(4)} == {"a/scan", "b/scan"}


def test_damaged_headers_are_refused_by_name(tmp_path):
    nibabel.save(nibabel.Nifti1Image(RNG.random((6, 5, 4)).astype(np.float32), np.eye(4)), tmp_path / "v.nii")
    damaged = bytearray((tmp_path / "v.nii").read_bytes())
    damaged[70:72] = b"\xff\x7f"  # the code of the data type
    (tmp_path / "v.nii").write_bytes(damaged)
    with pytest.raises(ValueError, match=r"v\.nii is not a NIfTI file"):
        Nifti(tmp_path / "v.nii")
    with h5py.File(tmp_path / "g.h5", "w") as file:
        file.create_group("kspace")
    with pytest.raises(ValueError, match=r"g\.h5 is damaged, or not a fastMRI volume"):
        FastMRI(tmp_path / "g.h5")
    with h5py.File(tmp_path / "x.mrd", "w") as file:
        group = file.create_group("dataset")
        group["xml"] = np.array([b"<ismrmrdHeader/>"])
        group["data"] = np.zeros(3, [("head", "<i4"), ("data", "<f4")])
    with pytest.raises(ValueError, match=r"The XML header of .*x\.mrd has no ISMRMRD encoding"):
        Ismrmrd(tmp_path / "x.mrd")
