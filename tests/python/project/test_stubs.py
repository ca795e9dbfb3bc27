"""The stubs say what the extension is: same names, same arguments."""

import ast
import inspect
from pathlib import Path

import pytest

import fastloader
from fastloader._core.machine import extension

STUBS = Path(fastloader.__file__).with_name("_native.pyi")

native = extension.load()
pytestmark = pytest.mark.skipif(native is None, reason="the native module is not in use")


# What is only compiled with FASTLOADER_TEST_HOOKS.
HOOKS = {
    "DelayedSource",
    "twin_delay_seed",
    "twin_fail_on_call",
    "twin_unpinned",
    "twin_copy_seconds",
}


def absent():
    return set() if native.__test_hooks__ else HOOKS


def arguments(function):
    spec = function.args
    every = [each.arg for each in [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]]
    return [each for each in every if each not in absent()]


def documented(function):
    """Argument names in pybind11's first line, such as ``f(self: X, epoch: int) -> bool``."""
    if isinstance(function, staticmethod):
        function = function.__func__
    signature = inspect.getdoc(function).splitlines()[0]
    return arguments(ast.parse(f"def {signature}: ...").body[0])


def test_every_name_is_in_both():
    tree = ast.parse(STUBS.read_text())
    stubbed = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    values = {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
    stubbed |= {name for name in values if not name.startswith("_")}
    real = {name for name in dir(native) if not name.startswith("_")}
    assert stubbed - absent() == real


def test_every_method_takes_the_arguments_it_is_said_to():
    tree = ast.parse(STUBS.read_text())
    checked = 0
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            assert arguments(node) == documented(getattr(native, node.name)), node.name
            checked += 1
        if isinstance(node, ast.ClassDef) and node.name not in absent():
            members = {
                each
                for each in vars(getattr(native, node.name))
                if not each.startswith("_") or each == "__len__"
            }
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            values = [each.target.id for each in node.body if isinstance(each, ast.AnnAssign)]
            stubbed = {each.name for each in methods if each.name != "__init__"}
            assert members == stubbed.union(values), node.name
            for method in methods:
                real = vars(getattr(native, node.name)).get(method.name)
                if real is None or isinstance(real, property):
                    continue
                assert len(arguments(method)) == len(documented(real)), (node.name, method.name)
                if method.name != "__init__":
                    named = [each for each in documented(real)[1:] if not each.startswith("arg")]
                    assert not named or named == arguments(method)[1:], (node.name, method.name)
                checked += 1
    assert checked > 15
