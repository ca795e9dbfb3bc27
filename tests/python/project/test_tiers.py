"""The default tier of the tests, --all, and what a run says of what it has left out."""

import re
import subprocess
import sys
import types

import covering
import pytest
import tiers

from support import HANG, PACKAGE_ROOT


def item(name, *marks, path="tests/python/order/test_toy.py"):
    return types.SimpleNamespace(
        nodeid=f"{path}::{name}",
        path=PACKAGE_ROOT / path,
        get_closest_marker=lambda mark: mark in marks,
    )


def config(*arguments, everything=False, chosen=""):
    return types.SimpleNamespace(
        args=arguments,
        getoption={"--all": everything, "-m": chosen}.get,
        invocation_params=types.SimpleNamespace(dir=PACKAGE_ROOT),
    )


ITEMS = [
    item("test_plain"),
    item("test_starts", "processes"),
    item("test_prose", "project"),
    item("test_both", "processes", "project"),
    *(item(f"test_sweep[{number}]", "exhaustive") for number in range(20)),
]


def counts(*arguments, **options):
    found = tiers.by_tier(config(*arguments, **options), ITEMS)
    return {tier: len(left) for tier, left in found.items()}


@pytest.fixture(autouse=True)
def sample(monkeypatch):
    monkeypatch.setattr(covering, "LONG", False)


def test_the_default_tier_leaves_out_what_is_marked_and_a_sample_stays():
    assert counts("tests/python") == {"processes": 2, "project": 1, "exhaustive": 17}


def test_the_seed_chooses_the_sample(monkeypatch):
    kept = {}
    for seed in (1, 2, 1):
        monkeypatch.setattr(covering, "SEED", seed)
        left = {id(each) for each in tiers.by_tier(config(), ITEMS)["exhaustive"]}
        names = [each.nodeid for each in ITEMS if id(each) not in left]
        assert kept.setdefault(seed, names) == names
    assert kept[1] != kept[2]


def test_everything_runs_where_it_is_asked_for(monkeypatch):
    assert counts(everything=True) == {"exhaustive": 15}
    assert counts(chosen="processes") == {}
    monkeypatch.setattr(covering, "LONG", True)
    assert counts() == {}


def test_what_is_named_runs_whole(tmp_path):
    file = PACKAGE_ROOT / "tests" / "python" / "project" / "test_tiers.py"
    named = [
        item(name, "project", path=str(file))
        for name in ("test_a[1]", "test_a[2]", "test_b", "test_ab")
    ]

    def kept(*arguments):
        left = {
            id(each) for part in tiers.by_tier(config(*arguments), named).values() for each in part
        }
        return [each.nodeid.partition("::")[2] for each in named if id(each) not in left]

    assert kept(str(file.parent)) == []
    assert len(kept(str(file))) == 4
    assert kept(f"{file}::test_a") == ["test_a[1]", "test_a[2]"]
    assert kept(f"{file}::test_a[2]", f"{file}::test_b") == ["test_a[2]", "test_b"]


def collected(*arguments):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        *arguments,
    ]
    done = subprocess.run(command, cwd=PACKAGE_ROOT, capture_output=True, text=True, timeout=HANG)
    assert done.returncode in (0, 5), done.stdout + done.stderr
    return done.stdout


def test_a_run_says_what_it_has_left_out():
    folder = "tests/python/machine"
    default, everything = collected(folder), collected(folder, "--all")
    told = re.search(
        r"^left out: (\d+) cases \((.*)\); python -m pytest --all runs them$", default, re.M
    )
    counts = [
        int(re.search(r"^(\d+)(/\d+)? tests collected", text, re.M)[1])
        for text in (default, everything)
    ]
    assert int(told[1]) == counts[1] - counts[0] > 0
    assert int(told[1]) == sum(int(part.split()[0]) for part in told[2].split(", "))
    assert "left out" not in everything


def test_an_unmarked_test_that_starts_an_interpreter_fails(tmp_path):
    (tmp_path / "conftest.py").write_text((PACKAGE_ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "support").symlink_to(PACKAGE_ROOT / "tests" / "support")
    (tmp_path / "test_toys.py").write_text(
        "import multiprocessing, subprocess, sys, pytest\n"
        "def test_plain(): subprocess.run(['true'], check=True)\n"
        "def test_program(): subprocess.run([sys.executable, '-S', '-c', ''], check=True)\n"
        "def test_spawned():\n"
        "    process = multiprocessing.get_context('spawn').Process(target=print)\n"
        "    process.start()\n"
        "    process.join()\n"
        "@pytest.mark.processes\n"
        "def test_marked(): test_program()\n"
    )
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n  processes\n  project\n  exhaustive\n  covering\n"
    )
    command = [sys.executable, "-m", "pytest", "-rfE", "-p", "no:cacheprovider", tmp_path]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=HANG)
    failed = re.findall(r"^ERROR .*::(\w+)", done.stdout, re.M)
    assert sorted(failed) == ["test_program", "test_spawned"], done.stdout
    assert "3 passed, 1 deselected, 2 errors" in done.stdout
    assert "left out: 1 cases (1 processes)" in done.stdout
    command[3:3] = ["--all"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=HANG)
    told = re.findall(
        r"^test_toys.py::(\w+): not marked `processes`, and started", done.stdout, re.M
    )
    assert sorted(told) == ["test_program", "test_spawned"] and "4 passed in" in done.stdout


def test_the_kernels_tests_begin_without_torch():
    """In an environment of their own, which has no torch, where the conftest of all tests runs too."""
    code = "import sys\nsys.modules['torch'] = None\nimport pytest\nsys.exit(pytest.main(sys.argv[1:]))"
    options = ["--collect-only", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    asked = subprocess.run(
        [sys.executable, "-c", code, *options, "tests/emulation/ptx/test_interpreter.py"],
        cwd=PACKAGE_ROOT,
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert asked.returncode in (0, 5), (
        asked.stdout + asked.stderr
    )  # 5: no compiler of CUDA's is here
