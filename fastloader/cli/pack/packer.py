"""Writes and checks the file of `fastloader.datasets._lmdb_file`."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from fastloader._core.machine.limits import available_threads
from fastloader.cli.pack.source import Encoding, PackSource, Sample, SourceError, open_source
from fastloader.datasets._lmdb_file import (
    EXTENTS,
    FORMAT,
    META,
    TARGETS,
    VERSION,
    DamagedError,
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

# A transaction ends after so much: what an interruption can cost, and what memory it takes.
_BATCH_BYTES = 64 << 20
_BATCH_RECORDS = 2000
_FIRST_MAP = 1 << 30


def pack(source_text: str, path: str, encoding: Encoding, workers: int | None) -> int:
    """The exit status: 0, 1 after an error, 130 after Ctrl-C. Prints what it did."""
    source = open_source(source_text)
    if source.count == 0:
        raise SourceError(f"{source_text} has no samples")
    parent = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(parent):
        raise SourceError(f"{path}: there is no folder {parent}")
    if os.path.isdir(path) and not os.path.exists(data_file(path)) and os.listdir(path):
        raise SourceError(f"{path} is a folder of other files: name a file, or an empty folder")
    guard = exclusive_guard(data_file(path))
    try:
        writer = _Writer(path, source, encoding)
        try:
            status = _write(writer, source, encoding, workers or available_threads())
        finally:
            writer.close()
    finally:
        os.close(guard)
    return status or check(path, quiet=True)


def _write(writer: _Writer, source: PackSource, encoding: Encoding, workers: int) -> int:
    begun = writer.count
    if begun == source.count:
        print(f"{writer.path}: all {begun} samples are there already")
    elif begun:
        print(f"{writer.path}: goes on after {begun} of {source.count} samples")

    def prepare(index: int) -> Sample:
        try:
            sample = source.read(index)
            return Sample(encoding.encode(sample.image), sample.label, sample.name)
        except SourceError:
            raise
        except Exception as error:
            raise SourceError(f"sample {index}: {type(error).__name__}: {error}") from error

    try:
        with _progress(source.count, begun, "packing") as step:
            samples = _ahead(prepare, range(begun, source.count), workers)
            for sample in samples:
                writer.add(sample)
                step(1)
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
    return 0


def _say_how_far(writer: _Writer, source: PackSource) -> None:
    print(
        f"{writer.committed} of {source.count} samples are in {writer.path} and can be read; the same "
        "command goes on from there",
        file=sys.stderr,
    )


class _Writer:
    """Appends records in transactions; each also moves ``count``, so that what is in the file always
    agrees with what it says."""

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
                meminit=False,
            )
        except lmdb.Error as error:
            raise SourceError(f"{path} exists and cannot be continued: {error}") from error
        self._meta: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "count": 0,
            "complete": False,
            "classes": source.classes,
            "source": source.identity,
            "options": {"max_side": encoding.max_side, "quality": encoding.quality},
        }
        self._waiting: list[tuple[bytes, bytes]] = []
        self._waiting_bytes = 0
        try:
            check_size(self._environment, path)
            self._continue_from(source)
        except BaseException:
            self._environment.close()
            raise

    def _continue_from(self, source: PackSource) -> None:
        with self._environment.begin() as transaction:
            found = transaction.get(META)
            strange = found is None and self._environment.stat()["entries"]
        if strange:
            raise SourceError(f"{self.path} exists, and is not a file of `fastloader pack`")
        if found is not None:
            meta = parse_meta(found, self.path)
            for key, what in (("source", "from other samples"), ("options", "with other options")):
                if meta[key] != self._meta[key]:
                    raise SourceError(
                        f"{self.path} was begun {what}: pack to another file, or delete it"
                    )
            self._meta = meta
        self.count = self.committed = int(self._meta["count"])
        if found is None:
            self.commit()  # from now on it is told what this file is, whatever happens

    def add(self, sample: Sample) -> None:
        record = encode_record(sample.image, sample.label, sample.name)
        self._waiting.append((key_of(self.count), record))
        self._waiting_bytes += len(record)
        self.count += 1
        if self._waiting_bytes >= _BATCH_BYTES or len(self._waiting) >= _BATCH_RECORDS:
            self.commit()

    def commit(self) -> None:
        """Everything that was added is on the disk afterwards."""
        meta = {**self._meta, "count": self.count}
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
                labels[index] = decode_record(data, key_of(index)).label
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


def check(path: str, quiet: bool = False) -> int:
    """Reads every record of the file and compares checksums. Prints damage by key; 1 if there is any,
    2 if it is not complete."""
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
        image_bytes = 0
        labels = []
        with _progress(meta["count"], 0, "checking") as step:
            for index in range(meta["count"]):
                key = key_of(index)
                try:
                    data = environment.get(key)
                    if data is None:
                        raise DamagedError(f"record {key!r} is missing")
                    record = decode_record(data, key, check=True)
                    labels.append(record.label)
                    image_bytes += len(record.image)
                except (DamagedError, lmdb.Error) as error:
                    damaged += 1
                    print(f"{path}: sample {index}: {error}", file=sys.stderr)
                step(1)
        if meta["complete"] and not damaged:
            targets = environment.get(TARGETS)
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
    return 0


def _structure(path: str) -> list[str]:
    """What lmdb's own verifier finds: a damaged page could crash whoever reads through it. Older lmdb
    packages have none."""
    try:
        from lmdb import verify
    except ImportError:
        return []
    try:
        return list(verify.verify(path))
    except verify.VerifyError as error:
        raise ValueError(f"{path}: {error}") from None


def _ahead(prepare: Any, indices: range, workers: int) -> Iterator[Sample]:
    """In order, a few samples for each thread ahead."""
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        flying: collections.deque[Any] = collections.deque()
        try:
            for index in indices:
                flying.append(pool.submit(prepare, index))
                if len(flying) > 4 * workers:
                    yield flying.popleft().result()
            while flying:
                yield flying.popleft().result()
        finally:
            for future in flying:
                future.cancel()


@contextlib.contextmanager
def _progress(total: int, begun: int, what: str) -> Iterator[Any]:
    """tqdm's bar (rate and time left) where it is installed and somebody looks."""
    try:
        from tqdm import tqdm
    except ImportError:
        yield lambda _count: None
        return
    with tqdm(total=total, initial=begun, desc=what, unit="pictures", disable=None) as bar:
        yield bar.update
