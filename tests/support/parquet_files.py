"""Parquet files of random values, and what may be done to read one."""

import contextlib
import sys

import pytest

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

MANY = dict(row_group_size=70, write_batch_size=16, data_page_size=400)


def values_of(rng, count, nulls):
    """Bytes of every length, some of which come again, and runs of nulls."""
    few = [rng.randbytes(rng.randrange(60)) for _ in range(9)]
    values = []
    while len(values) < count:
        if nulls and rng.random() < 0.15:
            values += [None] * rng.randrange(1, 40)
        else:
            values.append(
                rng.choice(few) if rng.random() < 0.5 else rng.randbytes(rng.randrange(90))
            )
    return values[:count]


def written(path, values, kind, **options):
    """A file with a column of these values, of the kind, and one of whole numbers."""
    if kind == "struct":
        column = [None if value is None else {"bytes": value, "path": "x"} for value in values]
        type_ = pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()})
        if values.count(None) > 1:
            column[values.index(None)] = {"bytes": None, "path": "y"}
    else:
        column, type_ = values, {"large": pyarrow.large_binary()}.get(kind, pyarrow.binary())
    field = pyarrow.field("image", type_, nullable=kind != "required")
    schema = pyarrow.schema([field, pyarrow.field("label", pyarrow.int64())])
    rows = [pyarrow.array(column, type_), pyarrow.array(range(len(values)), pyarrow.int64())]
    options.setdefault("compression", "none")
    parquet.write_table(pyarrow.Table.from_arrays(rows, schema=schema), path, **options)
    return str(path)


def read(file):
    offsets, sizes = file.places
    places = zip(offsets.tolist(), sizes.tolist())
    return [bytes(file.mapping[at : at + size]) if at else None for at, size in places]


class TooMuchWork(BaseException):
    """Is caught by no code under test."""


@contextlib.contextmanager
def work_of(data, each=5):
    """Fails if Python makes more calls than ``each`` for a byte of this data, and some. A sound file
    takes one for each byte."""
    left = 20_000 + each * len(data)

    def count(_frame, _event, _argument):
        nonlocal left
        left -= 1
        if left < 0:
            sys.setprofile(None)
            raise TooMuchWork(f"more than {each} calls for each of {len(data)} bytes")

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)
