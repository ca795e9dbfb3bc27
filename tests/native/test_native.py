"""Builds the native tests with CMake and runs each executable as a test of its own."""

import faulthandler
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiers

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "pytest-native"
BENCHMARKS = ROOT / "benchmarks"
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
def built(request):
    reason = missing_tool()
    if reason is not None:
        pytest.skip(f"{reason}: the native tests are not built")
    cmake = find("cmake")
    configure = [cmake, "-S", ROOT, "-B", BUILD]
    # As the package is built: a compiler's cache has its objects.
    configure += ["-DCMAKE_BUILD_TYPE=Release", "-DFASTLOADER_CUDA=off"]
    configure += ["-DFASTLOADER_PYTHON=OFF", "-DFASTLOADER_TESTS=ON"]
    configure += [f"-DFASTLOADER_BENCHMARKS={'ON' if BENCHMARKS.is_dir() else 'OFF'}"]
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
    folder = BUILD / "tests" / "native"
    first, begin = not (folder / NAMES[-1]).exists(), time.monotonic()
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(len(os.sched_getaffinity(0)))
    code, output = run([cmake, "--build", BUILD, "--parallel", jobs], 1800)
    if code != 0:
        pytest.fail(f"the native tests do not compile\n{output}", pytrace=False)
    if first:
        seconds = time.monotonic() - begin
        request.config.stash[tiers.REMARKS].append(
            f"the native test programs were built for the first time, in {seconds:.0f} s"
        )
    return folder


def skip_if_left_out(folder, name):
    for line in (folder / "left_out.txt").read_text().splitlines():
        left_out, reason = line.split(": ", 1)
        if left_out == name:
            pytest.skip(reason)


@pytest.mark.parametrize("name", NAMES)
def test_native(built, name):
    skip_if_left_out(built, name)
    code, output = run([built / name], 300)
    if code != 0:
        pytest.fail(f"{name} exited with {code}\n{output}", pytrace=False)
    print(output)


@pytest.mark.processes
def test_the_decode_benchmark_is_complete(built, tmp_path):
    """Nothing is timed: its results say what they claim to."""
    script = BENCHMARKS / "jpeg_decode.py"
    if not script.is_file():
        pytest.skip("needs the source tree")
    skip_if_left_out(built, "jpeg_decoder_test")
    program = built.parents[1] / "benchmarks" / "jpeg_decode"
    few = ["--pictures", "3", "--rounds", "2", "--program", program, "--out", tmp_path]
    code, output = run([sys.executable, script, *few, "--check", "4"], 300)
    assert code == 0 and output.count("'regions': 12, 'by_our_own_decoder': 12") == 4, output
    assert not list(tmp_path.iterdir())
    code, output = run([sys.executable, script, *few], 300)
    assert code == 0, output
    results = json.loads((tmp_path / "jpeg_decode.json").read_text())
    assert len(results["sets"]) == 4
    for name, found in results["sets"].items():
        assert (found["pictures"], found["rounds"]) == (3, 2), name
        assert found["megapixels"] == pytest.approx(3 * 0.375 * 0.5), name
        assert all(each >= 0 for each in found["us_per_picture"].values()), name
        assert list(found["us_per_picture"]) == ["tables", "hash", "make_index"], name
        assert found["libjpeg_turbo"]["compiled"] and found["libjpeg_turbo"]["loaded"]
        assert list(found["jobs"]) == ["RandomResizedCrop", "whole"], name
        for job in found["jobs"].values():
            assert sum(job["handed_over"].values()) <= 3, name
            (libjpeg, baseline), *ours = job["contenders"].items()
            assert libjpeg == "libjpeg-turbo" and "ratio" not in baseline
            names = [contender for contender, _ in ours]
            plain = names[: len(names) // 2]
            assert plain[-1] == "scalar"
            assert names[len(plain) :] == [f"{contender}, with index" for contender in plain]
            for contender, timing in job["contenders"].items():
                for spread in timing.values():
                    assert 0 < spread["min"] <= spread["median"] <= spread["max"], contender
            for contender, timing in ours:
                # Of two rounds, each round's ratio lies between those of the extremes.
                most = baseline["ms_per_picture"]["max"] / timing["ms_per_picture"]["min"]
                least = baseline["ms_per_picture"]["min"] / timing["ms_per_picture"]["max"]
                assert least * 0.999 <= timing["ratio"]["min"], contender
                assert timing["ratio"]["max"] <= most * 1.001, contender


def test_there_are_native_tests():
    assert NAMES
