"""Checks that imports inside fastloader go one way, and what `import fastloader` runs.

    python tools/check_layers.py [ROOT]

Prints `file:line: message` for each violation and exits with 1 when there is any. An import counts
wherever it stands: in a function, and under TYPE_CHECKING, too. To import a.b.c is to import the
packages a and a.b as well.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from violations import matches, report

# From the ground up. A module imports from its own layer and from earlier ones. `*` stays within a
# folder, `**` does not.
LAYERS: list[list[str]] = [
    ["errors.py"],
    ["_core/machine/**"],
    ["transforms/**"],
    [
        "datasets/encoded.py",
        "datasets/companions.py",
        "datasets/picture_source.py",
        "datasets/put_off.py",
        "datasets/_formats/**",
    ],
    ["datasets/_remote/**"],
    ["encoded_image.py", "datasets/**"],
    ["_core/batch/**"],
    ["_core/order/**"],
    ["_core/observation/**"],
    ["_core/observation/tuning.py"],
    ["_core/handoff.py"],
    ["_core/pictures/**"],
    ["_core/sources/**", "_core/delivery/**"],
    # Actors do what the other sources do, elsewhere.
    ["_core/sources/remote/**"],
    [
        "_core/sources/table.py",
        "_core/options.py",
        "_core/loader_stats.py",
        "_core/show_batch.py",
        "_core/picture_grid.py",
    ],
    ["_core/runtime.py"],
    ["loader.py", "prefetcher.py"],
    ["loader_audit.py", "loader_check.py"],
    ["compat/**"],
    ["cli/**", "__main__.py"],
]

# What matches one pattern imports nothing that matches another of the same list.
APART: list[list[str]] = [
    ["_core/sources/**", "_core/delivery/**"],
    [
        "_core/sources/python/**",
        "_core/sources/arrays.py",
        "_core/sources/image*.py",
    ],
    [
        "_core/delivery/cpu.py",
        "_core/delivery/streams.py",
        "_core/delivery/engine*.py",
    ],
]

# They run at `import fastloader`, and whenever anything below them is imported.
EMPTY = ["_core/__init__.py", "_core/machine/__init__.py"]

# It gives out the public names, which it loads on first use. Only what is above them takes them from it.
FACE = "__init__.py"
FACE_RUNS = ["errors.py", "_core/machine/extension.py", "_core/machine/moved.py"]
ABOVE_FACE = ["compat/**", "cli/**"]

NATIVE = "fastloader._native"
TORCH_CUDA = "_core/machine/devices.py"


class Import(NamedTuple):
    """One module that a file imports, by its file below fastloader/."""

    line: int
    target: str | None  # None: of ours, but no Python (`_native`)
    packages: tuple[str, ...]  # imported on the way to it; not those that the file itself stands in
    at_run_time: bool

    @property
    def files(self) -> tuple[str, ...]:
        return self.packages if self.target is None else (*self.packages, self.target)


class Violation(NamedTuple):
    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"fastloader/{self.file}:{self.line}: {self.message}"


class Tree:
    """The modules of a package, and what they import."""

    def __init__(self, root: Path) -> None:
        self.package = root / "fastloader"
        self.files = {
            file.relative_to(self.package).as_posix(): ast.parse(
                file.read_text(encoding="utf-8"), file.name
            )
            for file in sorted(self.package.rglob("*.py"))
        }
        self.imports = {name: list(self._imports(name)) for name in self.files}

    def module(self, dotted: str) -> str | None:
        """Its file. None for what is no module of ours in Python: an attribute, `_native`."""
        path = "/".join(dotted.split(".")[1:])
        for file in (f"{path}/__init__.py" if path else FACE, f"{path}.py"):
            if file in self.files:
                return file
        return None

    def _imports(self, name: str) -> Iterator[Import]:
        tree = self.files[name]
        at_run_time = {id(node) for node in run_by_import(tree.body)}
        for node in ast.walk(tree):
            for dotted in self._dotted(node, name):
                packages = tuple(self._on_the_way(dotted, name))
                yield Import(node.lineno, self.module(dotted), packages, id(node) in at_run_time)

    def _dotted(self, node: ast.AST, name: str) -> Iterator[str]:
        """The modules of ours that a statement, or an attribute of `fastloader`, names."""
        if isinstance(node, ast.Import):
            # Alone, the package is what is being imported anyway; its attributes come below.
            yield from (alias.name for alias in node.names if alias.name.startswith("fastloader."))
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = ["fastloader", *name.split("/")[:-1]]
                base = ".".join([*parts[: len(parts) - node.level + 1], *([base] if base else [])])
            if base.split(".")[0] == "fastloader":
                for alias in node.names:
                    inner = f"{base}.{alias.name}"
                    yield inner if inner == NATIVE or self.module(inner) else base
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "fastloader" and not node.attr.startswith("__"):
                inner = f"fastloader.{node.attr}"
                yield inner if inner == NATIVE or self.module(inner) else "fastloader"

    def _on_the_way(self, dotted: str, name: str) -> Iterator[str]:
        """The packages above it that the importing file does not stand in: those run already."""
        parts = dotted.split(".")[1:-1]
        for length in range(1, len(parts) + 1):
            package = "/".join([*parts[:length], "__init__.py"])
            folder = package.removesuffix("__init__.py")
            if package in self.files and not name.startswith(folder):
                yield package


def run_by_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The import statements that run when a module is imported."""
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from run_by_import(node.orelse)
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for field in ("body", "orelse", "finalbody"):
                yield from run_by_import(getattr(node, field, []))
            for part in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
                yield from run_by_import(part.body)


