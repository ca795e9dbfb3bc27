"""A toy operation and its transform, added to a copy of the sources at the places that
docs/hacking/adding.md numbers, and at no other."""

import os
import re
import shutil
import subprocess
import sys
import zipfile

import covering
import pytest

from support import PACKAGE_ROOT

PAGE = PACKAGE_ROOT / "docs/hacking/adding.md"
if not PAGE.is_file():
    pytest.skip("needs the source tree", allow_module_level=True)

# By file: (the text that it goes before, what goes there).
PLACES = {
    "csrc/image/ops/families.h": (
        "/// Stretches each channel",
        "/// 255 from a value on, and 0 below it.\nvoid threshold(int least, Canvas& canvas);\n\n",
    ),
    "csrc/image/ops/lookup.cpp": (
        "void autocontrast(Canvas& canvas) {",
        "void threshold(int least, Canvas& canvas) {\n"
        "  each_byte(canvas, [least](uint8_t value) {\n"
        "    return value < least ? uint8_t{0} : uint8_t{255};\n"
        "  });\n"
        "}\n\n",
    ),
    "csrc/image/ops/operation.h": (
        "    kCount,\n",
        "    kThreshold,  ///< the least value that becomes 255, an integer from 0 to 255\n",
    ),
    "csrc/image/ops/operation.cpp": (
        "};\nstatic_assert(sizeof(kKinds)",
        '    {"threshold", Effect::kColour, 1, 1,\n'
        "     [](const Numbers& numbers) {\n"
        '       check_whole("threshold", "the least value", numbers[0], 0, 255);\n'
        "     },\n"
        "     [](const Numbers& numbers, Canvas& canvas) {\n"
        "       threshold(static_cast<int>(numbers[0]), canvas);\n"
        "     }},\n",
    ),
    "fastloader/transforms/_recipe/operations.py": (
        "}\nOF_MIX = ",
        '    "threshold": Kind(\n'
        "        COLOUR,\n"
        "        lambda image, numbers: _looked_up(\n"
        "            image, [255 * (value >= numbers[0]) for value in range(256)]\n"
        "        ),\n"
        '        (Parameter("least", read=int),),\n'
        "    ),\n",
    ),
    "fastloader/transforms/pixels.py": (
        "class RandomAutocontrast(",
        "class RandomThreshold(RecipeTransform):\n"
        '    """Makes values 255 from ``least`` on and 0 below it, with probability ``p``."""\n\n'
        "    def __init__(self, least: int, p: float = 0.5) -> None:\n"
        "        self.least = operator.index(least)\n"
        "        self.p = _arguments.probability(p)\n\n"
        "    def step(self, size: Size | None) -> Step:\n"
        '        return apply(self.p, operation("threshold", constant(self.least)))\n\n\n',
    ),
}

# What a user of the copy sees. The argument says whether its native module is asked.
CHECK = """
import sys
import numpy as np
import torch
from PIL import Image
import fastloader
from fastloader import FastLoader, transforms as T
from fastloader.datasets import ImageFolder

folder, native = sys.argv[1], sys.argv[2] == "native"
assert fastloader.build_info()["native"]["loaded"] == native, fastloader.build_info()
pixels = np.random.default_rng(0).integers(0, 256, (9, 7, 3), np.uint8)
made = np.asarray(T.RandomThreshold(100, 1.0)(Image.fromarray(pixels)))
assert np.array_equal(made, np.where(pixels >= 100, 255, 0)), "Pillow's form"

Image.fromarray(pixels).save(folder + "/class/a.png")
chain = T.Compose([T.Resize((9, 7)), T.RandomThreshold(100, 1.0), T.PILToTensor()])
loader = FastLoader(ImageFolder(folder, chain), batch_size=1)
assert loader.plan().startswith("native" if native else "Python"), loader.plan()
(batch, _), = loader
assert np.array_equal(batch[0].permute(1, 2, 0), made), "the loader"
assert loader.replay(0)["steps"][-1] == ("threshold", {"least": 100}), loader.replay(0)
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of what a build needs, with the operation."""
    tree = tmp_path_factory.mktemp("operation") / "tree"
    without_builds = shutil.ignore_patterns("*.so", "__pycache__")
    for name in ("fastloader", "csrc", "cmake"):
        shutil.copytree(PACKAGE_ROOT / name, tree / name, ignore=without_builds)
    for name in (
        "setup.py",
        "pyproject.toml",
        "version.txt",
        "CMakeLists.txt",
        "README.md",
        "LICENSE",
    ):
        shutil.copy(PACKAGE_ROOT / name, tree)
    for name, (behind, added) in PLACES.items():
        text = (tree / name).read_text()
        assert text.count(behind) == 1, f"{name} has {behind!r} {text.count(behind)} times"
        (tree / name).write_text(text.replace(behind, added + behind))
    public = tree / "fastloader/transforms/pixels.py"
    name = '    "RandomSolarize",\n'
    public.write_text(public.read_text().replace(name, name + '    "RandomThreshold",\n'))
    return tree


def check(package, folder, **environment):
    (folder / "class").mkdir()
    kind = "pure" if environment else "native"
    subprocess.run(
        [sys.executable, "-c", CHECK, folder, kind],
        env={**os.environ, "PYTHONPATH": str(package), **environment},
        cwd=folder,
        check=True,
        timeout=300,
    )


def test_the_page_has_these_places():
    """An item of its list begins with its file; the first five are of an operation and its transform,
    those that follow of other libraries' transforms, tests and documents. The second is named beside
    the first."""
    section = PAGE.read_text().partition("## A step of a native transform")[2]
    named = re.findall(r"^\d+\. `([\w/<>]+\.\w+)`", section, re.MULTILINE)[:5]
    named += re.findall(r"such as `(\w+\.cpp)`", section)
    for file in PLACES:
        family = file.replace("pixels.py", "<family>.py")
        assert any(f"/{family}".endswith(f"/{name}") for name in named), file
    assert len(named) == len(PLACES)


@pytest.mark.processes
def test_without_the_native_module(tree, tmp_path):
    check(tree, tmp_path, FASTLOADER_NATIVE="0")


@pytest.fixture(scope="module")
def package(tree, tmp_path_factory):
    """The copy, built and unpacked. This takes longer than a test may."""
    if not covering.LONG:
        pytest.skip("builds the module: FASTLOADER_LONG=1, or .ci/long tests")
    folder = tmp_path_factory.mktemp("package")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    environment = {**os.environ, "FASTLOADER_CUDA": "off"}
    subprocess.run([*pip, "-w", folder, tree], env=environment, check=True, timeout=1800)
    (wheel,) = folder.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


@pytest.mark.processes
def test_natively(package, tmp_path):
    """And the test that compares each row with Pillow passes on it."""
    check(package, tmp_path)
    tests = PACKAGE_ROOT / "tests/python/transforms/test_operations.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests, "-k", "threshold"],
        env={**os.environ, "PYTHONPATH": str(package)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
