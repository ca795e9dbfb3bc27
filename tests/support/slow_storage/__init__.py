"""Storage with latency and faults, for tests and benchmarks: a folder as a network file system shows
it."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_PROGRAM = Path(__file__).with_name("server.cpp")


class Unavailable(RuntimeError):
    """This machine cannot have such storage; the message says why."""


class Call(NamedTuple):
    """A request that came to the storage. ``thread``: the number of the thread that waited for it, as
    `threading.get_native_id` has it. ``path``: below the folder."""

    thread: int
    operation: str
    path: str


class SlowStorage:
    """A folder, shown read-only below ``path``. Each look at a file, each opening and each reading comes
    to the storage; so do page faults of mappings, unless the kernel has the page already: `forget`
    makes it drop all. What is to change there changes in the folder itself."""

    def __init__(self, path: Path, process: subprocess.Popen[str]) -> None:
        self.path = path
        self._process = process

    def _say(self, command: str) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def set_latency(self, seconds: float, spike: float = 0.0, every: int = 0) -> None:
        """Makes each answer come so late, and every nth one as late as ``spike``."""
        self._say(f"latency {seconds} {spike} {every}")

    def fail(
        self,
        operation: str = "read",
        error: str = "none",
        *,
        of: str = "",
        count: int = -1,
        most: int = 0,
        begin: int = 0,
    ) -> None:
        """Makes requests fail from now on.

        Args:
            operation: "lookup", "getattr", "open", "read", "opendir", "readdir"; or "any".
            error: "EIO", "ESTALE", "ETIMEDOUT", "EACCES", "ENOENT"; "none": it is answered.
            of: A part of the file's path.
            count: So many of them; -1 is all. The kernel asks a second time for a page that failed.
            most: Reads of files that are opened from now on give so many bytes at most: short reads. 0:
                all.
            begin: Only reads of what lies behind this byte.
        """
        self._say(f"fault {operation} {error} {most} {begin} {count} {of}")

    def mend(self) -> None:
        """Ends all faults."""
        self._say("mend")

    def forget(self) -> None:
        """Makes the kernel drop the pages that it keeps of the files, mapped ones included."""
        self._say("forget")

    def reset(self) -> None:
        """Begins to count anew."""
        self._say("reset")

    def counts(self) -> dict[str, Any]:
        """Returns the ``bytes`` that were served, the ``peak`` of requests under way at a time, and the
        ``calls`` by operation."""
        counted: dict[str, Any] = self._say("counts")
        return counted

    def log(self) -> None:
        """Begins to note the calls, those before are forgotten."""
        self._say("log")

    def calls(self) -> list[Call]:
        """Returns the calls since `log`."""
        return [Call(*each) for each in self._say("calls")]


@functools.cache
def built() -> Path:
    """Compiles the program, once for its source.

    Raises:
        Unavailable: without a compiler.
    """
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if not os.path.exists("/dev/fuse"):
        raise Unavailable("there is no /dev/fuse here")
    if compiler is None:
        raise Unavailable("there is no C++ compiler here")
    program = Path(tempfile.mkdtemp(prefix="fastloader-storage-")) / "server"
    atexit.register(shutil.rmtree, program.parent, ignore_errors=True)
    try:
        subprocess.run(
            [compiler, "-std=c++17", "-O2", "-pthread", "-o", program, _PROGRAM],
            check=True,
            capture_output=True,
            text=True,
        )
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"{_PROGRAM.name} does not compile:\n{error.stderr}") from None
    return program


@contextlib.contextmanager
def mounted(folder: str | os.PathLike[str]) -> Iterator[SlowStorage]:
    """Shows the folder as slow storage, until the end of the block.

    Raises:
        Unavailable: where a file system may not be mounted.
    """
    place = Path(tempfile.mkdtemp(prefix="fastloader-mount-"))
    try:
        process = subprocess.Popen(
            [built(), os.path.realpath(folder), place],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None and process.stdout is not None
        with process:
            said = process.stdout.readline().strip()
            if said != "ready":
                process.stdin.close()
                raise Unavailable(said or "the storage did not begin")
            try:
                yield SlowStorage(place, process)
            finally:
                process.stdin.close()  # at which it unmounts, and ends
                process.wait()
    finally:
        place.rmdir()
