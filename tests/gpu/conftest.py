"""Tests that need a CUDA GPU. Skipped in one line where there is none; FASTLOADER_REQUIRE_CUDA=1
turns every skip into a failure. FASTLOADER_GPU_TESTS=twin rehearses them: the same bodies over the host
twin, but for those marked `cuda_only`. With FASTLOADER_TEST_CUDA=emulated as well, the CUDA backend on
the emulated runtime is in the twin's place."""

import os
import sys
from pathlib import Path

import pytest
import torch

# Helpers are shared with the Python tests; pyproject.toml says so too when run from the root.
HERE = Path(__file__).resolve().parent
for _helpers in (str(HERE.parent / "support"), str(HERE)):
    if _helpers not in sys.path:
        sys.path.append(_helpers)

import emulated_cuda  # noqa: E402
from devices import Cuda, Twin, rehearsing  # noqa: E402
from ways import EMULATED  # noqa: E402

from support import nothing_left_running, running  # noqa: E402

if EMULATED:
    emulated_cuda.require()

_FAILED = pytest.StashKey[bool]()


def missing():
    if not torch.cuda.is_available():
        return "no CUDA device: torch finds none"
    from fastloader._core.machine import devices

    problem = devices.native_cuda_problem()
    return f"no CUDA device: native CUDA cannot be used: {problem}" if problem else ""


def pytest_configure(config):
    config.addinivalue_line("markers", "cuda_only: not for the rehearsal on the twin")
    config.addinivalue_line(
        "markers", "two_devices: needs a second GPU; left out where there is one"
    )
    asked_for = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    if all(path.is_relative_to(HERE) for path in asked_for) and required() and not rehearsing():
        if missing():  # said once, not by every test
            pytest.exit(f"{missing()} (FASTLOADER_REQUIRE_CUDA=1)", returncode=1)


def pytest_collection_modifyitems(config, items):
    mine = [item for item in items if HERE in item.path.parents]
    for item in mine:
        item.add_marker("gpu")
    # Left out, not skipped: nothing that this machine could show is missing then.
    unfit = [item for item in mine if not fits(item)]
    if mine and not rehearsing() and missing() and not required():
        unfit = mine[1:]  # one of them says why; the others would only repeat it
    left_out = {id(item) for item in unfit}
    config.hook.pytest_deselected(items=unfit)
    items[:] = [item for item in items if id(item) not in left_out]


def fits(item):
    if item.get_closest_marker("cuda_only") and rehearsing():
        return False
    if item.get_closest_marker("two_devices"):
        return not rehearsing() and torch.cuda.device_count() > 1
    return True


def required():
    return os.environ.get("FASTLOADER_REQUIRE_CUDA") == "1"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.skipped and required() and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"FASTLOADER_REQUIRE_CUDA=1 allows no skip: {call.excinfo.value}"
    if call.when == "call":
        item.stash[_FAILED] = report.failed
    return report


@pytest.fixture(scope="session", autouse=True)
def _device_present():
    if not rehearsing() and missing():
        pytest.skip(missing())


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    for name in ("FASTLOADER_BACKEND", "FASTLOADER_NATIVE", "FASTLOADER_FORCE_ISA"):
        monkeypatch.delenv(name, raising=False)
    # How long torch waits for each worker of an iterator that died in a reference cycle.
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.3)


@pytest.fixture(autouse=True)
def _nothing_left(request, _plain_environment):
    """No thread of ours and no child process outlives a test, nor does a failure of the device."""
    before = running()
    misuses = emulated_cuda.misuses() if EMULATED else None
    yield
    if EMULATED:
        assert emulated_cuda.misuses() == misuses
    if not rehearsing():
        torch.cuda.synchronize()
    if not request.node.stash.get(_FAILED, False):
        nothing_left_running(before)


@pytest.fixture
def gpu(monkeypatch):
    """The device under test. Without `way`, the native prefetch thread serves it."""
    made = Twin() if rehearsing() else Cuda()
    monkeypatch.setenv("FASTLOADER_BACKEND", made.backends["native"])
    return made


@pytest.fixture(params=["native", "streams"])
def way(request, monkeypatch, gpu):
    """The native prefetch thread, and torch's own streams."""
    monkeypatch.setenv("FASTLOADER_BACKEND", gpu.backends[request.param])
    return request.param
