"""What is tracked: no product of a compiler, no binary but pictures, no path of one machine."""

import importlib
import subprocess

import pytest

from support import PACKAGE_ROOT, require_program

if not (PACKAGE_ROOT / "tools" / "check_tracked.py").is_file():
    pytest.skip("needs the source tree", allow_module_level=True)

check_tracked = importlib.import_module("check_tracked")

HOME = "/".join(["", "home", "anna", "build"])
PREFIX = "/".join(["", "tmp", "h", "prefix"])


def found(folder, name, content):
    require_program("git")
    subprocess.run(["git", "init", "-q", folder], check=True)
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    subprocess.run(["git", "-C", folder, "add", "-f", "."], check=True)
    return check_tracked.check(folder)


def test_this_repository():
    if not (PACKAGE_ROOT / ".git").exists():
        pytest.skip("needs git's folder")
    assert check_tracked.check(PACKAGE_ROOT) == []


@pytest.mark.parametrize(
    "name, content, told",
    [
        ("lib/libjpeg.a", b"!<arch>\n", "a compiler makes it"),
        ("fastloader/_native.cpython-311.so", b"\x7fELF\0", "a compiler makes it"),
        ("lib/libjpeg.so.8", b"\x7fELF\0", "a compiler makes it"),
        ("a.o", b"", "a compiler makes it"),
        ("docs/model.bin", b"a\0b", "a binary"),
        ("tests/one.png", b"\x89PNG\0", "a binary"),
        ("lib/pkgconfig/libjpeg.pc", f"prefix={PREFIX}\n", "a path that one machine has"),
        ("docs/page.md", f"\n\nRun `{HOME}/it`.\n", "a path that one machine has"),
        ("a.cmake", f'set(dir "{HOME}/lib")\n', "a path that one machine has"),
    ],
)
def test_what_is_refused(tmp_path, name, content, told):
    (violation,) = found(tmp_path, name, content)
    assert violation.startswith(f"{name}:") and told in violation


@pytest.mark.parametrize(
    "name, content",
    [
        ("benchmarks/results/a.png", b"\x89PNG\0"),
        ("a.py", 'open("/tmp/name")\n'),
        ("run.sh", 'cp "$folder"/root/usr/include/a.h "$folder/root/usr" && ls $X/home/me/x\n'),
        ("data/empty", b""),
    ],
)
def test_what_passes(tmp_path, name, content):
    assert found(tmp_path, name, content) == []


def test_a_file_that_is_not_tracked_is_not_looked_at(tmp_path):
    found(tmp_path, "a.py", "")
    (tmp_path / "b.so").write_bytes(b"\x7fELF\0")
    assert check_tracked.check(tmp_path) == []
