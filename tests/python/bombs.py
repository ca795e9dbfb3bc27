"""JPEGs of a few kilobytes that keep a decoder busy for minutes: large progressive pictures whose scans
hold next to nothing."""

import struct


def _segment(code, payload):
    return bytes((0xFF, code)) + struct.pack(">H", len(payload) + 2) + payload


def progressive(width, height, scans, arithmetic=False):
    """One grey component; the first scan holds the picture's grey, the others end where they begin."""
    parts = [b"\xff\xd8", _segment(0xDB, b"\0" + b"\1" * 64)]
    frame = struct.pack(">BHHB", 8, height, width, 1) + b"\1\x11\0"
    parts.append(_segment(0xCA if arithmetic else 0xC2, frame))
    if not arithmetic:
        one_code = b"\1" + bytes(15)  # a single symbol, of one bit
        parts.append(_segment(0xC4, b"\x00" + one_code + b"\0"))  # no difference
        parts.append(_segment(0xC4, b"\x10" + one_code + b"\xe0"))  # a run of 16384 blocks
    for number in range(scans):
        first, last = (0, 0) if number == 0 else (1, 63)
        parts.append(_segment(0xDA, bytes((1, 1, 0, first, last, 0))))
        parts.append(b"\0" * 8)
    return b"".join(parts) + b"\xff\xd9"
