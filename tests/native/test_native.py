"""Builds the native tests with CMake and runs each executable as a test of its own."""

import faulthandler
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "pytest-native"
NAMES = sorted(path.stem for path in HERE.glob("*_test.cpp"))


def find(program):
    """On PATH, or beside this Python, whose virtual environment may not be active."""
    beside = os.path.dirname(sys.executable)
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}{os.pathsep}{beside}")


def missing_tool():
    if find("cmake") is None:
        return "no CMake"
    compilers = [os.environ.get("CXX", "").split(" ")[0], "c++", "g++", "clang++"]
    if not any(name and shutil.which(name) for name in compilers):
        return "no C++ compiler"
    return None


def run(command, timeout):
    # The time limit is the command's own; pytest's watch over hanging tests stands back.
    faulthandler.cancel_dump_traceback_later()
    try:
        done = subprocess.run(
            [str(part) for part in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        output = expired.stdout or b""
        text = output if isinstance(output, str) else output.decode(errors="replace")
        pytest.fail(f"{command[0]} ran for more than {timeout} s\n{text}", pytrace=False)
    return done.returncode, done.stdout


@pytest.fixture(scope="session")
def built():
    reason = missing_tool()
    if reason is not None:
        pytest.skip(f"{reason}: the native tests are not built")
    cmake = find("cmake")
    configure = [cmake, "-S", ROOT, "-B", BUILD]
    configure += ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DFASTLOADER_CUDA=off"]
    configure += ["-DFASTLOADER_PYTHON=OFF", "-DFASTLOADER_TESTS=ON"]
    ninja = find("ninja")
    if ninja is not None:
        configure += ["-GNinja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    code, output = run(configure, 300)
    if code != 0 and (BUILD / "CMakeCache.txt").exists():
        # The cache may name tools that are gone, or another generator.
        shutil.rmtree(BUILD)
        code, output = run(configure, 300)
    if code != 0:
        pytest.fail(f"CMake failed\n{output}", pytrace=False)
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(len(os.sched_getaffinity(0)))
    code, output = run([cmake, "--build", BUILD, "--parallel", jobs], 1800)
    if code != 0:
        pytest.fail(f"the native tests do not compile\n{output}", pytrace=False)
    return BUILD / "tests" / "native"


@pytest.mark.parametrize("name", NAMES)
def test_native(built, name):
    code, output = run([built / name], 300)
    if code != 0:
        pytest.fail(f"{name} exited with {code}\n{output}", pytrace=False)
    print(output)


def test_there_are_native_tests():
    assert NAMES
