"""Documents are what the driver decodes, and the picture of each lies in the reply."""

import datetime
import random
import struct
import uuid

import pytest
from covering import SEED

bson = pytest.importorskip("bson")

from fastloader.datasets._formats.mongo_collections import documents  # noqa: E402

OPTIONS = bson.DEFAULT_CODEC_OPTIONS


def anything(draw):
    """A value of any type that the driver writes."""
    return draw.choice(
        [
            lambda: draw.random(),
            lambda: "text" * draw.randrange(4),
            lambda: {"a": [1, {"b": None}], "picture": b"inner"},
            lambda: [draw.randrange(9) for _ in range(draw.randrange(4))],
            lambda: draw.randbytes(draw.randrange(50)),
            lambda: bson.Binary(b"12", 5),
            lambda: bson.Binary(uuid.UUID(int=draw.getrandbits(128)).bytes, 4),
            lambda: bson.ObjectId(),
            lambda: True,
            lambda: None,
            lambda: datetime.datetime(2026, 11, draw.randrange(1, 28)),
            lambda: draw.randrange(-5, 5),
            lambda: bson.Int64(draw.randrange(1 << 40)),
            lambda: bson.Decimal128("1.5"),
            lambda: bson.Timestamp(3, 4),
            lambda: bson.Regex("a.*", "i"),
            lambda: bson.Code("f()", {"x": 1}),
            lambda: bson.MinKey(),
        ]
    )()


def document(draw):
    names = draw.sample(["_id", "label", "picture", "é", "", "a.b", "pictures"], draw.randrange(8))
    made = {name: anything(draw) for name in names}
    if "picture" in made and draw.random() < 0.7:
        made["picture"] = draw.randbytes(draw.randrange(300))
    return made


def test_they_are_what_the_driver_decodes():
    draw = random.Random(SEED)
    in_place = 0
    for _ in range(300):
        written = [document(draw) for _ in range(draw.randrange(5))]
        reply = b"".join(bson.encode(each) for each in written)
        found = list(documents(reply, "picture", OPTIONS))
        for got, wanted in zip(found, bson.decode_all(reply), strict=True):
            if type(wanted.get("picture")) is bytes and isinstance(got["picture"], memoryview):
                in_place += 1
                assert got["picture"].obj is reply
                got["picture"] = bytes(got["picture"])
            assert got == wanted
    assert in_place > 100


def test_a_picture_behind_much_else_is_decoded_by_the_driver():
    reply = bson.encode({"text": "x" * 5000, "picture": b"behind"})
    assert list(documents(reply, "picture", OPTIONS)) == [
        {"text": "x" * 5000, "picture": b"behind"}
    ]


def test_a_damaged_reply_is_the_drivers_error():
    draw = random.Random(SEED)
    good = bson.encode({"_id": 1, "name": "one", "picture": b"\xff" * 40, "label": 3})
    for _ in range(2000):
        bad = bytearray(good)
        bad[draw.randrange(len(bad))] = draw.randrange(256)
        try:
            made = list(documents(bytes(bad[: draw.randrange(len(bad) + 1)]), "picture", OPTIONS))
        except bson.errors.BSONError:
            continue
        for each in made:
            if isinstance(picture := each.get("picture"), memoryview):
                assert len(picture) <= len(bad)


@pytest.mark.parametrize("size", [-1, 0, 4, 100])
def test_a_document_of_a_wrong_size_ends_the_reading(size):
    with pytest.raises(bson.errors.InvalidBSON, match=f"a document of {size} bytes"):
        list(documents(struct.pack("<i", size) + b"\0", "picture", OPTIONS))
