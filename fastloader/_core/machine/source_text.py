"""What the source file of a module says of its names: where each is imported from, and which values are
written there. Nothing is run: statements are found in the text, and only those are parsed."""

from __future__ import annotations

import ast
import bisect
import builtins
import functools
import itertools
import re
import sys
import textwrap
from types import FunctionType, ModuleType
from typing import Any

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+\S+[ \t]+)?import[ \t]+(?:\([^)]*\)|[^\n]*)", re.MULTILINE
)
_MOST_LINES = 200  # of a statement that is read
_UNKNOWN = object()


class _Source:
    """The text of a module's file; empty if it cannot be read."""

    def __init__(self, module: ModuleType) -> None:
        try:
            with open(str(module.__file__), encoding="utf-8") as file:
                self.text = file.read()
        except (AttributeError, OSError, UnicodeDecodeError):
            self.text = ""
        self.lines = self.text.split("\n")
        lengths = (len(line) + 1 for line in self.lines[:-1])
        self._begins = [*itertools.accumulate(lengths, initial=0)]
        # (module, name there; "" for the module itself)
        self.imports: dict[str, set[tuple[str, str]]] = {}
        self.all_of: set[str] = set()  # the modules from which all names are imported
        if self.text:
            self._read_imports(str(module.__package__ or ""))

    def _read_imports(self, package: str) -> None:
        for match in _IMPORT.finditer(self.text):
            try:
                found = ast.parse(match[0].strip()).body
            except SyntaxError:  # a sentence, or a comment with brackets
                if not match[0].endswith(("(", "\\", ")")) and "(" not in match[0]:
                    continue
                statement = self.statement(self.text.count("\n", 0, match.start()))
                found = [] if statement is None else [statement]
            for each in found:
                if isinstance(each, ast.Import):
                    for alias in each.names:
                        first = alias.name.partition(".")[0]
                        self._add(alias.asname or first, alias.name if alias.asname else first, "")
                elif isinstance(each, ast.ImportFrom):
                    home = each.module or ""
                    if each.level:
                        parents = package.split(".")
                        parents = parents[: len(parents) - each.level + 1]
                        home = ".".join([*parents, *filter(None, [home])])
                    for alias in each.names:
                        if alias.name == "*":
                            self.all_of.add(home)
                        else:
                            self._add(alias.asname or alias.name, home, alias.name)

    def _add(self, name: str, home: str, original: str) -> None:
        self.imports.setdefault(name, set()).add((home, original))

    def lines_with(self, name: str) -> list[int]:
        """The numbers of the lines that have this name somewhere."""
        found, at = [], self.text.find(name)
        while at >= 0:
            line = bisect.bisect_right(self._begins, at) - 1
            found.append(line)
            if line + 1 == len(self._begins):
                break
            at = self.text.find(name, self._begins[line + 1])
        return found

    def statement(self, line: int) -> ast.stmt | None:
        """The statement that begins in this line, counted from 0, with line numbers as in the file."""
        for end in range(line + 1, min(line + _MOST_LINES, len(self.lines)) + 1):
            try:
                parsed = ast.parse(textwrap.dedent("\n".join(self.lines[line:end])))
            except SyntaxError:
                continue
            return ast.increment_lineno(parsed.body[0], line) if parsed.body else None
        return None

    def header(self, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The head of the function whose first line, which may be a decorator's, is this."""
        while line < len(self.lines) and not re.match(r"\s*(async\s+)?def\s", self.lines[line]):
            line += 1
        for end in range(line + 1, min(line + _MOST_LINES, len(self.lines)) + 1):
            if ":" not in self.lines[end - 1]:
                continue
            head = "\n".join(self.lines[line:end])
            for body in (" pass", "\n pass", ""):
                try:
                    parsed = ast.parse(textwrap.dedent(head) + body).body[0]
                except (SyntaxError, IndexError):
                    continue
                return (
                    parsed if isinstance(parsed, ast.FunctionDef | ast.AsyncFunctionDef) else None
                )
        return None

    @functools.cache  # noqa: B019 (sources are kept for good)
    def assigned(self, name: str, kind: str = "") -> tuple[ast.expr, ...]:
        """What is assigned to a name of the module, or of one of its classes."""
        begin, end = 0, len(self.lines)
        if kind:
            head = re.compile(rf"class {re.escape(kind)}\b")
            begins = (at for at in self.lines_with(f"class {kind}") if head.match(self.lines[at]))
            begin = next(begins, end)
            later = range(begin + 1, end)
            end = next((at for at in later if re.match(r"[^\s)#]", self.lines[at])), end)
        statement = re.compile(
            rf"{'    ' if kind else r'(?:    |	)?'}{re.escape(name)}\s*(?::[^=\n]+)?=(?!=)"
        )
        found = []
        for at in self.lines_with(name):
            if begin <= at < end and statement.match(self.lines[at]):
                parsed = self.statement(at)
                if isinstance(parsed, ast.Assign | ast.AnnAssign) and parsed.value is not None:
                    found.append(parsed.value)
        return tuple(found)

    @functools.cache  # noqa: B019
    def assigned_at_first(self, name: str) -> bool:
        """Whether the name is assigned outside of all blocks."""
        statement = re.compile(rf"{re.escape(name)}\s*(?::[^=\n]+)?=(?!=)")
        return any(statement.match(self.lines[at]) for at in self.lines_with(name))

    @functools.cache  # noqa: B019
    def changes(self, name: str) -> bool:
        """Whether code of the module gives another value to a name of the module later."""
        its = re.escape(name)
        later = re.compile(
            rf"\s*(global\b.*\b{its}\b|{its}\s*(\[.*\]\s*=|[-+*/|]=|\.\w+\()|del\s+{its}\b)"
        )
        return any(later.match(self.lines[at]) for at in self.lines_with(name))

    @functools.cache  # noqa: B019
    def unpacks(self, name: str) -> bool:
        """Whether the name is one of a loop, of a context or of several that are assigned at once."""
        its = re.escape(name)
        statement = re.compile(
            rf"(for|with)\b.*\b{its}\b|(\w+\s*,\s*)*{its}\s*,.*=|(\w+\s*,\s*)+{its}\s*="
        )
        return any(statement.match(self.lines[at]) for at in self.lines_with(name))

    @functools.cache  # noqa: B019
    def assigns(self, name: str) -> bool:
        """Whether this name is assigned anywhere in the file."""
        statement = re.compile(rf".*\b{re.escape(name)}\b\s*(:[^=\n]+)?=(?!=)")
        return any(statement.match(self.lines[at]) for at in self.lines_with(name))


@functools.cache
def _source(module: ModuleType) -> _Source:
    return _Source(module)


def imports(module: ModuleType, name: str, value: Any, followed: Any) -> bool:
    """Whether the source of the module has this function, class or module under this name: because it is
    imported or assigned so. True, too, if there is no source. ``followed``: whether a module of this
    name is one whose own source counts."""
    return _imports(module, name, value, followed, set())


def _imports(module: ModuleType, name: str, value: Any, followed: Any, seen: set[Any]) -> bool:
    if (module, name) in seen:
        return False
    seen.add((module, name))
    if isinstance(value, ModuleType) and sys.modules.get(f"{module.__name__}.{name}") is value:
        return True
    if _defined(module, name, value):
        return True
    # A decorator's function stands before the one that it is given.
    inner = getattr(value, "__wrapped__", None) if isinstance(value, FunctionType) else None
    if inner is not None and _imports(module, name, inner, followed, seen - {(module, name)}):
        return True
    source = _source(module)
    if not source.text:
        return True
    targets = [*source.imports.get(name, ()), *((home, name) for home in source.all_of)]
    for home, original in targets:
        if value is sys.modules.get(f"{home}.{original}" if original else home):
            return True
        there = sys.modules.get(home)
        if there is None or not original:
            continue
        if not followed(home):
            if vars(there).get(original) is value or _name_of(value) == original:
                return True
        elif _imports(there, original, value, followed, seen):
            return True
    if source.unpacks(name):
        return True
    for each in source.assigned(name):
        # The last brackets are of what a decorator is given.
        if isinstance(each, ast.Call) and len(each.args) == 1 and not each.keywords:
            each = each.args[0]
        if isinstance(each, ast.Name):
            if _imports(module, each.id, value, followed, seen):
                return True
        elif isinstance(each, ast.Attribute):
            home_ = _evaluated(each.value, module)
            if isinstance(home_, ModuleType) and followed(home_.__name__):
                if _imports(home_, each.attr, value, followed, seen):
                    return True
            elif getattr(home_, each.attr, None) is value:
                return True
        elif not isinstance(each, ast.Lambda):
            return True  # the outcome of a call
    return False


def _name_of(value: Any) -> str:
    return str(
        getattr(getattr(value, "__code__", value), "co_name", getattr(value, "__name__", ""))
    )


def _defined(module: ModuleType, name: str, value: Any) -> bool:
    if isinstance(value, FunctionType):
        return value.__globals__ is vars(module) and _name_of(value) == name
    if isinstance(value, type):
        return value.__module__ == module.__name__ and value.__qualname__ == name
    return False


def changes(module: ModuleType, name: str) -> bool:
    """Whether code of the module gives another value to a name of the module later."""
    return _source(module).changes(name)


def says_so(module: ModuleType, name: str, value: Any, kind: str = "") -> bool | None:
    """Whether the source has this value under a name of the module, or of one of its classes (``kind``).
    None if the source does not say: it is computed there, changed later, or an empty container."""
    source = _source(module)
    if not source.text or (not kind and source.changes(name)):
        return None
    written = source.assigned(name, kind)
    if not kind and (source.unpacks(name) or not source.assigned_at_first(name)):
        return None
    if not written:
        return False if kind and not source.assigns(name) else None
    answers = [_matches(each, value, module) for each in written]
    if any(answers):
        return True
    return None if None in answers else False


def has_other_defaults(function: FunctionType) -> bool:
    """Whether a function has other defaults than its source says, as far as it says that."""
    module = sys.modules.get(str(function.__globals__.get("__name__")))
    values, named = function.__defaults__ or (), function.__kwdefaults__ or {}
    code = function.__code__
    if not (values or named) or module is None or vars(module) is not function.__globals__:
        return False
    if code.co_filename != getattr(module, "__file__", None) or code.co_name == "<lambda>":
        return False
    head = _source(module).header(code.co_firstlineno - 1)
    if head is None or head.name != code.co_name:
        return False
    arguments = head.args
    written = {
        each.arg: default
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is not None
    }
    if len(arguments.defaults) != len(values) or written.keys() != named.keys():
        return True
    pairs = [*zip(arguments.defaults, values, strict=True)]
    pairs += [(default, named[name]) for name, default in written.items()]
    return any(_matches(default, value, module) is False for default, value in pairs)


def _matches(written: ast.expr, value: Any, module: ModuleType) -> bool | None:
    """Whether an expression gives this value; None if that is unknown without running it."""
    if isinstance(written, ast.Tuple | ast.List | ast.Set | ast.Dict):
        kind = {ast.Tuple: tuple, ast.List: list, ast.Set: set, ast.Dict: dict}[type(written)]
        elements = written.keys if isinstance(written, ast.Dict) else written.elts
        if kind is not tuple and not elements:
            return None  # which is filled later
        # Those of another container, too, or each as often as there are any.
        spread = any(each is None or isinstance(each, ast.Starred) for each in elements)
        if spread:
            return None
        if type(value) is not kind or len(value) != len(elements):
            return False
        if isinstance(written, ast.Dict):
            keys = [_UNKNOWN if key is None else _evaluated(key, module) for key in written.keys]
            if any(key is _UNKNOWN for key in keys):
                return None
            if not all(key in value for key in keys):
                return False
            pairs = [*zip(written.values, (value[key] for key in keys), strict=True)]
        elif isinstance(written, ast.Set):
            return None
        else:
            pairs = [*zip(elements, value, strict=True)]
        answers = [_matches(each, its, module) for each, its in pairs]
        return False if False in answers else None if None in answers else True
    if isinstance(written, ast.Lambda):
        code = getattr(value, "__code__", None)
        if code is None:
            return False
        here = code.co_filename == getattr(module, "__file__", None)
        return here and (code.co_name, code.co_firstlineno) == ("<lambda>", written.lineno)
    expected = _evaluated(written, module)
    if expected is _UNKNOWN:
        return None
    try:
        return expected is value or (type(expected) is type(value) and bool(expected == value))
    except Exception:
        return None


def _evaluated(written: ast.expr, module: ModuleType) -> Any:
    if isinstance(written, ast.Constant):
        return written.value
    if isinstance(written, ast.Name):
        default = getattr(builtins, written.id, _UNKNOWN)
        return vars(module).get(written.id, default)
    if isinstance(written, ast.Attribute):
        holder = _evaluated(written.value, module)
        return _UNKNOWN if holder is _UNKNOWN else getattr(holder, written.attr, _UNKNOWN)
    try:
        return ast.literal_eval(written)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _UNKNOWN
