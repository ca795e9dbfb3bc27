"""Files of other kinds that Pillow opens, which may contain a JPEG, or worse."""

from __future__ import annotations

import struct
from typing import Any

from fastloader.transforms._pillow import jpeg_work

_HOLDS_ANYTHING = "holds a picture that is decoded before anyone can tell how long that takes"
# Kinds that are of no use for training. But any file may be one of them, whatever its name says.
_REFUSED = {
    "BLP": _HOLDS_ANYTHING,
    "EPS": "is a program in PostScript, which may run for ever",
    "FPX": _HOLDS_ANYTHING,
    "IPTC": _HOLDS_ANYTHING,
    "MIC": _HOLDS_ANYTHING,
}

_COMPRESSION, _JPEG = 259, 7  # of the older kind, 6, libtiff itself takes three scans at most
# The tags with offsets and lengths of a TIFF's parts, for strips and for tiles.
_PIECES = ((273, 279), (324, 325))


def reason_to_refuse(image: Any, pixel_limit: int) -> str | None:
    """The reason why a picture that Pillow has opened must not be decoded; None if the number of its
    pixels bounds the work of decoding."""
    if image.format in _REFUSED:
        why = _REFUSED[image.format]
        return f"a file of the kind {image.format} {why}: write it anew, as JPEG or PNG"
    if image.format != "TIFF" or not image.tile or image.tile[0][0] != "libtiff":
        return None
    before = image.fp.tell()
    try:
        return _reason_of_tiff(image, pixel_limit)
    finally:
        image.fp.seek(before)


def _reason_of_tiff(image: Any, pixel_limit: int) -> str | None:
    tags, file = image.tag_v2, image.fp
    size = file.seek(0, 2)
    # Refused, because libtiff reads the directory by itself and differently. Of two entries of a kind it
    # takes the first, and Pillow the last. And Pillow takes a big-endian BigTIFF for the usual kind.
    if not _is_read_in_one_way(file, tags.offset, size):
        return "the TIFF's directory can be read in two ways: write it anew"
    if tags.get(_COMPRESSION) != _JPEG:
        return None
    kinds = [(offsets, lengths) for offsets, lengths in _PIECES if offsets in tags]
    if len(kinds) != 1:
        return "the TIFF is in strips and in tiles at once: write it anew"
    offsets, lengths = (_numbers(tags.get(tag, ())) for tag in kinds[0])
    if len(offsets) != len(lengths):
        return "the TIFF does not say how long its parts are: write it anew"
    # Empty parts count as the whole file, because libtiff finds out by itself how long they are.
    lengths = tuple(length or size for length in lengths)
    # Equal parts may lie in the same place, but no part takes more than its pixels and a header.
    if sum(lengths) > size + 3 * image.width * image.height + 1024 * len(lengths):
        return "the TIFF's parts overlap: it could be a decompression bomb"
    for offset, length in zip(offsets, lengths):
        file.seek(offset)
        reason = jpeg_work.excess(file.read(length), pixel_limit, image.size)
        if reason is not None:
            return reason
    return None


def _numbers(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _is_read_in_one_way(file: Any, where: int, size: int) -> bool:
    layouts = {b"II*\0": ("<H", 12), b"MM\0*": (">H", 12), b"II+\0": ("<Q", 20)}
    file.seek(0)
    head = file.read(4)
    if head not in layouts:
        return False
    number, entry = layouts[head]
    file.seek(where)
    (entries,) = struct.unpack(number, file.read(struct.calcsize(number)))
    data = file.read(min(entries * entry, size))
    tags = [data[at : at + 2] for at in range(0, len(data), entry)]
    return len(set(tags)) == len(tags)
