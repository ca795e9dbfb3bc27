"""The change to the user's file, as a diff."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_Span = Callable[[Any], tuple[int, int]]
_PLAIN, _OURS = "DataLoader", "FastLoader"


@dataclasses.dataclass(frozen=True)
class Wanted:
    """``arguments``: what FastLoader is to get besides DataLoader's, by name, as source text.
    ``normalization``: mean and std, if the transform's ToTensor and Normalize can go; None if not.
    ``home``: the package of these two."""

    arguments: dict[str, str]
    normalization: tuple[Sequence[float], Sequence[float]] | None
    home: str = ""


@dataclasses.dataclass(frozen=True)
class Edit:
    begin: int
    end: int
    text: str


def diff_of(file: str | None, lines: tuple[int, int], wanted: Wanted) -> str:
    """A unified diff, which ``patch`` applies, or else one that shows what to write. ``lines``: the
    first and the last line where the loader is made; (1, 0) for all of the file."""
    source, changed = _read(file), changed_source(file, lines, wanted)
    if file is None or source is None or changed is None:
        return _shown_only(wanted)
    path = os.path.relpath(file)
    name = file if path.startswith("..") else path
    return "".join(
        difflib.unified_diff(
            _lines(source),
            _lines(changed),
            name,
            name,
        )
    )


def changed_source(file: str | None, lines: tuple[int, int], wanted: Wanted) -> bytes | None:
    """The file with the change; None if there is none to write."""
    source = _read(file)
    if source is None:
        return None
    try:
        return _changed(source, lines, wanted)
    except SyntaxError:
        return None


def _lines(source: bytes) -> list[str]:
    """As ``patch`` divides them: str.splitlines also ends a line at a form feed."""
    return [line.decode() for line in source.splitlines(keepends=True)]


def _read(file: str | None) -> bytes | None:
    """The source, if it is text that can be changed byte by byte."""
    if file is None:
        return None
    try:
        with open(file, "rb") as opened:
            source = opened.read()
        source.decode()
    except (OSError, UnicodeDecodeError):
        return None
    return source if source.endswith(b"\n") else None


def _shown_only(wanted: Wanted) -> str:
    arguments = {**wanted.arguments, **_mean_and_std(wanted)}
    more = "".join(f", {name}={text}" for name, text in arguments.items())
    shown = [f"-loader = {_PLAIN}(dataset, ...)", f"+loader = {_OURS}(dataset, ...{more})"]
    if wanted.normalization is not None:
        shown = ["-    ToTensor(), Normalize(mean, std)", "+    PILToTensor()", *shown]
    return "\n".join(["+from fastloader import FastLoader", *shown, ""])


def _mean_and_std(wanted: Wanted) -> dict[str, str]:
    if wanted.normalization is None:
        return {}
    return {
        name: f"({', '.join(repr(float(each)) for each in values)})"
        for name, values in zip(("mean", "std"), wanted.normalization, strict=True)
    }


def _changed(source: bytes, lines: tuple[int, int], wanted: Wanted) -> bytes | None:
    """The source with the change; None if it is not clear where that goes."""
    tree = ast.parse(source)
    offsets = [0]
    for line in source.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))

    def span(node: Any) -> tuple[int, int]:
        begin = offsets[node.lineno - 1] + node.col_offset
        return begin, offsets[node.end_lineno - 1] + node.end_col_offset

    inside = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.expr) and (not lines[1] or lines[0] <= node.lineno <= lines[1])
    ]
    calls = [node for node in inside if _called(node) == _PLAIN]
    if len(calls) != 1 or not isinstance(calls[0], ast.Call):
        return None
    call = calls[0]
    if "num_workers" in wanted.arguments and _may_have_workers(call):
        return None
    edits = [Edit(*span(call.func), _OURS)]
    arguments = dict(wanted.arguments)
    # Elsewhere another dataset may use the same transform.
    own = _makings(call, inside, tree) if wanted.normalization is not None and lines[1] else []
    pairs = list(_conversions(own))
    bare = ""
    if len(pairs) == 1:
        first, last = pairs[0]
        prefix = ast.unparse(first.func).rpartition("ToTensor")[0]
        bare = "" if prefix else f"from {wanted.home} import PILToTensor\n"
        edits.append(Edit(span(first)[0], span(last)[1], f"{prefix}PILToTensor()"))
        arguments.update(_mean_and_std(wanted))
    given = {each.arg: each.value for each in call.keywords}
    for name in [name for name in arguments if name in given]:
        edits.append(Edit(*span(given[name]), arguments.pop(name)))
    edits += _added(source, call, span, arguments)
    edits.append(_import(tree, call, offsets, bare))
    for edit in sorted(edits, key=lambda each: each.begin, reverse=True):
        source = source[: edit.begin] + edit.text.encode() + source[edit.end :]
    ast.parse(source)
    return source


def _called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return ast.unparse(node.func).rpartition(".")[2]


def _may_have_workers(call: ast.Call) -> bool:
    """Whether num_workers may be among the arguments without standing there by name."""
    several = any(isinstance(each, ast.Starred) for each in call.args)
    return several or len(call.args) > 5 or any(each.arg is None for each in call.keywords)


def _makings(call: ast.Call, inside: list[ast.expr], tree: ast.Module) -> list[ast.expr]:
    """The expressions of which the function makes the call's dataset."""
    here = {id(node) for node in inside}
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and id(node.value) in here:
            for target in node.targets:
                if isinstance(target, ast.Name):
                    values.setdefault(target.id, []).append(node.value)
    due: list[ast.expr] = call.args[:1] or [
        each.value for each in call.keywords if each.arg == "dataset"
    ]
    made: list[ast.expr] = []
    while due:
        for node in ast.walk(due.pop()):
            if isinstance(node, ast.expr):
                made.append(node)
            if isinstance(node, ast.Name):
                due += values.pop(node.id, [])
    return made


