"""The change to the user's file, tried before it is proposed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fastloader._core.runtime.options import FIXED
from fastloader.cli.tune.change import Wanted, changed_source
from fastloader.cli.tune.target import Target, TuneError, told


def check_change(target: Target, wanted: Wanted) -> None:
    """Makes the loader by the changed function, with the names of the module that it stands in. Nothing
    is written. Of a loader that no function makes, the file is read.

    Raises:
        TuneError: for what the changed function raises, such as an attribute that a DataLoader lets one
            set and FastLoader does not.
    """
    source = changed_source(target.file, target.lines, wanted)
    if source is None:
        return
    tree = ast.parse(source)
    function = target.function
    if function is None:
        for line in _refused(tree):
            raise TuneError(
                f"line {line} sets an attribute that FastLoader takes in its constructor"
            )
        return
    named = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__
    ]
    names = getattr(function, "__globals__", None)
    if len(named) != 1 or names is None:
        return
    ours = [
        node
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        and {each.name for each in node.names} & {"FastLoader", "PILToTensor"}
    ]
    names = dict(names)
    code = compile(ast.Module([*ours, *named], []), str(target.file), "exec")
    with told(f"{target.text} with the change"):
        exec(code, names)
        names[function.__name__]()


def _refused(tree: ast.Module) -> Iterator[int]:
    """The lines where an attribute of a loader is set that is fixed when a FastLoader is made."""
    loaders = {
        ast.unparse(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func).rpartition(".")[2] == "FastLoader"
        for target in node.targets
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if node.attr in FIXED and ast.unparse(node.value) in loaders:
                yield node.lineno
