"""Images: folders and zips, CelebA, IDX."""

import gzip
import json
import pickle
import struct
import zipfile

import numpy as np
import pytest
from PIL import Image

from gsure.data.sources import CelebA, Idx, Images, guess_kind, open_source

RNG = np.random.Generator(np.random.PCG64(1))
COLOUR = RNG.integers(0, 256, (3, 12, 16, 3), np.uint8)


def in_range(pixels):
    """0..255 as -1..1, channels first."""
    pixels = pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)
    return pixels / 127.5 - 1


@pytest.fixture
def folder(tmp_path):
    for name, pixels in zip(("b/2.png", "a/1.png", "c.bmp"), COLOUR, strict=True):
        path = tmp_path / "pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    (tmp_path / "pictures/notes.txt").write_text("not a picture")
    (tmp_path / "pictures/.hidden.png").write_text("not a picture either")
    return tmp_path / "pictures"


@pytest.fixture
def archive(folder):
    with zipfile.ZipFile(folder.parent / "pictures.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in folder.rglob("*"):
            archive.write(path, path.relative_to(folder))
        archive.writestr("__MACOSX/a/1.png", b"rubbish")
    return folder.parent / "pictures.zip"


def test_folder_and_zip_give_the_same_pictures_in_sorted_order(folder, archive):
    for source in (Images(folder), Images(archive), pickle.loads(pickle.dumps(Images(archive)))):  # noqa: S301
        assert (len(source), source.shape) == (3, (3, 12, 16))
        assert source.files == ("a/1.png", "b/2.png", "c.bmp")
        for index, original in enumerate((1, 0, 2)):
            np.testing.assert_allclose(source[index].x, in_range(COLOUR[original]), atol=1e-6)
            assert source[index].x.flags.c_contiguous
        assert [sample.group for sample in source] == ["a/1.png", "b/2.png", "c.bmp"]
        assert json.loads(json.dumps(source.fingerprint())) == source.fingerprint()
    assert Images(folder).fingerprint()["sha256"] == Images(archive).fingerprint()["sha256"]
    assert Images(folder, group="folder")[0].group == "a"
    assert guess_kind(folder) == guess_kind(archive) == "images"


def test_crop_is_central_and_gray_is_the_mean_of_channels(folder):
    source = Images(folder, crop=6, gray=True)
    assert source.shape == (1, 6, 6)
    mean = in_range(COLOUR[1]).mean(0, keepdims=True)
    np.testing.assert_allclose(source[0].x, mean[:, 3:9, 5:11], atol=1e-6)
    luminance = in_range(np.asarray(Image.fromarray(COLOUR[1]).convert("L")))
    assert np.abs(source[0].x - luminance[:, 3:9, 5:11]).max() > 0.1  # Negative control: the other gray


def test_size_resizes_the_largest_central_square(folder):
    flat = np.full((20, 30), 51, np.uint8)
    flat[:, 5:25] = 204
    Image.fromarray(flat).save(folder / "flat.png")
    source = Images(folder, size=5, gray=True)
    assert source.shape == (1, 5, 5)
    np.testing.assert_allclose(source[3].x, 0.6, atol=1e-6)


def test_formats_of_all_depths_meet_in_the_same_range(tmp_path):
    ramp = np.linspace(0, 255, 16).astype(np.uint8).reshape(4, 4)
    Image.fromarray(ramp).save(tmp_path / "1.png")
    Image.fromarray(ramp.astype(np.uint16) * 257).save(tmp_path / "2.png")
    Image.fromarray(ramp).convert("P").save(tmp_path / "3.gif")
    Image.merge("LA", [Image.fromarray(ramp), Image.new("L", (4, 4), 255)]).save(tmp_path / "4.png")
    Image.new("RGBA", (4, 4), (200, 100, 50, 0)).save(tmp_path / "5.png")
    turned = Image.fromarray(ramp.T[:, ::-1])  # what a camera on its side stores
    exif = Image.Exif()
    exif[0x0112] = 8
    turned.save(tmp_path / "6.png", exif=exif)
    samples = [sample.x for sample in Images(tmp_path, gray=True)]
    for x in (*samples[:4], samples[5]):
        np.testing.assert_allclose(x, in_range(ramp), atol=1e-6)
    assert samples[4].max() == -1  # transparent, whatever colour hides below


def test_the_first_picture_decides_on_gray_and_size_and_others_must_fit(tmp_path):
    Image.new("L", (4, 4)).save(tmp_path / "1.png")
    Image.new("RGB", (4, 4)).save(tmp_path / "2.png")
    Image.new("L", (4, 5)).save(tmp_path / "3.png")
    source = Images(tmp_path)
    assert source.shape == (1, 4, 4)
    with pytest.raises(ValueError, match=r"2\.png .* has colours, but 1\.png has none: set gray"):
        source[1]
    with pytest.raises(ValueError, match=r"3\.png .* is 5x4, but 1\.png is 4x4: give size or crop"):
        source[2]
    assert Images(tmp_path, gray=False)[0].x.shape == (3, 4, 4)
    assert Images(tmp_path, crop=4, gray=True)[2].x.shape == (1, 4, 4)
    with pytest.raises(ValueError, match=r"1\.png .* is 4x4, smaller than the crop of 9"):
        Images(tmp_path, crop=9)


@pytest.mark.parametrize("damage", [lambda whole: b"rubbish", lambda whole: whole[: len(whole) // 2]])
def test_an_unreadable_picture_is_named_or_skipped_and_counted(folder, damage):
    path = folder / "b/2.png"
    path.write_bytes(damage(path.read_bytes()))
    source = Images(folder)
    source[0]
    with pytest.raises(ValueError, match=r"b/2\.png in .* cannot be read as an image.*skip_bad"):
        source[1]
    lenient = Images(folder, skip_bad=True)
    assert lenient.files == ("a/1.png", "c.bmp")
    assert (lenient.skipped, lenient.fingerprint()["skipped"]) == (("b/2.png",), 1)


def test_folders_without_pictures_and_broken_zips_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"has no file with the ending of an image"):
        Images(tmp_path / "empty")
    (tmp_path / "broken.zip").write_bytes(b"PK\x03\x04 and then nothing")
    with pytest.raises(ValueError, match=r"broken\.zip is neither a folder nor a complete zip"):
        Images(tmp_path / "broken.zip")
    with pytest.raises(FileNotFoundError, match="There is no file or folder"):
        Images(tmp_path / "absent")


# CelebA


@pytest.fixture
def celeba(tmp_path):
    """Six faces, whose red encodes the row, green the column and blue the face."""
    pictures = tmp_path / "img_align_celeba"
    pictures.mkdir()
    row, column = np.mgrid[:218, :178]
    for face in range(1, 7):
        pixels = np.stack([row, column, np.full_like(row, face)], -1).astype(np.uint8)
        Image.fromarray(pixels).save(pictures / f"{face:06d}.jpg", quality=100, subsampling=0)
    lines = [f"{face:06d}.jpg {split}" for face, split in zip(range(1, 7), (0, 0, 0, 1, 1, 2), strict=True)]
    (tmp_path / "list_eval_partition.txt").write_text("\n".join(lines) + "\n")
    return pictures


def levels(sample):
    return (sample.x + 1) * 127.5


@pytest.mark.parametrize(("crop", "top"), [("released", 57), ("centre", 45)])
@pytest.mark.parametrize("size", [32, 64])
def test_celeba_takes_the_rows_and_columns_that_it_says(celeba, crop, top, size):
    source = CelebA(celeba, crop=crop, size=size, gray=False)
    assert source.shape == (3, size, size)
    each = 128 // size
    centre = (np.arange(size) + 0.5) * each - 0.5  # of the pixels that a new pixel covers
    inner = slice(2, -2)  # the filter of the resize is cut at the border
    red, green, _ = levels(source[0])
    np.testing.assert_allclose(red[inner, size // 2], top + centre[inner], atol=2)
    np.testing.assert_allclose(green[size // 2, inner], 25 + centre[inner], atol=2)
    np.testing.assert_allclose(levels(CelebA(celeba, crop=crop, size=size)[0])[0], levels(source[0]).mean(0), atol=1e-4)


@pytest.mark.parametrize(("split", "faces"), [("train", [1, 2, 3]), ("valid", [4, 5]), ("test", [6])])
def test_celeba_follows_the_official_split_in_folder_and_zip(celeba, split, faces):
    path = celeba.parent / "img_align_celeba.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for picture in celeba.iterdir():
            archive.write(picture, f"img_align_celeba/{picture.name}")
    for root in (celeba, celeba.parent, path):
        source = open_source(f"celeba:{root}", split=split)
        assert [sample.group for sample in source] == [f"{face:06d}.jpg" for face in faces]
    assert guess_kind(celeba) == guess_kind(celeba.parent) == guess_kind(path) == "celeba"


def test_celeba_says_how_many_faces_the_split_should_have(celeba):
    fingerprint = CelebA(celeba, split="valid").fingerprint()
    assert (fingerprint["samples"], fingerprint["official_count"]) == (2, 19_867)


def test_celeba_refuses_what_is_not_celeba(celeba, outside):
    with pytest.raises(ValueError, match="the sizes 32 and 64, but was given 'train', 'middle' and 32"):
        open_source(f"celeba:{celeba}", crop="middle")
    Image.new("RGB", (128, 128)).save(celeba / "000001.jpg")
    with pytest.raises(ValueError, match=r"000001\.jpg .* is 128x128, but aligned CelebA images are 218x178"):
        CelebA(celeba)[0]
    partition = celeba.parent / "list_eval_partition.txt"
    partition.write_text("image_id,partition\n")
    with pytest.raises(ValueError, match="is not CelebA's split file"):
        CelebA(celeba)
    partition.write_text("900000.jpg 0\n")
    with pytest.raises(FileNotFoundError, match="has none of the 1 images"):
        CelebA(celeba)
    partition.rename(celeba.parent / "elsewhere.txt")
    with pytest.raises(FileNotFoundError, match=r"list_eval_partition\.txt is not next to"):
        CelebA(celeba)
    with pytest.raises(FileNotFoundError, match="none of the 1"):
        CelebA(celeba, partition=celeba.parent / "elsewhere.txt")


# IDX

BYTES = RNG.integers(0, 256, (7, 28, 28), np.uint8)


def idx(array, kind=0x08):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, kind, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture(params=["train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"])
def idx_file(request, tmp_path):
    path = tmp_path / request.param
    path.write_bytes(gzip.compress(idx(BYTES)) if path.suffix == ".gz" else idx(BYTES))
    return path


def test_idx_gives_each_image(idx_file):
    source = open_source(str(idx_file))
    assert (source.kind, len(source), source.shape) == ("idx", 7, (1, 28, 28))
    for index in (6, 0):
        np.testing.assert_allclose(source[index].x, in_range(BYTES[index]), atol=1e-6)
    assert pickle.loads(pickle.dumps(source))[3].x.shape == (1, 28, 28)  # noqa: S301


def test_idx_resizes_without_aliasing(idx_file):
    source = Idx(idx_file, size=16)
    x = source[2].x
    assert x.shape == source.shape == (1, 16, 16)
    assert abs(x.mean() - in_range(BYTES[2]).mean()) < 0.03
    assert x.std() < 0.75 * in_range(BYTES[2]).std()  # white noise loses what the smaller grid cannot hold


def test_idx_refuses_labels_foreign_and_short_files(tmp_path):
    labels = tmp_path / "train-labels-idx1-ubyte"
    labels.write_bytes(idx(np.arange(20, dtype=np.uint8)))
    with pytest.raises(ValueError, match=r"type 0x08 with 1 dimensions.*not of labels"):
        Idx(labels)
    (tmp_path / "foreign").write_bytes(b"GIF89a and more of it")
    with pytest.raises(ValueError, match="not an IDX file: it starts with 47494638"):
        Idx(tmp_path / "foreign")
    (tmp_path / "short").write_bytes(idx(BYTES)[:-1])
    with pytest.raises(ValueError, match="has 5503 bytes, but its header promises 5504"):
        Idx(tmp_path / "short")[0]
    (tmp_path / "short.gz").write_bytes(gzip.compress(idx(BYTES))[:-500])
    with pytest.raises(ValueError, match=r"short\.gz is not a complete gzip file"):
        Idx(tmp_path / "short.gz")[0]
    with pytest.raises(ValueError, match=r"is a folder, but idx reads one file.*here: none"):
        Idx(tmp_path)


def test_hidden_links_to_nowhere_are_left_alone(folder):
    n = len(Images(folder))
    (folder / ".#a.png").symlink_to("someone@somewhere.1234")  # as Emacs marks a file that is being edited
    assert len(Images(folder)) == n


def test_a_damaged_stream_in_a_zip_is_named_or_skipped(archive):
    with zipfile.ZipFile(archive) as whole:
        info = whole.getinfo("c.bmp")
    damaged = bytearray(archive.read_bytes())
    start = info.header_offset + 30 + len(info.filename)
    damaged[start : start + 20] = b"\xff" * 20
    archive.write_bytes(damaged)
    source = Images(archive)
    with pytest.raises(ValueError, match=r"c\.bmp in .* cannot be read as an image"):
        source[2]
    assert Images(archive, skip_bad=True).files == ("a/1.png", "b/2.png")
