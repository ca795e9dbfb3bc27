"""Maps files into memory: those that are data, that of seek indices, and those of arrays that are kept
beside a file. Checks whether somebody has written over one meanwhile."""

from __future__ import annotations

import collections
import contextlib
import errno
import hashlib
import io
import mmap
import os
import secrets
import struct
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, ClassVar

import numpy as np

from fastloader._core.machine import extension
from fastloader._core.machine.mapped_memory import read_view
from fastloader.transforms._pillow import regular_file

# ---- The file of seek indices of a folder's JPEGs, which ``fastloader index`` writes beside
# the folder.


MAGIC = b"fljpseek"
VERSION = 1
HEADER = struct.Struct("<8sIIQQ")  # magic, version, zero, how many indices, where the table begins

_AGAIN = "run `fastloader index` again to make a new one"


class SeekFile:
    """A file of seek indices, mapped into memory read-only. The native module reads it.

    A process that gets this object by pickle maps the file anew. If it cannot, it goes without indices:
    pictures are the same without them.

    Attributes:
        path: absolute. mapping: the bytes. count: how many pictures have an index in the file; 0 without
            the native module, which would use them.

    Raises:
        OSError: if the file cannot be read. FileNotFoundError if it is missing.
        ValueError: if it is no file of seek indices, is cut off or of another version.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(os.path.expanduser(os.fspath(path)))
        self.mapping = _mapped(self.path)
        self.count = 0
        if extension.load() is None:
            return
        try:
            self.count = len(extension.native.SeekFiles([self.mapping]))
        except ValueError as error:
            raise ValueError(f"{self.path} is {error}: {_AGAIN}") from None

    def __getstate__(self) -> str:
        return self.path

    def __setstate__(self, path: str) -> None:
        try:
            self.__init__(path)  # type: ignore[misc]
        except (OSError, ValueError) as error:
            _warn(error)
            self.path, self.count = path, 0
            self.mapping = header(0, HEADER.size)


def default_path(root: str | os.PathLike[str]) -> str:
    """Returns the path of a folder's file: beside the folder, so that nothing takes it for a picture."""
    return os.path.abspath(os.path.expanduser(os.fspath(root))) + ".fastloader-index"


def found_beside(root: str | os.PathLike[str]) -> SeekFile | None:
    """Opens the file beside a folder; None if it is missing. Also None, with a warning, if it is
    damaged, and always without the native module."""
    path = default_path(root)
    if extension.load() is None or not os.path.isfile(path):
        return None
    try:
        return SeekFile(path)
    except (OSError, ValueError) as error:
        _warn(error)
        return None


def header(count: int, table: int) -> bytes:
    """Packs the beginning of a file. ``table``: where its table begins."""
    return HEADER.pack(MAGIC, VERSION, 0, count, table)


def _mapped(path: str) -> mmap.mmap | bytes:
    with regular_file(path) as file:
        if not os.fstat(file.fileno()).st_size:  # which cannot be mapped
            return b""
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _warn(error: Exception) -> None:
    again = "" if _AGAIN in str(error) else f": {_AGAIN}"
    warnings.warn(
        f"JPEGs are decoded without their seek indices. {error}{again}",
        RuntimeWarning,
        stacklevel=5,  # the caller of ImageFolder
    )


# ---- Looks at files that somebody may write over while they are read.


# Seconds. A local disk answers in a hundredth of that, a network file system hardly ever does.
_QUICK = 2e-4
# Threads look at files that answer late: as many at most, of which each is for so many files.
_TOGETHER, _EACH = 8, 8


class WatchedFile:
    """A file that is read for a long time, in which nobody may write meanwhile.

    Attributes: ``slow``, whether the last look at it took long.
    """

    damaged: ClassVar[type[ValueError]] = ValueError
    path: str
    slow = False
    _changed = False

    def _has_changed(self) -> bool:
        """Returns whether it is another file by what the system says now."""
        raise NotImplementedError

    def _what_changed(self) -> str:
        return (
            f"{self.path} was written over or cut off since its dataset was made. Make the dataset "
            "anew, and replace files by renaming others (mv)"
        )

    def look(self) -> None:
        """Looks whether the file has changed, which `check_known` raises from then on."""
        begun = time.perf_counter()
        if self._has_changed():
            self._changed = True
        self.slow = time.perf_counter() - begun > _QUICK

    def check_known(self) -> None:
        """Raises ``damaged`` if a look has found that the file has changed. Waits for nothing."""
        if self._changed:
            raise self.damaged(self._what_changed())

    def check(self) -> None:
        """Raises ``damaged`` if the file has changed."""
        self.look()
        self.check_known()


