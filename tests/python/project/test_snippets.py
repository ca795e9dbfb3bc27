"""Every fenced block of the README and the documents: Python runs as printed, commands are ones that we
have, and what a diff puts in can be imported and called so."""

import ast
import importlib
import inspect
import json
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from lightning_runs import import_lightning
from pictures import import_timm, import_torchvision, pixels
from PIL import Image

from fastloader._core.machine import extension
from fastloader.cli.__main__ import make_parser
from support import HANG, PACKAGE_ROOT, run_script

DOCS = PACKAGE_ROOT / "docs"
if not DOCS.is_dir():
    pytest.skip("needs the source tree", allow_module_level=True)

peers = importlib.import_module("benchmarks.peers.__main__")

PAGES = [
    *[PACKAGE_ROOT / name for name in ("README.md", "HACKING.md", "tests/emulation/README.md")],
    *sorted(DOCS.rglob("*.md")),
]

# The commands of the documents that are run and not only looked at.
CHEAP = ("doctor", "pack") if extension.load() is None else ("doctor", "pack", "index")

DATASET = """
import torch
from fastloader import FastLoader
torch.set_num_threads(1)
images = torch.randint(0, 256, (256, 3, 4, 4), dtype=torch.uint8)
dataset = torch.utils.data.TensorDataset(images, torch.arange(256) % 10)
"""
MODEL = """
from fastloader._core.machine import devices
model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(16, 10))
model.to(devices.accelerator_type() or "cpu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""
LOADER = "loader = FastLoader(dataset, 64, mean=(0.5,) * 3, std=(0.5,) * 3, device='cpu')\n"
LEGACY = """
import lmdb, pickle
from pathlib import Path
paths = sorted(Path("train").rglob("*.jpg"))
with lmdb.open("old.lmdb", subdir=False, map_size=1 << 24) as old, old.begin(write=True) as records:
    for number, path in enumerate(paths):
        records.put(b"%d" % number, pickle.dumps((path.read_bytes(), number % 2)))
    records.put(b"__keys__", pickle.dumps([b"%d" % n for n in range(len(paths))]))
    records.put(b"__len__", pickle.dumps(len(paths)))
"""
STORED = """
from pathlib import Path
import pyarrow, pyarrow.parquet
files = [path.read_bytes() for path in sorted(Path("train").rglob("*.jpg"))]
table = pyarrow.table({"image": files, "label": [number % 2 for number in range(len(files))]})
pyarrow.parquet.write_table(table, "old.parquet")
Path("my_features.py").write_text(
    "import torch\\n"
    "train = [(torch.full((3, 4), float(number)), number) for number in range(200)]\\n"
)
"""

TRAINED = """
import torch
class Pictures(torch.utils.data.Dataset):
    def __len__(self):
        return 256
    def __getitem__(self, index):
        image = torch.full((3, 4, 4), index % 256, dtype=torch.uint8)
        return {"pixel_values": image, "labels": index % 10}
class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(48, 10)
    def forward(self, pixel_values, labels=None):
        logits = self.layer(pixel_values.flatten(1))
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}
dataset, model = Pictures(), Classifier()
"""

SHARDS = """
import tarfile
from pathlib import Path
paths = sorted(Path("train").rglob("*.jpg"))
for shard in range(4):
    with tarfile.open(f"train-{shard}.tar", "w") as tar:
        for number, path in enumerate(paths[shard::4]):
            tar.add(path, f"{number}.jpg")
"""

FOLLOWED = """
from pathlib import Path
from PIL import Image
for folder in ("masks", "sharp"):
    Path(folder).mkdir()
for path in Path("train/cat").glob("*.jpg"):
    with Image.open(path) as picture:
        size = picture.size
    Image.new("L", size, 3).save(Path("masks") / f"{path.stem}.png")
    Image.new("RGB", (size[0] * 4, size[1] * 4)).save(Path("sharp") / path.name)
