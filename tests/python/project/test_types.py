"""What a type checker says about programs that use the package, right ones and wrong ones."""

import os
import re
import subprocess
import sys

import pytest

from support import HANG, PACKAGE_ROOT

pytest.importorskip("mypy")
if not (PACKAGE_ROOT / "pyproject.toml").is_file():
    pytest.skip("needs the source tree", allow_module_level=True)

# A line that ends in "# wrong" must be refused, every other one taken.
PROGRAM = """
import fastloader
import torch
from fastloader import BackendError, DevicePrefetcher, Error, FastLoader, build_info
from fastloader import Fastloader  # wrong
from fastloader import compat, datasets, transforms
from fastloader.datasets import ImageFolder

version: str = fastloader.__version__
folder = fastloader.datasets.ImageFolder("train", fastloader.transforms.CenterCrop(8))
fastloader.dataset  # wrong
data: torch.utils.data.Dataset[int]

FastLoader(data, num_workers="auto", depth="auto")
FastLoader(data, num_workers=3, depth=2)
FastLoader(data, num_workers="many")  # wrong
FastLoader(data, depth="deep")  # wrong
DevicePrefetcher([1], "cpu", depth="deep")  # wrong
FastLoader(data, on_error="skip", decode="whole", truncated="pad")
FastLoader(data, on_error="ignore")  # wrong
FastLoader(data, decode="quick")  # wrong
FastLoader(data, truncated="fill")  # wrong
FastLoader(data, worker_backend="thread")
FastLoader(data, worker_backend="fibre")  # wrong
FastLoader(data, worker_backend="ray", num_workers=2, ray_options={"num_cpus": 2})
FastLoader(data, ray_options=2)  # wrong
FastLoader(data, distributed=None)
FastLoader(data, distributed="exact")
FastLoader(data, distributed="split")  # wrong

loader: FastLoader[int] = FastLoader(data)
waited: float = loader.stats()["wait_s"]
actors: int = loader.stats()["ray"]["actors"]
growths: int = loader.stats()["ring"]["slot_growths"]
loader.stats()["waits"]  # wrong
"""


def test_wrong_names_and_values_are_refused_and_right_ones_are_not(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(path)],
        cwd=PACKAGE_ROOT,
        env={**os.environ, "MYPYPATH": str(PACKAGE_ROOT)},
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    refused = {int(n) for n in re.findall(r"program\.py:(\d+): error", done.stdout)}
    wrong = {n for n, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
    assert refused == wrong, done.stdout + done.stderr
