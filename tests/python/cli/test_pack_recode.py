"""``fastloader pack --recode baseline``: progressive JPEGs become sequential ones of the same pixels."""

import io

import numpy as np
import pytest
from pictures import needs_libjpeg, plain_folder
from PIL import Image

from fastloader._core.machine import extension
from fastloader.cli.__main__ import main
from fastloader.datasets import ImageFolder, LMDBDataset

pytest.importorskip("lmdb")
needs_native = pytest.mark.skipif(extension.load() is None, reason="needs the native module")


def pack(*arguments):
    return main(["pack", *map(str, arguments)])


def files_of(path):
    dataset = LMDBDataset(path)
    return [dataset.image_bytes(i) for i in range(len(dataset))]


def pixels_of(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


@needs_native
@needs_libjpeg
def test_progressive_files_become_sequential_ones_of_the_same_pixels(tmp_path):
    root = tmp_path / "photos"
    plain_folder(root, count=12, size=(160, 120), seed=5)
    kept = {}
    for number, (path, _label) in enumerate(ImageFolder(root).samples):
        with Image.open(path) as picture:
            made = picture.convert("RGB")
        exif = made.getexif()
        exif[0x010E] = f"picture {number}"
        options = {
            "comment": b"by hand",
            "exif": exif,
            "icc_profile": bytes(range(200)),
            "subsampling": number % 3,
            "quality": 60 + 3 * number,
        }
        made.save(path, "JPEG", progressive=number % 4 != 0, dpi=(72 + number, 72), **options)
        with open(path, "rb") as file:
            kept[path] = file.read()
    target = tmp_path / "photos.lmdb"
    assert pack(root, target, "--recode", "baseline") == 0
    before = [kept[path] for path, _label in ImageFolder(root).samples]
    for number, (after, old) in enumerate(zip(files_of(target), before, strict=True)):
        if number % 4 == 0:
            assert after == old
            continue
        assert after != old
        assert np.array_equal(pixels_of(after), pixels_of(old))
        with Image.open(io.BytesIO(after)) as new, Image.open(io.BytesIO(old)) as original:
            assert "progressive" in original.info and "progressive" not in new.info
            for key in ("comment", "exif", "icc_profile", "dpi", "jfif_density"):
                assert new.info[key] == original.info[key], key
            assert new.quantization == original.quantization
    assert pack(root, target, "--recode", "baseline") == 0  # the same command goes on
    assert pack(root, target) == 1  # and another one does not


@pytest.mark.skipif(
    extension.load() is not None and not extension.lacks_libjpeg(), reason="can recode"
)
def test_recoding_needs_libjpeg(tmp_path, capsys):
    plain_folder(tmp_path / "photos", count=2, size=(60, 50), seed=1)
    assert pack(tmp_path / "photos", tmp_path / "a.lmdb", "--recode", "baseline") == 1
    assert "libjpeg-turbo, which this installation lacks" in capsys.readouterr().err
