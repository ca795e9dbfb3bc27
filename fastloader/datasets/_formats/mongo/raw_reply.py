"""The documents of a reply, whose pictures stay where the driver has put the reply.

To decode a reply is to copy each of its pictures into memory that is new to the process, which takes
longer than all else that Python does for a picture.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

_NUMBER = struct.Struct("<i")
_BINARY, _GENERIC = 0x05, 0x00  # the type of an element, and what kind of bytes it holds
# How long the values are of the types (bsonspec.org) that may stand before a picture.
_LENGTHS = {0x01: 8, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16}
_TEXTS = (0x02, 0x0D, 0x0E)  # a length, and so many bytes behind it
_DOCUMENTS = (0x03, 0x04)  # a length that counts itself


def documents(reply: bytes, field: str, options: Any) -> Iterator[dict[str, Any]]:
    """Decodes the documents of one reply of ``find_raw_batches``. The value of ``field`` is a memoryview
    of the reply, if it is bytes and no field of a field; all else is what the driver makes of it with
    these ``options``."""
    import bson

    view, at = memoryview(reply), 0
    name = field.encode()
    while at < len(view):
        size = int.from_bytes(view[at : at + 4], "little", signed=True)
        if size < 5 or at + size > len(view):
            raise bson.errors.InvalidBSON(f"a document of {size} bytes, {len(view) - at} are there")
        document = view[at : at + size]
        place = _place_of(document, name)
        if place is None:
            yield bson.decode(document, options)
        else:
            begin, picture, end = place
            # The same document without the element.
            rest = b"".join((_NUMBER.pack(size - end + begin), document[4:begin], document[end:]))
            yield {**bson.decode(rest, options), field: document[picture:end]}
        at += size


def _place_of(document: memoryview, name: bytes) -> tuple[int, int, int] | None:
    """Where the element of this name begins, where its bytes begin, and where they end. None if it has
    no plain bytes, or stands behind something that is not known here."""
    at, last = 4, len(document) - 1
    # Names are short. Behind this there is the picture, in a document of few fields.
    head = bytes(document[:4096])
    try:
        while at < last:
            kind, value = head[at], head.index(0, at + 1) + 1
            if kind in _LENGTHS:
                end = value + _LENGTHS[kind]
            elif kind in _TEXTS:
                end = value + 4 + _NUMBER.unpack_from(document, value)[0]
            elif kind in _DOCUMENTS:
                end = value + _NUMBER.unpack_from(document, value)[0]
            elif kind == _BINARY:
                end = value + 5 + _NUMBER.unpack_from(document, value)[0]
            else:
                return None
            if not value <= end <= last:
                return None  # the driver says what is wrong
            if head[at + 1 : value - 1] == name:
                plain = kind == _BINARY and document[value + 4] == _GENERIC
                return (at, value + 5, end) if plain else None
            at = end
    except (IndexError, ValueError, struct.error):  # it is cut off, or further behind
        pass
    return None
