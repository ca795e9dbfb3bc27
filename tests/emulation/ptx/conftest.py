"""Tests that run the kernels' PTX without a GPU; README.md says how. They need the CUDA compiler:
without FASTLOADER_CUDA_TOOLS they are skipped in one line, with FASTLOADER_REQUIRE_PTX=1 they fail then.
FASTLOADER_LONG=1 runs the whole, else a sample that FASTLOADER_PTX_SEED chooses."""

import os
import sys
import zlib
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.append(str(HERE))

from kernel_build import missing_tools  # noqa: E402

if not missing_tools():
    import numpy as np
    from comparison import Comparison
    from interpreted_device import InterpretedDevice
    from kernel_build import build

_FIGURES = pytest.StashKey[dict]()
_DEVICE = pytest.StashKey[object]()


def whole():
    return os.environ.get("FASTLOADER_LONG") == "1"


def seed():
    return int(os.environ.get("FASTLOADER_PTX_SEED", "1"))


def pytest_configure(config):
    config.stash[_FIGURES] = {}
    if missing_tools() and os.environ.get("FASTLOADER_REQUIRE_PTX") == "1":
        pytest.exit(f"{missing_tools()} (FASTLOADER_REQUIRE_PTX=1)", returncode=1)


def pytest_collection_modifyitems(config, items):
    mine = [item for item in items if HERE in item.path.parents]
    if not mine or not missing_tools():
        return
    mine[0].add_marker(pytest.mark.skip(reason=missing_tools()))
    left_out = {id(item) for item in mine[1:]}  # the first one says why
    config.hook.pytest_deselected(items=mine[1:])
    items[:] = [item for item in items if id(item) not in left_out]


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # the processes of one run share it
    return build(Path(os.environ.get("FASTLOADER_PTX_BUILD", base)))


@pytest.fixture(scope="session")
def device(request, built):
    made = InterpretedDevice(built)
    request.config.stash[_DEVICE] = made
    return made


@pytest.fixture(scope="session")
def comparison(request, device):
    made = Comparison(device, whole())
    yield made
    request.config.stash[_FIGURES].update(made.counts)


@pytest.fixture
def rng(request):
    """Of the seed and the test's name: the order of the tests changes nothing."""
    return np.random.default_rng([seed(), zlib.crc32(request.node.name.encode())])


@pytest.fixture
def share(rng):
    """All of the cases in the whole, `count` of them by chance in the sample."""

    def chosen(cases, count):
        cases = list(cases)
        if whole() or count >= len(cases):
            return cases
        return [cases[i] for i in sorted(rng.choice(len(cases), count, replace=False))]

    return chosen


@pytest.fixture
def many():
    """A number for the whole and one for the sample."""
    return lambda in_whole, in_sample: in_whole if whole() else in_sample


# ---- What the run said: with xdist each worker tells its own part


def pytest_report_header():
    return f"PTX: {'the whole' if whole() else 'a sample'}, FASTLOADER_PTX_SEED={seed()}"


def pytest_sessionfinish(session):
    figures = session.config.stash[_FIGURES]
    device = session.config.stash.get(_DEVICE, None)
    if device is not None:
        figures["launches"] = sum(device.launches.values())
        figures["values"] = device.values
        figures["kernels"] = sorted({name for _, name in device.launches})
        figures["registered"] = len(device.registered)
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["ptx"] = figures


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    figures = node.config.stash[_FIGURES]
    for name, value in getattr(node, "workeroutput", {}).get("ptx", {}).items():
        if name == "kernels":
            figures[name] = sorted({*figures.get(name, ()), *value})
        elif name == "registered":
            figures[name] = value
        else:
            figures[name] = figures.get(name, 0) + value


def pytest_terminal_summary(terminalreporter, config):
    figures = config.stash[_FIGURES]
    if "launches" in figures:
        terminalreporter.write_line(
            f"PTX: {len(figures['kernels'])} of {figures['registered']} kernels, "
            f"{figures['launches']} launches, {figures['values']} values, "
            f"{figures.get('comparisons', 0)} comparisons, {figures.get('mismatches', 0)} mismatches"
        )
