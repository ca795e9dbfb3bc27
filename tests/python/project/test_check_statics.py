"""The rule about static variables of functions: csrc/ keeps it, and it fires on those that do not."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from support import HANG

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tools" / "check_statics.py"

if not SCRIPT.is_file():
    pytest.skip("needs the source tree", allow_module_level=True)

check_statics = importlib.import_module("check_statics")


def test_the_code_keeps_the_rule():
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=HANG, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def lines(tmp_path, source):
    file = tmp_path / "csrc" / "base" / "some.h"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    return [int(each.split(":")[1]) for each in check_statics.check(tmp_path)]


@pytest.mark.parametrize(
    "source",
    [
        "int f() {\n  static std::atomic<int> known{-1};\n  return known.load();\n}\n",
        "int f() {\n  static constexpr int kMost = 3;\n  return kMost;\n}\n",
        "void f() {\n  static thread_local Queue queue;\n}\n",
        "static int made = make();\nnamespace {\nstatic int other = make();\n}\n",
        "class A {\n  static A& shared();\n  static int next_;\n};\n",
        "struct alignas(64) A final : public B {\n  static A of(int a) { return A(a); }\n};\n",
        "template <class T>\nclass A {\n  static int of() { return 0; }\n};\n",
        "void f() {\n  struct Local {\n    static int of() { return 0; }\n  };\n}\n",
        "void f() {\n  // static int made = make();\n  g(static_cast<int>(3));\n}\n",
    ],
)
def test_what_needs_no_lock_passes(tmp_path, source):
    assert lines(tmp_path, source) == []


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (
            "bool f() noexcept {\n  static const bool on = [] { return look(); }();\n  return on;\n}\n",
            2,
        ),
        ("template <class T>\nT& f() {\n  static T one;\n  return one;\n}\n", 3),
        (
            "class A {\n  static A& shared() {\n    static A* one = new A;\n    return *one;\n  }\n};\n",
            3,
        ),
        ("void f() {\n  if (a) {\n    static std::string s;\n  }\n}\n", 3),
        ("auto f = [](int a) {\n  static Map map;\n  return map[a];\n};\n", 2),
        (
            "const A& A::instance() {\n  static const A fetched = [] {\n    return A{};\n  }();\n}\n",
            2,
        ),
    ],
)
def test_what_waits_to_be_made_is_found(tmp_path, source, line):
    assert lines(tmp_path, source) == [line]
