"""``loader.trace()``: records what each thread did, as a timeline for Perfetto or chrome://tracing."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from fastloader._core.machine import extension
from fastloader.errors import Error

# Limited, so that a trace that is left on for a day does not fill memory: 1.5 MB for a native thread.
EVENTS_PER_THREAD = 1 << 16


class Trace:
    """Records what this process's loaders do inside ``with loader.trace("out.json"):``, and writes it
    when the block ends, even by an exception. A process takes one trace at a time."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._pid = os.getpid()
        # (name, events) by thread. A thread appends only to its own events.
        self._threads: dict[int, tuple[str, list[tuple[str, int, int]]]] = {}
        self._dropped = 0

    def __enter__(self) -> Trace:
        global active
        if not self._path.absolute().parent.is_dir():  # raised now and not after the epoch
            raise FileNotFoundError(f"{self._path}: there is no such folder to write a trace to")
        with _lock:
            if active is not None or (
                extension.load() is not None and not extension.native.trace_start(EVENTS_PER_THREAD)
            ):
                raise Error("a trace is being taken already in this process, and there is only one")
            active = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        global active
        if self._pid != os.getpid():  # a child forked inside the block: the parent writes the file
            return
        with _lock:
            active = None
            threads = [] if extension.load() is None else extension.native.trace_stop()
        self._write(threads)

    def _add(self, name: str, begin: int, end: int) -> None:
        thread = threading.get_native_id()
        known = self._threads.get(thread)
        if known is None:
            known = self._threads[thread] = threading.current_thread().name, []
        if len(known[1]) < EVENTS_PER_THREAD:
            known[1].append((name, begin, end))
        else:
            self._dropped += 1

    def _write(self, native: list[tuple[int, str, int, list[tuple[str, int, int]]]]) -> None:
        names: dict[int, str] = {}
        events: dict[int, list[tuple[str, int, int]]] = {}
        dropped = self._dropped
        for thread, name, lost, happened in native:
            names[thread] = name
            events.setdefault(thread, []).extend(happened)
            dropped += lost
        for thread, (name, happened) in self._threads.items():
            names[thread] = name
            events.setdefault(thread, []).extend(happened)
        written: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": self._pid, "tid": 0,
             "args": {"name": "fastloader"}}
        ]  # fmt: skip
        origin = min((begin for each in events.values() for _, begin, _ in each), default=0)
        for thread, happened in events.items():
            written.append(
                {"ph": "M", "name": "thread_name", "pid": self._pid, "tid": thread,
                 "args": {"name": names[thread]}}
            )  # fmt: skip
            # Outer events first, which are those that end last.
            for name, begin, end in sorted(happened, key=lambda event: (event[1], -event[2])):
                written.append(
                    {"ph": "X", "cat": "fastloader", "name": name, "pid": self._pid, "tid": thread,
                     "ts": (begin - origin) / 1000, "dur": (end - begin) / 1000}
                )  # fmt: skip
        whole = {
            "traceEvents": written,
            "displayTimeUnit": "ms",
            "otherData": {"events_without_room": dropped},
        }
        # Renamed when it is whole, because a viewer refuses half a file.
        partial = self._path.with_name(self._path.name + ".partial")
        partial.write_text(json.dumps(whole))
        partial.replace(self._path)


_lock = threading.Lock()
# Where every batch passes, this is looked at first: mostly there is none, and a call costs more.
active: Trace | None = None


def add(name: str, begin: float, end: float) -> None:
    """Adds an event of the calling thread, in seconds of ``time.perf_counter()``, to a running trace."""
    trace = active
    if trace is not None and trace._pid == os.getpid():
        trace._add(name, int(begin * 1e9), int(end * 1e9))
