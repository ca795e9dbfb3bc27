"""Reads LMDB files, those of ``fastloader pack`` and those of the well-known recipe."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import struct
import weakref
import zlib
from typing import Any

import numpy as np

from fastloader._core.machine.mapped_memory import address_of, read_at, read_view
from fastloader.datasets._formats.mapped_file import WatchedFile

# ---- The file that ``fastloader pack`` writes and `LMDBDataset` reads.
#
# An LMDB environment with these keys:
#
# - ``__fastloader__``: JSON. ``format`` ("fastloader-lmdb"), ``version`` (1 or 2), ``count`` of records,
#   ``complete`` (false while packing goes on or was interrupted), ``classes`` (names, or null),
#   ``indexed`` (how many records have a seek index), ``source`` and ``options`` (what it was packed from
#   and how; a resumed packing must agree).
# - ``__targets__``: the labels of all records, little-endian int64, once the file is complete.
# - ``__extents__``: where each record lies in the file, as pairs (offset, bytes) of little-endian
#   uint64. This is a hint for reading ahead, and nothing depends on it: if it is missing, or stale in a
#   file that was compacted, that only costs time.
# - ``r`` + index as 8 bytes, big-endian: record ``index``, counted from 0 without gaps.
#
# A record is a header, the image as an encoded file (JPEG, PNG, ...), its name in UTF-8 (a path
# relative to the source), and in version 2 the seek index of a JPEG that has one
# (docs/seek-index.md). The header is little-endian: CRC-32 of everything after it, uint32;
# bytes of the name, uint32; label, int64; bytes of the image, uint64; in version 2 bytes of the
# seek index, uint32. A sample without a label has -1.
#
# A file that is packed with ``--no-index`` is of version 1, which an older fastloader reads.
# Nothing is pickled. Fields may be added to the JSON. Any other change gets a new version.


META = b"__fastloader__"
TARGETS = b"__targets__"
EXTENTS = b"__extents__"
FORMAT = "fastloader-lmdb"
PLAIN, WITH_INDICES = 1, 2  # versions

_HEADERS = {PLAIN: struct.Struct("<IIqQ"), WITH_INDICES: struct.Struct("<IIqQI")}
HEADER_BYTES = {version: header.size for version, header in _HEADERS.items()}


def lmdb_module() -> Any:
    """Imports the ``lmdb`` package. Raises ImportError, which says how to get it, if it is missing."""
    try:
        import lmdb
    except ImportError as error:
        raise ImportError("this needs lmdb: pip install lmdb") from error
    return lmdb


def key_of(index: int) -> bytes:
    return b"r" + index.to_bytes(8, "big")


def encode_record(
    image: bytes, label: int, name: str, seek_index: bytes = b"", version: int = PLAIN
) -> bytes:
    encoded = name.encode("utf-8", "surrogateescape")
    sizes = [len(image)] if version == PLAIN else [len(image), len(seek_index)]
    header = _HEADERS[version].pack(0, len(encoded), label, *sizes)
    behind = encoded + seek_index
    crc = zlib.crc32(behind, zlib.crc32(image, zlib.crc32(header[4:])))
    return crc.to_bytes(4, "little") + header[4:] + image + behind


@dataclasses.dataclass(frozen=True)
class Record:
    """One record. ``image`` and ``seek_index`` (empty: there is none) are views of the mapped file if
    the record was read from there."""

    label: int
    image: memoryview
    name: str
    seek_index: memoryview


class DamagedError(ValueError):
    """A record, or the file, is not what was written."""


def decode_record(data: Any, key: bytes, version: int, check: bool = False) -> Record:
    """Decodes a record of a file of that version, and with ``check`` checks its checksum.

    Raises:
        DamagedError: which names the key, if the record is damaged, or the file has lost it.
    """
    try:
        return _decoded_record(memoryview(data), key, version, check)
    except OSError as error:
        raise DamagedError(str(error)) from None


def _decoded_record(view: memoryview, key: bytes, version: int, check: bool) -> Record:
    """Raises OSError as well, where the system cannot read what is mapped."""
    header_bytes = HEADER_BYTES[version]
    if len(view) < header_bytes:
        raise DamagedError(f"record {key!r} is damaged: {len(view)} bytes are no header")
    begin, called = address_of(view), f"record {key!r}"
    crc, name_bytes, label, *sizes = _HEADERS[version].unpack(read_at(begin, header_bytes, called))
    image_bytes, index_bytes = sizes if version != PLAIN else (*sizes, 0)
    if len(view) != header_bytes + image_bytes + name_bytes + index_bytes:
        raise DamagedError(
            f"record {key!r} is damaged: its header speaks of {image_bytes} + "
            f"{name_bytes + index_bytes} bytes, there are {len(view) - header_bytes}"
        )
    if check and zlib.crc32(read_at(begin + 4, len(view) - 4, called)) != crc:
        raise DamagedError(f"record {key!r} is damaged: its checksum does not match")
    middle = header_bytes + image_bytes
    end = middle + name_bytes
    name = read_at(begin + middle, name_bytes, called).decode("utf-8", "surrogateescape")
    return Record(label, view[header_bytes:middle], name, view[end:])


def data_file(path: str) -> str:
    """Returns the data file of an environment, which is a file or a folder with data.mdb in it."""
    return os.path.join(path, "data.mdb") if os.path.isdir(path) else path


def is_lmdb(file: str) -> bool:
    """Returns whether a file begins as LMDB's do."""
    with open(file, "rb") as opened:
        return opened.read(20)[16:] in (b"\xde\xc0\xef\xbe", b"\xbe\xef\xc0\xde")


