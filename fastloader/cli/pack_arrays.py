"""Packs samples of arrays into the folder of `PackedArrays`, so that an interruption costs little."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fastloader._core.machine.messages import progress
from fastloader.cli.pack_source import ArraySource, Encoding, SourceError
from fastloader.datasets.arrays import ARRAYS_META, ArrayFolder, PackedArray, begin_of, read_folder

# ---- Writes the folder of `PackedArrays`, so that an interruption costs little.


# After so much it is written down that the samples are there.
_TOGETHER = 2000
_BYTES_TOGETHER = 64 << 20
_UNFINISHED = ARRAYS_META + ".part"


class ArrayWriter:
    """Appends samples. What ``arrays.json`` says is always on the disk.

    Attributes:
        committed: how many samples that is.

    Raises:
        SourceError: if the folder holds other files, was begun from other samples, or another process
            packs to it.
    """

    def __init__(self, path: str, wanted: ArrayFolder) -> None:
        self.path = path
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
        if not os.path.isdir(path):
            raise SourceError(f"{path} is a file: samples of arrays are packed to a folder")
        self._guard = os.open(path, os.O_RDONLY)
        self._files: list[Any] = []
        try:
            fcntl.flock(self._guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._begin(wanted)
        except BlockingIOError:
            self.close()
            raise SourceError(f"{path} is being packed by another process") from None
        except BaseException:
            self.close()
            raise

    def _begin(self, wanted: ArrayFolder) -> None:
        there = read_folder(self.path)
        if there is None:
            # Of a first packing that was killed, nothing else is there.
            if set(os.listdir(self.path)) - {_UNFINISHED}:
                raise SourceError(f"{self.path} is a folder of other files: name another one")
            there = wanted
        elif _bare(there) != _bare(wanted):
            raise SourceError(
                f"{self.path} was begun from other samples: pack to another folder, or delete it"
            )
        self._folder = there
        self.committed = there.count
        # How many samples there are, and the checksums of them: one object, for Ctrl-C may come in
        # between two.
        self._added = there.count, [array.crc32 for array in there.arrays]
        self._waiting_bytes = 0
        self._write_meta()  # from now on the folder says what it is, whatever happens
        for array in there.arrays:
            self._files.append(open(self._file(array), "a+b"))  # noqa: SIM115
            _cut_to(self._files[-1], array, there)

    @property
    def count(self) -> int:
        """How many samples there are."""
        return self._added[0]

    def _file(self, array: PackedArray) -> str:
        return os.path.join(self.path, array.file)

    def add(self, rows: list[bytes]) -> None:
        """Appends a sample, the bytes of each of its arrays."""
        for file, row in zip(self._files, rows, strict=True):
            file.write(row)
            self._waiting_bytes += len(row)
        count, crcs = self._added
        self._added = count + 1, [zlib.crc32(row, crc) for row, crc in zip(rows, crcs, strict=True)]
        if self.count - self.committed >= _TOGETHER or self._waiting_bytes >= _BYTES_TOGETHER:
            self.commit()

    def commit(self) -> None:
        """Writes everything that was added to the disk."""
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
        self._folder.count, crcs = self._added
        for array, crc in zip(self._folder.arrays, crcs, strict=True):
            array.crc32 = crc
        self._write_meta()
        self.committed, self._waiting_bytes = self._folder.count, 0

    def _write_meta(self) -> None:
        unfinished = os.path.join(self.path, _UNFINISHED)
        with open(unfinished, "w", encoding="utf-8") as file:
            file.write(self._folder.as_json())
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, os.path.join(self.path, ARRAYS_META))

    def close(self) -> None:
        """Gives up what was not committed, which the next packing cuts off."""
        for file in self._files:
            with contextlib.suppress(OSError):  # a full disk, which was an error already
                file.close()
        os.close(self._guard)


def _bare(folder: ArrayFolder) -> Any:
    """Returns what a resumed packing must agree with."""
    arrays = [dataclasses.replace(array, crc32=0) for array in folder.arrays]
    return dataclasses.replace(folder, arrays=arrays, count=0)


def _cut_to(file: Any, array: PackedArray, folder: ArrayFolder) -> None:
    """Leaves in an open file its header and the samples that the folder counts."""
    if folder.count == 0:
        file.truncate(0)
        shape = (folder.total, *array.shape)
        header = {"descr": array.dtype, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        return
    file.seek(0)
    try:
        end = begin_of(file, array, folder.total) + folder.count * array.row_bytes
    except ValueError as error:
        raise SourceError(f"{file.name} cannot be continued: {error}") from None
    if os.fstat(file.fileno()).st_size < end:
        raise SourceError(f"{file.name} was cut off: delete the folder, and pack again")
    file.truncate(end)
    file.seek(end)


# ---- Packs samples of arrays, and checks what was packed.


_BLOCK = 1 << 20


def pack_arrays(
    source: ArraySource,
    path: str,
    encoding: Encoding,
    prepared: Callable[[range], Iterator[list[bytes]]],
) -> int:
    """Packs the arrays, prints what it did, and returns the exit status: 0, 1 after an error, 130 after
    Ctrl-C. ``prepared``: gives the rows of the samples of a range."""
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
