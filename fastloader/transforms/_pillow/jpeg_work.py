"""The work of decoding a JPEG, found from its markers: the decoder itself cannot be stopped."""

from __future__ import annotations

import re
from typing import Any

from fastloader._core.machine import extension

# The limits of csrc/image/jpeg/decoder.h, which gives the reasons.
MOST_SCANS = 100
MOST_WORK = 1 << 31  # scans times pixels

# The markers after which libjpeg reads a length, wherever it meets them, and the picture's end. It
# passes over all others (a scan's restarts, and what it takes for damage there), or gives the picture
# up at them.
_MARKER = re.compile(rb"\xff[\xc0-\xcf\xd9-\xfe]")
_END, _SCAN = 0xD9, 0xDA
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SEQUENTIAL = frozenset((0xC0, 0xC1, 0xC3, 0xC9))


def excess(data: Any, pixel_limit: int, whole: tuple[int, int] | None = None) -> str | None:
    """The reason why the JPEG in these bytes is refused, which is too many scans; None if it is not, or
    is no JPEG. ``whole``: width and height of the picture of which it is a part."""
    width, height, count = scans(data)
    if whole is not None:
        width, height = whole
    most_work = max(MOST_WORK, 12 * pixel_limit)
    most = min(MOST_SCANS, most_work // max(1, width * height))
    if count <= most:
        return None
    if width * height > pixel_limit:  # in Pillow's words
        return (
            f"Image size ({width * height} pixels) exceeds limit of {pixel_limit} pixels, could be "
            "decompression bomb DOS attack."
        )
    return (  # csrc/image/jpeg/scans.cpp says the same
        f"the picture of {width}x{height} pixels has more than {most} scans; {MOST_SCANS} are the most, "
        f"and {most_work} for scans times pixels: it could be a decompression bomb. If you trust it, "
        "write it anew with one scan: jpegtran -copy all -outfile NEW.jpg OLD.jpg"
    )


def scans(data: Any) -> tuple[int, int, int]:
    """Returns (width, height, how many scans libjpeg would begin), or zeros for what does not begin as a
    JPEG. The number is never too small, and it is exact if libjpeg comes to the end without an error."""
    return scans_in_python(data) if extension.load() is None else extension.native.jpeg_scans(data)


def scans_in_python(data: Any) -> tuple[int, int, int]:
    """Does as `scans` without the native module."""
    frame = components = width = height = count = 0
    at = 2
    if data[:2] != b"\xff\xd8":
        return 0, 0, 0
    while (found := _MARKER.search(data, at)) is not None:
        at = found.end()
        code = data[at - 1]
        if code == _END:
            if count:
                break
            continue  # this is the end of tables for the rest
        count += code == _SCAN
        head = data[at : at + 8]
        if len(head) < 2:
            break
        if code in _FRAMES and len(head) == 8:
            high, wide = int.from_bytes(head[3:5], "big"), int.from_bytes(head[5:7], "big")
            # A second frame is an error to libjpeg. The larger of two measures the work.
            if high * wide >= width * height:
                width, height = wide, high
            frame, components = code, head[7]
        if code == _SCAN and count == 1 and frame in _SEQUENTIAL and len(head) > 2:
            if head[2] >= components:
                break  # everything is in this scan, so libjpeg reads no further
        at += max(2, int.from_bytes(head[:2], "big"))
    return width, height, count
