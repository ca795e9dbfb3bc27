"""``fastloader pack --recode baseline``: progressive JPEGs become sequential ones of the same pixels."""

import io
import random
import struct

import numpy as np
import pytest
from pictures import needs_libjpeg, picture, plain_folder
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


def segment(code, body):
    return bytes((0xFF, code)) + struct.pack(">H", len(body) + 2) + body


def with_coefficient(value, *segments):
    """8x8, grey, progressive, with one coefficient of 12 bits: too large for a sequential file."""
    bits = "0" + format(value, "011b") + "10"
    bits += "1" * (-len(bits) % 8)
    scan = bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))
    parts = [
        *segments,
        segment(0xDB, b"\0" + b"\1" * 64),
        segment(0xC2, b"\x08" + struct.pack(">HH", 8, 8) + b"\1\1\x11\0"),
        segment(0xC4, b"\x00" + bytes([1] + [0] * 15) + b"\0"),
        segment(0xDA, b"\1\1\0\0\0\0") + b"\x7f",
        segment(0xC4, b"\x10" + bytes([1, 1] + [0] * 14) + b"\x0b\0"),
        segment(0xDA, b"\1\1\0\1\x3f\0") + scan.replace(b"\xff", b"\xff\0"),
    ]
    return b"\xff\xd8" + b"".join(parts) + b"\xff\xd9"


def progressive():
    out = io.BytesIO()
    picture(random.Random(4), 80, 60).save(out, "JPEG", progressive=True)
    return out.getvalue()


def between_scans(part):
    data = progressive()
    second = data.index(b"\xff\xda", data.index(b"\xff\xda") + 2)
    tables = data.rindex(b"\xff\xc4", 0, second)
    return data[:tables] + part + data[tables:]


@needs_native
@needs_libjpeg
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(with_coefficient(1500), id="a coefficient too large"),
        # Beyond what libjpeg gives at once, where an error comes late.
        pytest.param(
            with_coefficient(1500, segment(0xE1, b"Exif\0\0" + bytes(9000))), id="behind much else"
        ),
        pytest.param(progressive() + b"more", id="something behind the end"),
        pytest.param(
            b"\xff\xd8" + segment(0xE2, b"MPF\0" + bytes(20)) + progressive()[2:],
            id="several pictures",
        ),
        pytest.param(progressive()[:-400] + b"\xff\xd9", id="cut short"),
    ],
)
def test_what_is_left_as_it_is(data):
    assert extension.load().jpeg_as_sequential(data) is None


@needs_native
@needs_libjpeg
@pytest.mark.parametrize(
    "part",
    [segment(0xEE, b"Adobe\0"), segment(0xE2, b"ICC_PROFILE\0"), segment(0xFE, b"a comment")],
    ids=["Adobe", "ICC", "comment"],
)
def test_what_stands_between_scans_does_not_come_to_count(part):
    """Pillow reads the segments before the first scan only, and would refuse some of these."""
    data = between_scans(part)
    recoded = extension.load().jpeg_as_sequential(data)
    assert np.array_equal(pixels_of(recoded), pixels_of(data))
    assert part not in recoded


@needs_native
@needs_libjpeg
def test_how_many_were_written_anew_is_said(tmp_path, capsys):
    root = tmp_path / "photos"
    plain_folder(root, count=6, size=(60, 50), seed=5)
    for path, _label in ImageFolder(root).samples[:2]:
        with open(path, "wb") as file:
            file.write(progressive())
    assert pack(root, tmp_path / "a.lmdb", "--recode", "baseline") == 0
    assert "2 of 6 pictures were written anew" in capsys.readouterr().out
    assert pack(root, tmp_path / "b.lmdb", "--recode", "baseline", "--quality", 90) == 1
    assert "--quality" in capsys.readouterr().err


@pytest.mark.skipif(
    extension.load() is not None and not extension.lacks_libjpeg(), reason="can recode"
)
def test_recoding_needs_libjpeg(tmp_path, capsys):
    plain_folder(tmp_path / "photos", count=2, size=(60, 50), seed=1)
    assert pack(tmp_path / "photos", tmp_path / "a.lmdb", "--recode", "baseline") == 1
    assert "libjpeg-turbo, which this installation lacks" in capsys.readouterr().err
