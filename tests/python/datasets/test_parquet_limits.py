"""Parquet files that claim what is not there, or hold more than they seem to: an error that names the
file, at no more cost than that of a sound file."""

import collections
import contextlib
import random

import numpy as np
import pytest
from parquet_files import MANY, parquet, pyarrow, read, values_of, work_of, written

from fastloader.datasets import ParquetImages
from fastloader.datasets._formats import parquet_files
from fastloader.datasets._formats.parquet_files import ParquetFile
from fastloader.datasets._formats.parquet_pages import DamagedParquet


def test_row_groups_that_are_too_large(tmp_path, monkeypatch):
    path = written(tmp_path / "x.parquet", [b"x" * 5000], "bytes", compression="snappy")
    assert ParquetFile(path, "image", None).places is None
    monkeypatch.setattr(parquet_files, "MOST_GROUP", 4000)
    with pytest.raises(ValueError, match=r"x\.parquet: .*\(SNAPPY\).*with smaller row groups"):
        ParquetFile(path, "image", None)


_pools = []  # whose memory pyarrow may still have when the test is over


@contextlib.contextmanager
def little_memory():
    """Fails if pyarrow takes much meanwhile: in a pool whose greatest size is this test's own."""
    usual = pyarrow.default_memory_pool()
    pool = pyarrow.proxy_memory_pool(usual)
    _pools.append(pool)
    pyarrow.set_memory_pool(pool)
    try:
        yield
    finally:
        pyarrow.set_memory_pool(usual)
    assert pool.max_memory() < 40 << 20


def again_and_again(path, value, struct, **options):
    """A file with this value in a thousand rows of the columns, which has it once in each."""
    value = pyarrow.DictionaryArray.from_arrays(np.zeros(1000, np.int32), value)
    if struct:
        value = pyarrow.StructArray.from_arrays(
            [value, value.cast(pyarrow.string())], ["bytes", "path"]
        )
    columns = {"image": value, "text": value}
    # Otherwise pyarrow would read it as a dictionary.
    parquet.write_table(pyarrow.table(columns), path, store_schema=False, **options)
    return str(path)


BIG = pyarrow.array([b"x" * 300_000], pyarrow.binary())


@pytest.mark.parametrize("struct", [False, True])
def test_a_value_in_every_row_of_a_group(tmp_path, monkeypatch, struct):
    """Of which a footer gives the size as if it were there once."""
    monkeypatch.setattr(parquet_files, "MOST_GROUP", 2 << 20)
    path = again_and_again(tmp_path / "x.parquet", BIG, struct, compression="snappy")
    with little_memory():
        file = ParquetFile(path, "image", None)
        with pytest.raises(
            ValueError, match=r"x\.parquet: .* has \d MB or more of them.*smaller row"
        ):
            file.read_group(0)
    monkeypatch.setattr(parquet_files, "MOST_GROUP", 1 << 30)
    values = file.read_group(0)
    assert len(values) == 1000 and values[999].as_py() == BIG[0].as_py()


def test_a_text_in_every_row(tmp_path, monkeypatch):
    """Of a column that is held, and of the paths."""
    monkeypatch.setattr(parquet_files, "MOST_BEYOND", 2 << 20)
    path = again_and_again(tmp_path / "x.parquet", BIG, True, compression="none")
    with little_memory():
        file = ParquetFile(path, "image", None)
        with pytest.raises(
            ValueError, match=r"x\.parquet: text: to hold .* \d MB are allowed: leave"
        ):
            file.read(["text"])
        with pytest.raises(
            ValueError, match=r"x\.parquet: image\.path: to hold .* \d MB are allowed"
        ):
            _ = file.paths


def whole(number):
    """As a footer writes it."""
    number, out = number << 1 if number >= 0 else (-number << 1) - 1, bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def replaced(path, old, new):
    data = path.read_bytes()
    assert data.count(old) == 1 and len(old) == len(new)
    path.write_bytes(data.replace(old, new))


def test_claims_of_sizes(tmp_path, monkeypatch):
    """What a footer says of bytes that are not there."""
    path = tmp_path / "x.parquet"
    written(path, [random.randbytes(5000)], "bytes", compression="snappy")
    column = parquet.ParquetFile(path).metadata.row_group(0).column(0)
    plain, size = (
        b"\x16" + whole(each)
        for each in (column.total_uncompressed_size, column.total_compressed_size)
    )
    sound = path.read_bytes()
    replaced(path, plain + size, b"\x16" + whole(-column.total_uncompressed_size) + size)
    with pytest.raises(DamagedParquet, match=r"x\.parquet: its footer is damaged"):
        ParquetFile(str(path), "image", None)
    path.write_bytes(sound)
    replaced(path, plain + size, b"\x16" + whole(70) + size)
    monkeypatch.setattr(parquet_files, "MOST_GROUP", 4000)
    file = ParquetFile(str(path), "image", None)
    file.reader = None  # is not asked
    with pytest.raises(ValueError, match=r"x\.parquet: .*smaller row groups"):
        file.read_group(0)


