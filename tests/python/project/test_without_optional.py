"""The tests themselves: what needs a package that is not installed skips, and says which."""

import re
import subprocess
import sys

import pytest

from support import HANG, PACKAGE_ROOT

# What the extra test-core leaves out, and what needs none of the others.
OPTIONAL = [
    "torchvision",
    "timm",
    "lightning",
    "pytorch_lightning",
    "accelerate",
    "transformers",
    "torchdata",
    "datasets",
    "webdataset",
    "pymongo",
    "bson",
    "h5py",
    "obstore",
    "moto",
    "flask",
    "boto3",
    "ray",
    "lmdb",
    "prefetch_generator",
]
TESTS = PACKAGE_ROOT / "tests" / "python"


def run_without(names, *arguments, monkeypatch):
    monkeypatch.setenv("FASTLOADER_TEST_WITHOUT", ",".join(names))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments],
        cwd=PACKAGE_ROOT,
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )


def test_every_file_is_collected_without_them(monkeypatch):
    if not (PACKAGE_ROOT / "pyproject.toml").is_file():
        pytest.skip("needs the source tree")
    done = run_without(OPTIONAL, "--collect-only", "-q", str(TESTS), monkeypatch=monkeypatch)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert int(re.search(r"(\d+) tests collected", done.stdout)[1]) > 1000
    assert "torchvision is not installed" in done.stdout and "'lmdb'" in done.stdout


def test_what_needs_them_skips_by_name(monkeypatch):
    """Files of which some tests need torchvision or timm and others do not."""
    names = ("sources/images/test_native_images_v2.py", "runtime/test_python_path_warning.py")
    files = [str(TESTS / name) for name in names]
    done = run_without(["torchvision", "timm"], *files, monkeypatch=monkeypatch)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    summary = done.stdout.splitlines()[-1]
    assert "passed" in summary and "skipped" in summary and "failed" not in summary
    reasons = set(re.findall(r"^SKIPPED .*?: (.*)$", done.stdout, re.MULTILINE))
    assert reasons and all("torchvision" in each or "timm" in each for each in reasons), reasons
