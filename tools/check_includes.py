"""Checks that includes go one way. What Python imports is check_layers.py's.

    python tools/check_includes.py [ROOT]

Prints `file:line: message` for each violation and exits with 1 when there is any. csrc/README.md
describes the layers: base knows nothing, image turns bytes into pixels, source finds bytes, backend
moves memory, pipeline starts threads, bindings knows Python.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from violations import matches, report

LAYERS = ("base", "image", "source", "backend", "pipeline", "bindings")

# `*` stays within a folder, `**` does not.
NORMALIZE = ["image/normalize/*.h", "image/normalize/*.inc", "image/host_device.h"]
BELOW_PIPELINE = ["base/**", "image/**", "source/**", "backend/backend.h"]

# What the files matching a pattern may include. The first pattern that matches a file decides.
MAY_INCLUDE: list[tuple[str, list[str]]] = [
    ("base/**", ["base/**"]),
    ("image/**", ["base/**", "image/**"]),
    ("source/**", ["base/**", "source/**"]),
    ("backend/cuda/**", ["base/**", *NORMALIZE, "backend/*.h", "backend/cuda/**"]),
    ("backend/host/**", ["base/**", *NORMALIZE, "backend/*.h", "backend/host/**"]),
    ("backend/registry.cpp", ["base/**", "backend/*.h", "backend/host/**"]),
    ("backend/*", ["base/**", *NORMALIZE, "backend/*.h"]),
    ("pipeline/**", [*BELOW_PIPELINE, "pipeline/**"]),
    (
        "bindings/**",
        [
            *BELOW_PIPELINE,
            "backend/registry.h",
            "backend/host/host_backend.h",  # tests ask the twin for delays and failures
            "pipeline/**",
            "bindings/**",
        ],
    ),
]

SUFFIXES = (".h", ".hpp", ".cuh", ".cpp", ".cc", ".c", ".cu")


class Ban(NamedTuple):
    include: re.Pattern[str]
    allowed_in: tuple[str, ...]
    why: str


BANS = [
    Ban(re.compile(r"(Python\.h|pybind11/.*)$"), ("bindings/**",), "only bindings knows Python"),
    Ban(
        re.compile(r"cuda[^/]*\.(h|hpp|cuh)$|cuda/.*|nvrtc.*\.h$|nvml\.h$"),
        ("backend/cuda/**",),
        "only backend/cuda includes CUDA's headers",
    ),
    Ban(re.compile(r"(torch|ATen|c10)/"), (), "the extension must not depend on libtorch"),
    Ban(
        re.compile(r"(thread|future|pthread\.h|base/thread\.h)$"),
        ("base/**", "backend/**", "pipeline/**", "bindings/**"),
        "pipeline alone starts threads",
    ),
]

# Comments are blanked and strings are kept, so that `"image/*.h"` opens no comment.
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)


def includes(text: str) -> Iterator[tuple[int, str]]:
    def blank(match: re.Match[str]) -> str:
        found = match.group()
        return found if found.startswith('"') else re.sub(r"[^\n]", " ", found)

    code = COMMENT_OR_STRING.sub(blank, text)
    for match in INCLUDE.finditer(code):
        yield code.count("\n", 0, match.start()) + 1, match.group(1)


def resolve(csrc: Path, file: Path, included: str) -> str | None:
    """The path below csrc if the include is ours, seen from the file or from csrc."""
    for directory in (file.parent, csrc):
        candidate = (directory / included).resolve()
        if candidate.is_file() and candidate.is_relative_to(csrc.resolve()):
            return candidate.relative_to(csrc.resolve()).as_posix()
    # Ours by name even if the file does not exist (yet).
    return included if included.split("/")[0] in LAYERS and "/" in included else None


def violations(root: Path) -> Iterator[str]:
    csrc = root / "csrc"
    files = sorted(path for path in csrc.rglob("*") if path.suffix in SUFFIXES)
    for file in files:
        place = file.relative_to(csrc).as_posix()
        shown = file.relative_to(root).as_posix()
        if place.split("/")[0] not in LAYERS or "/" not in place:
            yield f"{shown}:1: not in a layer ({', '.join(LAYERS)})"
            continue
        if file.suffix in (".cu", ".cuh") and not matches(place, ("backend/cuda/**",)):
            yield f"{shown}:1: only backend/cuda holds CUDA sources"
        allowed = next(patterns for where, patterns in MAY_INCLUDE if matches(place, [where]))
        for line, included in includes(file.read_text(encoding="utf-8")):
            ours = resolve(csrc, file, included)
            name = ours or included
            ban = next((ban for ban in BANS if ban.include.match(name)), None)
            if ban is not None and not matches(place, ban.allowed_in):
                yield f"{shown}:{line}: {included}: {ban.why}"
            elif ours is not None and not matches(ours, allowed):
                yield f"{shown}:{line}: {ours}: not for this layer, which may include " + ", ".join(
                    allowed
                )


def check(root: Path) -> list[str]:
    return list(violations(root))


if __name__ == "__main__":
    sys.exit(report(check, "includes go one way"))
