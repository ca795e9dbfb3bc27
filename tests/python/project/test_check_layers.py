"""The order of the package's layers: this tree keeps it, and every part of the check fires on a tree
that does not."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tools" / "check_layers.py"

if not SCRIPT.is_file():
    pytest.skip("needs the source tree", allow_module_level=True)

check_layers = importlib.import_module("check_layers")


@pytest.fixture
def check(tmp_path):
    """What is said of a tree without violations, plus these files."""

    def run(files):
        whole = {
            "__init__.py": "import os\n",
            "_core/__init__.py": '"""What happens."""\n',
            "_core/machine/__init__.py": '"""The machine."""\n',
            **files,
        }
        for name, text in whole.items():
            path = tmp_path / "fastloader" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return check_layers.check(tmp_path)

    return run


def test_this_tree_keeps_the_rules():
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def dotted(place):
    return "fastloader." + place.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


UP_AND_DOWN = [
    # (what is imported, by what): the other way round is refused
    ("errors.py", "_core/machine/limits.py"),
    ("_core/machine/extension.py", "transforms/_normalization.py"),
    ("_core/machine/extension.py", "datasets/files.py"),
    ("transforms/__init__.py", "datasets/files.py"),
    ("transforms/_normalization.py", "_core/batch/tree.py"),
    ("datasets/_formats/paths.py", "datasets/files.py"),
    ("datasets/files.py", "_core/batch/tree.py"),
    ("_core/batch/tree.py", "_core/order/position.py"),
    ("_core/order/progress.py", "_core/observation/statistics.py"),
    ("_core/observation/statistics.py", "_core/observation/tuning.py"),
    ("_core/observation/tuning.py", "_core/handoff.py"),
    ("_core/handoff.py", "_core/pictures/decoder.py"),
    ("_core/pictures/decoder.py", "_core/sources/arrays.py"),
    ("_core/handoff.py", "_core/delivery/cpu.py"),
    ("_core/sources/collation.py", "_core/runtime.py"),
    ("_core/sources/python/source.py", "_core/sources/remote/source.py"),
    ("_core/sources/remote/source.py", "_core/runtime.py"),
    ("_core/delivery/cpu.py", "_core/runtime.py"),
    ("_core/runtime.py", "loader.py"),
    ("loader.py", "compat/apex.py"),
    ("prefetcher.py", "compat/apex.py"),
    ("compat/apex.py", "cli/demo.py"),
]


@pytest.mark.parametrize(("lower", "upper"), UP_AND_DOWN)
def test_a_module_imports_from_below(check, lower, upper):
    assert check({lower: "", upper: f"import {dotted(lower)}\n"}) == []


@pytest.mark.parametrize(("lower", "upper"), UP_AND_DOWN)
def test_a_module_that_imports_from_above_is_reported_with_its_line(check, lower, upper):
    (message,) = check({lower: f"\nimport {dotted(upper)}\n", upper: ""})
    assert message.startswith(f"fastloader/{lower}:2: {upper}: of a later layer")


@pytest.mark.parametrize(
    "statement",
    [
        "import fastloader.loader",
        "import fastloader.loader as loader",
        "from fastloader import loader",
        "from fastloader.loader import FastLoader",
        "from ...loader import FastLoader",
        "from ... import loader",
        "def later():\n    from fastloader.loader import FastLoader",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from fastloader import loader",
        "import fastloader\nfastloader.loader.FastLoader",
        "try:\n    from fastloader.loader import FastLoader\nexcept ImportError:\n    pass",
    ],
)
def test_an_import_counts_wherever_and_however_it_stands(check, statement):
    messages = check({"loader.py": "", "_core/order/position.py": statement + "\n"})
    assert [each.partition(": ")[2].partition(":")[0] for each in messages] == ["loader.py"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("_core/sources/iterable.py", "_core/delivery/delivery.py"),
        ("_core/sources/images.py", "_core/delivery/engine.py"),
        ("_core/sources/python/source.py", "_core/sources/arrays.py"),
        ("_core/sources/python/threads.py", "_core/sources/images.py"),
        ("_core/sources/arrays.py", "_core/sources/image_iterator.py"),
        ("_core/sources/remote/source.py", "_core/delivery/engine.py"),
        ("_core/delivery/cpu.py", "_core/delivery/streams.py"),
        ("_core/delivery/cpu.py", "_core/delivery/engine.py"),
        ("_core/delivery/streams.py", "_core/delivery/engine.py"),
    ],
)
def test_what_stays_apart(check, one, other):
    for importer, imported in ((one, other), (other, one)):
        (message,) = check({imported: "", importer: f"import {dotted(imported)}\n"})
        assert message.startswith(f"fastloader/{importer}:1: {imported}: ")
        assert message.endswith(" stay apart")


def test_what_stands_beside_may_be_used(check):
    assert (
        check(
            {
                "_core/sources/python/lookahead.py": "",
                "_core/sources/iterable.py": f"import {dotted('_core/sources/python/lookahead.py')}\n",
                "_core/delivery/delivery.py": "from fastloader._core.delivery import cpu\n",
                "_core/delivery/cpu.py": "",
            }
        )
        == []
    )


def test_a_package_on_the_way_is_imported_too(check):
    """`transforms/__init__.py` runs when `transforms._chain` is imported."""
    files = {
        "transforms/__init__.py": "from fastloader.datasets import x\n",
        "transforms/_chain.py": "",
        "datasets/__init__.py": "",
        "datasets/x.py": "",
    }
    (message,) = check(files)
    assert message.startswith("fastloader/transforms/__init__.py:1: datasets/x.py")
    # So a circle may go through one, which no file names.
    files["transforms/__init__.py"] = "from fastloader.transforms import _chain\n"
    files["datasets/__init__.py"] = "from fastloader.datasets import files\n"
    files["datasets/files.py"] = "from fastloader.transforms import _chain\n"
    assert check(files) == []


def test_a_circle_through_a_package_on_the_way(check):
    files = {
        "compat/a/__init__.py": "import fastloader.compat.b.inner\n",
        "compat/a/inner.py": "",
        "compat/b/__init__.py": "import fastloader.compat.a.inner\n",
        "compat/b/inner.py": "",
    }
    (message,) = check(files)
    assert message == (
        "fastloader/compat/a/__init__.py:1: imports go in a circle: "
        "compat/a/__init__.py <-> compat/b/__init__.py"
    )


@pytest.mark.parametrize("hidden", [False, True])
def test_circles(check, hidden):
    last = "from fastloader._core.order import first\n"
    if hidden:
        last = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    " + last
    files = {
        "_core/order/first.py": "from fastloader._core.order import second\n",
        "_core/order/second.py": "def f():\n    from fastloader._core.order import third\n",
        "_core/order/third.py": "",
    }
    assert check(files) == []
    (message,) = check({**files, "_core/order/third.py": last})
    assert message == (
        "fastloader/_core/order/first.py:1: imports go in a circle: "
        "_core/order/first.py <-> _core/order/second.py <-> _core/order/third.py"
    )


@pytest.mark.parametrize("place", ["_utils.py", "_core/helpers.py", "_core/new/part.py"])
def test_a_file_has_a_layer(check, place):
    (message,) = check({place: ""})
    assert message == f"fastloader/{place}:1: in no layer of tools/check_layers.py"


@pytest.mark.parametrize(
    "place",
    ["_core/machine/limits.py", "transforms/_chain.py", "_core/runtime.py", "loader.py"],
)
def test_only_what_is_above_takes_public_names(check, place):
    for text in (
        "from fastloader import FastLoader\n",
        "import fastloader\nfastloader.FastLoader\n",
    ):
        (message,) = check({place: text})
        assert ": __init__.py: only compat/**, cli/** takes names" in message
    # Its folder may be asked for, and the native module lies in it.
    text = "import fastloader\nfrom fastloader import _native\nfastloader.__path__\n"
    assert check({place: text}) == []
    above = {"cli/demo.py": "from fastloader import FastLoader\n"}
    assert check({place: "", **above}) == []


def test_the_package_runs_two_files(check):
    ours = {
        "errors.py": "",
        "_core/machine/extension.py": "import os\n",
        "loader.py": "",
        "_core/machine/limits.py": "",
    }
    runs = "from fastloader._core.machine import extension\nfrom fastloader.errors import Error\n"
    lazily = (
        "import typing\n"
        "if typing.TYPE_CHECKING:\n    from fastloader.loader import FastLoader\n"
        "def __getattr__(name):\n    from fastloader.loader import FastLoader\n"
    )
    assert check({**ours, "__init__.py": runs + lazily}) == []
    for more in ("fastloader.loader", "fastloader._core.machine.limits"):
        (message,) = check({**ours, "__init__.py": f"{runs}import {more}\n"})
        assert message.startswith("fastloader/__init__.py:3: ") and "on first use" in message


@pytest.mark.parametrize("place", ["_core/__init__.py", "_core/machine/__init__.py"])
def test_what_every_import_runs_is_empty(check, place):
    (message,) = check({place: '"""It says so."""\nimport os\n'})
    assert message.startswith(f"fastloader/{place}:2: runs at `import fastloader`")


@pytest.mark.parametrize(
    "code",
    [
        "import torch",
        "import numpy as np",
        "from torch.utils.data import DataLoader",
        "try:\n    import torch\nexcept ImportError:\n    torch = None",
        "if True:\n    import torch",
        "class A:\n    import torch",
    ],
)
def test_importing_fastloader_imports_only_the_standard_library(check, code):
    (message,) = check({"__init__.py": f"import os\n{code}\n"})
    assert message.startswith("fastloader/__init__.py:")
    assert "standard library" in message


@pytest.mark.parametrize(
    "own",
    [
        "from .errors import x",
        "from . import errors",
        "import fastloader.errors",
    ],
)
def test_the_rule_follows_own_modules(check, own):
    files = {"__init__.py": f"{own}\n", "errors.py": "import sys\n"}
    assert check(files) == []
    (message,) = check({**files, "errors.py": "import sys\nimport torch\n"})
    assert message.startswith("fastloader/errors.py:2: torch: ")


def test_the_rule_follows_packages_on_the_way(check):
    files = {
        "__init__.py": "import fastloader._core.machine.extension\n",
        "_core/machine/extension.py": "",
    }
    assert check(files) == []
    messages = check({**files, "_core/machine/__init__.py": "import torch\n"})
    assert any("__init__.py:1: torch: " in message for message in messages)


def test_lazy_and_type_checking_imports_are_fine(check):
    text = (
        "from __future__ import annotations\n"
        "import typing\n"
        "from ._native import version\n"
        "if typing.TYPE_CHECKING:\n    import torch\n"
        "def __getattr__(name):\n    import torch\n    return torch\n"
    )
    assert check({"__init__.py": text}) == []


@pytest.mark.parametrize(
    "code",
    [
        "torch.cuda.synchronize()",
        "import torch.cuda",
        "import torch.cuda.nvtx",
        "from torch import cuda",
        "from torch.cuda import Stream",
        "import torch as th; th.cuda.synchronize()",
        "importlib.import_module('torch.cuda')",
        "def f(stream: 'torch.cuda.Stream'): ...",
        "getattr(torch, 'cuda')",
    ],
)
def test_torch_cuda_is_touched_in_one_file(check, code):
    (message,) = check({"loader.py": f"\n{code}\n", "_core/machine/devices.py": f"{code}\n"})
    assert message.startswith("fastloader/loader.py:2: torch.cuda")


@pytest.mark.parametrize("code", ["x.cuda()", '"""Like torch.cuda.Stream."""', "# torch.cuda"])
def test_torch_cuda_may_be_talked_about(check, code):
    assert check({"loader.py": f"{code}\n"}) == []


def test_the_command_exits_with_1(tmp_path):
    for name, text in {"__init__.py": "import torch\n", "errors.py": ""}.items():
        (tmp_path / "fastloader").mkdir(exist_ok=True)
        (tmp_path / "fastloader" / name).write_text(text)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "fastloader/__init__.py:1: torch: " in done.stdout