def layer_of(file: str) -> int | None:
    """By the longest pattern: a folder may be a layer of its own within another one's."""
    found = [
        (len(pattern), number)
        for number, patterns in enumerate(LAYERS)
        for pattern in patterns
        if matches(file, [pattern])
    ]
    return max(found)[1] if found else None


def check_directions(tree: Tree) -> Iterator[Violation]:
    for file, imports in tree.imports.items():
        if file == FACE or file in EMPTY:
            continue
        if layer_of(file) is None:
            yield Violation(file, 1, "in no layer of tools/check_layers.py")
            continue
        for each in imports:
            refused = [(target, _refused(file, target)) for target in each.files]
            # The last one is what is meant; a package on the way counts where that is allowed.
            for target, why in [one for one in reversed(refused) if one[1]][:1]:
                yield Violation(file, each.line, f"{target}: {why}")


def _refused(file: str, target: str) -> str | None:
    if target == FACE:
        above = matches(file, ABOVE_FACE)
        return None if above else "only " + ", ".join(ABOVE_FACE) + " takes names from the package"
    own, other = layer_of(file), layer_of(target)
    if own is None or other is None:
        return None  # reported for the file itself, or empty
    for group in APART:
        first, second = _pattern_of(file, group), _pattern_of(target, group)
        if first and second and first != second:
            return f"{first} and {second} stay apart"
    if other > own:
        return f"of a later layer ({', '.join(LAYERS[other])}) than {', '.join(LAYERS[own])}"
    return None


def _pattern_of(file: str, patterns: list[str]) -> str | None:
    return next((pattern for pattern in patterns if matches(file, [pattern])), None)


def check_circles(tree: Tree) -> Iterator[Violation]:
    """One for each set of files that all import each other, by however many steps."""
    edges = {
        file: {target for each in imports for target in each.files if target != file}
        for file, imports in tree.imports.items()
    }
    for circle in _circles(edges):
        first = circle[0]
        line = next(
            each.line for each in tree.imports[first] if {*each.files} & {*circle} - {first}
        )
        names = " <-> ".join(circle)
        yield Violation(first, line, f"imports go in a circle: {names}")


def _circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected sets of more than one file (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(file: str) -> None:
        index[file] = low[file] = len(index)
        stack.append(file)
        for target in sorted(edges[file]):
            if target not in index:
                visit(target)
                low[file] = min(low[file], low[target])
            elif target in stack:
                low[file] = min(low[file], index[target])
        if low[file] == index[file]:
            start = stack.index(file)
            if len(stack) - start > 1:
                found.append(sorted(stack[start:]))
            del stack[start:]

    for file in sorted(edges):
        if file not in index:
            visit(file)
    return sorted(found)


def check_import(tree: Tree) -> Iterator[Violation]:
    """What `import fastloader` runs: two files of ours, and the standard library."""
    for each in tree.imports.get(FACE, []):
        for target in each.files if each.at_run_time else ():
            if target not in [*FACE_RUNS, *EMPTY]:
                message = f"{target}: the package runs {', '.join(FACE_RUNS)}, and loads the rest "
                yield Violation(FACE, each.line, message + "on first use")
    for file in EMPTY:
        body = tree.files[file].body if file in tree.files else []
        for node in body:
            if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                message = "runs at `import fastloader`: a docstring and nothing else"
                yield Violation(file, node.lineno, message)
    if FACE not in tree.files:
        yield Violation(FACE, 1, "missing")
        return
    waiting, seen = [FACE], {FACE}
    while waiting:
        file = waiting.pop(0)
        for node in run_by_import(tree.files[file].body):
            for name in _foreign(node):
                message = f"{name}: `import fastloader` may only run the standard library; "
                message += "import it where it is used"
                yield Violation(file, node.lineno, message)
        for each in tree.imports[file]:
            for target in each.files if each.at_run_time else ():
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)


def _foreign(node: ast.stmt) -> Iterator[str]:
    names: Iterable[str] = ()
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and not node.level:
        names = [node.module or ""]
    for name in names:
        top = name.split(".")[0]
        if top not in sys.stdlib_module_names and top not in ("__future__", "fastloader"):
            yield name


def check_torch_cuda(tree: Tree) -> Iterator[Violation]:
    for file, module in tree.files.items():
        if file != TORCH_CUDA:
            for line in sorted(set(torch_cuda_lines(module))):
                message = f"torch.cuda: only fastloader/{TORCH_CUDA} touches it"
                yield Violation(file, line, message)


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


def violations(root: Path) -> list[Violation]:
    tree = Tree(root)
    return [
        *check_directions(tree),
        *check_circles(tree),
        *check_import(tree),
        *check_torch_cuda(tree),
    ]


def check(root: Path) -> list[str]:
    return list(dict.fromkeys(map(str, violations(root))))


if __name__ == "__main__":
    sys.exit(report(check, "imports go one way"))
