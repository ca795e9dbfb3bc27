"""Keeps files in a folder of a bounded size, which several processes share."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator

from fastloader._core.machine.process import HomeProcess, exiting
from fastloader.datasets._formats.tar_shards import ENDING
from fastloader.errors import Error

# ---- A cache without room.


class CacheFull(Error):
    """Everything in the cache is in use, and something more does not fit beside it."""


# ---- Locks of files by which processes and threads tell each other what they use.
#
# They are flock's: a lock belongs to an open file, not to a process, and the kernel takes it
# back from a process that is killed.


ALONE = fcntl.LOCK_EX
SHARED = fcntl.LOCK_SH
AT_ONCE = fcntl.LOCK_NB  # or not at all

# EBADF: NFS emulates these locks, and wants a file that is open for writing. The emulated ones would go
# with the first descriptor of a file that a process closes.
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF)


def lock(descriptor: int, kind: int, path: str) -> bool:
    """Takes a lock, and returns whether it has it. Waits for it unless ``kind`` says otherwise.

    Raises:
        OSError: if the file system has no such locks.
    """
    try:
        fcntl.flock(descriptor, kind)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise OSError(
            error.errno,
            "the file system of the cache has no locks: give ShardCache a folder on a local disk",
            path,
        ) from None
    return True


def unlock(descriptor: int) -> None:
    """Gives the lock back, also for children that were forked meanwhile. They have copies of the
    descriptor, and without this would keep the lock when it is closed here."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def is_at(path: str, status: os.stat_result) -> bool:
    """Returns whether a file, of which another process may have changed the name, is there."""
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (status.st_dev, status.st_ino)


# ---- A file of the cache that is in use.


class HeldFile:
    """A file of the cache, which stays there until `close`. Its lock is shared with everything that
    reads the file, and the kernel takes it back from a process that is killed."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self._home = HomeProcess()

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self.descriptor, size, offset)

    def remove(self) -> None:
        """Removes the name of the file, so that nobody finds it any more. Processes that hold it keep
        what they have."""
        with contextlib.suppress(OSError):  # another user's, which is theirs to remove
            if is_at(self.path, os.fstat(self.descriptor)):
                os.unlink(self.path)

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor < 0:
            return
        if self._home.here:
            with contextlib.suppress(OSError):
                unlock(descriptor)
        os.close(descriptor)

    def __del__(self) -> None:
        self.close()


# ---- The files that lie in the folder of a cache.


UNFINISHED = ".part"
# Other files lie in the folder if a user names one that was there before. They are none of ours, and
# stay.
_OURS = re.compile(r"[0-9a-f]{24}-")


class KeptFiles:
    """The files that the cache has put into a folder, which need not exist."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __iter__(self) -> Iterator[tuple[str, os.stat_result]]:
        if not os.path.isdir(self._folder):
            return
        with os.scandir(self._folder) as found:
            for each in found:
                with contextlib.suppress(FileNotFoundError):
                    if _OURS.match(each.name) and each.is_file(follow_symlinks=False):
                        yield each.path, each.stat(follow_symlinks=False)

    def size(self, but: Collection[str] = ()) -> int:
        """Counts the bytes of all files, without those of the paths ``but``."""
        return sum(status.st_size for path, status in self if path not in but)

    def unused(self, but: Collection[str]) -> tuple[list[tuple[str, int]], int]:
        """Returns the path and size of each file that nothing holds, in the order in which they may go,
        and the bytes of those that are held, both without the paths ``but``."""
        # What a killed process has left goes first, and last the indices: one is small, and to make it
        # again takes its whole shard.
        found = sorted(
            (
                path.endswith(ENDING) - path.endswith(UNFINISHED),
                status.st_atime_ns,
                path,
                status.st_size,
            )
            for path, status in self
            if path not in but
        )
        unused = [(path, size) for *_, path, size in found if not _is_held(path)]
        return unused, sum(size for *_, size in found) - sum(size for _path, size in unused)


def _is_held(path: str) -> bool:
    """Returns whether something holds a file, or that cannot be known."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except PermissionError:
        return True
    try:
        free = lock(descriptor, ALONE | AT_ONCE, path)
        if free:
            unlock(descriptor)
        return not free
    finally:
        os.close(descriptor)


def remove_unused(path: str) -> bool:
    """Removes a file unless something holds it, or it is not this user's to remove. Another process's
    unfinished file is held by it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except PermissionError:
        return False
    try:
        if not lock(descriptor, ALONE | AT_ONCE, path):
            return False
        try:
            if is_at(path, os.fstat(descriptor)):
                os.unlink(path)
        finally:
            unlock(descriptor)
        return True
    except PermissionError:
        return False
    finally:
        os.close(descriptor)


