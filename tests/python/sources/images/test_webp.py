"""WebPs are decoded natively, to Pillow's pixels."""

import io

import pytest
from decoding import assert_same, by_pillow, damaged, judge_damaged, natively, random_source
from pictures import picture
from webp_files import random_webp, riff

from fastloader import build_info

pytestmark = pytest.mark.skipif(
    build_info().get("webp") is None, reason="this build leaves WebP to Pillow"
)


@pytest.mark.parametrize("lossless", [False, True], ids=["lossy", "lossless"])
def test_every_kind(lossless):
    seed, rng = random_source()
    for number in range(120):
        assert_same(rng, random_webp(rng, lossless=lossless), (seed, number))


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [(1, 1), (1, 40), (40, 1), (16383, 2), (2, 16383), (2100, 2100)])
def test_sizes(size):
    """The last one is large enough that it is given to libwebp in pieces."""
    seed, rng = random_source()
    for lossless in (False, True):
        data = random_webp(rng, size, frames=1, lossless=lossless, method=0, quality=50)
        assert_same(rng, data, (seed, size, lossless))


def test_metadata_changes_no_pixel():
    seed, rng = random_source()
    for _ in range(10):
        data = random_webp(rng, icc_profile=b"p" * 99, exif=b"Exif\0\0e", xmp=b"<x/>")
        assert_same(rng, data, seed)


def test_cut_off_at_every_byte():
    seed, rng = random_source()
    data = random_webp(rng, (9, 7), frames=1)
    for length in range(len(data)):
        assert not judge_damaged(rng, data[:length], (seed, length))


def test_damaged_anywhere():
    seed, rng = random_source()
    decided = 0
    for number in range(1500):
        data = random_webp(rng, (rng.randint(1, 40), rng.randint(1, 40)))
        decided += judge_damaged(rng, damaged(rng, data), (seed, number))
    assert decided > 0, "libwebp takes most damaged data for pixels"


@pytest.mark.parametrize("extra", range(7))
def test_a_header_of_another_size(extra):
    """The demuxer would pass over what is too much."""
    _, rng = random_source()
    out = io.BytesIO()
    picture(rng, 10, 8).save(out, "WEBP", lossless=True)
    header = bytes(4) + (9).to_bytes(3, "little") + (7).to_bytes(3, "little") + bytes(extra)
    data = riff((b"VP8X", header), (b"VP8L", out.getvalue()[20:]))
    assert bool(extra) == judge_is_refused(data)


def judge_is_refused(data):
    """Whether Pillow refuses it, as the native decoder then does."""
    refused = by_pillow(data) is None
    assert (natively(data, (10, 8)) is None) == refused
    return refused


def test_a_first_frame_that_is_only_a_part_is_left_to_pillow():
    _, rng = random_source()
    out = io.BytesIO()
    picture(rng, 10, 8).save(out, "WEBP", lossless=True)
    still = out.getvalue()[12:]
    canvas = b"\2\0\0\0" + (31).to_bytes(3, "little") + (31).to_bytes(3, "little")
    frame = bytes(6) + (9).to_bytes(3, "little") + (7).to_bytes(3, "little") + bytes(4)
    data = riff((b"VP8X", canvas), (b"ANIM", bytes(6)), (b"ANMF", frame + still))
    assert by_pillow(data).shape == (32, 32, 3)
    assert natively(data, (32, 32)) is None
