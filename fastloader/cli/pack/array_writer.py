"""Writes the folder of `PackedArrays`, so that an interruption costs little."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import zlib
from typing import Any

import numpy as np

from fastloader.cli.pack.source_error import SourceError
from fastloader.datasets.arrays import META, ArrayFolder, PackedArray, begin_of, read_folder

# After so much it is written down that the samples are there.
_TOGETHER = 2000
_BYTES_TOGETHER = 64 << 20
_UNFINISHED = META + ".part"


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
        """Everything that was added is on the disk afterwards."""
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
        os.replace(unfinished, os.path.join(self.path, META))

    def close(self) -> None:
        """Gives up what was not committed, which the next packing cuts off."""
        for file in self._files:
            with contextlib.suppress(OSError):  # a full disk, which was an error already
                file.close()
        os.close(self._guard)


def _bare(folder: ArrayFolder) -> Any:
    """What a resumed packing must agree with."""
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
