"""JPEGs whose scans are hidden: behind markers that are none, and within files of other kinds. Pillow
decodes none of them, and the error names the file."""

import io
import os
import random
import subprocess
import sys
import textwrap
import time

import pytest
from bombs import in_blp, in_iptc, in_tiff, progressive, repeating, restarting
from pictures import picture, plain_folder
from PIL import Image, ImageFile, features

import fastloader
from fastloader import FastLoader
from fastloader import transforms as T
from fastloader.datasets import ImageFolder
from fastloader.transforms import _pillow
from support import HANG

SMALL = progressive(16, 16, 400)
HIDDEN = {
    "restarts": restarting(16, 16, 400),
    "sequential": repeating(16, 16, 400),
    "BLP": in_blp(SMALL),
    "IPTC": in_iptc(SMALL, 16, 16),
    "IPTC in IPTC": in_iptc(in_iptc(SMALL, 16, 16), 16, 16),
    # libtiff's own limit is a hundred scans, of any size.
    "TIFF": in_tiff([progressive(6000, 6000, 99)], 6000, 6000),
    "TIFF of strips": in_tiff([progressive(6000, 3000, 99)] * 2, 6000, 6000, rows=3000),
    "BigTIFF": in_tiff([progressive(6000, 6000, 99)], 6000, 6000, big=True),
    "TIFF, big-endian": in_tiff([progressive(6000, 3000, 99)] * 2, 6000, 6000, 3000, order=">"),
    "TIFF of tiles": in_tiff([progressive(3008, 3008, 99)] * 4, 6016, 6016, 3008, tiles=True),
    "TIFF of strips and tiles": in_tiff([SMALL], 16, 16, extra=[(324, 4, 1, 8), (325, 4, 1, 9)]),
    "TIFF that says twice how it is compressed": in_tiff([SMALL], 16, 16, extra=[(259, 3, 1, 5)]),
}


@pytest.fixture
def nothing_is_decoded(monkeypatch):
    def load(image, *arguments, **options):
        raise AssertionError(f"Pillow decodes a file of {image.format}")

    monkeypatch.setattr(ImageFile.ImageFile, "load", load)


def lone(tmp_path, data):
    (tmp_path / "c").mkdir()
    path = tmp_path / "c" / "bomb.jpg"
    path.write_bytes(data)
    return str(path)


@pytest.mark.parametrize("kind", HIDDEN)
def test_hidden_scans_are_counted(tmp_path, nothing_is_decoded, kind):
    path = lone(tmp_path, HIDDEN[kind])
    dataset = ImageFolder(str(tmp_path), T.Resize((24, 20)))
    with pytest.raises(Image.DecompressionBombError) as raised:
        dataset[0]
    assert path in str(raised.value)
    with pytest.raises(Image.DecompressionBombError) as raised:
        list(FastLoader(dataset, 1, num_workers=1))
    assert path in str(raised.value)


def test_postscript_is_not_run(tmp_path, nothing_is_decoded):
    data = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n{} loop\n"
    path = lone(tmp_path, data)
    with pytest.raises(Image.DecompressionBombError, match="PostScript") as raised:
        _pillow.open_rgb(path)
    assert path in str(raised.value)


