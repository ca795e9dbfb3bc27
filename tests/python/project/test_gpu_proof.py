"""tools/gpu_proof and tests/gpu, where there is no GPU: the plan holds together, what it names
exists, and the tests themselves are right, shown over the host twin."""

import importlib
import os
import shutil
import subprocess
import sys

import pytest
import torch
from tool_modules import tool_modules

from support import HANG, PACKAGE_ROOT

TOOL = PACKAGE_ROOT / "tools" / "gpu_proof"


@pytest.fixture(scope="module")
def proof():
    """What its modules hold. They are on the path for these tests only."""
    with tool_modules(TOOL) as modules:
        yield modules


def run(*arguments, env=None, timeout=HANG):
    return subprocess.run(
        [sys.executable, TOOL, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **(env or {})},
        check=False,
    )


def test_every_part_fits_into_ten_minutes(proof):
    for part in (1, 2, 3):
        steps = proof.choose(part, None)
        assert steps[0].name == "build"
        limits = sum(step.limit for step in steps[1:])
        assert limits + proof.BUILD_SECONDS <= proof.PART_SECONDS
    assert [step.part for step in proof.STEPS] == sorted(step.part for step in proof.STEPS)
    listed = run("run", "--list").stdout
    assert [line.split()[0] for line in listed.splitlines()] == proof.NAMES


def test_what_the_steps_name_exists(proof):
    native = PACKAGE_ROOT / "tests" / "native"
    for name in (*proof.CUDA_TESTS, *proof.HOST_TESTS):
        assert (native / f"{name}.cpp").exists(), name
    for name in proof.CUDA_TESTS:
        assert "BACKEND_TEST(" in (native / f"{name}.cpp").read_text()
    for name in proof.REUSED:
        assert (PACKAGE_ROOT / "tests" / "python" / name).exists(), name


def test_the_commands_are_said_without_being_run(tmp_path):
    done = run("run", "--dry-run", "--out", tmp_path / "out", "--quick")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "out").exists()
    for step, part in [
        ("native", "prefetcher_backend_test"),
        ("tests", "FASTLOADER_REQUIRE_CUDA=1"),
        ("memcheck", "--tool memcheck"),
        ("bench", "--quick"),
    ]:
        assert any(
            line.startswith(f"{step}:") and part in line for line in done.stdout.splitlines()
        )


def test_a_step_that_does_not_exist():
    done = run("run", "--only", "speed")
    assert done.returncode != 0 and "no step speed: build, device" in done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_in_a_sentence(tmp_path, proof):
    done = run("run", "--only", "device", "--out", tmp_path)
    assert done.returncode == 1
    assert "no CUDA device: torch finds none" in done.stdout and "Traceback" not in done.stdout
    summary = (tmp_path / "summary.json").read_text()
    assert '"passed": false' in summary and '"name": "device"' in summary


def test_a_program_that_was_not_built(tmp_path, proof):
    commands = [["/nowhere/ring_test"], ["echo", "goes on"]]
    step = proof.Step("native", 1, 9, "runs", lambda options: iter(commands))
    options = proof.Options(tmp_path, None, None, False)
    result = proof.run_step(step, options, dict(os.environ), 9, tmp_path / "log")
    assert result["status"] == 127 and result["commands"] == 2 and result["last"] == "goes on"
    assert "cannot be run: [Errno 2]" in result["failures"][0]


def test_time_that_is_up(tmp_path, proof):
    """What hangs is ended with all of its processes, and what comes after it is not begun late."""
    step = proof.Step(
        *("hang", 1, 1, "sleeps"),
        lambda options: iter([["sh", "-c", "sleep 100 & sleep 100"], ["echo", "late"]]),
    )
    options = proof.Options(tmp_path, None, None, False)
    result = proof.run_step(step, options, dict(os.environ), 1, tmp_path / "log")
    assert result["status"] == 124 and result["commands"] == 1
    assert "still running after 1 s" in result["failures"][0]


def test_headers_travel_along(tmp_path, proof, monkeypatch):
    if proof.system_jpeg() is None:
        pytest.skip("libjpeg-turbo's headers are not installed here")
    done = run("pack", "--carry", tmp_path / "carry")
    folder = tmp_path / "carry" / "jpeg"
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (folder / "include").iterdir()} == set(proof.HEADERS)
    options = proof.jpeg_options(tmp_path / "carry")
    assert f"-DJPEG_LIBRARY={folder}/lib/{proof.LIBRARY}" in options
    assert f"-DCMAKE_INSTALL_RPATH={folder}/lib" in options
    monkeypatch.setattr(proof.sysconfig, "get_path", lambda name: "/nowhere")
    if (tmp_path / "carry" / proof.PYTHON).exists():
        options = proof.python_options(tmp_path / "carry")
        assert options == [f"-DPython_INCLUDE_DIR={tmp_path}/carry/{proof.PYTHON}"]
    shutil.rmtree(tmp_path / "carry" / proof.PYTHON, ignore_errors=True)
    with pytest.raises(proof.StepFailed, match=rf"{proof.PYTHON} tools/gpu_proof pack"):
        proof.python_options(tmp_path / "carry")
    shutil.rmtree(folder / "include")
    with pytest.raises(proof.StepFailed, match=r"gpu_proof pack"):
        proof.jpeg_options(tmp_path / "carry")


def test_required_gpu_tests_fail_in_a_sentence_without_one():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/gpu"],
        cwd=PACKAGE_ROOT,
        capture_output=True,
        text=True,
        timeout=HANG,
        env={**os.environ, "FASTLOADER_REQUIRE_CUDA": "1"},
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("Exit: no CUDA device: torch finds none")
    assert "Traceback" not in done.stderr + done.stdout


def test_the_gpu_tests_are_right_over_the_twin():
    """All of the bodies, through the native thread and with one dtype, so that it stays short: torch's
    streams are nothing on the CPU, and the other dtypes are shown elsewhere."""
    done = subprocess.run(
        [
            *[sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"],
            *["tests/gpu", "-k", "not streams and not float16 and not minmax and not half"],
        ],
        cwd=PACKAGE_ROOT,
        capture_output=True,
        text=True,
        timeout=HANG,
        env={**os.environ, "FASTLOADER_GPU_TESTS": "twin", "FASTLOADER_SOAK_SECONDS": "0.3"},
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    if importlib.util.find_spec("torchvision"):
        assert " skipped" not in done.stdout
    else:
        assert skipped
        assert all(line.endswith("torchvision is not installed") for line in skipped)
