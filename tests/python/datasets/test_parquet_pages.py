"""Where the values of a Parquet column lie: those that pyarrow reads, however pyarrow wrote them."""

import mmap
import os
import random

import numpy as np
import pytest
from parquet_files import MANY, parquet, read, values_of, work_of, written

from fastloader.datasets._formats import parquet_files
from fastloader.datasets._formats.parquet_files import ParquetFile
from fastloader.datasets._formats.parquet_pages import (
    Chunk,
    DamagedParquet,
    NotPlain,
    places_of,
    read_runs,
)

WRITTEN = {
    "plain": dict(use_dictionary=False),
    "version 2": dict(use_dictionary=False, data_page_version="2.0"),
    "dictionary": dict(use_dictionary=True),
    "a dictionary of version 2": dict(use_dictionary=True, data_page_version="2.0"),
    "many groups and pages": dict(use_dictionary=False, **MANY),
    "a dictionary that is full": dict(use_dictionary=True, dictionary_pagesize_limit=300, **MANY),
    "chunks by content": dict(
        use_dictionary=False,
        use_content_defined_chunking=dict(min_chunk_size=300, max_chunk_size=900, norm_level=0),
    ),
    "an index, checksums, no statistics": dict(
        use_dictionary=False,
        write_page_index=True,
        write_page_checksum=True,
        write_statistics=False,
        **MANY,
    ),
}


@pytest.mark.parametrize("kind", ["bytes", "required", "large", "struct"])
@pytest.mark.parametrize("way", WRITTEN)
def test_values_are_those_that_were_written(tmp_path, way, kind):
    rng = random.Random()
    for count in (1, 8, rng.randrange(2, 700)):
        values = values_of(rng, count, kind != "required")
        path = written(tmp_path / "x.parquet", values, kind, **WRITTEN[way])
        for _ in range(2):  # the second time by what is kept
            file = ParquetFile(path, "image", None)
            assert read(file) == values, (way, kind)
        (tmp_path / "x.parquet.fastloader-parquet").unlink()


@pytest.mark.parametrize(
    "way", ["snappy", "zstd", "gzip", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]
)
@pytest.mark.parametrize("kind", ["bytes", "struct"])
def test_other_files_are_read_by_row_groups(tmp_path, way, kind):
    rng = random.Random()
    values = values_of(rng, 300, True)
    options = dict(compression=way, use_dictionary=False)
    if way.startswith("DELTA"):
        column = "image.bytes" if kind == "struct" else "image"
        options = dict(use_dictionary=False, column_encoding={column: way})
    path = written(tmp_path / "x.parquet", values, kind, row_group_size=77, **options)
    file = ParquetFile(path, "image", None)
    assert file.places is None
    assert ("compressed" if way.islower() else "encoding") in file.why
    found = []
    for row in range(300):
        group, number = file.group_of(row)
        assert group == row // 77
        found.append(file.read_group(group)[number].as_py())
    assert found == values
    assert not (tmp_path / "x.parquet.fastloader-parquet").exists()


