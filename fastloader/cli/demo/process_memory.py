"""How much memory this process and its children hold, while something runs."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType


class PeakMemory:
    """``with PeakMemory() as peak:`` samples five times a second. ``peak.bytes`` is the largest sum
    over this process and its descendants, or None where the system does not tell.

    Proportional set size: a page that several processes share (torch's own code after a fork, a batch
    on its way) counts once in all, where the usual RSS would count it for each of them.
    """

    _INTERVAL = 0.2

    def __init__(self) -> None:
        self.bytes: int | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="demo-memory", daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            now = held_by("self")
            if now:
                self.bytes = max(self.bytes or 0, now)
            if self._stop.wait(self._INTERVAL):
                return


def held_by(process: str) -> int:
    """Bytes held by a process and its descendants; 0 for what has ended or cannot be read."""
    folder = Path("/proc", process)
    total = 0
    try:
        for line in (folder / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total = int(line.split()[1]) * 1024
        for children in folder.glob("task/*/children"):
            total += sum(held_by(child) for child in children.read_text().split())
    except OSError:
        pass
    return total