def check_size(environment: Any, path: str) -> int:
    """Returns the least bytes of an lmdb environment's file. Raises DamagedError if it was cut off:
    reading after the end of a mapped file would kill the process with SIGBUS."""
    wanted = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    there = os.path.getsize(data_file(path))
    if there < wanted:
        raise DamagedError(
            f"{path} is cut off: {there} bytes of at least {wanted}. Copy or pack it again"
        )
    return wanted


class Environment(WatchedFile):
    """An LMDB file opened for reading. A process opens a file once, however many datasets read it,
    because LMDB does not allow more: use `open_environment`.

    Values are views of the mapping, and stay valid as long as this object. A forked child reads through
    the mapping that it inherited, which is safe because there are no locks.
    """

    damaged = DamagedError

    def __init__(self, path: str) -> None:
        lmdb = lmdb_module()
        self.path = path
        file = data_file(path)
        guard = _shared_guard(file)
        self._letting_go = weakref.finalize(self, os.close, guard)
        self._descriptor = guard
        self._opened = os.fstat(guard)
        self._extents: Any = None  # read when first wanted
        try:
            # Without a lock file, so that the file may lie in a read-only folder: the guard keeps
            # readers out while the file is packed, and a finished file never changes.
            self._environment = lmdb.open(
                path, subdir=os.path.isdir(path), readonly=True, lock=False, readahead=False
            )
        except lmdb.Error as error:
            self._letting_go()
            raise _explained(error, path) from error
        try:
            self._needed = check_size(self._environment, path)
            self._transaction = self._environment.begin(buffers=True)
        except BaseException:
            self.close()
            raise

    def will_need(self, indices: list[int], count: int) -> None:
        """Asks the system to read these records ahead, all at the same time. Waits for nothing. Without
        this a cold record would come page by page: readahead is off, because it knows nothing of
        records, and the lmdb package touches each page of what it returns. Raises DamagedError if the
        file was written over, as the records are others then. What was cut off is an error of each
        record."""
        self._check(cut_off=False)
        if self._extents is None:
            self._extents = self._read_extents()
        if len(self._extents) == count:
            with contextlib.suppress(OSError):  # some file systems take no advice
                for offset, size in self._extents[indices].tolist():
                    os.posix_fadvise(self._descriptor, offset, size, os.POSIX_FADV_WILLNEED)

    def _read_extents(self) -> Any:
        """Reads the extents, of shape (count, 2), or (0, 2) without any that can be used."""
        stored = self.read(EXTENTS) or b""
        if len(stored) % 16 or not hasattr(os, "posix_fadvise"):
            return np.zeros((0, 2), np.int64)
        extents = np.array(np.frombuffer(stored, "<u8").reshape(-1, 2))
        inside = (extents <= os.fstat(self._descriptor).st_size).all()
        return extents.astype(np.int64) if inside else np.zeros((0, 2), np.int64)

    def entries(self) -> int:
        """Returns how many entries the file says it has, but no more than it has room for."""
        claimed = self._environment.stat()["entries"]
        return int(min(claimed, os.fstat(self._descriptor).st_size // 8))

    def get(self, key: bytes) -> memoryview | None:
        """Returns the value of a key without a copy; None if it is missing. Raises DamagedError if the
        file has changed since it was opened: LMDB reads its pages by itself, and garbage may end the
        process."""
        self._check()
        found: memoryview | None = self._transaction.get(key)
        return found

    def read(self, key: bytes) -> bytes | None:
        """Returns a copy of the value of a key; None if it is missing. Raises DamagedError, which names
        file and key, also if the file loses the value meanwhile."""
        found = self.get(key)
        if found is None:
            return None
        try:
            return read_view(found, f"{self.path}: the value of key {key!r}")
        except OSError as error:
            raise self.damaged(str(error)) from None

    def _has_changed(self, cut_off: bool = True) -> bool:
        """Returns whether the file has changed. ``cut_off``: whether a file that is too short counts."""
        try:
            now = os.fstat(self._descriptor)
        except OSError:
            return False  # some code, such as that of daemons, closes descriptors of others
        same = (now.st_dev, now.st_ino) == (self._opened.st_dev, self._opened.st_ino)
        short = now.st_size < self._needed
        return same and (cut_off if short else now.st_mtime_ns != self._opened.st_mtime_ns)

    def _check(self, cut_off: bool = True) -> None:
        if self._has_changed(cut_off):
            raise self.damaged(self._what_changed())

    def close(self) -> None:
        self._environment.close()
        self._letting_go()


# Open environments by (device, inode) of the data file.
_opened: weakref.WeakValueDictionary[tuple[int, int], Environment] = weakref.WeakValueDictionary()


def open_environment(path: str) -> Environment:
    """Opens an LMDB file, or returns the environment that this process has opened already.

    Raises:
        FileNotFoundError, PermissionError: if the file is missing or may not be read.
        DamagedError: if it is no LMDB file, or not a whole one.
    """
    try:
        status = os.stat(data_file(path))
    except FileNotFoundError:
        what = "no LMDB environment: it has no data.mdb" if os.path.isdir(path) else "not there"
        raise FileNotFoundError(f"{path} is {what}") from None
    if status.st_size == 0:
        raise DamagedError(f"{path} is empty: no LMDB file, or nothing was packed into it yet")
    identity = (status.st_dev, status.st_ino)
    environment = _opened.get(identity)
    if environment is None:
        environment = _opened[identity] = Environment(path)
    return environment


def read_meta(environment: Environment) -> dict[str, Any] | None:
    """Reads the JSON of a file; None if the file is not ours. Raises DamagedError for another
    version."""
    data = environment.read(META)
    return None if data is None else parse_meta(data, environment.path)


def parse_meta(data: bytes, path: str) -> dict[str, Any]:
    try:
        meta = json.loads(data)
        form, version = meta["format"], meta["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"{path}: the key {META!r} is damaged ({error})") from None
    if form != FORMAT:
        raise DamagedError(f"{path}: format {form!r}, expected {FORMAT!r}")
    if version not in list(_HEADERS):  # which, unlike a dict, asks no hash of what stands there
        raise DamagedError(
            f"{path} is of version {version}, this fastloader reads versions {PLAIN} and "
            f"{WITH_INDICES}: use the fastloader that packed it, or pack it again"
        )
    return dict(meta)


# --- the guard: many may read the file at a time, or one may pack it --------------------------------


def _shared_guard(file: str) -> int:
    try:
        guard = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise type(error)(error.errno, os.strerror(error.errno or 0), file) from None
    if not _lock(guard, fcntl.LOCK_SH):
        os.close(guard)
        raise BlockingIOError(f"{file} is being packed by another process: wait until it is done")
    return guard


def exclusive_guard(file: str) -> int:
    """Guards a file while it is packed, and returns the descriptor to close at the end. Raises
    BlockingIOError while another process reads or packs it."""
    guard = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    if not _lock(guard, fcntl.LOCK_EX):
        os.close(guard)
        raise BlockingIOError(f"{file} is in use: another process packs or reads it")
    return guard


def _lock(descriptor: int, kind: int) -> bool:
    """Locks a file, and returns False if another process holds it. This uses flock and not fcntl's
    record locks, which go away when the process closes any descriptor of the file, as LMDB does."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks, where nothing is known about other processes
    return True


def _explained(error: Exception, path: str) -> Exception:
    text = str(error)
    if "already open in this process" in text:
        return RuntimeError(f"{path} is open in this process through lmdb itself: close that first")
    if "Permission denied" in text:
        return PermissionError(f"{path} may not be read: {text}")
    if "No such file" in text:
        return FileNotFoundError(text)
    return DamagedError(f"{path} cannot be opened: {text}")