class Looks:
    """Looks at each of these files, beginning now: what was read of them before is what they hold unless
    `check` raises. Threads look at files that took long the last time, and at all that follow one that
    takes long now: the thread that makes this object waits for one such file at most."""

    def __init__(self, files: Iterable[WatchedFile]) -> None:
        self._files = list(files)
        self._waiting: collections.deque[WatchedFile] = collections.deque()
        quick = True
        for file in self._files:
            if quick and not file.slow:
                file.look()
                quick = not file.slow
            else:
                self._waiting.append(file)
        self._changed = threading.Condition()
        self._left = len(self._waiting)  # guarded by the condition
        for _ in range(min(_TOGETHER, -(-self._left // _EACH))):
            try:
                threading.Thread(target=self._work, name="fastloader-look", daemon=True).start()
            except RuntimeError:  # the system gives no thread: this one does it all
                self._work()
                break

    def _work(self) -> None:
        done = 0
        try:
            while True:
                file = self._waiting.popleft()
                done += 1
                file.look()
        except IndexError:
            pass
        finally:
            with self._changed:
                self._left -= done
                if not self._left:
                    self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for so many seconds until all files were looked at, and returns whether they were."""
        if not self._left:
            return True
        with self._changed:
            return self._changed.wait_for(lambda: not self._left, timeout)

    def check(self) -> None:
        """Waits, and raises the ``damaged`` of a file that has changed."""
        self.wait()
        for file in self._files:
            file.check_known()


# ---- A file that is mapped into memory.


class MappedFile(WatchedFile):
    """A file on a local disk or a network file system, mapped read-only.

    A process that gets this object by pickle maps the file anew. A file that was written over or cut
    off meanwhile is refused; one that was replaced by another file (``mv``) goes on being read.

    Attributes: ``path``; ``mapping``, the bytes; ``status``, what the system said of the file when it
    was mapped first.

    Raises:
        OSError: if the file cannot be read.
        ValueError: of the type ``damaged``, if it is empty.
    """

    ending: ClassVar[str] = ""  # of such files, for messages

    def __init__(self, path: str) -> None:
        self.path = path
        self.mapping, self.status = self._mapped()

    def _has_changed(self) -> bool:
        try:
            status = os.stat(self.path)
        except OSError:
            return False  # it was removed, and what is mapped stays
        return _file(status) == _file(self.status) and _content(status) != _content(self.status)

    @property
    def mapped_file(self) -> MappedFile | None:
        """The file that may change while it is read; None: of what is not mapped."""
        return self

    def will_need(self, offset: int, size: int) -> None:
        """Asks the system to read these bytes ahead. Waits for nothing."""
        if hasattr(self.mapping, "madvise") and size:
            begin = offset - offset % mmap.PAGESIZE
            self.mapping.madvise(mmap.MADV_WILLNEED, begin, offset + size - begin)

    def read_bytes(self, offset: int, size: int) -> bytes:
        """Reads these bytes. Raises ``damaged`` if they cannot be read."""
        what = f"{self.path}: what lies at byte {offset}"
        try:
            return read_view(memoryview(self.mapping)[offset : offset + size], what)
        except OSError as error:
            self.check()
            raise self.damaged(str(error)) from None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "mapping": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        content = _content(self.status)
        self.mapping, self.status = self._mapped()
        if content != _content(self.status):
            raise self.damaged(f"{self.path} has changed since its dataset was made: make it anew")

    def _mapped(self) -> tuple[Any, os.stat_result]:
        if os.path.isdir(self.path):
            raise IsADirectoryError(
                f"{self.path} is a folder: name the files in it, such as {self.path}/*{self.ending}"
            )
        # A mapping need not keep a descriptor, of which a process may have a thousand, as a rule.
        without = {"trackfd": False} if sys.version_info >= (3, 13) else {}
        try:
            with regular_file(self.path) as file:
                status = os.fstat(file.fileno())
                if status.st_size == 0:
                    raise self.damaged(f"{self.path} is empty")
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ, **without), status
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            raise OSError(
                errno.EMFILE,
                "this process may not map so many files: raise the limit (ulimit -n)",
                self.path,
            ) from None


def _file(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _content(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


# ---- Arrays that were found out about a file, and are kept beside it.


def kept_path(path: str, folder: str | None, ending: str) -> str:
    """Returns where arrays are kept: beside the file, or in ``folder``, which may serve files of one
    name."""
    if folder is None:
        return path + ending
    name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:16]
    return os.path.join(folder, f"{os.path.basename(path)}.{name}{ending}")


@contextlib.contextmanager
def written_whole(path: str) -> Iterator[BinaryIO]:
    """Opens a file that comes to ``path`` when the block is done, and not at all if that raises."""
    unfinished = f"{path}.{secrets.token_hex(4)}.part"
    try:
        with open(unfinished, "xb") as file:
            yield file
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise


def save_arrays(path: str, arrays: Mapping[str, Any]) -> None:
    """Writes the arrays, all or nothing. Raises OSError if that fails."""
    out = io.BytesIO()
    np.savez(out, **arrays)
    with written_whole(path) as file:
        file.write(out.getbuffer())


def load_arrays(file_or_path: Any) -> dict[str, Any] | None:
    """Loads the arrays; None if there are none, or they are damaged."""
    try:
        with np.load(file_or_path, allow_pickle=False) as file:
            # `save_arrays` compresses nothing. What is compressed, or larger inside, is of another's
            # making, and a few bytes of it may stand for gigabytes.
            size, parts = file.zip.fp.seek(0, os.SEEK_END), file.zip.infolist()
            if any(part.compress_type for part in parts) or sum(p.file_size for p in parts) > size:
                return None
            return {name: file[name] for name in file.files}
    except (
        Exception
    ):  # numpy and zipfile raise anything, and the file is there to be looked at anew
        return None


def fingerprint_places(
    offsets: Any, before: int, behind: int, size: int, some: int = 32
) -> list[tuple[int, int]]:
    """Picks some of the offsets in a file of that size, and returns the (begin, end) of so many bytes
    before and behind each: files of one size and one time are not rare, as sizes are rounded up and
    copying keeps times."""
    offsets = np.sort(offsets)
    picked = offsets[np.linspace(0, len(offsets) - 1, some).astype(int)] if len(offsets) else []
    return [(max(0, each - before), min(each + behind, size)) for each in map(int, picked)]


def fingerprint_of(pieces: Iterable[Any]) -> bytes:
    """Hashes what stands in these places."""
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    return found.digest()
