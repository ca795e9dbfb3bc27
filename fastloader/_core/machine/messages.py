"""Messages to the user while fastloader's code runs: finds the user's line, logs, and shows progress."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from types import FrameType

import fastloader

# ---- ``FASTLOADER_LOG``: what fastloader does, on stderr.
#
# This imports the standard library only, because it runs at ``import fastloader``.


LEVELS = ("info", "debug")


def log_level() -> str:
    """Reads the level that ``FASTLOADER_LOG`` names; empty if nothing is to be shown.

    Raises:
        ValueError: for any other value.
    """
    value = os.environ.get("FASTLOADER_LOG", "")
    if value.lower() not in ("", *LEVELS):
        raise ValueError(
            f"FASTLOADER_LOG={value!r}: use info, or debug for more; unset it for neither"
        )
    return value.lower()


def attach() -> bool:
    """Makes the logger "fastloader" write to stderr, if ``FASTLOADER_LOG`` says so, and returns whether
    it does. Called once, at ``import fastloader``."""
    level = log_level()
    if not level:
        return False
    handler = logging.StreamHandler(sys.stderr)
    text = "%(asctime)s %(levelname)s %(process)d %(message)s"
    handler.setFormatter(logging.Formatter(text))
    logger = logging.getLogger("fastloader")
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    return True


def say(text: str) -> None:
    """Logs ``text`` at the level of information."""
    logging.getLogger("fastloader").info("fastloader: %s", text)


def is_worker() -> bool:
    """Returns whether this process was begun by multiprocessing, whose parent has said the same
    already."""
    # The name is set before a spawned process imports anything, unlike `parent_process`.
    return multiprocessing.current_process().name != "MainProcess"


# ---- One line on a terminal that says how far something is.


SILENT = 2.0  # seconds of a scan that shows nothing yet: most are shorter
_BETWEEN = 0.2  # seconds between two looks of the line


@contextlib.contextmanager
def progress(
    what: str, total: int | None, unit: str = "pictures", after: float = 0.0, begun: int = 0
) -> Iterator[Progress]:
    """Shows rate and time left while the block runs, and wipes the line at its end. Nothing is written
    where stderr is no terminal, nor by worker processes, nor by any but the first rank of a machine.

    Args:
        what: what is done, such as "packing".
        total: how many there are of ``unit``; None if that is not known.
        unit: what is counted; "bytes" are shown as MB.
        after: the seconds in which nothing is shown yet, so that short work stays silent.
        begun: how many were there before.
    """
    line = Progress(what, total, unit, after, begun)
    try:
        yield line
    finally:
        line.end()


class Progress:
    """A line on the terminal that says how far something is. ``step(count)`` counts so many more as
    done, from any thread."""

    def __init__(self, what: str, total: int | None, unit: str, after: float, begun: int) -> None:
        self._what = what
        self._total = total
        self._unit = unit
        self._done = self._before = begun
        self._started = time.monotonic()
        self._next = self._started + max(after, _BETWEEN) if _is_shown() else float("inf")
        self._drawn = False
        self._lock = threading.Lock()

    def step(self, count: int = 1, anew: bool = True) -> None:
        """Counts so many more as done. ``anew``: False for what was there already, which says nothing of
        the rate."""
        with self._lock:
            self._done += count
            self._before += 0 if anew else count
            now = time.monotonic()
            if now >= self._next:
                self._next = now + _BETWEEN
                self._drawn = True
                _write(f"\r{self.line(now - self._started)}\033[K")

    def above(self, text: str) -> None:
        """Prints a line to stdout, above the line of the progress."""
        with self._lock:
            self._wipe()
            print(text, flush=self._next != float("inf"))

    def end(self) -> None:
        with self._lock:
            self._next = float("inf")
            self._wipe()

    def _wipe(self) -> None:
        if self._drawn:
            self._drawn = False
            _write("\r\033[K")

    def line(self, seconds: float) -> str:
        """Writes the progress after so many seconds as a line."""
        rate = (self._done - self._before) / max(seconds, 1e-9)
        left = ""
        if self._total is not None and rate > 0:
            left = f", {duration((self._total - self._done) / rate)} left"
        done = _amount(self._done, self._unit)
        of = "" if self._total is None else f" of {_amount(self._total, self._unit)}"
        rest = f": {done}{of} {_name(self._unit)}, {_amount(rate, self._unit)}/s{left}"
        room = max(20, _columns() - 1 - len(rest))  # or the terminal would begin a second line
        what = self._what
        if len(what) > room:
            what = f"{what[:12]}...{what[15 - room :]}"
        return what + rest


def _is_shown() -> bool:
    if os.environ.get("LOCAL_RANK", "0") != "0" or is_worker():
        return False
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is no stderr, or it is closed
        return False


def _write(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # the terminal has gone
        sys.stderr.write(text)
        sys.stderr.flush()


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return 80


def _name(unit: str) -> str:
    return "MB" if unit == "bytes" else unit


def _amount(count: float, unit: str) -> str:
    if unit == "bytes":
        return f"{count / 1e6:.1f}"
    return f"{count:.1f}" if isinstance(count, float) and count < 10 else f"{count:.0f}"


def duration(seconds: float) -> str:
    """Writes seconds as people say them: "75 s", "3 min 05 s", "2 h 10 min"."""
    whole = max(0, round(seconds))
    if whole < 100:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


# ---- The callers of a function, for what only the calling framework knows and does not pass
# on.


_PACKAGE = fastloader.__path__[0]


def callers() -> Iterator[FrameType]:
    """Gives the frame that iterates over this first, then its callers, outwards."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def users_level() -> int:
    """Returns the ``stacklevel`` with which the function that calls this warns at the line of the user's
    code, even through code of ours, and of torch's compiler, which `eager` puts between."""
    level = 0
    for frame in callers():
        compiler = frame.f_globals.get("__name__") == "torch._dynamo.eval_frame"
        if not compiler and not frame.f_code.co_filename.startswith(_PACKAGE):
            break
        level += 1
    return level


def callers_in(modules: tuple[str, ...]) -> Iterator[FrameType]:
    """Gives the callers whose code is of one of ``modules``. Costs nothing if none was imported."""
    found = [sys.modules.get(name) for name in modules]
    if spaces := [vars(module) for module in found if module is not None]:
        for frame in callers():
            if any(frame.f_globals is space for space in spaces):
                yield frame


# ---- Names and arguments that a coming version will no longer have.


def warn_deprecated(what: str, instead: str, since: str, until: str) -> None:
    """Warns with a DeprecationWarning at the line of the user's code that used ``what``, even through
    code of ours. Python shows it if that line is in ``__main__``, and pytest shows it always.

    Args:
        what: The name, argument or value, as the user wrote it.
        instead: What to write in its place.
        since: The version that deprecated it, such as "0.3".
        until: The first version without it, a later minor version than ``since``
            (docs/deprecation.md).
    """
    if _number(until)[:2] <= _number(since)[:2]:
        raise ValueError(
            f"until={until!r}: a deprecated name stays for the whole of version {since}"
        )
    warnings.warn(
        f"{what} is deprecated since fastloader {since} and will be gone in {until}: use {instead}",
        DeprecationWarning,
        stacklevel=users_level(),
    )


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
