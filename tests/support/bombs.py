"""JPEGs of a few kilobytes that keep a decoder busy for minutes: large progressive pictures whose scans
hold next to nothing."""

import struct


def _segment(code, payload):
    return bytes((0xFF, code)) + struct.pack(">H", len(payload) + 2) + payload


def progressive(width, height, scans, arithmetic=False, behind_first=b"", header=b""):
    """One grey component; the first scan holds the picture's grey, the others end where they begin.
    ``behind_first`` stands at the end of the first scan's data."""
    parts = [b"\xff\xd8", _segment(0xDB, b"\0" + b"\1" * 64)]
    frame = struct.pack(">BHHB", 8, height, width, 1) + b"\1\x11\0"
    parts.append(_segment(0xCA if arithmetic else 0xC2, frame))
    if not arithmetic:
        one_code = b"\1" + bytes(15)  # a single symbol, of one bit
        parts.append(_segment(0xC4, b"\x00" + one_code + b"\0"))  # no difference
        parts.append(_segment(0xC4, b"\x10" + one_code + b"\xe0"))  # a run of 16384 blocks
    parts.append(header)
    for number in range(scans):
        first, last = (0, 0) if number == 0 else (1, 63)
        parts.append(_segment(0xDA, bytes((1, 1, 0, first, last, 0))))
        parts.append(b"\0" * 8 + (behind_first if number == 0 else b""))
    return b"".join(parts) + b"\xff\xd9"


def restarting(width, height, scans):
    """Restarts are announced, so libjpeg passes over a marker that does not exist. Who takes it for a
    segment passes over all the scans that follow."""
    return progressive(
        width, height, scans, header=_segment(0xDD, b"\0\1"), behind_first=b"\xff\x02\xff\xff"
    )


def repeating(width, height, scans):
    """Sequential, of two components. The first scan holds one of them, so libjpeg reads on; the second
    holds both, and what follows goes on without an end."""
    frame = struct.pack(">BHHB", 8, height, width, 3) + b"\1\x11\0\2\x11\0\3\x11\0"
    one_code = b"\1" + bytes(15)
    parts = [b"\xff\xd8", _segment(0xDB, b"\0" + b"\1" * 64), _segment(0xC0, frame)]
    parts.append(_segment(0xC4, b"\x00" + one_code + b"\0"))
    parts.append(_segment(0xC4, b"\x10" + one_code + b"\0"))
    parts.append(_segment(0xDA, b"\1\1\0\0\x3f\0") + b"\0" * 8)
    every = _segment(0xDA, b"\3\1\0\2\0\3\0\0\x3f\0") + b"\0" * 8
    return b"".join(parts) + every * (scans - 1) + b"\xff\xd9"


def in_blp(jpeg):
    """A texture, of the kind that is a JPEG cut in two."""
    begin, rest = jpeg[:20], jpeg[20:]
    width, height = 16, 16
    offset = 156 + 4 + len(begin)
    head = b"BLP1" + struct.pack("<iIIIii", 0, 0, width, height, 5, 0)
    head += struct.pack("<16I", offset, *[0] * 15) + struct.pack("<16I", len(rest), *[0] * 15)
    assert len(head) == 156
    return head + struct.pack("<I", len(begin)) + begin + rest


def in_iptc(picture, width, height):
    def field(record, number, data):
        return bytes((0x1C, record, number)) + struct.pack(">H", len(data)) + data

    described = [(60, b"\1\0"), (20, struct.pack(">H", width)), (30, struct.pack(">H", height))]
    parts = [field(3, number, data) for number, data in [*described, (120, b"\5")]]
    parts += [field(8, 10, picture[at : at + 8000]) for at in range(0, len(picture), 8000)]
    return b"".join(parts)


def in_tiff(jpegs, width, height, rows=None, extra=(), copies=1, order="<", big=False, tiles=False):
    """One strip each of ``rows`` rows, all ``copies`` times; ``extra``: more entries, each of them
    (tag, type, count, value). ``big``: BigTIFF. ``tiles``: squares of ``rows`` rows in the place of
    strips."""
    word = "Q" if big else "I"
    head = {"<": b"II", ">": b"MM"}[order] + struct.pack(order + "H", 43 if big else 42)
    head += struct.pack(order + "HH", 8, 0) if big else b""
    offsets, data = [], head + bytes(struct.calcsize(word))
    for jpeg in jpegs:
        offsets.append(len(data))
        data += jpeg
    offsets *= copies
    counts = [len(jpeg) for jpeg in jpegs] * copies
    entries = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, 7)]
    entries += [(262, 3, 1, 1), (277, 3, 1, 1), *extra]
    sides = (322, 323) if tiles else (278,)
    entries += [(side, 4, 1, rows or height) for side in sides]
    for tag, numbers in zip((324, 325) if tiles else (273, 279), (offsets, counts)):
        packed = struct.pack(f"{order}{len(numbers)}I", *numbers)
        if len(packed) <= struct.calcsize(word):
            entries.append((tag, 4, len(numbers), packed))
            continue
        entries.append((tag, 4, len(numbers), struct.pack(order + word, len(data))))
        data += packed
    directory = struct.pack(order + ("Q" if big else "H"), len(entries))
    for tag, kind, count, value in sorted(entries, key=lambda entry: entry[0]):
        if not isinstance(value, bytes):
            value = struct.pack(order + ("I" if kind == 4 else "H"), value)
        directory += struct.pack(order + "HH" + word, tag, kind, count)
        directory += value.ljust(struct.calcsize(word), b"\0")
    where = struct.pack(order + word, len(data))
    return head + where + data[len(head) + len(where) :] + directory + bytes(8)
