"""Finds where the user's loader is made, and proposes the change as a diff."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import difflib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import fastloader

# ---- The change to the user's file, as a diff.


_Span = Callable[[Any], tuple[int, int]]
_PLAIN, _OURS = "DataLoader", "FastLoader"


@dataclasses.dataclass(frozen=True)
class Change:
    """The change of a loader to a FastLoader. ``arguments``: what it is to get besides DataLoader's, by
    name, as source text. ``normalization``: mean and std, if the transform's ToTensor and Normalize can
    go; None if not. ``home``: the package of these two."""

    arguments: dict[str, str]
    normalization: tuple[Sequence[float], Sequence[float]] | None
    home: str = ""


@dataclasses.dataclass(frozen=True)
class Edit:
    begin: int
    end: int
    text: str


def diff_of(file: str | None, lines: tuple[int, int], change: Change) -> str:
    """Writes a unified diff, which ``patch`` applies, or else one that shows what to write. ``lines``:
    the first and the last line where the loader is made; (1, 0) for all of the file."""
    source, changed = _read(file), changed_source(file, lines, change)
    if file is None or source is None or changed is None:
        return _shown_only(change)
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


def changed_source(file: str | None, lines: tuple[int, int], change: Change) -> bytes | None:
    """Returns the file with the change; None if there is none to write."""
    source = _read(file)
    if source is None:
        return None
    try:
        return _changed(source, lines, change)
    except SyntaxError:
        return None


def _lines(source: bytes) -> list[str]:
    """Splits the source as ``patch`` divides it: str.splitlines also ends a line at a form feed."""
    return [line.decode() for line in source.splitlines(keepends=True)]


def _read(file: str | None) -> bytes | None:
    """Reads the source, if it is text that can be changed byte by byte."""
    if file is None:
        return None
    try:
        with open(file, "rb") as opened:
            source = opened.read()
        source.decode()
    except (OSError, UnicodeDecodeError):
        return None
    return source if source.endswith(b"\n") else None


def _shown_only(change: Change) -> str:
    arguments = {**change.arguments, **_mean_and_std(change)}
    more = "".join(f", {name}={text}" for name, text in arguments.items())
    shown = [f"-loader = {_PLAIN}(dataset, ...)", f"+loader = {_OURS}(dataset, ...{more})"]
    if change.normalization is not None:
        shown = ["-    ToTensor(), Normalize(mean, std)", "+    PILToTensor()", *shown]
    return "\n".join(["+from fastloader import FastLoader", *shown, ""])


def _mean_and_std(change: Change) -> dict[str, str]:
    if change.normalization is None:
        return {}
    return {
        name: f"({', '.join(repr(float(each)) for each in values)})"
        for name, values in zip(("mean", "std"), change.normalization, strict=True)
    }


def _changed(source: bytes, lines: tuple[int, int], change: Change) -> bytes | None:
    """Returns the source with the change; None if it is not clear where that goes."""
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
    if "num_workers" in change.arguments and _may_have_workers(call):
        return None
    edits = [Edit(*span(call.func), _OURS)]
    arguments = dict(change.arguments)
    # Elsewhere another dataset may use the same transform.
    own = _makings(call, inside, tree) if change.normalization is not None and lines[1] else []
    pairs = list(_conversions(own))
    bare = ""
    if len(pairs) == 1:
        first, last = pairs[0]
        prefix = ast.unparse(first.func).rpartition("ToTensor")[0]
        bare = "" if prefix else f"from {change.home} import PILToTensor\n"
        edits.append(Edit(span(first)[0], span(last)[1], f"{prefix}PILToTensor()"))
        arguments.update(_mean_and_std(change))
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
    """Returns whether num_workers may be among the arguments without standing there by name."""
    several = any(isinstance(each, ast.Starred) for each in call.args)
    return several or len(call.args) > 5 or any(each.arg is None for each in call.keywords)


def _makings(call: ast.Call, inside: list[ast.expr], tree: ast.Module) -> list[ast.expr]:
    """Lists the expressions of which the function makes the call's dataset."""
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
    """Gives each ToTensor() with the Normalize(...) behind it, at the end of a list."""
    for node in inside:
        if isinstance(node, ast.List | ast.Tuple) and len(node.elts) >= 2:
            first, last = node.elts[-2:]
            if isinstance(first, ast.Call) and isinstance(last, ast.Call):
                if (_called(first), _called(last)) == ("ToTensor", "Normalize"):
                    yield first, last


def _added(source: bytes, call: ast.Call, span: _Span, arguments: dict[str, str]) -> Iterator[Edit]:
    """Adds the further arguments, behind the last one: on lines of their own if that stands so."""
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
    """Adds the line that imports FastLoader: in the place of DataLoader's, if nothing else needs that,
    or behind the last import before the call. ``bare``: another line of imports, or empty."""
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


# ---- The user's loader: where it is, and how it is made.


_PACKAGE = fastloader.__path__[0]


class TuneError(Exception):
    """Ends the command with a message and no traceback."""


