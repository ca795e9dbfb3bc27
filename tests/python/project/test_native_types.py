"""mypy sees every call of the native module, which is ``extension.native``: the stub types that."""

import ast

import pytest

from support import PACKAGE_ROOT

PACKAGE = PACKAGE_ROOT / "fastloader"


def untyped(source):
    """The lines where ``extension.load()``, whose module has no type, is more than asked whether it is
    None; and those where something called ``native`` may be Any."""
    tree = ast.parse(source)
    questions = {id(part) for node in ast.walk(tree) for part in asked(node)}
    return sorted(
        node.lineno
        for node in ast.walk(tree)
        if (is_load(node) and id(node) not in questions) or is_any_called_native(node)
    )


def asked(node):
    """What a node of the tree tries for its truth, or compares."""
    if isinstance(node, ast.Compare):
        return [node.left]
    if isinstance(node, ast.BoolOp):
        return node.values
    return [node.test] if isinstance(node, ast.If | ast.IfExp) else []


def is_load(node):
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "extension.load"


def is_any_called_native(node):
    if isinstance(node, ast.AnnAssign):
        name = ast.unparse(node.target).rpartition(".")[2]
    elif isinstance(node, ast.arg):
        name = node.arg
    else:
        return False
    return (
        name == "native" and node.annotation is not None and "Any" in ast.unparse(node.annotation)
    )


@pytest.mark.parametrize(
    "source",
    [
        "native = extension.load()",
        "use(extension.load())",
        "extension.load().normalize()",
        "def job(native: Any): pass",
        "class Packing:\n    native: Any | None",
    ],
)
def test_a_module_without_a_type_is_found(source):
    assert untyped(source)


@pytest.mark.parametrize(
    "source",
    [
        "if extension.load() is None:\n    raise Error",
        "pool = extension.native.BufferPool() if extension.load() else None",
        "native = wish and extension.load() is not None",
        "def make(native: bool): pass",
    ],
)
def test_a_question_is_none(source):
    assert not untyped(source)


def test_this_tree():
    assert not {
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in PACKAGE.rglob("*.py")
        for line in untyped(path.read_text())
    }
