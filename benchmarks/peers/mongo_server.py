"""A MongoDB server of one's own, for benchmarks and tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

_SECONDS = 30  # until it must answer


class MongoServer:
    """A ``mongod`` on PATH, or else nx-27017, which speaks MongoDB's protocol over SQLite. Runs until
    ``close()`` and keeps its documents in ``folder``.

    Args:
        folder: an empty folder, or that of a server which has ended.
        processor: the one on which it runs. None (default) leaves that to the system.

    Raises:
        ImportError: if there is neither.
        RuntimeError: if it ends before it answers, or does not answer in 30 seconds; with what it said.
    """

    def __init__(self, folder: Path, processor: int | None = None) -> None:
        self.folder = folder
        self.processor = processor
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.start()

    @property
    def uri(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Starts it again with the same documents."""
        (self.folder / "data").mkdir(exist_ok=True)
        (self.folder / "pid").unlink(missing_ok=True)  # a killed server leaves it behind
        with open(self.folder / "out", "ab") as out, _on(self.processor):
            self.process = subprocess.Popen(self._command(), stdout=out, stderr=out)
        until = time.monotonic() + _SECONDS
        while self.process.poll() is None and time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        self.close()
        said = (self.folder / "out").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"the server did not start: {said}")

    def _command(self) -> list[str]:
        data, log = str(self.folder / "data"), str(self.folder / "log")
        program = shutil.which("mongod")
        if program:
            return [
                *(program, "--bind_ip", "127.0.0.1", "--port", str(self.port)),
                *("--dbpath", data, "--logpath", log, "--quiet"),
            ]
        if find_spec("nx_27017") is None:
            raise ImportError(
                "there is no MongoDB server: put mongod on PATH, or pip install nx-27017"
            )
        main = "from nx_27017.nx_27017 import main; main()"
        return [
            *(sys.executable, "-c", main, "--host", "127.0.0.1", "-p", str(self.port)),
            *("--data-dir", data, "--log-file", log, "--pid-file", str(self.folder / "pid")),
        ]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()


@contextlib.contextmanager
def _on(processor: int | None) -> Iterator[None]:
    """What this thread starts meanwhile runs on that processor."""
    if processor is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {processor})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
