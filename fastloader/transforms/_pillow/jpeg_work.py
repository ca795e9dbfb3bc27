"""What decoding a JPEG takes, from its markers alone: before a decoder has it that nobody can stop."""

from __future__ import annotations

import re
from typing import Any

from fastloader._core.machine import extension

# As in csrc/image/jpeg/decoder.h, which says why.
MOST_SCANS = 100
MOST_WORK = 1 << 31  # scans times pixels

# What libjpeg reads a length behind, wherever it meets it, and the picture's end. It passes over all
# others, a scan's restarts and what it takes for damage there, or gives the picture up at them.
_MARKER = re.compile(rb"\xff[\xc0-\xcf\xd9-\xfe]")
_END, _SCAN = 0xD9, 0xDA
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SEQUENTIAL = frozenset((0xC0, 0xC1, 0xC3, 0xC9))


def excess(data: Any, pixel_limit: int, whole: tuple[int, int] | None = None) -> str | None:
    """In words, that the JPEG in these bytes has too many scans; None if it has not, or is no JPEG.
    ``whole``: width and height of the picture that it is a part of."""
    width, height, count = scans(data)
    if whole is not None:
        width, height = whole
    most_work = max(MOST_WORK, 12 * pixel_limit)
    most = min(MOST_SCANS, most_work // max(1, width * height))
    if count <= most:
        return None
    return (  # csrc/image/jpeg/scans.cpp says the same
        f"the picture of {width}x{height} pixels has more than {most} scans; {MOST_SCANS} are the most, "
        f"and {most_work} for scans times pixels: it could be a decompression bomb. If you trust it, "
        "write it anew with one scan: jpegtran -copy all -outfile NEW.jpg OLD.jpg"
    )


def scans(data: Any) -> tuple[int, int, int]:
    """(width, height, how many scans libjpeg would begin); zeros for what does not begin as a JPEG.
    Never fewer than it begins, and as many if it comes to the end without an error."""
    native = extension.load()
    found: tuple[int, int, int] = (scans_in_python if native is None else native.jpeg_scans)(data)
    return found


def scans_in_python(data: Any) -> tuple[int, int, int]:
    """The same, for where there is no native module."""
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
            continue  # of tables for the rest
        count += code == _SCAN
        head = data[at : at + 8]
        if len(head) < 2:
            break
        if code in _FRAMES and len(head) == 8:
            high, wide = int.from_bytes(head[3:5], "big"), int.from_bytes(head[5:7], "big")
            # A second one is an error to libjpeg. Of two the larger is what the work is measured by.
            if high * wide >= width * height:
                width, height = wide, high
            frame, components = code, head[7]
        if code == _SCAN and count == 1 and frame in _SEQUENTIAL and len(head) > 2:
            if head[2] >= components:
                break  # everything is in this scan: libjpeg reads no further
        at += max(2, int.from_bytes(head[:2], "big"))
    return width, height, count
