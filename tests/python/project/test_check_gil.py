"""The rule about Python's lock: the bindings keep it, and it fires on those that do not."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from support import HANG

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tools" / "check_gil.py"

if not SCRIPT.is_file():
    pytest.skip("needs the source tree", allow_module_level=True)

check_gil = importlib.import_module("check_gil")


def test_the_bindings_keep_the_rule():
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=HANG, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def violations(tmp_path, source, place="bindings/bind.cpp"):
    file = tmp_path / "csrc" / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    return check_gil.check(tmp_path)


@pytest.mark.parametrize(
    "source",
    [
        "void f(Engine& e) {\n  const WithoutGil unlocked;\n  e.prefetcher->close();\n}\n",
        "int f() {\n  int n = 0;\n  {\n    const WithoutGil unlocked;\n    if (n == 0) {\n"
        "      n = DecodePool::shared().threads();\n    }\n  }\n  return n;\n}\n",
        "void f(BufferPool& pool, const WithoutGil& /*unlocked*/) { pool.share(3); }\n",
        "bool f(E& e) {\n  return interruptible(1, [&](T d) {\n    return e.prefetcher->push(d);\n"
        "  }) == 2;\n}\n",
        "bool f(E& e) { return interruptible(1, [&](T d) { return e.prefetcher->ring().put(d); }); }\n",
        "// DecodePool::shared().threads()\nvoid f() {}\n",
        'const char* text = "&Ring::stats gil_scoped_release";\n',
        'm.def("create", &BufferPool::create);\n',
    ],
)
def test_what_lets_go_of_it_passes(tmp_path, source):
    assert violations(tmp_path, source) == []


@pytest.mark.parametrize(
    ("source", "line", "what"),
    [
        ("int f() { return DecodePool::shared().threads(); }\n", 1, "DecodePool::shared()."),
        ("void f(E& e) {\n  e.prefetcher->ring().delivered();\n}\n", 2, "prefetcher->"),
        # released, and taken again
        (
            "void f(BufferPool& pool) {\n  { const WithoutGil unlocked; }\n  pool.share(1);\n}\n",
            3,
            "pool.share(",
        ),
        # too late
        ("void f(B& pool) {\n  pool.submit(1);\n  const WithoutGil u;\n}\n", 2, "pool.submit("),
        # of another function
        (
            "void g(const WithoutGil&) {}\nvoid f() {\n  drain_log();\n}\n",
            3,
            "drain_log(",
        ),
        ('c.def("keep", &BufferPool::keep);\n', 1, "&BufferPool::keep"),
        ("void f() {\n  const py::gil_scoped_release unlocked;\n}\n", 2, "gil_scoped_release"),
        ("m.def(f, py::call_guard<py::gil_scoped_release>());\n", 1, "call_guard"),
    ],
)
def test_what_holds_it_is_found(tmp_path, source, line, what):
    found = violations(tmp_path, source)
    assert found and found[0].startswith(f"csrc/bindings/bind.cpp:{line}: {what}"), found


def test_no_layer_releases_it_in_another_way(tmp_path):
    source = "void f() { PyEval_SaveThread(); }\n"
    assert "only WithoutGil" in violations(tmp_path, source, "pipeline/ring.cpp")[0]
    assert len(check_gil.check(tmp_path)) == 1
