"""Packs samples of arrays, and checks what was packed."""

from __future__ import annotations

import contextlib
import os
import sys
import zlib
from collections.abc import Callable, Iterator

from fastloader._core.machine.messages.progress import progress
from fastloader.cli.pack.array_source import ArraySource
from fastloader.cli.pack.array_writer import ArrayWriter
from fastloader.cli.pack.encoding import Encoding
from fastloader.cli.pack.source_error import SourceError
from fastloader.datasets.arrays import ArrayFolder, PackedArray, begin_of, read_folder

_BLOCK = 1 << 20


def pack_arrays(
    source: ArraySource,
    path: str,
    encoding: Encoding,
    prepared: Callable[[range], Iterator[list[bytes]]],
) -> int:
    """The exit status: 0, 1 after an error, 130 after Ctrl-C. Prints what it did. ``prepared``: gives
    the rows of the samples of a range."""
    if encoding != Encoding():
        raise SourceError(
            "--max-side, --quality, --recode and --index are for pictures, and the samples are arrays: "
            f"{source}"
        )
    total = source.folder.total
    writer = ArrayWriter(path, source.folder)
    try:
        begun = writer.count
        if begun == total:
            print(f"{path}: all {total} samples are there already")
        elif begun:
            print(f"{path}: goes on after {begun} of {total} samples")
        status = _write(writer, source, prepared)
    finally:
        writer.close()
    return status or check_arrays(path)


def source_reader(source: ArraySource) -> Callable[[int], list[bytes]]:
    """Reads the samples of a source."""

    def read(index: int) -> list[bytes]:
        try:
            return source.read(index)
        except SourceError:
            raise
        except Exception as error:
            raise SourceError(f"sample {index}: {type(error).__name__}: {error}") from error

    return read


def _write(
    writer: ArrayWriter, source: ArraySource, prepared: Callable[[range], Iterator[list[bytes]]]
) -> int:
    total = source.folder.total
    try:
        with progress("packing", total, "samples", begun=writer.count) as line:
            for rows in prepared(range(writer.count, total)):
                writer.add(rows)
                line.step()
        writer.commit()
        return 0
    except KeyboardInterrupt:
        writer.commit()
        print(f"\n{writer.path}: interrupted", file=sys.stderr)
        status = 130
    except (SourceError, OSError) as error:
        if isinstance(error, SourceError):
            with contextlib.suppress(OSError):
                writer.commit()
        print(f"\nfastloader pack: {error}", file=sys.stderr)
        status = 1
    print(
        f"{writer.committed} of {total} samples are in {writer.path} and can be read; the same command "
        "goes on from there",
        file=sys.stderr,
    )
    return status


def check_arrays(path: str) -> int:
    """Reads everything, and compares checksums. Prints what is damaged; 1 if anything is, 2 if it is not
    complete."""
    folder = read_folder(path)
    if folder is None:
        raise ValueError(f"{path} is no folder of `fastloader pack`")
    damaged = 0
    for array in folder.arrays:
        problem = _problem(os.path.join(path, array.file), array, folder)
        if problem is not None:
            damaged += 1
            print(f"{path}: {array.file} {problem}", file=sys.stderr)
    if damaged:
        return 1
    if not folder.complete:
        print(f"{path}: packing was interrupted; its {folder.count} samples are sound")
        return 2
    size = sum(array.row_bytes for array in folder.arrays) * folder.count
    print(
        f"{path}: {folder.count} samples of {len(folder.arrays)} arrays, {size / 1e6:.1f} MB, verified"
    )
    return 0


def _problem(path: str, array: PackedArray, folder: ArrayFolder) -> str | None:
    try:
        with open(path, "rb") as file:
            begin = begin_of(file, array, folder.total)
            left = folder.count * array.row_bytes
            there = os.fstat(file.fileno()).st_size - begin
            if there < left or (folder.complete and there > left):
                return f"has {there} bytes of samples, and {left} were written"
            crc = 0
            while left:
                block = file.read(min(_BLOCK, left))
                if not block:
                    return "became shorter while it was read"
                crc = zlib.crc32(block, crc)
                left -= len(block)
    except (OSError, ValueError) as error:
        return f"cannot be read: {error}"
    return None if crc == array.crc32 else "is damaged: its checksum does not match"
