"""Headers that Pillow refuses and libjpeg does not: decode="whole" refuses them too."""

import io
import random
import struct

import numpy as np
import pytest
from PIL import Image

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader.datasets import ImageFolder

# Pillow's own, about what it gets through in the end.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")

PROFILE = b"ICC_PROFILE\0"
PHOTOSHOP = b"Photoshop 3.0\0"
BEGINNINGS = {
    0xE0: [b"JFIF\0"],
    0xE1: [b"Exif\0\0", b"Exif\0\0II*\0\x08\0\0\0", b"http://ns.adobe.com/xap/1.0/\0"],
    0xE2: [PROFILE, b"MPF\0", b"FPXR\0"],
    0xED: [PHOTOSHOP, PHOTOSHOP + b"8BIM\x04\x04", PHOTOSHOP + b"8BIM\x03\xed\0\0"],
    0xEE: [b"Adobe"],
    0xFE: [b"about this"],
}


def segment(marker, body):
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


def exif(entries, order="<"):
    """Of (tag, type, count, four bytes) each."""
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "L", 8)
    listed = [struct.pack(order + "HHL", *entry[:3]) + entry[3] for entry in entries]
    body = struct.pack(order + "H", len(entries)) + b"".join(listed)
    # Where a fraction can lie: behind the directory.
    return segment(0xE1, b"Exif\0\0" + head + body + bytes(4) + struct.pack(order + "LL", 72, 1))


def resolution(kind, value, count=1, order="<"):
    unit = (0x128, 3, 1, struct.pack(order + "HH", 2, 0))
    return exif([unit, (0x11A, kind, count, value)], order)


WHOLE_EXIF = resolution(1, b"\5\0\0\0")
REFUSED = {
    "JFIF without a version": segment(0xE0, b"JFIF\0\1"),
    "Adobe without a version": segment(0xEE, b"Adobe\0"),
    "colour profile without a number": segment(0xE2, PROFILE + b"\1"),
    "Photoshop resource without a name": segment(0xED, PHOTOSHOP + b"8BIM\x04\x04"),
    "marker that is none": b"\xff\x01",
    "resolution of one byte": resolution(1, b"\5\0\0\0"),
    "resolution of one letter": resolution(2, b"5\0\0\0", 2),
    "resolution of no type": resolution(7, b"\5\0\0\0"),
    "resolution, big-endian": resolution(1, b"\5\0\0\0", order=">"),
    "resolution in the second EXIF": segment(0xE1, WHOLE_EXIF[4:20])
    + segment(0xE1, b"Exif\0\0" + WHOLE_EXIF[20:]),
}
TAKEN = {
    "nothing": b"",
    "version of JFIF only": segment(0xE0, b"JFIF\0\1\1"),
    "resolution as it should be": resolution(5, struct.pack("<L", 38)),
    "resolution of one number": resolution(3, b"\5\0\0\0"),
    "resolution of two letters": resolution(2, b"72\0\0", 3),
    "EXIF cut off": segment(0xE1, b"Exif\0\0II*"),
    "two EXIF": exif([]) + exif([]),
    "Photoshop resource cut off elsewhere": segment(0xED, PHOTOSHOP + b"8BIM\x04\x04\0\0\0"),
    "stuffing": b"\xff\0",
    "padding": b"\xff\xff\xff",
    "no length": b"\xff\xe5\0\0",
}


def plain(seed):
    """A JPEG of two scans' worth of noise, without the JFIF segment, which would name a resolution."""
    numbers = np.random.default_rng(seed)
    out = io.BytesIO()
    made = numbers.integers(0, 256, (40, 30, 3), dtype=np.uint8)
    Image.fromarray(made).save(out, "JPEG", progressive=seed % 2 == 0)
    data = out.getvalue()
    assert data[2:4] == b"\xff\xe0"
    return data[:2] + data[20:]


def with_header(extra, seed=0):
    data = plain(seed)
    return data[:2] + extra + data[2:]


def pillow_takes(data):
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.convert("RGB")
    except (OSError, SyntaxError):
        return False
    return True


def taken(folder, files, decode):
    """The numbers of the files that come out, one class each."""
    for number, data in enumerate(files):
        (folder / f"{number:04}").mkdir(parents=True)
        (folder / f"{number:04}" / "picture.jpg").write_bytes(data)
    dataset = ImageFolder(str(folder), T.Compose([T.CenterCrop(8)]))
    loader = FastLoader(dataset, 16, num_workers=2, decode=decode, on_error="skip", max_errors=None)
    assert loader.plan().startswith("native images")
    return {int(label) for _, labels in loader for label in labels}


@pytest.mark.parametrize("kind", REFUSED)
def test_whole_refuses_what_pillow_refuses(tmp_path, kind):
    data = with_header(REFUSED[kind])
    assert not pillow_takes(data)  # or this is no example
    assert taken(tmp_path, [data], "whole") == set()


def test_whole_takes_what_pillow_takes(tmp_path):
    files = [with_header(extra) for extra in TAKEN.values()]
    assert all(pillow_takes(data) for data in files)
    assert taken(tmp_path, files, "whole") == set(range(len(files)))


def random_header(rng):
    """Segments that begin as known ones do and go on, or end, anyhow; now and then other bytes."""
    parts = []
    for _ in range(rng.randint(1, 3)):
        choice = rng.random()
        if choice < 0.1:
            parts.append(bytes([0xFF, rng.choice([0, 1, 2, 0xBF, 0xC8, 0xD0, 0xD8, 0xF0, 0xFF])]))
        elif choice < 0.2:
            parts.append(rng.randbytes(rng.randint(1, 3)))
        elif choice < 0.5:
            tag = rng.choice([0x11A, 0x128, 0x112])
            entry = (tag, rng.randint(0, 14), rng.choice([0, 1, 1, 2, 3, 9]))
            value = rng.choice([rng.randbytes(4), struct.pack("<L", 38)])
            unit = (0x128, 3, 1, b"\2\0\0\0")
            again = (0x11A, rng.randint(1, 7), 1, b"\x26\0\0\0")
            parts.append(exif([(*entry, value), unit, again], rng.choice("<>")))
        else:
            marker = rng.choice(list(BEGINNINGS))
            body = rng.choice(BEGINNINGS[marker]) + rng.randbytes(rng.choice([0, 1, 2, 5, 40]))
            parts.append(segment(marker, body[: rng.randint(len(body) // 2, len(body))]))
    return b"".join(parts)


def test_whole_agrees_with_pillow_on_random_headers(tmp_path):
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    files = [with_header(random_header(rng), rng.randrange(100)) for _ in range(300)]
    wanted = {number for number, data in enumerate(files) if pillow_takes(data)}
    assert 30 < len(wanted) < 270  # or one side is not put to the test
    got = taken(tmp_path, files, "whole")
    assert got == wanted, (seed, [files[number][:120] for number in sorted(got ^ wanted)])