@pytest.mark.parametrize("width", [0, 1, 2, 3, 7, 8, 13, 32])
def test_runs(width):
    """Encoded as parquet-format's Encodings.md says."""
    rng = random.Random(width)
    for _ in range(20):
        data, numbers = bytearray(), []
        for _ in range(rng.randrange(1, 6)):
            if rng.random() < 0.5:
                length, number = rng.randrange(1, 300), rng.randrange(1 << width)
                head = length << 1
                run, body = [number] * length, number.to_bytes((width + 7) // 8, "little")
            else:
                groups = rng.randrange(1, 40)
                head = groups << 1 | 1
                run = [rng.randrange(1 << width) for _ in range(8 * groups)]
                bits = sum(number << place * width for place, number in enumerate(run))
                body = bits.to_bytes(groups * width, "little")
            while head >= 0x80:
                data.append(head & 0x7F | 0x80)
                head >>= 7
            data += bytes([head]) + body
            numbers += run
        count = rng.randrange(1, len(numbers) + 1)
        assert read_runs(bytes(data), 0, len(data), count, width).tolist() == numbers[:count]
        with pytest.raises(DamagedParquet):
            read_runs(bytes(data), 0, len(data), len(numbers) + 1, width)


def test_runs_of_no_length():
    with pytest.raises(DamagedParquet, match="of no length"):
        read_runs(bytes(1000), 0, 1000, 3, 1)


def test_runs_of_more_numbers_than_are_unpacked_at_a_time():
    rng = random.Random(1)
    groups = 3 * (1 << 16) // 8 + 1
    run = [rng.randrange(8) for _ in range(8 * groups)]
    text = "".join(f"{number:03b}"[::-1] for number in run)
    body = int(text[::-1], 2).to_bytes(groups * 3, "little")
    head = groups << 1 | 1
    data = bytes([head & 0x7F | 0x80, head >> 7 & 0x7F | 0x80, head >> 14]) + body
    assert read_runs(data, 0, len(data), len(run), 3).tolist() == run


def chunks_of(path):
    metadata = parquet.ParquetFile(path).metadata
    for group in range(metadata.num_row_groups):
        column = metadata.row_group(group).column(0)
        begin = column.dictionary_page_offset or column.data_page_offset
        yield Chunk(begin, begin + column.total_compressed_size, column.num_values, 1)


@pytest.mark.parametrize("way", WRITTEN)
def test_damaged_pages_are_errors_or_other_places_in_the_file(tmp_path, way):
    """Whatever stands there costs no more work than a sound file, and leads nowhere else."""
    rng = random.Random()
    values = values_of(rng, 150, True)
    path = written(tmp_path / "x.parquet", values, "bytes", **WRITTEN[way])
    sound = (tmp_path / "x.parquet").read_bytes()
    chunks = list(chunks_of(path))
    refused = 0
    for _ in range(300):
        chunk = rng.choice(chunks)
        data = bytearray(sound)
        for _ in range(rng.choice([1, 1, 3])):
            # Headers stand at the beginning of a page, of which the first matters most.
            place = rng.choice(
                [chunk.begin + rng.randrange(40), rng.randrange(chunk.begin, chunk.end)]
            )
            data[min(place, chunk.end - 1)] = rng.choice([0, 0xFF, 0x7F, 0x80, rng.randrange(256)])
        try:
            with work_of(sound):
                offsets, sizes = places_of(bytes(data), chunk)
            assert len(offsets) == chunk.values
            assert int((offsets + sizes).max()) <= chunk.end
            assert all(offset == 0 or offset >= chunk.begin for offset in offsets.tolist())
        except (DamagedParquet, NotPlain):
            refused += 1
    assert refused > 50


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\x15",
        b"\x15" + b"\xff" * 12,
        b"\x1c" * 5000,  # structs within structs
        b"\x11" * 100,  # more fields than any header has
        b"\x19\x05",  # a list
        b"\x18\xff\xff\xff\xff\x7f",  # a text that is longer than the file
        b"\x00",
    ],
)
def test_what_is_no_header(header):
    data = b"PAR1" + header
    with pytest.raises(DamagedParquet, match="at byte 4: no header of a page"):
        places_of(data, Chunk(4, len(data), 3, 1))


def test_values_that_repeat():
    header = b"\x15\x06\x15\x0e\x15\x0e\x5c\x15\x06\x15\x00\x15\x06\x15\x00\x15\x00\x15\x02\x00\x00"
    data = b"PAR1" + header + bytes(7)
    with pytest.raises(DamagedParquet, match="at byte 25: a page of values that repeat"):
        places_of(data, Chunk(4, len(data), 3, 1))