@dataclasses.dataclass(frozen=True)
class Target:
    """The loader that the user has named. ``make``: gives the loader; the same object each time if the
    user has named a loader. ``file`` and ``lines``: where it is written; None and (1, 0) if that is not
    known. ``function``: what the user has named, unless that is a loader."""

    text: str
    make: Callable[[], Any]
    file: str | None
    lines: tuple[int, int]
    function: Any = None

    @classmethod
    def of(cls, text: str) -> Target:
        """
        Raises:
            TuneError: if there is no such thing, or it cannot be a loader.
        """
        found, file = look_up(text)
        if _is_loader(found):
            return cls(text, lambda: found, file, (1, 0))
        if not callable(found):
            raise TuneError(
                f"{text} is of type {type(found).__name__}: a DataLoader or a FastLoader is needed, or "
                "a function that returns one"
            )
        advice = "write a function that calls it with the arguments of your training"
        check_call(text, found, (), advice)

        def make() -> Any:
            with errors_explained(text):
                made = found()
            if not _is_loader(made):
                raise TuneError(
                    f"{text} returned an object of type {type(made).__name__}: a DataLoader or a "
                    "FastLoader is needed"
                )
            return made

        return cls(text, make, *_place(found, file), found)


def look_up(text: str) -> tuple[Any, str | None]:
    """Looks up what MODULE:NAME names, and the module's file.

    Raises:
        TuneError: if there is no such thing.
    """
    where, colon, name = text.rpartition(":")
    if not colon or not where or not name:
        raise TuneError(
            f"{text} is not MODULE:NAME (such as my_module:make_loader or train.py:make_loader)"
        )
    module = _module(where)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            there = [each for each in vars(found) if not each.startswith("_")][:20]
            raise TuneError(f"{where} has no {part}; it has {', '.join(there) or 'nothing'}")
        found = getattr(found, part)
    return found, getattr(module, "__file__", None)


def _is_loader(thing: Any) -> bool:
    from torch.utils.data import DataLoader

    return isinstance(thing, DataLoader)


def _module(where: str) -> ModuleType:
    if not where.endswith(".py"):
        sys.path.insert(0, os.getcwd())  # as `python -m` does
        missing = f"there is no module {where}, seen from {os.getcwd()}"
        with errors_explained(where, missing):
            return importlib.import_module(where)
    path = os.path.abspath(where)
    if not os.path.isfile(path):
        raise TuneError(f"there is no file {where}")
    # As `python FILE` does, and under a name that worker processes can import, too.
    sys.path.insert(0, os.path.dirname(path))
    name = os.path.basename(path).removesuffix(".py")
    there = getattr(sys.modules.get(name), "__file__", None)
    if there is not None and os.path.samefile(there, path):  # the step's is the loader's
        return sys.modules[name]
    with errors_explained(where):
        found = importlib.util.find_spec(name) if name.isidentifier() else None
        if found is not None and found.origin and os.path.samefile(found.origin, path):
            return importlib.import_module(name)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module


def check_call(
    text: str, function: Callable[..., Any], arguments: tuple[str, ...], advice: str
) -> None:
    """
    Raises:
        TuneError: if the function cannot be called with so many arguments.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of a C function, which Python cannot look into
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        given = " and ".join(f"a {each}" for each in arguments) or "nothing"
        raise TuneError(
            f"{text}{signature} cannot be called with {given} ({error}): {advice}"
        ) from None


def _place(function: Callable[..., Any], file: str | None) -> tuple[str | None, tuple[int, int]]:
    try:
        lines, first = inspect.getsourcelines(function)
        return inspect.getsourcefile(function) or file, (first, first + len(lines) - 1)
    except (OSError, TypeError):
        return file, (1, 0)


@contextlib.contextmanager
def own_arguments(text: str) -> Iterator[None]:
    """Hides this command's arguments from the user's module, which may read its own from sys.argv."""
    before, sys.argv = sys.argv, [text.rpartition(":")[0]]
    try:
        yield
    finally:
        sys.argv = before


@contextlib.contextmanager
def errors_explained(what: str, missing: str | None = None) -> Iterator[None]:
    """Makes a TuneError of what the user's code raises. It names the line of that code.

    ``missing``: what to say if the module of that name is not there."""
    try:
        yield
    except TuneError:
        raise
    except ModuleNotFoundError as error:
        names = {".".join(what.split(".")[:n]) for n in range(1, what.count(".") + 2)}
        if missing is not None and error.name in names:
            raise TuneError(missing) from None
        raise TuneError(_raised_text(what, error)) from None
    except (Exception, SystemExit) as error:
        raise TuneError(_raised_text(what, error)) from None


def _raised_text(what: str, error: BaseException) -> str:
    """Says what was raised and in which line: the last one that is of no package."""
    message = str(error)
    frames = [(each.filename, each.lineno) for each in traceback.extract_tb(error.__traceback__)]
    # Of a worker's exception, torch has the traceback in the message.
    inner = re.findall(r'^  File "(.+)", line (\d+)', message, re.MULTILINE)
    if inner:
        message = message.strip().splitlines()[-1].removeprefix(f"{type(error).__name__}: ")
        frames += [(file, int(line)) for file, line in inner]
    text = f"{what} raised {type(error).__name__}: {message}"
    if isinstance(error, SystemExit):
        text += " (put what runs a training behind `if __name__ == '__main__':`)"
    places = [
        f"\n  {file}, line {line}"
        for file, line in frames
        if not file.startswith((_PACKAGE, "<frozen", os.path.dirname(importlib.__path__[0])))
    ]
    own = [each for each in places if "site-packages" not in each]
    return text + "".join((own or places)[-1:])
