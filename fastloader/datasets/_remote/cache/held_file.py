"""A file of the cache that is in use."""

from __future__ import annotations

import contextlib
import os

from fastloader._core.machine.process import HomeProcess
from fastloader.datasets._remote.cache.file_lock import is_at, unlock


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
        """Has nobody find the file any more. Those who hold it keep what they have."""
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