# ---- A file that another process or thread makes.


_log = logging.getLogger("fastloader")

_PAUSE = 0.05  # seconds


class OtherMaker:
    """Waits for the one that has the lock of an unfinished file. It may take as long as it likes, if it
    goes on writing: ``patience`` is the seconds for which it may write nothing."""

    def __init__(self, path: str, patience: float) -> None:
        self._path = path
        self._patience = patience
        self._written: tuple[int, int] | None = None  # the file and its time, when it was looked at
        self._since: float | None = None  # when that was so first

    def wait(self, stop: threading.Event) -> None:
        """Waits a little. flock would wait without a bound, and for nothing else.

        Raises:
            Error: if the other one writes nothing, or ``stop`` is set, or the process ends.
        """
        now = time.monotonic()
        written = self._now_written()
        if self._since is None:
            _log.info("waits for another process or thread that makes %s", self._path)
        if self._since is None or written != self._written:
            self._written, self._since = written, now
        if now - self._since > self._patience:
            raise Error(
                f"{self._path}: another process or thread has the lock of this file, and has written "
                f"nothing into it for {self._patience:g} seconds. If it hangs, end that process: the "
                "next one that wants the file makes it"
            )
        if stop.wait(_PAUSE) or exiting():
            raise Error(f"waiting for {self._path} was given up")

    def _now_written(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns


# ---- A folder of files of a bounded size in all, which several processes share.


_GUARD = ".guard"
_STANDSTILL = (
    10  # times the patience: it includes retries, and the writing of a whole file to the disk
)
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class CacheFolder:
    """Files by name, which begins with 24 hexadecimal digits and a hyphen. A file is written under
    another name and renamed when it is whole, so that a process that dies in the middle leaves no file.
    A file's time of access says when it was used last. It is written by hand, because file systems are
    often mounted without.

    ``most``: the bytes of all files. ``patience``: the seconds for which a file that does not fit waits
    until others are no longer in use."""

    def __init__(self, folder: str, most: int, patience: float = 0.0) -> None:
        self.folder = folder
        self.most = most
        self.patience = patience
        self._kept = KeptFiles(folder)

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def find(self, name: str, size: int) -> HeldFile | None:
        """Returns the file, if it is there. One of another size is removed: a disk has lost it."""
        path = self.path(name)
        while True:
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            held = HeldFile(path, descriptor)
            lock(descriptor, SHARED, path)
            status = os.fstat(descriptor)
            if not is_at(path, status):
                held.close()  # it was removed meanwhile
                continue
            if status.st_size != size:
                with _permitted(path):
                    os.unlink(path)
                held.close()
                return None
            # Another user's file, or a file system that may only be read, keeps its time.
            with contextlib.suppress(OSError):
                os.utime(path, ns=(time.time_ns(), status.st_mtime_ns))
            return held

    def make(
        self,
        name: str,
        size: int,
        modified: int,
        write: Callable[[int], None],
        stop: threading.Event,
    ) -> tuple[HeldFile, int]:
        """Makes the file, and returns it with how many others were removed for it. ``write`` gets a
        descriptor and fills it, unless another process or thread makes the file already: that is waited
        for. ``stop`` ends waiting.

        Raises:
            CacheFull: if there is no room.
            Error: if the one that makes the file writes nothing for ten times the patience, or ``stop``
                is set.
            OSError: if the disk is full, or the folder may not be written.
        """
        path = self.path(name)
        other = OtherMaker(path + UNFINISHED, _STANDSTILL * self.patience)
        while True:
            found = self.find(name, size)
            if found is not None:
                return found, 0
            held = self._begun(path)
            if held is None:
                other.wait(stop)
                continue
            descriptor = held.descriptor
            try:
                removed = self._reserve(descriptor, size, path + UNFINISHED, stop)
                write(descriptor)
                os.fsync(descriptor)
                os.utime(descriptor, ns=(time.time_ns(), modified))
                with self._guarded():  # one that adds up all files would find neither name
                    os.rename(path + UNFINISHED, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(path + UNFINISHED)
                held.close()
                raise
            _sync(self.folder)
            lock(descriptor, SHARED, path)
            # To change a lock may let another process in between, which may remove the file.
            if is_at(path, os.fstat(descriptor)):
                return held, removed
            held.close()

    def _begun(self, path: str) -> HeldFile | None:
        """Begins an unfinished file that this thread alone writes; None if another one makes it, or has
        just made it."""
        unfinished = path + UNFINISHED
        with _permitted(unfinished):
            os.makedirs(self.folder, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            held = HeldFile(path, os.open(unfinished, flags, 0o666))
        alone = lock(held.descriptor, ALONE | AT_ONCE, unfinished)
        if alone and is_at(unfinished, os.fstat(held.descriptor)):
            if not os.path.exists(path):
                return held
            os.unlink(unfinished)
        held.close()
        return None

    # --- room --------------------------------------------------------------------------------------

    def room_for(self, names: Collection[str]) -> int:
        """Returns the bytes that files of these names may have in all: other files that are in use now
        stay."""
        own = {self.path(each) + ending for each in names for ending in ("", UNFINISHED)}
        return max(0, self.most - self._kept.unused(own)[1])

    def _reserve(self, descriptor: int, size: int, unfinished: str, stop: threading.Event) -> int:
        """Takes the room on the disk, and removes what was used least recently to have it. Returns how
        many files that were."""
        until = time.monotonic() + self.patience
        removed = 0
        while True:
            with self._guarded():
                done, more, left = self._take_room(descriptor, size, unfinished)
            removed += more
            if done:
                return removed
            # A process tells nobody when it closes a file, and flock waits for one file only. So this
            # looks again and again, which costs a few calls a file.
            if stop.wait(_PAUSE) or exiting() or time.monotonic() > until:
                raise CacheFull(
                    f"the cache {self.folder} has no room for {size} bytes: {left} of at most "
                    f"{self.most} are in use by this process or others. Give ShardCache a larger "
                    "max_bytes"
                )

    def _take_room(self, descriptor: int, size: int, unfinished: str) -> tuple[bool, int, int]:
        """Takes the room, if there is any. Returns whether it did, how many files were removed for it,
        and the bytes of those that are left. Removes none if that could not help.

        Raises:
            OSError: if the disk is full.
        """
        total = self._kept.size({unfinished})
        unused: list[tuple[str, int]] | None = None
        removed, full = 0, False
        while True:
            if total + size <= self.most:
                if _allocated(descriptor, size):
                    return True, removed, total
                full = True
            if unused is None:
                unused, in_use = self._kept.unused({unfinished})
                unused.reverse()
                if in_use + size > self.most:
                    return False, 0, in_use
            possible = _free(self.folder) + sum(freed for _path, freed in unused)
            if full and (possible < size or not unused):  # a quota is not in what is free
                raise OSError(
                    errno.ENOSPC,
                    f"the disk has no {size} bytes for what the cache was to keep: give ShardCache a "
                    "smaller max_bytes or another folder",
                    self.folder,
                )
            if not unused:  # others have begun to use some, or they are not this user's to remove
                return False, removed, total
            path, freed = unused.pop()
            if remove_unused(path):
                total -= freed
                removed += 1

    def trim(self) -> int:
        """Removes what was used least recently until the bound is kept: what is written beside a file,
        such as its index, asks for no room. Returns how many files that were."""
        removed = 0
        with self._guarded():
            total = self._kept.size()
            unused = self._kept.unused(())[0] if total > self.most else []
            for path, each in unused:
                if total > self.most and remove_unused(path):
                    total -= each
                    removed += 1
        return removed

    def used(self) -> int:
        """Counts the bytes of all files that are there."""
        return self._kept.size()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Lets in one process and one thread at a time: the lock belongs to the descriptor."""
        path = self.path(_GUARD)
        # For reading, which is all that another user may have. NFS refuses to lock such a file, and so
        # tells that it is no place for a cache before anything is fetched.
        flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with _permitted(path):
            descriptor = os.open(path, flags, 0o666)
        try:
            lock(descriptor, ALONE, path)
            yield
        finally:
            with contextlib.suppress(OSError):
                unlock(descriptor)
            os.close(descriptor)


def _allocated(descriptor: int, size: int) -> bool:
    """Returns whether the disk had the room. It is taken at once, so that no write fails later."""
    try:
        os.ftruncate(descriptor, 0)
        os.posix_fallocate(descriptor, 0, max(1, size))
        os.ftruncate(descriptor, size)
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        os.ftruncate(descriptor, 0)
        return False
    return True


def _free(folder: str) -> int:
    """Returns the bytes that the disk has left."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


@contextlib.contextmanager
def _permitted(path: str) -> Iterator[None]:
    """Says what to do if this user may not write."""
    try:
        yield
    except OSError as error:
        # ELOOP: a link lies in the place of the file, which anybody may have put there.
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP):
            raise
        why = os.strerror(error.errno)
        what = (
            f"the cache may not be written ({why}): give each user a ShardCache folder of their own"
        )
        raise OSError(error.errno, what, path) from None


def _sync(folder: str) -> None:
    """Makes the disk keep a renaming, too."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
