"""Fixtures: the ways to run, and what every test must leave behind: nothing."""

import contextlib
import faulthandler
import functools
import os
import sys
import tempfile

import emulated_cuda
import pytest
import torch
from slow_storage import Unavailable, mounted
from ways import EMULATED, STRICT, TEST_DEVICE, TEST_VARIABLE, WAYS

from support import HANG, MEAN, STD, nothing_left_running, running

# FASTLOADER_TEST_WITHOUT=torchvision,timm: as if these were not installed, to see on a machine that has
# them what happens on one that has not. The tests are imported after this file.
for _name in filter(None, os.environ.get("FASTLOADER_TEST_WITHOUT", "").split(",")):
    sys.modules[_name] = (
        None  # import and find_spec() then answer as for a package that is not there
    )

TEST_HANGS = HANG + 60  # seconds; a program that it waits for is ended first, and says more

_NAMES = ["twin"] if EMULATED else list(WAYS)  # the others make no call into CUDA

if EMULATED:
    emulated_cuda.require()

_uncaptured = sys.__stderr__
_FAILED = pytest.StashKey[bool]()


def pytest_configure():
    global _uncaptured
    _uncaptured = os.fdopen(os.dup(2), "w")
    if TEST_DEVICE.startswith("cuda") and not torch.cuda.is_available():
        pytest.exit(f"no CUDA device: torch finds none ({TEST_VARIABLE}={TEST_DEVICE})", 1)


def _enter(way, monkeypatch):
    for name in ("FASTLOADER_BACKEND", "FASTLOADER_NATIVE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in way.env.items():
        if name not in STRICT:  # this process goes on after a misuse: _no_misuse tells of it
            monkeypatch.setenv(name, value)
    if TEST_DEVICE and way.path != "cpu":
        _deliver_to(TEST_DEVICE, monkeypatch)
    return way


def _deliver_to(device, monkeypatch):
    from fastloader._core.batch.tree import flatten, unflatten
    from fastloader._core.delivery.engine_path import EngineIterator
    from fastloader._core.delivery.streams import StreamIterator
    from fastloader._core.machine import devices

    resolve = devices.resolve_device
    place = resolve(device)

    def resolve_there(asked):
        resolved = resolve(asked)
        return place if resolved is not None and resolved.type == "cpu" else resolved

    def on_cpu(value):
        # Nothing else: the tests' own objects count how often they are moved.
        tensors = isinstance(value, torch.Tensor | torch.nn.utils.rnn.PackedSequence)
        return value.to("cpu") if tensors else value

    monkeypatch.setattr(devices, "resolve_device", resolve_there)
    for kind in (EngineIterator, StreamIterator):

        def bring_back(iterator, advance=kind.__next__):
            tree = flatten(advance(iterator))
            return unflatten(tree.template, tree.leaves, on_cpu)

        monkeypatch.setattr(kind, "__next__", bring_back)


@pytest.fixture(params=_NAMES)
def way(request, monkeypatch):
    """The test runs once for each way."""
    return _enter(WAYS[request.param], monkeypatch)


@pytest.fixture(params=_NAMES if EMULATED else ["none", *_NAMES])
def fast(request, monkeypatch):
    """Makes FastLoaders, for comparison with DataLoader: without delivery ("none"), and with it in
    each way, where uint8 batches of four dimensions arrive normalised."""
    from fastloader import FastLoader

    if request.param == "none":
        make = functools.partial(FastLoader)
        make.way = "none"
        return make
    if request.param == "pure" and request.node.callspec.params.get("workers"):
        pytest.skip("behind workers, as on the CPU path")
    way = _enter(WAYS[request.param], monkeypatch)
    make = functools.partial(FastLoader, **way.options, mean=MEAN, std=STD)
    make.way = way.name
    return make


@pytest.fixture
def twin(monkeypatch):
    """The test is about the native ring and prefetch thread."""
    return _enter(WAYS["twin"], monkeypatch)


@pytest.fixture
def enter_way(monkeypatch):
    """``enter_way("pure")`` switches in the middle of a test."""
    return lambda name: _enter(WAYS[name], monkeypatch)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    for name in ("FASTLOADER_BACKEND", "FASTLOADER_NATIVE", "FASTLOADER_FORCE_ISA"):
        monkeypatch.delenv(name, raising=False)
    # Every epoch of a loader with distributed= ends in an error if samples were lost or doubled.
    monkeypatch.setenv("FASTLOADER_AUDIT", "1")


@pytest.fixture(autouse=True)
def _quick_shutdown(monkeypatch):
    """Torch waits this long, 5 s otherwise, for each worker of an iterator that died in a reference
    cycle, such as the one in the traceback of every error from a worker."""
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.3)


@pytest.fixture(autouse=True)
def _hang_guard():
    """A hang prints every thread's stack and ends the run."""
    faulthandler.dump_traceback_later(TEST_HANGS, exit=True, file=_uncaptured)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def _no_misuse():
    """Nothing that the test did is forbidden to a CUDA program."""
    before = emulated_cuda.misuses() if EMULATED else None
    yield
    if EMULATED:
        assert emulated_cuda.misuses() == before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "call":
        item.stash[_FAILED] = report.failed
    return report


@pytest.fixture(scope="session", autouse=True)
def _rays_folder():
    """Ray notes in its folder which cluster there is, and connects to that one: tests that run at the
    same time have a folder each. Its name is short, since it becomes part of the names of sockets."""
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        os.environ["RAY_TMPDIR"] = folder
        yield
        del os.environ["RAY_TMPDIR"]


@pytest.fixture(autouse=True)
def _nothing_left(request, _hang_guard, _quick_shutdown):
    """No thread of ours and no child process outlives a test."""
    before, state = running(), torch.get_rng_state()
    yield
    torch.set_rng_state(state)
    # The traceback of a failed test keeps its loaders alive.
    if not request.node.stash.get(_FAILED, False):
        nothing_left_running(before)


@pytest.fixture
def slow(tmp_path):
    """A folder, and how a slow storage shows it: (folder, `SlowStorage`)."""
    folder = tmp_path / "stored"
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        try:
            storage = stack.enter_context(mounted(folder))
        except Unavailable as error:
            pytest.skip(f"no slow storage: {error}")
        yield folder, storage
