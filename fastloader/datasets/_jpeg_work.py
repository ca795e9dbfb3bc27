"""What decoding a JPEG takes, from its markers alone: before a decoder has it that nobody can stop."""

from __future__ import annotations

import re
import struct
from typing import Any

# As in csrc/image/jpeg_decoder.h. A scan may be a few bytes long and still has every block of the
# picture visited; encoders write about ten.
MOST_SCANS = 100
MOST_WORK = 1 << 31  # scans times pixels

# In entropy-coded data a 0xff is followed by a zero or is a restart marker.
_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]", re.DOTALL)
_ALONE = b"\x01\xd8\xd9"  # without a segment behind them
_END, _SCAN = 0xD9, 0xDA
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SEQUENTIAL = frozenset((0xC0, 0xC1, 0xC9))


def excess(file: Any) -> str | None:
    """In words, that the JPEG in ``file`` has too many scans; None if it has not, or is no JPEG.

    Reads no further than it must, and leaves the position where that was.
    """
    if file.read(3) != b"\xff\xd8\xff":
        return None
    file.seek(-1, 1)
    frame = width = height = components = scans = 0
    while (code := _next_marker(file)) is not None:
        if code == _END and scans:
            return None
        if code in _ALONE:
            continue
        length = int.from_bytes(file.read(2), "big")
        segment = file.read(min(max(0, length - 2), 6))
        if code in _FRAMES and len(segment) == 6:
            frame = code
            _precision, height, width, components = struct.unpack(">BHHB", segment)
        elif code == _SCAN:
            scans += 1
            most = min(MOST_SCANS, MOST_WORK // max(1, width * height))
            if scans > most:
                return (
                    f"the picture of {width}x{height} pixels has more than {most} scans; {MOST_SCANS} "
                    f"are the most, and {MOST_WORK} for scans times pixels: it could be a "
                    "decompression bomb"
                )
            if frame in _SEQUENTIAL and segment[:1] == bytes((components,)):
                return None  # everything is in this scan: libjpeg reads no further
        file.seek(max(0, length - 2 - len(segment)), 1)
    return None


def _next_marker(file: Any) -> int | None:
    """Its code, with the position behind it; None at the end."""
    size = 256  # of the segments before a scan one follows the other
    while chunk := file.read(size):
        found = _MARKER.search(chunk)
        if found is not None:
            file.seek(found.end() - len(chunk), 1)
            return int(chunk[found.end() - 1])
        if len(chunk) == size and chunk.endswith(b"\xff"):
            file.seek(-1, 1)  # its code may be the next byte
        size = 1 << 16
    return None
