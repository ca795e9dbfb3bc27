"""PNGs are decoded natively, to Pillow's pixels; what is not in perfect order is left to Pillow."""

import struct
import zlib

import pytest
from decoding import assert_same, by_pillow, damaged, judge_damaged, natively, random_source
from png_files import KINDS, SIGNATURE, chunk, header, random_png

from fastloader import build_info

pytestmark = pytest.mark.skipif(
    build_info().get("png") is None, reason="this build leaves PNG to Pillow"
)

MIB = 1 << 20


@pytest.mark.parametrize("interlaced", [False, True], ids=["rows", "interlaced"])
@pytest.mark.parametrize(("color", "depth"), KINDS)
def test_every_kind(color, depth, interlaced):
    seed, rng = random_source()
    for number in range(25):
        data = random_png(rng, color, depth, interlaced)
        assert_same(rng, data, (seed, number, color, depth, interlaced))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "size", [(1, 1), (1, 40), (40, 1), (3, 5), (700, 300), (70000, 2), (2, 70000)]
)
def test_sizes(size):
    """From one pixel to rows that are longer than what is inflated at once."""
    seed, rng = random_source()
    for interlaced in (False, True):
        for color, depth in ((2, 8), (6, 16), (0, 1)):
            data = random_png(rng, color, depth, interlaced, size)
            assert_same(rng, data, (seed, size, color, depth, interlaced))


def text(name, value):
    return chunk(b"tEXt", name + b"\0" + value)


ADDITIONS = {
    "gamma": chunk(b"gAMA", struct.pack(">I", 45455)),
    "profile": chunk(b"iCCP", b"sRGB\0\0" + zlib.compress(bytes(3000))),
    "damaged profile": chunk(b"iCCP", b"sRGB\0\0" + b"no zlib stream"),
    "chromaticity": chunk(b"cHRM", bytes(32)) + chunk(b"sRGB", b"\0"),
    "density": chunk(b"pHYs", struct.pack(">IIB", 2835, 2835, 1)),
    "unknown": chunk(b"prVt", b"anything") + chunk(b"tIME", bytes(7)) + chunk(b"bKGD", bytes(6)),
    "text": text(b"Title", b"a picture") + chunk(b"zTXt", b"Long\0\0" + zlib.compress(b"x" * 9999)),
    "international": chunk(b"iTXt", b"Title\0\0\0de\0Titel\0Bild")
    + chunk(b"iTXt", b"More\0\1\0\0\0" + zlib.compress(b"y" * 9999)),
    "exif": chunk(b"eXIf", b"MM\0*\0\0\0\x08\0\0\0\0\0\0"),
}


@pytest.mark.parametrize("name", ADDITIONS)
def test_chunks_that_change_no_pixel(name):
    seed, rng = random_source()
    for _ in range(6):
        assert_same(rng, random_png(rng, before=ADDITIONS[name]), (seed, name))
        if "profile" not in name:
            assert_same(rng, random_png(rng, after=ADDITIONS[name]), (seed, name))


def frame(number, width, height):
    return chunk(b"fcTL", struct.pack(">IIIIIHHBB", number, width, height, 0, 0, 1, 9, 0, 0))


def test_the_first_picture_of_an_animation():
    seed, rng = random_source()
    two, one = (chunk(b"acTL", struct.pack(">II", frames, 0)) for frames in (2, 1))
    # Pillow does not look at the second frame, which is damaged.
    second = frame(1, 5, 4) + chunk(b"fdAT", b"\0\0\0\2 no data")
    assert_same(rng, random_png(rng, size=(5, 4), before=two + frame(0, 5, 4), after=second), seed)
    # The picture itself is not part of the animation.
    assert_same(rng, random_png(rng, size=(5, 4), before=one, after=frame(0, 5, 4)), seed)
    # Pillow pastes, or fails.
    for before in (two + frame(0, 3, 4), two + two, frame(7, 5, 4), chunk(b"acTL", bytes(8))):
        data = random_png(rng, size=(5, 4), before=before)
        assert natively(data, (5, 4)) is None, (seed, before)


