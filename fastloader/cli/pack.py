"""Runs ``fastloader pack``: packs pictures into one LMDB file and arrays into a folder, and checks
them."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fastloader._core.machine import extension
from fastloader._core.machine.limits import available_threads
from fastloader._core.machine.messages import progress
from fastloader.cli.pack_arrays import check_arrays, pack_arrays, source_reader
from fastloader.cli.pack_source import (
    ArraySource,
    Encoding,
    PackSource,
    Sample,
    SourceError,
    open_source,
)
from fastloader.cli.tasks import ahead, on_ray
from fastloader.datasets._formats.lmdb_files import (
    EXTENTS,
    FORMAT,
    META,
    PLAIN,
    TARGETS,
    WITH_INDICES,
    DamagedError,
    Record,
    check_size,
    data_file,
    decode_record,
    encode_record,
    exclusive_guard,
    key_of,
    lmdb_module,
    open_environment,
    parse_meta,
    read_meta,
)
from fastloader.datasets.arrays import ARRAYS_META

# ---- Writes the file of `fastloader.datasets._formats.lmdb_files`, so that an interruption costs
# little.


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
        """Continues the file from what is in it."""
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
        """Writes everything that was added to the disk."""
        meta = {**self._meta, "count": self.count, "indexed": self.indexed}
        self._put([(META, json.dumps(meta).encode()), *self._waiting])
        self._meta = meta
        self._waiting.clear()
        self._waiting_bytes = 0
        self.committed = self.count

    def finish(self) -> None:
        """Writes the labels, and that nothing is missing."""
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
        """Says that the disk is full, if it is: LMDB calls that "Input/output error" where it could
        write a part."""
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
    """Returns where the first byte of the file that is mapped there would be; None where the system does
    not tell."""
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


# ---- Packs a source, and checks what was packed.


def pack(
    source_text: str, path: str, encoding: Encoding, workers: int | None, ray: str | None = None
) -> int:
    """Packs the pictures, prints what it did, and returns the exit status: 0, 1 after an error, 130
    after Ctrl-C. ``ray``: the address of a cluster whose tasks read and encode; None for threads of this
    process."""
    if ray is not None and os.path.isdir(source_text):
        source_text = os.path.abspath(source_text)  # tasks run in other folders
    source = open_source(source_text)
    parent = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(parent):
        raise SourceError(f"{path}: there is no folder {parent}")
    if isinstance(source, ArraySource):
        read = functools.partial(_array_reader, source_text, source.folder.source)
        ahead_of_it = _ahead(source_reader(source), read, workers, ray)
        return pack_arrays(source, path, encoding, ahead_of_it)
    if source.count == 0:
        raise SourceError(f"{source_text} has no samples")
    if os.path.isdir(path) and not os.path.exists(data_file(path)) and os.listdir(path):
        raise SourceError(f"{path} is a folder of other files: name a file, or an empty folder")
    lmdb_module()  # raises, before there is a file
    guard = exclusive_guard(data_file(path))
    try:
        writer = Writer(path, source, encoding)
        try:
            prepare = functools.partial(_preparer, source_text, source.identity, writer.encoding)
            prepared = _ahead(preparation(source, writer.encoding), prepare, workers, ray)
            status = _write(writer, source, prepared)
        finally:
            writer.close()
    finally:
        os.close(guard)
    return status or check(path, quiet=True)


def _ahead(
    here: Callable[[int], Any],
    there: Callable[[], Callable[[int], Any]],
    workers: int | None,
    ray: str | None,
) -> Callable[[range], Iterator[Any]]:
    """Makes the function that prepares the samples of a range ahead of the writer: ``here``, by threads
    of this process, or what ``there`` gives in the tasks of a cluster."""
    if ray is None:
        return lambda indices: ahead(here, indices, workers or available_threads())
    return lambda indices: on_ray(ray, there, indices, SourceError)


def preparation(source: PackSource, encoding: Encoding) -> Callable[[int], Sample]:
    """Reads and encodes the samples of a source."""

    def prepare(index: int) -> Sample:
        try:
            sample = source.read(index)
            file = encoding.encode(sample.image)
            anew = isinstance(sample.image, bytes) and file is not sample.image
            seek_index = encoding.seek_index(file)
            return Sample(file, sample.label, sample.name, anew, seek_index)
        except SourceError:
            raise
        except Exception as error:
            raise SourceError(f"sample {index}: {type(error).__name__}: {error}") from error

    return prepare


def _preparer(text: str, identity: str, encoding: Encoding) -> Callable[[int], Sample]:
    """Makes the function that prepares a sample in a task, which opens the source itself."""
    source = open_source(text)
    if isinstance(source, ArraySource) or source.identity != identity:
        raise SourceError(f"{text} has other samples than where the command runs")
    return preparation(source, encoding)


def _array_reader(text: str, identity: str) -> Callable[[int], list[bytes]]:
    source = open_source(text)
    if not isinstance(source, ArraySource) or source.folder.source != identity:
        raise SourceError(f"{text} has other samples than where the command runs")
    return source_reader(source)


def _write(
    writer: Writer, source: PackSource, prepared: Callable[[range], Iterator[Sample]]
) -> int:
    begun = writer.count
    if begun == source.count:
        print(f"{writer.path}: all {begun} samples are there already")
    elif begun:
        print(f"{writer.path}: goes on after {begun} of {source.count} samples")

    anew = 0
    try:
        with progress("packing", source.count, begun=begun) as line:
            for sample in prepared(range(begun, source.count)):
                writer.add(sample)
                anew += sample.anew
                line.step()
            writer.finish()
    except KeyboardInterrupt:
        writer.commit()
        print(f"\n{writer.path}: interrupted", file=sys.stderr)
        _say_how_far(writer, source)
        return 130
    except (SourceError, OSError, lmdb_module().Error) as error:
        with contextlib.suppress(OSError, lmdb_module().Error):
            writer.commit()
        print(f"\nfastloader pack: {error}{writer.no_room()}", file=sys.stderr)
        _say_how_far(writer, source)
        return 1
    if anew or writer.encoding.recode is not None:
        print(f"{writer.path}: {anew} of {source.count - begun} pictures were written anew")
    return 0


def _say_how_far(writer: Writer, source: PackSource) -> None:
    print(
        f"{writer.committed} of {source.count} samples are in {writer.path} and can be read; the same "
        "command goes on from there",
        file=sys.stderr,
    )


def check(path: str, quiet: bool = False) -> int:
    """Reads every record of the file and compares checksums, and unless ``quiet`` each seek index with a
    parse of its picture. Prints damage by key; 1 if there is any, 2 if it is not complete."""
    if os.path.exists(os.path.join(path, ARRAYS_META)):
        return check_arrays(path)
    lmdb = lmdb_module()
    problems = _structure(path)
    if problems:
        for problem in problems[:20]:
            print(f"{path}: {problem}", file=sys.stderr)
        print(f"{path}: the structure of the file is damaged: pack it again", file=sys.stderr)
        return 1
    environment = open_environment(os.path.abspath(path))
    try:
        meta = read_meta(environment)
        if meta is None:
            raise ValueError(f"{path} is an LMDB file, but not one of `fastloader pack`")
        damaged = 0
        image_bytes = indexed = 0
        labels = []
        with progress("checking", meta["count"]) as line:
            for index in range(meta["count"]):
                key = key_of(index)
                try:
                    data = environment.get(key)
                    if data is None:
                        raise DamagedError(f"record {key!r} is missing")
                    record = decode_record(data, key, meta["version"], check=True)
                    if record.seek_index and not quiet:
                        _check_index(record, key)
                    labels.append(record.label)
                    image_bytes += len(record.image)
                    indexed += bool(record.seek_index)
                except (DamagedError, lmdb.Error) as error:
                    damaged += 1
                    print(f"{path}: sample {index}: {error}", file=sys.stderr)
                line.step()
        if meta["complete"] and not damaged:
            targets = environment.read(TARGETS)
            if targets is None or np.frombuffer(targets, "<i8").tolist() != labels:
                damaged += 1
                print(
                    f"{path}: the labels under {TARGETS!r} do not fit the records", file=sys.stderr
                )
    finally:
        environment.close()
    if damaged:
        print(f"{path}: {damaged} of {meta['count']} samples are damaged", file=sys.stderr)
        return 1
    if not meta["complete"]:
        print(f"{path}: packing was interrupted; its {meta['count']} samples are sound")
        return 2
    size = os.path.getsize(data_file(path))
    print(
        f"{path}: {meta['count']} samples, {image_bytes / 1e6:.1f} MB of pictures in a file of "
        f"{size / 1e6:.1f} MB, " + ("verified" if quiet else "every checksum is right")
    )
    if indexed:
        compared = ", which is right" if extension.load() else ", not compared: no native module"
        print(f"{path}: {indexed} of them have a seek index" + ("" if quiet else compared))
    return 0


def _check_index(record: Record, key: bytes) -> None:
    """Compares a seek index with one that is made anew."""
    if extension.load() is None:
        return
    segments = record.seek_index[1] if len(record.seek_index) > 1 else 0
    made = extension.native.jpeg_seek_index(record.image, segments) if segments else None
    if made is None or made != bytes(record.seek_index):
        raise DamagedError(f"the seek index of record {key!r} is not that of its picture")


def _structure(path: str) -> list[str]:
    """Lists what lmdb's own verifier finds: a damaged page could crash a process that reads it. Older
    lmdb packages have none."""
    try:
        from lmdb import verify
    except ImportError:
        return []
    try:
        return list(verify.verify(path))
    except verify.VerifyError as error:
        raise ValueError(f"{path}: {error}") from None
