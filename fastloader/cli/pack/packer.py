"""Packs a source, and checks what was packed."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fastloader._core.machine import extension
from fastloader._core.machine.limits import available_threads
from fastloader._core.machine.messages.progress import progress
from fastloader.cli.ahead import ahead
from fastloader.cli.pack.array_packer import check_arrays, pack_arrays, source_reader
from fastloader.cli.pack.array_source import ArraySource
from fastloader.cli.pack.encoding import Encoding
from fastloader.cli.pack.source import PackSource, Sample, open_source
from fastloader.cli.pack.source_error import SourceError
from fastloader.cli.pack.writer import Writer
from fastloader.cli.ray_tasks import on_ray
from fastloader.datasets._formats.lmdb import (
    TARGETS,
    DamagedError,
    Record,
    data_file,
    decode_record,
    exclusive_guard,
    key_of,
    lmdb_module,
    open_environment,
    read_meta,
)
from fastloader.datasets.arrays import META


def pack(
    source_text: str, path: str, encoding: Encoding, workers: int | None, ray: str | None = None
) -> int:
    """The exit status: 0, 1 after an error, 130 after Ctrl-C. Prints what it did. ``ray``: the address
    of a cluster whose tasks read and encode; None for threads of this process."""
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
    """What prepares the samples of a range ahead of the writer: ``here``, by threads of this process, or
    what ``there`` gives in the tasks of a cluster."""
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
    """The same in a task, which opens the source itself."""
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
    if os.path.exists(os.path.join(path, META)):
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
    """What lmdb's own verifier finds: a damaged page could crash a process that reads it. Older lmdb
    packages have none."""
    try:
        from lmdb import verify
    except ImportError:
        return []
    try:
        return list(verify.verify(path))
    except verify.VerifyError as error:
        raise ValueError(f"{path}: {error}") from None
