"""Writes the file of `fastloader.datasets._formats.lmdb.file`, so that an interruption costs little."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from typing import Any

import numpy as np

from fastloader.cli.pack.encoding import Encoding
from fastloader.cli.pack.source import PackSource, Sample
from fastloader.cli.pack.source_error import SourceError
from fastloader.datasets._formats.lmdb.file import (
    EXTENTS,
    FORMAT,
    META,
    PLAIN,
    TARGETS,
    WITH_INDICES,
    check_size,
    data_file,
    decode_record,
    encode_record,
    key_of,
    lmdb_module,
    parse_meta,
)

# A transaction ends after so much: what an interruption can cost, and what memory it takes.
_BATCH_BYTES = 64 << 20
_BATCH_RECORDS = 2000
_FIRST_MAP = 1 << 30


class Writer:
    """Appends records in transactions; each also moves ``count``, so that what is in the file always
    agrees with what it says.

    Attributes:
        encoding: how samples are to be stored, with what was left to the file decided.
    """

    def __init__(self, path: str, source: PackSource, encoding: Encoding) -> None:
        lmdb = lmdb_module()
        self.path = path
        self._full = lmdb.MapFullError
        file = data_file(path)
        there = os.path.getsize(file)
        try:
            self._environment = lmdb.open(
                path,
                subdir=os.path.isdir(path),
                map_size=max(_FIRST_MAP, 2 * there),
                readahead=False,
            )
        except lmdb.Error as error:
            raise SourceError(f"{path} exists and cannot be continued: {error}") from error
        self._waiting: list[tuple[bytes, bytes]] = []
        self._waiting_bytes = 0
        try:
            check_size(self._environment, path)
            self._begin(source, encoding)
        except BaseException:
            self._environment.close()
            raise

    def _begin(self, source: PackSource, encoding: Encoding) -> None:
        """Goes on with what is in the file."""
        with self._environment.begin() as transaction:
            found = transaction.get(META)
            strange = found is None and self._environment.stat()["entries"]
        if strange:
            raise SourceError(f"{self.path} exists, and is not a file of `fastloader pack`")
        kept = None if found is None else parse_meta(found, self.path)
        self.encoding = encoding.decided(None if kept is None else kept["options"])
        self._meta: dict[str, Any] = {
            "format": FORMAT,
            "version": WITH_INDICES if self.encoding.index else PLAIN,
            "count": 0,
            "complete": False,
            "classes": source.classes,
            "indexed": 0,
            "source": source.identity,
            "options": self.encoding.options(),
        }
        if kept is not None:
            for key, what in (("source", "from other samples"), ("options", "with other options")):
                if kept[key] != self._meta[key]:
                    raise SourceError(
                        f"{self.path} was begun {what}: pack to another file, or delete it"
                    )
            self._meta = kept
        self.count = self.committed = int(self._meta["count"])
        self.indexed = int(self._meta.get("indexed") or 0)
        if kept is None:
            self.commit()  # from now on it is told what this file is, whatever happens

    def add(self, sample: Sample) -> None:
        record = encode_record(
            sample.image, sample.label, sample.name, sample.seek_index, self._meta["version"]
        )
        self._waiting.append((key_of(self.count), record))
        self._waiting_bytes += len(record)
        self.indexed += bool(sample.seek_index)
        self.count += 1
        if self._waiting_bytes >= _BATCH_BYTES or len(self._waiting) >= _BATCH_RECORDS:
            self.commit()

    def commit(self) -> None:
        """Everything that was added is on the disk afterwards."""
        meta = {**self._meta, "count": self.count, "indexed": self.indexed}
        self._put([(META, json.dumps(meta).encode()), *self._waiting])
        self._meta = meta
        self._waiting.clear()
        self._waiting_bytes = 0
        self.committed = self.count

    def finish(self) -> None:
        """The labels, and the word that nothing is missing."""
        if self._meta["complete"]:
            return
        self.commit()
        labels = np.empty(self.count, dtype="<i8")
        extents = np.empty((self.count, 2), dtype="<u8")
        with self._environment.begin(buffers=True) as transaction:
            for index in range(self.count):
                data = transaction.get(key_of(index))
                labels[index] = decode_record(data, key_of(index), self._meta["version"]).label
                extents[index] = (
                    np.frombuffer(data, np.uint8).__array_interface__["data"][0],
                    len(data),
                )
            begin = _begin_of_mapping(int(extents[0, 0]))
        meta = {**self._meta, "complete": True}
        pairs = [(META, json.dumps(meta).encode()), (TARGETS, labels.tobytes())]
        if begin is not None:
            extents[:, 0] -= np.uint64(begin)
            pairs.append((EXTENTS, extents.tobytes()))
        self._put(pairs)
        self._meta = meta

    def _put(self, pairs: list[tuple[bytes, bytes]]) -> None:
        while True:
            try:
                with self._environment.begin(write=True) as transaction:
                    for key, value in pairs:
                        transaction.put(key, value)
                return
            except self._full:
                self._environment.set_mapsize(2 * self._environment.info()["map_size"])

    def no_room(self) -> str:
        """LMDB calls a full disk "Input/output error" where it could write a part."""
        free = shutil.disk_usage(os.path.dirname(os.path.abspath(self.path))).free
        return f" (the disk is full: {free} bytes are left)" if free < self._waiting_bytes else ""

    def close(self) -> None:
        self._environment.close()
        # LMDB's lock file serves several writers at a time; here the guard excludes them.
        lock = (
            os.path.join(self.path, "lock.mdb") if os.path.isdir(self.path) else self.path + "-lock"
        )
        with contextlib.suppress(OSError):
            os.unlink(lock)


def _begin_of_mapping(address: int) -> int | None:
    """Where the first byte of the file that is mapped there would be; None where the system does not
    tell."""
    try:
        with open("/proc/self/maps") as mappings:
            for line in mappings:
                ends, _permissions, offset, *_ = line.split()
                first, last = (int(end, 16) for end in ends.split("-"))
                if first <= address < last:
                    return first - int(offset, 16)
    except OSError:
        pass
    return None