LEFT_TO_PILLOW = {
    # These change what Pillow makes of the picture.
    "a text that is taken for tRNS": {
        "after": text(b"transparency", b"1"),
        "color": 0,
        "depth": 8,
    },
    "a text that is taken for a box": {"before": text(b"bbox", b"1")},
    "too long a text": {"before": chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(MIB + 1)))},
    "too long a profile": {"before": chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(MIB + 1)))},
    "too much text": {"before": chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(MIB - 9))) * 65},
    "too long a text behind": {
        "after": chunk(b"iTXt", b"a\0\1\0\0\0" + zlib.compress(bytes(2 * MIB)))
    },
    "a method of compression": {"before": chunk(b"zTXt", b"a\0\1x")},
    "a short gamma": {"before": chunk(b"gAMA", b"1")},
    "a short gamma behind": {"after": chunk(b"gAMA", b"1")},
    "a wrong checksum": {"before": chunk(b"gAMA", bytes(4))[:-1] + b"x"},
    "an end": {"before": chunk(b"IEND")},
}


@pytest.mark.parametrize("name", LEFT_TO_PILLOW)
def test_what_pillow_fails_at_is_left_to_it(name):
    _, rng = random_source()
    data = random_png(rng, **{"size": (4, 4), **LEFT_TO_PILLOW[name]})
    assert by_pillow(data) is None
    assert natively(data, (4, 4)) is None


@pytest.mark.parametrize("interlaced", [False, True], ids=["rows", "interlaced"])
def test_cut_off_at_every_byte(interlaced):
    seed, rng = random_source()
    data = random_png(rng, 2, 8, interlaced, (6, 5), before=ADDITIONS["text"])
    for length in range(len(data)):
        assert not judge_damaged(rng, data[:length], (seed, length))


def test_damaged_anywhere():
    seed, rng = random_source()
    decided = 0
    for number in range(1500):
        data = random_png(rng, size=(rng.randint(1, 9), rng.randint(1, 9)))
        decided += judge_damaged(rng, damaged(rng, data), (seed, number))
    assert decided > 0, "what no damage reaches is decoded natively"


def with_data(stream, rows=40):
    return b"".join([SIGNATURE, header(4, rows, 8, 0), chunk(b"IDAT", stream), chunk(b"IEND")])


def test_damage_below_the_box():
    """With right checksums: it was made so. decode="whole" looks for it, as for that of a JPEG."""
    row = b"\0abcd"
    whole, compressor = zlib.compress(row * 40), zlib.compressobj()
    half = compressor.compress(row * 20) + compressor.flush(zlib.Z_FULL_FLUSH)
    top = (0, 0, 4, 10)
    for stream in (
        half,  # rows are missing
        half + b"\7\7\7",  # no deflate
        half + compressor.compress(b"\7" * 100) + compressor.flush(),  # no such filter
        whole[:-1] + bytes([whole[-1] ^ 1]),  # another Adler-32
    ):
        data = with_data(stream)
        assert by_pillow(data) is None
        assert natively(data, (4, 40), top, whole=True) is None
        assert natively(data, (4, 40)) is None
        assert (
            natively(data, (4, 40), top).tobytes()
            == b"".join([bytes([b] * 3) for b in b"abcd"]) * 10
        )
        # By accident: no checksum is right.
        broken = bytearray(data)
        broken[-20] ^= 1
        assert natively(bytes(broken), (4, 40), top) is None


def test_rows_that_inflate_to_more_or_less():
    """Pillow takes too many and, if the stream ends, too few. Both are left to it."""
    for rows in (39, 40, 41):
        data = with_data(zlib.compress(b"\0abcd" * rows))
        assert by_pillow(data) is not None
        assert (natively(data, (4, 40)) is not None) == (rows == 40)


def test_a_bomb_is_refused_before_it_is_decoded():
    data = SIGNATURE + header(100000, 100000, 8, 2) + chunk(b"IDAT", b"x") + chunk(b"IEND")
    assert natively(data, (1, 1)) is None
