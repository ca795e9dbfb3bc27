"""What the package names in strings is there. Else a module that is moved, or a function that is given
another name, is no longer recognised, and the native path is lost without a word."""

import ast
import re
from pathlib import Path

import pytest

from support import PACKAGE_ROOT

if not (PACKAGE_ROOT / "tools" / "check_layers.py").is_file():
    pytest.skip("needs the source tree", allow_module_level=True)

DOTTED = re.compile(r"fastloader(\.[A-Za-z_]\w*)+")


def file_of(module, root):
    """The source of a module; None if there is none."""
    base = root.joinpath(*module.split("."))
    found = [base.with_suffix(".py"), base.with_suffix(".pyi"), base / "__init__.py"]
    return next((each for each in found if each.exists()), None)


def names_in(path):
    """What a module's source defines, assigns or imports at its top."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (each.asname or each.name for each in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (each.id for each in targets if isinstance(each, ast.Name))


def is_there(text, root):
    """Whether a dotted name is a module's, or that of something in one."""
    module, _, name = text.rpartition(".")
    if file_of(text, root) is not None:
        return True
    home = file_of(module, root)
    return home is not None and name in names_in(home)


def missing(root):
    """The strings of the package that name what is not there."""
    for path in sorted((root / "fastloader").rglob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if DOTTED.fullmatch(node.value) and not is_there(node.value, root):
                    yield f"{path.relative_to(root)}:{node.lineno}: {node.value}"
            elif isinstance(node, ast.Tuple) and len(node.elts) == 2:
                pair = [each.value for each in node.elts if isinstance(each, ast.Constant)]
                if (
                    len(pair) == 2
                    and all(isinstance(each, str) for each in pair)
                    and pair[1].isidentifier()
                ):
                    home = file_of(pair[0], root) if DOTTED.fullmatch(pair[0]) else None
                    if home is not None and pair[1] not in names_in(home):
                        yield f"{path.relative_to(root)}:{node.lineno}: {pair}"


def test_what_is_named_is_there():
    assert list(missing(PACKAGE_ROOT)) == []


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("KNOWN = ('fastloader.home', 'Here')", True),
        ("KNOWN = ('fastloader.home', 'Gone')", False),
        ("KNOWN = ('fastloader.moved', 'Here')", False),
        ("KNOWN = {'Here': 'fastloader.home'}", True),
        ("KNOWN = {'Here': 'fastloader.old.home'}", False),
    ],
)
def test_what_is_gone_is_found(tmp_path, source, is_found):
    package = tmp_path / "fastloader"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "home.py").write_text("class Here:\n    pass\n")
    (package / "reader.py").write_text(source)
    assert (list(missing(Path(tmp_path))) == []) == is_found