def test_row_groups_that_lie_over_each_other(tmp_path):
    """A file of a few kB, which costs the walk over all of them for each of its rows."""
    one, many = tmp_path / "one.parquet", tmp_path / "x.parquet"
    for compression in ("none", "snappy"):
        written(one, [random.randbytes(4000)], "bytes", compression=compression)
        metadata = parquet.read_metadata(one)
        for _ in range(50):
            metadata.append_row_groups(parquet.read_metadata(one))
        metadata.write_metadata_file(tmp_path / "footer")
        pages = one.read_bytes()[: -8 - int.from_bytes(one.read_bytes()[-8:-4], "little")]
        many.write_bytes(pages + (tmp_path / "footer").read_bytes()[4:])
        assert len(parquet.read_table(many)) == 51  # to pyarrow it is sound
        with pytest.raises(
            DamagedParquet, match=r"x\.parquet: .*row groups that lie over each other"
        ):
            ParquetFile(str(many), "image", None)


@pytest.mark.parametrize("name", ["string", "large_string", "string_view"])
@pytest.mark.parametrize("inside", [False, True])
def test_texts_are_no_pictures(tmp_path, name, inside):
    kind = getattr(pyarrow, name)()
    kind = pyarrow.struct({"bytes": kind}) if inside else kind
    table = pyarrow.table({"image": pyarrow.nulls(3, kind)})
    parquet.write_table(table, tmp_path / "x.parquet", compression="none")
    with pytest.raises(
        TypeError, match=rf"x\.parquet: the column 'image' is .*{name}.*: encoded pict"
    ):
        ParquetFile(str(tmp_path / "x.parquet"), "image", None)


@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_footers_that_are_damaged(tmp_path, compression):
    """Each is an error that names the file, when it is opened or when it is read, or another sound file.
    None costs more work than a sound one."""
    rng = random.Random()
    path = tmp_path / "x.parquet"
    values = values_of(rng, 100, True)
    written(path, values, "struct", use_dictionary=False, compression=compression, **MANY)
    data = path.read_bytes()
    footer = int.from_bytes(data[-8:-4], "little")
    outcomes = collections.Counter()
    for _ in range(200):
        changed = bytearray(data)
        for _ in range(rng.choice([1, 4])):
            changed[len(data) - 1 - rng.randrange(footer + 8)] = rng.randrange(256)
        path.write_bytes(changed)
        (tmp_path / "x.parquet.fastloader-parquet").unlink(missing_ok=True)
        try:
            with work_of(data):
                file = ParquetFile(str(path), "image", None)
                if file.places is None:
                    found = [row for n in range(len(file._groups)) for row in file.read_group(n)]
                else:
                    found = read(file)
                table = file.read(["label"])
            assert len(found) == len(table) == file.rows
            with contextlib.suppress(KeyError):
                assert len(ParquetImages(path, columns=["image"])) == file.rows
            outcomes["read" if file.places else "groups"] += 1
        except (ValueError, KeyError, TypeError) as error:
            outcomes["refused"] += 1
            assert "x.parquet" in str(error)
    assert outcomes["refused"] > 20
    assert outcomes["read" if compression == "none" else "groups"] > 3, outcomes


def test_a_compression_that_nobody_knows(tmp_path):
    """pyarrow ends the process when it is asked for it."""
    path = tmp_path / "x.parquet"
    written(path, [b"a"], "bytes")
    data = path.read_bytes()
    assert data.count(b"\x05image\x15\x00") == 1
    path.write_bytes(data.replace(b"\x05image\x15\x00", b"\x05image\x15\x20"))
    with pytest.raises(DamagedParquet, match=r"x\.parquet: .*a compression of the number 16"):
        ParquetFile(str(path), "image", None)


def test_files_that_claim_rows(tmp_path):
    """What is read of a file takes memory in its rows, whatever these take in the file."""
    path = tmp_path / "x.parquet"
    table = pyarrow.table({"image": pyarrow.nulls(100_000, pyarrow.binary())})
    parquet.write_table(table, path, compression="none")
    with pytest.raises(DamagedParquet, match=r"x\.parquet: .*100000 rows, in \d+ bytes"):
        ParquetFile(str(path), "image", None)
    written(path, [b"abc"] * 77, "bytes")
    data = path.read_bytes()
    assert data.count(b"\x16\x9a\x01\x19") == 1  # the number of rows, before the list of row groups
    path.write_bytes(data.replace(b"\x16\x9a\x01\x19", b"\x16\x9c\x01\x19"))
    with pytest.raises(DamagedParquet, match=r"x\.parquet: .*78 rows, in \d+ bytes"):
        ParquetFile(str(path), "image", None)
