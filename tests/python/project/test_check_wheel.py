"""tools/check_wheel.py asks an installed wheel for modules that exist, and notices them."""

import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastloader._core.machine import extension

ROOT = Path(__file__).resolve().parents[3]

if not (ROOT / "tools" / "check_wheel.py").is_file():
    pytest.skip("needs the source tree", allow_module_level=True)

check_wheel = importlib.import_module("check_wheel")


def imported(folder, files):
    """How the import of a made-up package ends."""
    for name, text in {"cli/__init__.py": "", "cli/bench.py": "", **files}.items():
        path = folder / "fastloader" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in ("torch.py", "numpy.py"):
        (folder / name).write_text("")
    return subprocess.run(
        [sys.executable, "-c", check_wheel.IMPORT, "pure"],
        env={**os.environ, "PYTHONPATH": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


GOOD = "__version__ = '1'\ndef build_info():\n    return {}\n"


@pytest.mark.parametrize("name", ["torch", "numpy", "fastloader.cli", "fastloader.cli.bench"])
def test_what_importing_the_package_must_not_import(tmp_path, name):
    assert importlib.util.find_spec(name) is not None  # or it would be looked for in vain
    done = imported(tmp_path, {"__init__.py": f"import {name}\n{GOOD}"})
    assert done.returncode != 0 and "pulled" in done.stderr and "AssertionError" in done.stderr


def test_a_package_that_imports_none_of_it_passes(tmp_path):
    done = imported(tmp_path, {"__init__.py": GOOD})
    assert "AssertionError" not in done.stderr


def hooks_in(path):
    problems = check_wheel.Problems()
    check_wheel.check_hooks(path, problems)
    return problems.found


def test_a_module_with_what_only_tests_use_is_told(tmp_path):
    path = tmp_path / "_native.so"
    for word in check_wheel.HOOKS:
        path.write_bytes(b"\x7fELF" + word + b"\0")
        assert len(hooks_in(path)) == 1
    path.write_bytes(b"\x7fELF fl-twin-")
    assert hooks_in(path) == []


def test_the_words_of_the_hooks_are_in_a_module_that_has_them():
    native = extension.load()
    if native is None:
        pytest.skip("needs the native module")
    found = hooks_in(Path(native.__file__))
    assert len(found) == (len(check_wheel.HOOKS) if native.__test_hooks__ else 0)


# --- libraries inside the wheel -----------------------------------------------------------------

JPEG = "libjpeg-dad87949.so.62.3.0"


def linked(monkeypatch, libraries, path=None, grafted=()):
    lines = [f" 0x1 (NEEDED)  Shared library: [{library}]" for library in libraries]
    lines += [f" 0x1d (RPATH)  Library rpath: [{path}]"] if path else []
    monkeypatch.setattr(check_wheel, "output", lambda *command: "\n".join(lines))
    problems = check_wheel.Problems()
    check_wheel.check_links(Path("module.so"), set(grafted), problems)
    return problems.found


def test_a_grafted_library_is_found_beside_the_package_only(monkeypatch):
    beside = "$ORIGIN/../fastloader.libs"
    assert linked(monkeypatch, ["libc.so.6", JPEG], beside, [JPEG]) == []
    assert linked(monkeypatch, ["libc.so.6", JPEG]) == [f"it needs {JPEG}"]
    for path in ("/opt/lib", f"{beside}:/opt/lib"):
        (found,) = linked(monkeypatch, [JPEG], path, [JPEG])
        assert "/opt/lib" in found and "of the machine that built it" in found
    assert linked(monkeypatch, ["libc.so.6"], beside) != []


@pytest.mark.parametrize(
    ("name", "known"),
    [
        (JPEG, True),
        ("libsharpyuv-0123abcd.so.0.0.1", True),
        ("libjpeg.so.62", False),
        ("libcudart-0123abcd.so.13", False),
        ("fastloader.libs", False),
    ],
)
def test_only_libraries_of_pictures_are_grafted_and_under_names_of_their_own(name, known):
    assert bool(check_wheel.GRAFTED.fullmatch(name)) == known
