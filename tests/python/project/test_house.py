"""The rules of the house: which files there are, and what stands in one place only.
Each rule names what breaks it in a tree, keeps silent about this one, and fires where it is broken."""

import ast
import importlib
import re
import shutil

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from fastloader import FastLoader
from support import PACKAGE_ROOT

if not (PACKAGE_ROOT / "tools" / "check_layers.py").is_file():
    pytest.skip("needs the source tree", allow_module_level=True)

check_layers = importlib.import_module("check_layers")


def texts(root, below="fastloader", endings=("py", "pyi", "md")):
    """(path, text) of the files in a folder of a tree."""
    for path in sorted((root / below).rglob("*")):
        if path.suffix[1:] in endings and "__pycache__" not in path.parts:
            yield path.relative_to(root).as_posix(), path.read_text()


def matching(pattern, found, but=()):
    return [name for name, text in found if name not in but and re.search(pattern, text)]


def folders(path):
    """Those that hold modules, at any depth."""
    return [each for each in path.iterdir() if each.is_dir() and any(each.rglob("*.py"))]


def public_files(root):
    known = {
        "__init__",
        "__main__",
        "encoded_image",
        "errors",
        "loader",
        "loader_audit",
        "loader_check",
        "prefetcher",
    }
    return {path.stem for path in (root / "fastloader").glob("*.py")} ^ known


def public_folders(root):
    known = {"_core", "cli", "compat", "datasets", "transforms"}
    return {path.name for path in folders(root / "fastloader")} ^ known


def imports(root):
    return check_layers.check(root)


def private_modules(root):
    """Names of before the folders; whatever is private and no part of `_core` stands in a public one."""
    kinds = ("py", "pyi", "md", "toml", "in", "yml", "cpp", "h", "cu", "txt")
    below = ["fastloader", "tests", "tools", "benchmarks", "docs", "examples", "csrc", "cmake"]
    found = [each for folder in below for each in texts(root, folder, kinds)]
    found += [(path.name, path.read_text()) for path in root.glob("*.*") if path.is_file()]
    return matching(r"fastloader[./]_(?!core|native|pure_wheel)[a-z]", found)


def loaders_of_any_type(root):
    return matching(r"loader: Any", texts(root, "fastloader/_core"))


def process_numbers(root):
    """Asked for in one place, but where they are data."""
    data = ("sources/worker_info.py", "sources/python/threads.py", "sources/python/shared_slots.py")
    places = tuple(f"fastloader/_core/{each}" for each in (*data, "observation/trace.py"))
    found = matching(r"getpid\(\)", texts(root, "fastloader/_core"))
    home = "fastloader/_core/machine/process.py"
    return [name for name in found if name != home and not name.startswith(places)]


def hooks_at_exit(root):
    home = "fastloader/_core/machine/process.py"
    return matching(r"_register_atexit|atexit\.register", texts(root), but=[home])


def comparisons_of_paths(root):
    found = [*texts(root, "fastloader/_core"), *texts(root)]
    ours = [
        each for each in found if each[0].startswith(("fastloader/_core/", "fastloader/loader"))
    ]
    return matching(r"\bpath (==|!=) \"|path in \(|isinstance\(lowered", ours)


def old_names(root):
    return matching(r"shown=False|\.place = |Unlowered|class Wish|class Modest", texts(root))


# Their parameters are torch's or timm's, or say what is called how in the user's list or collection.
LONG_SIGNATURES = {
    ("_core/sources/python/threads.py", "work"),
    ("compat/timm/loader.py", "create_loader"),
    ("compat/timm/dataset.py", "ImageDataset.__init__"),
    ("compat/timm/mixup.py", "Mixup.__init__"),
    ("compat/timm/loader.py", "PrefetchLoader.__init__"),
    ("datasets/files.py", "ListImages.__init__"),
    ("datasets/mongo.py", "MongoImages.__init__"),
    ("loader.py", "FastLoader.__init__"),
}


def long_signatures(root):
    found = set()
    for name, text in texts(root, endings=["py"]):
        for place in ast.walk(ast.parse(text)):
            for each in ast.iter_child_nodes(place):
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                    taken = each.args.posonlyargs + each.args.args + each.args.kwonlyargs
                    own = isinstance(place, ast.ClassDef) and taken[:1]
                    if len(taken) - bool(own) > 8:
                        called = f"{place.name}.{each.name}" if own else each.name
                        found.add((name.removeprefix("fastloader/"), called))
    return found - LONG_SIGNATURES


# By the rule: a file of a tree, and what breaks the rule there.
PLANTED = {
    public_files: ("fastloader/utils.py", ""),
    public_folders: ("fastloader/utils/planted.py", ""),
    imports: (
        "fastloader/_core/delivery/cpu.py",
        "from fastloader._core.sources import iterable\n",
    ),
    private_modules: ("docs/gpu.md", "`fastloader" + "._planted`\n"),
    loaders_of_any_type: ("fastloader/_core/handoff.py", "def plan(loader: Any): ...\n"),
    process_numbers: ("fastloader/_core/delivery/cpu.py", "PID = os.getpid()\n"),
    hooks_at_exit: ("fastloader/errors.py", "threading._register_atexit(print)\n"),
    comparisons_of_paths: ("fastloader/loader.py", 'NATIVE = path == "torch"\n'),
    old_names: ("fastloader/_core/handoff.py", "# Raises Unlowered.\n"),
    long_signatures: ("fastloader/errors.py", "def planted(a, b, c, d, e, f, g, h, i): ...\n"),
}


@pytest.mark.parametrize("rule", PLANTED, ids=lambda rule: rule.__name__)
def test_this_tree_keeps(rule):
    assert not rule(PACKAGE_ROOT)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the package, to plant things in."""
    root = tmp_path_factory.mktemp("tree")
    only_text = shutil.ignore_patterns("*.so", "__pycache__")
    for folder in ("fastloader", "docs"):
        shutil.copytree(PACKAGE_ROOT / folder, root / folder, ignore=only_text)
    return root


@pytest.mark.parametrize("rule", PLANTED, ids=lambda rule: rule.__name__)
def test_a_planted_violation_is_found(tree, rule):
    name, text = PLANTED[rule]
    path = tree / name
    before = path.read_text() if path.exists() else None
    assert not rule(tree)
    path.parent.mkdir(exist_ok=True)
    try:
        path.write_text((before or "") + text)
        assert rule(tree)
    finally:
        path.unlink() if before is None else path.write_text(before)


def private_attributes(loader):
    """Those that DataLoader does not have: frameworks and subclasses give attributes of their own."""
    added = vars(loader).keys() - vars(DataLoader(loader.dataset)).keys()
    return {name for name in added if name.startswith("_")}


def test_a_loader_has_one_private_attribute():
    loader = FastLoader(TensorDataset(torch.arange(4)))
    assert private_attributes(loader) == {"_runtime"}
    loader._planted = 1
    assert private_attributes(loader) == {"_runtime", "_planted"}