def test_statistics_in_a_header_may_be_as_long_as_a_picture(tmp_path):
    """Older writers put the least and the largest value there."""
    least = b"\x18" + b"\xa0\x8d\x06" + bytes(100_000)  # field 1 of the statistics
    inside = b"\x15\x02\x15\x00\x15\x06\x15\x06\x1c" + least + b"\x00\x00"  # of a page of version 1
    page = (3).to_bytes(4, "little") + b"abc"
    header = b"\x15\x00\x15\x0e\x15\x0e\x2c" + inside + b"\x00"
    data = b"PAR1" + header + page
    offsets, sizes = places_of(data, Chunk(4, len(data), 1, 0))
    assert data[int(offsets[0]) :] == b"abc" and sizes.tolist() == [3]


def test_files_that_were_cut_off_or_changed(tmp_path):
    rng = random.Random()
    sound = tmp_path / "x.parquet"
    written(sound, values_of(rng, 100, True), "struct", use_dictionary=False, **MANY)
    data = sound.read_bytes()
    path = tmp_path / "cut.parquet"
    for size in [1, 4, 11, 12, len(data) - 1, *(rng.randrange(1, len(data)) for _ in range(30))]:
        path.write_bytes(data[:size])
        with pytest.raises(ValueError, match=r"cut\.parquet"):
            ParquetFile(str(path), "image", None)


def test_what_is_kept_is_of_this_file_or_made_anew(tmp_path, monkeypatch):
    rng = random.Random()
    path = tmp_path / "x.parquet"
    values = [rng.randbytes(50) for _ in range(40)]
    written(path, values, "bytes", use_dictionary=False)
    walks = []
    walk = parquet_files.places_of
    monkeypatch.setattr(parquet_files, "places_of", lambda *a: walks.append(a) or walk(*a))

    def looked(column="image"):
        before = len(walks)
        file = ParquetFile(str(path), column, None)
        return read(file), len(walks) - before

    kept = tmp_path / "x.parquet.fastloader-parquet"
    assert looked() == (values, 1)
    assert looked() == (values, 0)
    mine = kept.read_bytes()
    # Other values of the same lengths, the same footer, and the same time.
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[int(ParquetFile(str(path), "image", None).places[0][0])] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    found, made = looked()
    assert made == 1 and found[0] != values[0] and found[1:] == values[1:]
    # Damaged, and of hostile making.
    for content in (b"", b"PK\x03\x04 nothing", mine[:200]):
        kept.write_bytes(content)
        assert looked() == (found, 1)
    good = dict(np.load(kept))

    def of_rows(arrays, rows):
        offsets = arrays["offsets"][rows]
        own = np.frombuffer(parquet_files._fingerprint(path.read_bytes(), offsets), np.uint8)
        return {"offsets": offsets, "sizes": arrays["sizes"][rows], "fingerprint": own}

    for change in (
        {"offsets": good["offsets"] + np.uint64(1 << 40)},
        {"sizes": good["sizes"] + np.uint64(1 << 63)},
        {"offsets": good["offsets"][:-1]},
        {"offsets": good["offsets"].astype(np.int64)},
        {"offsets": good["offsets"][None], "sizes": good["sizes"][None]},
        of_rows(good, slice(None, -1)),
        of_rows(good, [*range(40), 39]),
        {"whose": np.zeros(0, np.uint8)},
    ):
        np.savez(tmp_path / "made.npz", **{**good, **change})
        kept.write_bytes((tmp_path / "made.npz").read_bytes())
        assert looked() == (found, 1), change
    # A small file that is large inside.
    np.savez_compressed(tmp_path / "made.npz", **good, more=np.zeros(1 << 16))
    kept.write_bytes((tmp_path / "made.npz").read_bytes())
    assert looked() == (found, 1)


def test_mapped_files_are_read_and_not_copied(tmp_path):
    path = written(tmp_path / "x.parquet", [b"a", b"b"], "bytes", use_dictionary=False)
    assert isinstance(ParquetFile(path, "image", None).mapping, mmap.mmap)