@pytest.mark.skipif(not features.check("libtiff"), reason="Pillow without libtiff")
@pytest.mark.parametrize("strips", [1, 2, 4])
@pytest.mark.parametrize(("order", "big"), [("<", False), (">", False), ("<", True)])
def test_usual_tiffs_are_read(strips, order, big):
    made = picture(random.Random(1), 64, 64).convert("L")
    pieces = []
    for row in range(strips):
        out = io.BytesIO()
        made.crop((0, row * 64 // strips, 64, (row + 1) * 64 // strips)).save(out, "JPEG")
        pieces.append(out.getvalue())
    decoded = [Image.open(io.BytesIO(piece)).convert("RGB") for piece in pieces]
    whole = in_tiff(pieces, 64, 64, rows=64 // strips, order=order, big=big)
    read = _pillow.decoded_rgb(io.BytesIO(whole))
    for row, piece in enumerate(decoded):
        box = (0, row * 64 // strips, 64, (row + 1) * 64 // strips)
        assert read.crop(box).tobytes() == piece.tobytes()
    for compression in ["jpeg", "tiff_lzw", "raw", "tiff_deflate"]:
        out = io.BytesIO()
        made.convert("RGB").save(out, "TIFF", compression=compression)
        expected = Image.open(io.BytesIO(out.getvalue())).convert("RGB")
        assert _pillow.decoded_rgb(io.BytesIO(out.getvalue())).tobytes() == expected.tobytes()


def test_tiffs_in_tiles_are_read():
    out = io.BytesIO()
    tile = picture(random.Random(3), 32, 32).convert("L")
    tile.save(out, "JPEG")
    expected = Image.open(io.BytesIO(out.getvalue())).convert("RGB").tobytes()
    whole = _pillow.decoded_rgb(io.BytesIO(in_tiff([out.getvalue()] * 4, 64, 64, 32, tiles=True)))
    for left, top in [(0, 0), (32, 0), (0, 32), (32, 32)]:
        assert whole.crop((left, top, left + 32, top + 32)).tobytes() == expected


def test_strips_that_overlap_are_refused():
    """Or a small file has libtiff read itself again and again."""
    out = io.BytesIO()
    Image.new("L", (16, 1)).save(out, "JPEG")
    strip = out.getvalue()
    long = strip[:2] + b"\xff\xfe\xff\xff" + bytes(65533) + strip[2:]
    with pytest.raises(Image.DecompressionBombError, match="overlap"):
        _pillow.decoded_rgb(io.BytesIO(in_tiff([long], 16, 1000, rows=1, copies=1000)))
    # Alike strips may be one.
    data = io.BytesIO(in_tiff([strip], 16, 3, rows=1, copies=3))
    assert _pillow.decoded_rgb(data).size == (16, 3)


# --- Pictures that are fine ---------------------------------------------------------------------


def test_the_bound_of_scans_rises_with_the_limit_of_pixels():
    pillows = 2 * 89478485
    assert _pillow.excess(progressive(12000, 12000, 14), pillows) is None
    reason = _pillow.excess(progressive(12000, 12000, 15), pillows)
    assert (
        f"12000x12000 pixels has more than 14 scans; 100 are the most, and {1 << 31} for" in reason
    )
    assert "jpegtran" in reason
    assert _pillow.excess(progressive(12000, 12000, 15), 2 * pillows) is None
    assert _pillow.excess(progressive(60000, 60000, 12), 60000 * 60000) is None
    assert "than 12 scans" in _pillow.excess(progressive(60000, 60000, 13), 60000 * 60000)
    assert "than 14 scans" in _pillow.excess(progressive(12000, 12000, 15), 144_000_000)  # lowered
    assert "144000000 pixels" in _pillow.excess(progressive(12000, 12000, 15), 143_999_999)


class Unseekable(io.RawIOBase):
    def __init__(self, data):
        self._data = io.BytesIO(data)

    def readable(self):
        return True

    def readinto(self, into):
        return self._data.readinto(into)


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_a_stream_need_not_seek(format):
    out = io.BytesIO()
    made = picture(random.Random(2), 40, 30)
    made.save(out, format)
    expected = Image.open(io.BytesIO(out.getvalue())).convert("RGB").tobytes()
    assert _pillow.decoded_rgb(Unseekable(out.getvalue())).tobytes() == expected
    behind = io.BytesIO(out.getvalue())
    behind.seek(7)  # Pillow begins at the beginning
    assert _pillow.decoded_rgb(behind).tobytes() == expected


def test_a_stream_that_does_not_seek_is_counted():
    with pytest.raises(Image.DecompressionBombError, match="more than 100 scans"):
        _pillow.decoded_rgb(Unseekable(SMALL))


def test_what_pillow_cannot_read_is_named(tmp_path):
    path = lone(tmp_path, b"\xff\xd8\xff\xff")
    with pytest.raises(Image.UnidentifiedImageError, match="bomb"):
        _pillow.open_rgb(path)


# --- The two countings --------------------------------------------------------------------------


def mutated(rng, data):
    data = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        if len(data) < 10:
            break
        at = rng.randrange(2, len(data))
        way = rng.randrange(5)
        if way == 0:
            data[at] = rng.choice([0, 1, 2, 0xC0, 0xC2, 0xD0, 0xD8, 0xD9, 0xDA, 0xFE, 0xFF])
        elif way == 1:
            marker = bytes(
                (0xFF, rng.choice([1, 2, 0xBF, 0xD3, 0xD8, 0xD9, 0xDA, 0xDD, 0xE1, 0xFF]))
            )
            data[at:at] = marker + rng.randbytes(rng.randint(0, 4))
        elif way == 2:
            del data[at : at + rng.randint(1, 9)]
        elif way == 3:
            scan = data.find(b"\xff\xda")
            data[at:at] = data[scan : scan + rng.randint(1, 60)] * rng.randint(1, 9)
        else:
            del data[max(4, at) :]
    return bytes(data)


@pytest.mark.skipif(
    fastloader._core.machine.extension.load() is None, reason="needs the native module"
)
def test_both_countings_agree(monkeypatch):
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    kept, several = [], 0
    for number in range(30):
        out = io.BytesIO()
        options = {"progressive": number % 3 > 0, "restart_marker_blocks": number % 4}
        made = picture(rng, rng.randint(1, 60), rng.randint(1, 60))
        made.convert(rng.choice(["L", "RGB", "CMYK"])).save(out, "JPEG", **options)
        kept.append(out.getvalue())
    kept += [restarting(16, 16, 9), repeating(16, 16, 9), progressive(20, 20, 4, arithmetic=True)]
    for _ in range(3000):
        data = mutated(rng, rng.choice(kept))
        native = fastloader._core.machine.extension.load().jpeg_scans(data)
        several += native[2] > 1
        assert native == _pillow.scans_in_python(data), (seed, data)
    assert several > 1000  # or they are not put to the test
    for data in [
        b"",
        b"\xff",
        b"\xff\xd8",
        b"\xff\xd8\xff",
        b"\xff\xd8\xff\xda",
        b"\xff\xd8\xff\xda\0",
    ]:
        assert fastloader._core.machine.extension.load().jpeg_scans(
            data
        ) == _pillow.scans_in_python(data)


@pytest.mark.processes
def test_without_the_native_module_it_is_counted_too(tmp_path):
    for number, data in enumerate([*HIDDEN.values(), SMALL]):
        (tmp_path / f"{number}.jpg").write_bytes(data)
    plain_folder(tmp_path / "fine", 1, classes=1)
    code = """
        import os, sys
        from PIL import Image
        from fastloader.transforms import _pillow
        root = sys.argv[1]
        for name in sorted(os.listdir(root)):
            if name == "fine":
                continue
            try:
                _pillow.open_rgb(os.path.join(root, name))
            except Image.DecompressionBombError as error:
                assert name in str(error)
            else:
                raise AssertionError(name)
        for path, _, names in os.walk(os.path.join(root, "fine")):
            for name in names:
                _pillow.open_rgb(os.path.join(path, name))
    """
    environment = {**os.environ, "FASTLOADER_NATIVE": "0"}
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    subprocess.run(command, check=True, env=environment, timeout=HANG)


@pytest.mark.parametrize(
    "filler", [b"\xff\x01", b"\xff\x00", b"\xff\xff", b"\xff\xfe\0\2", b"\0"], ids=bytes.hex
)
def test_counting_takes_as_long_as_reading(filler):
    """It took 13 seconds for 9 MiB of the first."""
    counts = [(_pillow.scans_in_python, 1 << 20)]
    if fastloader._core.machine.extension.load() is not None:
        counts.append((_pillow.scans, 8 << 20))
    for count, size in counts:
        data = b"\xff\xd8" + filler * (size // len(filler))
        begun = time.thread_time()
        assert count(data) == (0, 0, 0)
        assert time.thread_time() - begun < 1
