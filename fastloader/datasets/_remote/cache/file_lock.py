"""Locks of files by which processes and threads tell each other what they use.

They are flock's: a lock belongs to an open file, not to a process, and the kernel takes it back from a
process that is killed."""

from __future__ import annotations

import errno
import fcntl
import os

ALONE = fcntl.LOCK_EX
SHARED = fcntl.LOCK_SH
AT_ONCE = fcntl.LOCK_NB  # or not at all

# EBADF: NFS emulates these locks, and wants a file that is open for writing. The emulated ones would go
# with the first descriptor of a file that a process closes.
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF)


def lock(descriptor: int, kind: int, path: str) -> bool:
    """Whether it has the lock, for which it waits unless ``kind`` says otherwise.

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
    """Children that were forked meanwhile have copies of the descriptor. Without this they would keep
    the lock when it is closed here."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def is_at(path: str, status: os.stat_result) -> bool:
    """Whether a file, of which another process may have changed the name, is there."""
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (status.st_dev, status.st_ino)
