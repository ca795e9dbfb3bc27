"""Checks that includes go one way and that torch.cuda and the import of fastloader stay contained.

    python tools/check_includes.py [ROOT]

Prints `file:line: message` for each violation and exits with 1 when there is any. The layers and
the reasons are in the design: base knows nothing, image turns bytes into pixels, source finds
bytes, backend moves memory, pipeline starts threads, bindings knows Python.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from violations import report

LAYERS = ("base", "image", "source", "backend", "pipeline", "bindings")

# `*` stays within a folder, `**` does not.
NORMALIZE = ["image/normalize*.h", "image/augment*.h", "image/*.inc", "image/host_device.h"]
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


def matches(path: str, patterns: Iterable[str]) -> bool:
    def expression(pattern: str) -> str:
        return re.escape(pattern).replace(r"\*\*", ".*").replace(r"\*", "[^/]*")

    return any(re.fullmatch(expression(pattern), path) for pattern in patterns)


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


def check_native(root: Path) -> Iterator[str]:
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


def check_torch_cuda(root: Path) -> Iterator[str]:
    for file in sorted((root / "fastloader").rglob("*.py")):
        shown = file.relative_to(root).as_posix()
        if shown == "fastloader/_core/machine/devices.py":
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"), shown)
        for line in sorted(set(torch_cuda_lines(tree))):
            yield f"{shown}:{line}: torch.cuda: only fastloader/_core/machine/devices.py touches it"


def torch_cuda_lines(tree: ast.Module) -> Iterator[int]:
    """Uses in code, also under another name of torch or as a string to be imported or resolved."""
    torch_names = {"torch"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            torch_names.update(a.asname for a in node.names if a.name == "torch" and a.asname)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "cuda":
            if isinstance(node.value, ast.Name) and node.value.id in torch_names:
                yield node.lineno
        elif isinstance(node, ast.Import):
            if any(re.match(r"torch\.cuda\b", a.name) for a in node.names):
                yield node.lineno
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            module = node.module or ""
            if re.match(r"torch\.cuda\b", module) or (
                module == "torch" and any(a.name == "cuda" for a in node.names)
            ):
                yield node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r"torch\.cuda(\.\w+)*", node.value):
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if (
                node.func.id in ("getattr", "hasattr")
                and len(node.args) >= 2
                and isinstance(node.args[0], ast.Name)
                and node.args[0].id in torch_names
                and isinstance(node.args[1], ast.Constant)
                and node.args[1].value == "cuda"
            ):
                yield node.lineno


def check_import(root: Path) -> Iterator[str]:
    """What `import fastloader` runs: only the standard library and modules that keep to it."""
    package = root / "fastloader"
    waiting = [package / "__init__.py"]
    seen = set(waiting)
    while waiting:
        file = waiting.pop(0)
        if not file.is_file():
            yield f"{file.relative_to(root).as_posix()}:1: missing"
            continue
        shown = file.relative_to(root).as_posix()
        tree = ast.parse(file.read_text(encoding="utf-8"), shown)
        for node in imports_at_import(tree.body):
            for name in imported_names(node, file, package):
                top = name.split(".")[0]
                if top == "fastloader":
                    target = own_module(root, name)
                    if target is not None and target not in seen:
                        seen.add(target)
                        waiting.append(target)
                elif top not in sys.stdlib_module_names and top != "__future__":
                    yield (
                        f"{shown}:{node.lineno}: {name}: `import fastloader` may only run the "
                        "standard library; import it where it is used"
                    )


def imports_at_import(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from imports_at_import(node.orelse)
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for field in ("body", "orelse", "finalbody"):
                yield from imports_at_import(getattr(node, field, []))
            for part in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
                yield from imports_at_import(part.body)


def imported_names(node: ast.Import | ast.ImportFrom, file: Path, package: Path) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name
        return
    base = node.module or ""
    if node.level:
        parts = ["fastloader", *file.parent.relative_to(package).parts]
        parts = parts[: len(parts) - node.level + 1]
        base = ".".join([*parts, base] if base else parts)
    yield base
    if base.split(".")[0] == "fastloader":
        for alias in node.names:
            yield f"{base}.{alias.name}"


def own_module(root: Path, name: str) -> Path | None:
    """Its file; None for a name that is no module of ours in Python (an attribute, `_native`)."""
    path = root.joinpath(*name.split("."))
    if (path / "__init__.py").is_file():
        return path / "__init__.py"
    return path.with_suffix(".py") if path.with_suffix(".py").is_file() else None


def check(root: Path) -> list[str]:
    return [*check_native(root), *check_torch_cuda(root), *check_import(root)]


if __name__ == "__main__":
    sys.exit(report(check, "includes go one way"))