def _conversions(inside: list[ast.expr]) -> Iterator[tuple[ast.Call, ast.Call]]:
    """Each ToTensor() with the Normalize(...) behind it, at the end of a list."""
    for node in inside:
        if isinstance(node, ast.List | ast.Tuple) and len(node.elts) >= 2:
            first, last = node.elts[-2:]
            if isinstance(first, ast.Call) and isinstance(last, ast.Call):
                if (_called(first), _called(last)) == ("ToTensor", "Normalize"):
                    yield first, last


def _added(source: bytes, call: ast.Call, span: _Span, arguments: dict[str, str]) -> Iterator[Edit]:
    """The further arguments, behind the last one: on lines of their own if that stands so."""
    if not arguments:
        return
    end = span(call)[1]
    texts = [f"{name}={text}" for name, text in arguments.items()]
    places = sorted(span(each) for each in [*call.args, *call.keywords])
    if not places:
        yield Edit(end - 1, end - 1, ", ".join(texts))
        return
    begin, place = places[-1]
    between = ", "
    if b"\n" in source[place : end - 1]:
        row = source[source.rfind(b"\n", 0, begin) + 1 : place]
        between = ",\n" + " " * (len(row) - len(row.lstrip(b" ")))
    yield Edit(place, place, "".join(between + text for text in texts))


def _import(tree: ast.Module, call: ast.Call, offsets: list[int], bare: str) -> Edit:
    """The line that imports FastLoader: in the place of DataLoader's, if nothing else needs that, or
    behind the last import before the call. ``bare``: another line of imports, or empty."""
    text = f"from fastloader import {_OURS}\n"
    imports = [
        node
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        and getattr(node, "module", "") != "__future__"
        and node.lineno < call.lineno
    ]
    if any(
        isinstance(node, ast.ImportFrom) and _OURS in [each.name for each in node.names]
        for node in imports
    ):
        text = ""
    text += bare
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    alone = isinstance(call.func, ast.Name) and names.count(_PLAIN) == 1
    for node in imports:
        on_its_line = [each for each in tree.body if node.lineno <= each.lineno <= _end(node)]
        its_names = [each.name for each in node.names]
        if its_names == [_PLAIN] and text and alone and len(on_its_line) == 1:
            return Edit(offsets[node.lineno - 1], offsets[node.end_lineno or 0], text)
    if imports:
        end = max(_end(node) for node in imports)
        return Edit(offsets[end], offsets[end], text)
    first = [node for node in tree.body if not _is_docstring(node)]
    line = min((node.lineno for node in first), default=1) - 1
    return Edit(offsets[line], offsets[line], text)


def _end(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno


def _is_docstring(node: ast.stmt) -> bool:
    future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return future or text
