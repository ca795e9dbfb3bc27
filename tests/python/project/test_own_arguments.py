"""The places in which each argument of FastLoader's own stands: a new one that is missing in one of them
is named here, with the place."""

import ast
import inspect
import re
import shutil

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from fastloader import FastLoader
from fastloader._core.options import FIXED
from fastloader._core.order.loader import OwnArguments
from support import PACKAGE_ROOT

if not (PACKAGE_ROOT / "docs" / "reference.md").is_file():
    pytest.skip("needs the source tree", allow_module_level=True)

LOADER, LIST = "fastloader/loader.py", "fastloader/_core/order/loader.py"
REFERENCE = "docs/reference.md"


def class_in(root, file, name):
    tree = ast.parse((root / file).read_text())
    return next(each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name)


def signature(root):
    """The arguments of the constructor that come after torch's."""
    methods = class_in(root, LOADER, "FastLoader").body
    init = next(each for each in methods if getattr(each, "name", "") == "__init__")
    names = [each.arg for each in init.args.kwonlyargs]
    return set(names[names.index("in_order") + 1 :])


def docstring(root):
    text = ast.get_docstring(class_in(root, LOADER, "FastLoader"))
    arguments = re.search(r"^Args:\n(.*?)^Raises:", text, re.DOTALL | re.MULTILINE)[1]
    entries = re.findall(r"^    (\w+(?:, \w+)*):", arguments, re.MULTILINE)
    return set(", ".join(entries).split(", "))


def fields(root):
    body = class_in(root, LIST, "OwnArguments").body
    return {each.target.id for each in body if isinstance(each, ast.AnnAssign)}


def reference(root):
    heads = re.findall(r"^## ([a-z_, ]+)$", (root / REFERENCE).read_text(), re.MULTILINE)
    return set(re.findall(r"\w+", " ".join(heads)))


def uses(root):
    """The arguments that are read off a loader, and those that the constructor uses up. A value that is
    assigned to one that is neither would have no effect, without a word."""
    core = (root / "fastloader" / "_core").rglob("*.py")
    read = {name for file in core for name in re.findall(r"\bloader\.(\w+)", file.read_text())}
    return read | FIXED


PLACES = (signature, docstring, fields, reference, uses)


def missing(root):
    known = signature(root) | fields(root)
    return {f"{name}: {place.__name__}" for place in PLACES for name in known - place(root)}


def test_every_argument_stands_in_every_place():
    assert len(fields(PACKAGE_ROOT)) > 10
    assert not missing(PACKAGE_ROOT)


def test_the_constructor_takes_what_the_list_has_and_the_loader_keeps_it():
    names = set(OwnArguments.__annotations__)
    torchs = {*inspect.signature(DataLoader).parameters, "in_order"}
    assert inspect.signature(FastLoader).parameters.keys() - torchs == names - torchs
    assert names <= vars(FastLoader(TensorDataset(torch.arange(4)))).keys()


# What is taken out of a file, or put into it, and what is missing then.
PLANTED = {
    "an argument without a field": (
        LOADER,
        (
            '        native: bool | Literal["require"] = True,\n',
            '        native: bool | Literal["require"] = True,\n        planted: int = 0,\n',
        ),
        {f"planted: {place}" for place in ("docstring", "fields", "reference", "uses")},
    ),
    "a field without an argument": (
        LIST,
        ("    native: bool | str\n", "    native: bool | str\n    planted: int\n"),
        {f"planted: {place}" for place in ("signature", "docstring", "reference", "uses")},
    ),
    "no line in the docstring": (
        LOADER,
        ("        native: True", "        True"),
        {"native: docstring"},
    ),
    "no heading": (REFERENCE, ("## native\n", "## Native\n"), {"native: reference"}),
}


@pytest.mark.parametrize("case", PLANTED)
def test_what_is_missing_is_named(tmp_path, case):
    file, (text, other), wanted = PLANTED[case]
    shutil.copytree(
        PACKAGE_ROOT / "fastloader", tmp_path / "fastloader", ignore=shutil.ignore_patterns("*.so")
    )
    (tmp_path / "docs").mkdir()
    shutil.copy(PACKAGE_ROOT / REFERENCE, tmp_path / REFERENCE)
    before = (tmp_path / file).read_text()
    assert before.count(text) == 1
    (tmp_path / file).write_text(before.replace(text, other))
    assert missing(tmp_path) == wanted
