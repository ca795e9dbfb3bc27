"""Every script in examples/frameworks/ runs, by benchmarks/frameworks.py, whose page has what it
printed. The scripts compare values themselves. Those of packages that are not installed skip."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest

from support import HANG, PACKAGE_ROOT, PROCESSES, SUPPORT

SCRIPTS = sorted((PACKAGE_ROOT / "examples" / "frameworks").glob("*.py"))
RUNNER = PACKAGE_ROOT / "benchmarks" / "frameworks.py"
if not SCRIPTS:
    pytest.skip("the examples lie in the source tree, which is not here", allow_module_level=True)


def run(folder, *arguments):
    page = folder / "page.md"
    command = [sys.executable, str(RUNNER), "--out", str(page), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * HANG)
    return done, page.read_text() if page.exists() else ""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script(script, tmp_path, monkeypatch):
    paths = [str(SUPPORT), str(PROCESSES), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    for package in re.search(r"^needs: (.*)$", script.read_text(), re.MULTILINE)[1].split(", "):
        # In a process of its own, as the script, because some change this one.
        found = subprocess.run(
            [sys.executable, "-c", f"import {package}"],
            capture_output=True,
            text=True,
            timeout=HANG,
        )
        if found.returncode:
            pytest.skip(f"import {package}: {found.stderr.strip().splitlines()[-1]}")
    done, page = run(tmp_path, "--only", script.stem)
    assert done.returncode == 0, done.stderr + page
    assert re.search(rf"^\| {script.stem} \| .* \| passed \|$", page, re.MULTILINE)
    commands = re.findall(r"^runs: (.*)$", script.read_text(), re.MULTILINE)
    shown = page.partition(f"## {script.stem}")[2].partition("```\n")[2].splitlines()
    assert shown[: len(commands)] == commands
    assert len(shown) > len(commands) + 3, "it prints what it did"
    assert str(tmp_path) not in page


@pytest.fixture
def frameworks(monkeypatch):
    monkeypatch.syspath_prepend(str(RUNNER.parent))
    return importlib.import_module("frameworks")


def test_no_script_hides_a_package():
    """Python looks for modules beside the script first, so that a script named lightning_fabric.py would
    be what Lightning imports by this name."""
    for script in SCRIPTS:
        found = importlib.util.find_spec(script.stem)
        assert found is None, f"{script} has the name of {found.origin}"


def test_a_script_that_fails_is_told(frameworks, tmp_path, monkeypatch, capsys):
    (tmp_path / "bad.py").write_text(
        '"""\nneeds: torch\nruns: python BAD\n"""\nassert 1 == 2, "told"'
    )
    (tmp_path / "bad.py").write_text(
        (tmp_path / "bad.py").read_text().replace("BAD", str(tmp_path / "bad.py"))
    )
    (tmp_path / "not.py").write_text('"""\nneeds: no_such_package\nruns: python x\n"""')
    monkeypatch.setattr(frameworks, "SCRIPTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["frameworks.py", "--out", str(tmp_path / "page.md")])
    with pytest.raises(SystemExit, match="failed: bad"):
        frameworks.main()
    page = (tmp_path / "page.md").read_text()
    assert "| failed |" in page and "AssertionError: told" in page
    assert "| not | not installed | not run |" in page


def test_timms_import_is_changed(frameworks):
    text = "import torch\nfrom timm.data import create_dataset, create_loader, Mixup\nx = 1\n"
    assert frameworks.with_our_import(text).splitlines()[1:] == [
        "from fastloader.compat.timm import create_loader, Mixup",
        "from timm.data import create_dataset",
        "x = 1",
    ]
    # As timm's script has it since NaFlex: the mixing, too, must be the one that our loader knows.
    text = (
        "from timm.data import create_loader, create_naflex_loader, \\\n"
        "    Mixup, AugMixDataset\nx = 1\n"
    )
    assert frameworks.with_our_import(text).splitlines() == [
        "from fastloader.compat.timm import create_loader, Mixup",
        "from timm.data import create_naflex_loader, AugMixDataset",
        "x = 1",
    ]
    with pytest.raises(SystemExit, match="no line"):
        frameworks.with_our_import("from timm.data import create_dataset\n")
