"""What the checks in this folder share: their patterns, what they print, their exit status."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether the path is of one of the patterns: `*` stays within a folder, `**` does not."""

    def expression(pattern: str) -> str:
        return re.escape(pattern).replace(r"\*\*", ".*").replace(r"\*", "[^/]*")

    return any(re.fullmatch(expression(pattern), path) for pattern in patterns)


def report(check: Callable[[Path], list[str]], none_found: str) -> int:
    """Prints what ``check`` finds below the folder that the command line names, by default the
    checkout, or ``none_found``. Returns 1 for any violation, else 0."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    violations = check(root)
    for violation in violations:
        print(violation)
    if not violations:
        print(none_found)
    return 1 if violations else 0
