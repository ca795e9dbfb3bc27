"""The files that lie in the folder of a cache."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator

from fastloader.datasets._formats.tar.index import ENDING
from fastloader.datasets._remote.cache.file_lock import ALONE, AT_ONCE, is_at, lock, unlock

UNFINISHED = ".part"
# Other files lie in the folder if a user names one that was there before. They are none of ours, and
# stay.
_OURS = re.compile(r"[0-9a-f]{24}-")


class KeptFiles:
    """What the cache has put into a folder, which need not exist."""

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
        """The bytes of all files, without those of the paths ``but``."""
        return sum(status.st_size for path, status in self if path not in but)

    def unused(self, but: Collection[str]) -> tuple[list[tuple[str, int]], int]:
        """The path and size of each file that nothing holds, in the order in which they may go, and the
        bytes of those that are held, both without the paths ``but``."""
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
    """Whether something holds a file, or that cannot be known."""
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