"""

# As torchrun would say it.
ONE_RANK = """
import os
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
"""

# What a page's reader has already: a dataset, a model, a loop.
BEFORE = {
    "encoded-images": FOLLOWED,
    "README": DATASET + MODEL,
    "accelerate": DATASET + MODEL,
    "apex": DATASET + "train_loader = torch.utils.data.DataLoader(dataset, 64)\n",
    "distributed": ONE_RANK + DATASET,
    "frameworks": DATASET + MODEL + "MEAN = STD = (0.5, 0.5, 0.5)\n",
    "lmdb": LEGACY,
    "native": DATASET,
    "prefetch_generator": DATASET + LOADER + "train = list\n",
    "remote": SHARDS,
    "several-gpus": ONE_RANK,
    "resume": DATASET + MODEL + LOADER + "path = 'checkpoint.pt'\n",
    "storage": STORED,
    "transformers": TRAINED,
    "tuning": DATASET + LOADER + "train_step = lambda images, labels: images.sum()\n",
}


def blocks(page):
    """(kind, text) of each."""
    return re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def commands(text):
    """Each one as a list of words."""
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        while "&&" in words:
            yield words[: words.index("&&")]
            words = words[words.index("&&") + 1 :]
        if words:
            yield words


def new_side(diff):
    return "".join(f"{line[1:]}\n" for line in diff.splitlines() if not line.startswith("-"))


def imports(source):
    kinds = (ast.Import, ast.ImportFrom)
    return "\n".join(ast.unparse(n) for n in ast.parse(source).body if isinstance(n, kinds))


def runnable(page):
    for kind, text in blocks(page):
        if kind == "python":
            yield text
        elif kind == "diff":
            yield imports(new_side(text))
        elif kind == "sh":
            for program, *words in commands(text):
                if program == "fastloader" and words[0] in CHEAP:
                    yield f"from fastloader.cli.__main__ import main\nassert main({words!r}) == 0\n"


def test_every_block_says_what_it_is():
    kinds = {kind for page in PAGES for kind, _ in blocks(page)}
    assert kinds == {"python", "sh", "diff", ""}
    assert sum(kind == "python" for page in PAGES for kind, _ in blocks(page)) > 15


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(runnable(page))], ids=lambda page: page.stem
)
def test_python_runs_as_printed(page, tmp_path):
    """All of a page in one go, where its folders are."""
    for name in ("lmdb", "h5py", "pyarrow"):
        if name in page.read_text():
            pytest.importorskip(name)
    if page.stem == "frameworks":
        import_lightning()
    for name, importing in ("timm", import_timm), ("torchvision", import_torchvision):
        if re.search(rf"^(?:import|from) {name}\b", page.read_text(), re.MULTILINE):
            importing()
    if page.stem in ("accelerate", "ray", "transformers"):
        pytest.importorskip(page.stem)
    rng = random.Random(0)
    for folder in ("train/cat", "train/dog", "val/cat", "val/dog"):
        (tmp_path / folder).mkdir(parents=True)
        for number in range(10):
            Image.fromarray(pixels(rng, 90, 70)).save(tmp_path / folder / f"{number}.jpg")
    (tmp_path / "photos").symlink_to(tmp_path)
    begin = f"import os\nos.chdir({str(tmp_path)!r})\n" + BEFORE.get(page.stem, "")
    run_script("\n".join([begin, *runnable(page)]), timeout=HANG)


def extras():
    text = (PACKAGE_ROOT / "pyproject.toml").read_text()
    section = text.split("[project.optional-dependencies]")[1].split("\n[")[0]
    return set(re.findall(r"^([\w-]+) = \[", section, re.MULTILINE))


def is_target(name):
    """Whether CMake builds that: a test of a file, or one that is named in a list."""
    tests = {path.stem for path in (PACKAGE_ROOT / "tests").rglob("*_test.cpp")}
    lists = [PACKAGE_ROOT / "CMakeLists.txt", *(PACKAGE_ROOT / "tests").rglob("CMakeLists.txt")]
    named = {word for each in lists for word in re.findall(r"\((\w+)", each.read_text())}
    return name in tests or name.removeprefix("cuda_") in tests or name in named


def known(program, words):
    """Whether the project has what a command is about; argparse ends the test if it does not know it."""
    while re.fullmatch(r"\w+=.*", program):  # for its environment
        program, *words = words
    if program == "export":
        return all(re.fullmatch(r"\w+=.*", word) for word in words)
    if program in ("apt-get", "dnf"):  # for root
        return words[0] == "install"
    if program == "python3":
        return words == ["-m", "venv", ".venv"]
    if program == ".":
        return words == [".venv/bin/activate"]
    if program == "bash":
        return subprocess.run(["bash", "-n", *words]).returncode == 0
    if program == "fastloader":
        return make_parser().parse_args(words) is not None
    if program == "pip":
        asked = [word for word in words if word.startswith(".[")]
        names = {name for word in asked for name in word[2:-1].split(",")}
        return words[0] == "install" and names <= extras()
    if program == "python" and words[:2] == ["-m", "benchmarks.peers"]:
        # Other environments are the reader's; argparse looks whether they are there.
        words = [re.sub(r"=\S+/python$", f"={sys.executable}", word) for word in words[2:]]
        return peers.make_parser().parse_args(words) is not None
    if program == "python":
        script = PACKAGE_ROOT / words[0]
        return (
            words[:2] == ["-m", "pytest"] or script.is_file() or (script / "__main__.py").is_file()
        )
    if program in ("cmake", "ctest"):
        presets = json.loads((PACKAGE_ROOT / "CMakePresets.json").read_text())
        kind = "buildPresets" if "--build" in words else "configurePresets"
        kind = "testPresets" if program == "ctest" else kind
        preset = words[words.index("--preset") + 1]
        targets = words[words.index("--target") + 1 :] if "--target" in words else []
        return preset in {each["name"] for each in presets[kind]} and all(map(is_target, targets))
    if program == "torchrun":
        return (PACKAGE_ROOT / words[-1]).is_file()
    if program.startswith("build/"):
        return is_target(Path(program).name)
    return (PACKAGE_ROOT / program).is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_are_ones_that_we_have(page):
    for kind, text in blocks(page):
        if kind == "sh":
            for program, *words in commands(text):
                assert known(program, words), (program, words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_diff_puts_in_can_be_called_so(page):
    for kind, text in blocks(page):
        if kind != "diff":
            continue
        tree = ast.parse(new_side(text))
        ours = {
            name.name: getattr(importlib.import_module(node.module), name.name)
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.module.startswith("fastloader")
            for name in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ours:
                named = {keyword.arg: None for keyword in node.keywords}
                inspect.signature(ours[node.func.id]).bind(*node.args, **named)
