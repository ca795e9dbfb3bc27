"""Checks that the bindings let go of Python's lock (the GIL) before native code may wait, and how.

    python tools/check_gil.py [ROOT]

Prints `file:line: message` for each violation and exits with 1 when there is any. Two rules:

- Only `WithoutGil` (csrc/bindings/gil.h) releases the GIL. What pybind11 and Python have for it ends a
  daemon thread that comes back after the interpreter began to exit, which aborts the process.
- What takes a native lock, starts a thread or calls a device is called without the GIL: below a
  `WithoutGil` in the same or an enclosing block, in a function that is handed one, or in what
  `interruptible` calls.

What Python destroys while it holds the GIL cannot be seen here; csrc/README.md lists it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from violations import report

OTHER_WAYS = re.compile(
    r"\b(gil_scoped_release|gil_scoped_acquire|call_guard|PyEval_(?:Save|Restore|Acquire|Release)Thread"
    r"|PyGILState_\w+|Py_(?:BEGIN|END)_ALLOW_THREADS)\b"
)

# What may wait: a receiver, or a function by its name.
WAITS = re.compile(
    r"\bprefetcher->"
    r"|\bDecodePool::shared\(\)\."
    r"|\bper_process<GatherPool>\(\)\."
    r"|\bpool\.(?:grow|keep|share|stats|submit)\("
    r"|->share\("
    r"|\bplace\.commit\("
    r"|\btrace::(?:start|stop)\("
    r"|\b(?:drain_log|describe_cuda|open_backend|normalize|augment|gather_rows)\("
    r"|\bown_decoder\(\)\."
)
# The same as a pointer that pybind11 calls, with the GIL.
POINTER = re.compile(
    r"&(?:BufferPool|DecodePool|GatherPool|PinnedPool|Prefetcher|Reservation|Ring|SampleDecoder)::(?!create\b)\w+"
)

UNLOCKED = re.compile(r"\bWithoutGil\s*(?:&|\s\w+\s*;)|\binterruptible\(")
# Raw strings too: `R"(` ends at `)"`.
SKIPPED = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"\((?:.*?)\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL
)
PUNCTUATION = re.compile(r"[{};]")


def blanked(text: str) -> str:
    """The code alone, every character at its place."""
    return SKIPPED.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def held(code: str) -> Iterator[tuple[int, str]]:
    """(place, what) of each call that may wait where nothing shows that the GIL was released."""
    unlocked = [False]
    start = 0  # of the statement, or of what stands before a block
    for match in PUNCTUATION.finditer(code):
        piece = code[start : match.end()]
        if match.group() == "{":
            yield from found(piece, start, unlocked[-1])
            unlocked.append(unlocked[-1] or UNLOCKED.search(piece) is not None)
        else:
            yield from found(piece, start, unlocked[-1])
            if match.group() == "}":
                unlocked.pop()
            elif UNLOCKED.search(piece):
                unlocked[-1] = True
        start = match.end()


def found(piece: str, start: int, unlocked: bool) -> Iterator[tuple[int, str]]:
    for match in POINTER.finditer(piece):
        yield start + match.start(), match.group()
    # In an expression `interruptible` takes, or in its own definition.
    if unlocked or UNLOCKED.search(piece):
        return
    for match in WAITS.finditer(piece):
        yield start + match.start(), match.group()


def check(root: Path) -> list[str]:
    violations = []
    for file in sorted((root / "csrc").rglob("*")):
        if file.suffix not in (".h", ".cpp"):
            continue
        shown = file.relative_to(root).as_posix()
        if shown == "csrc/bindings/gil.h":
            continue
        code = blanked(file.read_text(encoding="utf-8"))

        def line(place: int, code: str = code) -> int:
            return code.count("\n", 0, place) + 1

        for match in OTHER_WAYS.finditer(code):
            violations.append(
                f"{shown}:{line(match.start())}: {match.group()}: only WithoutGil releases the GIL"
            )
        if not shown.startswith("csrc/bindings/"):
            continue
        for place, what in held(code):
            violations.append(
                f"{shown}:{line(place)}: {what.strip()}: may wait, and the GIL is held"
            )
    return violations


if __name__ == "__main__":
    sys.exit(report(check, "the GIL is released where native code may wait"))
