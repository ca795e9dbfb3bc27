"""Checks that no function of csrc/ has a static variable that is made when it is first come by.

    python tools/check_statics.py [ROOT]

Prints `file:line: message` for each violation and exits with 1 when there is any. The compiler guards
the making of such a variable by a lock. A process that is forked while another thread makes it has that
lock for good, and whoever comes by next waits for ever. What is there before anything runs needs no
lock: constexpr, std::atomic with a constant, thread_local.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from check_gil import blanked
from violations import report

STATIC = re.compile(r"[{};]|\bstatic\b(?!\s+(?:constexpr\b|thread_local\b|std::atomic<))")
NO_FUNCTION = re.compile(
    r"^\s*(?:template[^;{}]*>\s*)?(?:inline\s+|typedef\s+)?(?:class|struct|union|enum|namespace|extern)\b",
    re.MULTILINE,
)


def found(code: str) -> Iterator[int]:
    """Where such a variable stands in ``code``, of which only the code is left."""
    blocks: list[bool] = []  # of each open block, whether it is a function's
    begun = 0
    for match in STATIC.finditer(code):
        if match.group() == "{":
            blocks.append(NO_FUNCTION.search(code[begun : match.start()]) is None)
        elif match.group() == "}":
            del blocks[-1:]
        elif match.group() == "static" and blocks and blocks[-1]:
            yield match.start()
        if match.group() != "static":
            begun = match.end()


def check(root: Path) -> list[str]:
    violations = []
    files = (root / "csrc").rglob("*")
    for file in sorted(each for each in files if each.suffix in (".h", ".cpp", ".cu", ".cuh")):
        code = blanked(file.read_text(encoding="utf-8"))
        for start in found(code):
            line = code.count("\n", 0, start) + 1
            violations.append(
                f"{file.relative_to(root)}:{line}: a static variable of a function: make it constexpr, "
                "or a std::atomic that says whether the rest is made (base/per_process.h)"
            )
    return violations


if __name__ == "__main__":
    sys.exit(report(check, "no static variable waits to be made"))
