"""A file that another process or thread makes."""

from __future__ import annotations

import logging
import os
import threading
import time

from fastloader._core.machine.process import exiting
from fastloader.errors import Error

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
