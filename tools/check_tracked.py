"""Checks what is in the repository: no products of a compiler, no binaries but pictures of results
and docs, and no path that only the machine of a build has.

    python tools/check_tracked.py [ROOT]

Prints `file:line: message` for each violation and exits with 1 when there is any.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from violations import report

COMPILED = (
    ".a",
    ".so",
    ".o",
    ".lib",
    ".dll",
    ".dylib",
    ".pyc",
    ".pyd",
    ".whl",
    ".egg",
    ".jar",
    ".class",
)
BINARIES = ["benchmarks/results/*.png", "docs/*.png", "docs/*.jpg"]  # `*` matches folders, too

# An absolute path into somebody's home, a checkout, or a folder in /tmp, as CMake writes into what
# it installs. What continues a name or a variable is none: `$folder/root/usr`.
MACHINE = re.compile(
    r"""(?<![\w.~})\]>/*%-])(?<!\w")"""
    r"""/(?:root|home/[\w.-]+|Users/[\w.-]+|work|builds?|workspace|tmp/[\w.-]+)/[\w.-]"""
)


def check(root: Path) -> list[str]:
    """Returns the violations among the files that git tracks below ``root``."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z"], capture_output=True, text=True, check=True
    )
    names = [name for name in listed.stdout.split("\0") if name]
    return [each for name in names if (root / name).is_file() for each in _check_file(root, name)]


def _check_file(root: Path, name: str) -> Iterator[str]:
    if name.endswith(COMPILED) or ".so." in name:
        yield f"{name}:1: a compiler makes it: delete it from the repository"
        return
    content = (root / name).read_bytes()
    if b"\0" in content:
        if not any(fnmatch(name, pattern) for pattern in BINARIES):
            yield f"{name}:1: a binary, and none of {', '.join(BINARIES)}"
        return
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        if found := MACHINE.search(line):
            yield f"{name}:{number}: a path that one machine has: {found[0]}..."


if __name__ == "__main__":
    sys.exit(
        report(
            check,
            "no product of a compiler, no other binary, and no path of one machine is tracked",
        )
    )
